"""Draw: says a schedule in words, as a table of who holds what, and as a picture."""

from hpccoll.draw.picture import draw, picture
from hpccoll.draw.view import Subject, ask
from hpccoll.draw.words import describe

__all__ = ["Subject", "ask", "describe", "draw", "picture"]
