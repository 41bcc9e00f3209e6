"""Descriptions and drawings of schedules: rounds in text, the state of the buffers as a table, and pictures."""

from hpccoll.draw.picture import draw, picture
from hpccoll.draw.schedule_text import describe, round_and_buffer_lines
from hpccoll.draw.schedule_view import ScheduleView, UnprovenScheduleError, view_of

__all__ = [
    "ScheduleView",
    "UnprovenScheduleError",
    "describe",
    "draw",
    "picture",
    "round_and_buffer_lines",
    "view_of",
]
