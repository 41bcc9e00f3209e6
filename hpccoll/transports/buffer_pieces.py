"""Pieces: where the parts of a step lie in the buffers of a rank, and which of them have elements in common."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from typing import Any, TypeAlias

from hpccoll.schedule import Copy, Cut, Part, RecvReduce, Send, Step

ElementIndex: TypeAlias = tuple[str, int]
"""An element of a buffer."""

Piece: TypeAlias = tuple[ElementIndex, ElementIndex]


@dataclass(frozen=True, slots=True)
class Span:
    """The elements [start, stop) of a buffer of this rank."""

    buffer: str
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def __getitem__(self, elements: slice) -> "Span":
        return Span(self.buffer, self.start + elements.start, self.start + elements.stop)

    def overlaps(self, other: "Span") -> bool:
        """Return whether the two have an element in common."""
        return self.buffer == other.buffer and self.start < other.stop and other.start < self.stop


def written_parts(step: Step) -> list[Part]:
    """Return the parts that arrivals and copies of a step write at this rank."""
    return [a.target if isinstance(a, Copy) else a.part for a in step.actions if not isinstance(a, Send)]


def accessed_parts(step: Step) -> Iterator[Part]:
    """Yield every part that a step reads or writes at this rank."""
    for action in step.actions:
        if isinstance(action, Copy):
            yield from (action.source, action.target)
        else:
            yield action.part
            if isinstance(action, RecvReduce):
                yield action.operand


def workspace_elements(steps: Iterable[Step], cut: Cut, count: int) -> int:
    """Return the elements of an algorithm's own buffer: divisible units: like dst; else as many blocks as it names."""
    named = [part for step in steps for part in accessed_parts(step) if part.buffer == "tmp"]
    blocks = max((int(r.last) for part in named for r in part.ranges), default=0)
    return (1 if named and cut.call.collective.units == "divisible" else blocks) * count


def sorted_bounds(pieces: Iterable[Piece]) -> tuple[list[ElementIndex], list[ElementIndex]]:
    """Return where pieces start, and where they stop, each in order."""
    both = [*pieces]
    return sorted(start for start, _ in both), sorted(stop for _, stop in both)


def count_overlaps(pieces: Sequence[Piece], starts: list[ElementIndex], stops: list[ElementIndex]) -> int:
    """Return how often ``pieces`` overlap those that have the ``starts`` and ``stops``."""
    return sum(bisect_left(starts, stop) - bisect_right(stops, start) for start, stop in pieces)


def overlapping_actions(actions: Sequence[Sequence[Piece]]) -> set[int]:
    """Return the places of actions, each given by its pieces, that have elements in common with another one."""
    everyone = sorted_bounds(chain.from_iterable(actions))
    return {
        at
        for at, mine in enumerate(actions)
        if count_overlaps(mine, *everyone) > count_overlaps(mine, *sorted_bounds(mine))
    }


def align_pieces(*lists: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """Cut lists of views (arrays, spans) that describe equally many elements into pieces that are one in each list."""
    bounds = [list(accumulate(map(len, views))) for views in lists]
    for start, stop in pairwise(sorted({0, *chain.from_iterable(bounds)})):
        yield tuple(_piece(views, of, start, stop) for views, of in zip(lists, bounds, strict=True))


def _piece(views: Sequence[Any], bounds: list[int], start: int, stop: int) -> Any:
    """Return the elements [start, stop) of ``views`` joined, which lie in the one of them that ends behind start."""
    at = bisect_right(bounds, start)
    begin = bounds[at] - len(views[at])
    return views[at][start - begin : stop - begin]
