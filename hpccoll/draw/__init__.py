"""Descriptions and drawings of schedules: rounds in text, the state of the buffers as a table, and pictures."""

from hpccoll.draw.picture import draw, picture
from hpccoll.draw.schedule_text import describe
from hpccoll.draw.schedule_view import ScheduleView, view_of

__all__ = ["ScheduleView", "describe", "draw", "picture", "view_of"]
