"""The picture of what happens when: a line for each rank, time downwards, an arrow for each message."""

from collections.abc import Sequence

from hpccoll.draw.arrows import arrows
from hpccoll.draw.background import Grid, ground, heads, homes
from hpccoll.draw.labels import labels
from hpccoll.draw.shapes import Mark
from hpccoll.draw.style import Looks
from hpccoll.draw.trace import Story


def spacetime(stories: Sequence[Story], grid: Grid, looks: Looks) -> list[Mark]:
    """Return the diagram of all slices, one over the other."""
    drawn = [arrow for number, story in enumerate(stories) for arrow in arrows(story, number, grid, looks)]
    pieces = [piece for arrow in drawn for piece in arrow.pieces]
    return [*ground(grid), *pieces, *heads(grid), *homes(grid), *labels(drawn, grid)]
