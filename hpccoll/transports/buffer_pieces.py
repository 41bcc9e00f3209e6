"""Pieces of buffers: the element ranges of a step's parts at one rank, and how they overlap."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from typing import Any, TypeAlias

from hpccoll.schedule import Copy, Cut, Part, RecvReduce, Send, Step

ElementIndex: TypeAlias = tuple[str, int]
"""The name of a buffer, and the index of an element."""

Piece: TypeAlias = tuple[ElementIndex, ElementIndex]
"""A contiguous range of elements: the first, and the one after the last."""


@dataclass(frozen=True, slots=True)
class Span:
    """The elements [start, stop) of a named buffer."""

    buffer: str
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def __getitem__(self, elements: slice) -> "Span":
        return Span(self.buffer, self.start + elements.start, self.start + elements.stop)

    def overlaps(self, other: "Span") -> bool:
        """Return whether both contain an element."""
        return self.buffer == other.buffer and self.start < other.stop and other.start < self.stop


def written_parts(step: Step) -> list[Part]:
    """Return the parts that the receives and copies of a step write at this rank."""
    return [a.target if isinstance(a, Copy) else a.part for a in step.actions if not isinstance(a, Send)]


def accessed_parts(step: Step) -> Iterator[Part]:
    """Yield all parts that a step reads or writes at this rank."""
    for action in step.actions:
        if isinstance(action, Copy):
            yield from (action.source, action.target)
        else:
            yield action.part
            if isinstance(action, RecvReduce):
                yield action.operand


def workspace_elements(steps: Iterable[Step], cut: Cut, count: int) -> int:
    """Return the length of an algorithm's buffer ``tmp`` in elements.

    Args:
        steps: the steps of this rank.
        cut: the cut of the buffers into units.
        count: the elements of the whole buffer (divisible units), or of one block (per-rank units).
    """
    named = [part for step in steps for part in accessed_parts(step) if part.buffer == "tmp"]
    blocks = max((int(r.last) for part in named for r in part.ranges), default=0)
    return (1 if named and cut.call.collective.units == "divisible" else blocks) * count


def sorted_bounds(pieces: Iterable[Piece]) -> tuple[list[ElementIndex], list[ElementIndex]]:
    """Return the starts and the stops of pieces, each list sorted."""
    both = [*pieces]
    return sorted(start for start, _ in both), sorted(stop for _, stop in both)


def count_overlaps(pieces: Sequence[Piece], starts: list[ElementIndex], stops: list[ElementIndex]) -> int:
    """Return the number of overlaps between ``pieces`` and the pieces with the sorted ``starts`` and ``stops``."""
    return sum(bisect_left(starts, stop) - bisect_right(stops, start) for start, stop in pieces)


def overlapping_actions(actions: Sequence[Sequence[Piece]]) -> set[int]:
    """Return the indices of the actions, each given by its pieces, that overlap another action."""
    bounds = sorted_bounds(chain.from_iterable(actions))
    return {
        number
        for number, own in enumerate(actions)
        if count_overlaps(own, *bounds) > count_overlaps(own, *sorted_bounds(own))
    }


def align_pieces(*lists: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """Yield the views (arrays or spans) of lists of equal total length, cut so that each piece is contiguous in all."""
    bounds = [list(accumulate(map(len, views))) for views in lists]
    for start, stop in pairwise(sorted({0, *chain.from_iterable(bounds)})):
        yield tuple(_piece(views, of, start, stop) for views, of in zip(lists, bounds, strict=True))


def _piece(views: Sequence[Any], bounds: list[int], start: int, stop: int) -> Any:
    """Return the elements [start, stop) of the concatenated ``views``; all of them are in one view."""
    at = bisect_right(bounds, start)
    begin = bounds[at] - len(views[at])
    return views[at][start - begin : stop - begin]
