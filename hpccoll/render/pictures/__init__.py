"""Descriptions and drawings of schedules: rounds in text, the state of the buffers as a table, and pictures."""

from hpccoll.render.pictures.picture import draw, picture
from hpccoll.render.pictures.schedule_text import describe, round_and_buffer_lines
from hpccoll.render.pictures.schedule_view import ScheduleView, UnprovenScheduleError, view_of

__all__ = [
    "ScheduleView",
    "UnprovenScheduleError",
    "describe",
    "draw",
    "picture",
    "round_and_buffer_lines",
    "view_of",
]
