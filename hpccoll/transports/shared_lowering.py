"""What the lowerings for MPI and NCCL share: the steps of a rank, and where their parts lie in its buffers."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, chain, pairwise
from typing import Any

from hpccoll.schedule import Part, Step
from hpccoll.schedule.operation import Operation
from hpccoll.schedule.step import Range, drop_null_peers, parts_of


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


class Lowering:
    """The steps of a rank on named buffers: src, dst, and the algorithm's own, tmp.

    Attributes:
        slice_steps: the steps of each slice.
        tmp_length: the length of tmp in elements.
    """

    def __init__(self, me: int, operation: Operation) -> None:
        self.me, self.operation = me, operation
        slices = map(operation.lane_schedule, range(len(operation.slices)))
        self.slice_steps = [[*map(drop_null_peers, schedule.steps(me))] for schedule in slices]
        self.tmp_length = self._tmp_length()
        self._element_ranges = cache(operation.cut.spans)

    def _tmp_length(self) -> int:
        actions = (action for step in chain.from_iterable(self.slice_steps) for action in step.actions)
        named = [part for action in actions for part in parts_of(action) if part.buffer == "tmp"]
        blocks = max((int(r.last) for part in named for r in part.ranges), default=0)
        divisible = self.operation.collective.units == "divisible"
        return (1 if named and divisible else blocks) * self.operation.count

    def steps(self, lane: int) -> list[Step]:
        """Return the steps of a lane."""
        return self.slice_steps[lane % len(self.slice_steps)]

    def spans(self, lane: int, *parts: Part) -> list[Span]:
        """Return the spans of parts at this rank, one part after the other."""
        return [Span(part.buffer, a, b) for part in parts for a, b in self._element_ranges(lane, self.me, part)]

    def overlapping(self, lane: int, step: Step) -> set[int]:
        """Return the indices of the actions that overlap another action of the step, and so need staging."""
        actions = [self.spans(lane, *parts_of(action)) for action in step.actions]
        bounds = _sorted_bounds([*chain.from_iterable(actions)])
        return {
            number
            for number, own in enumerate(actions)
            if _count_overlaps(own, bounds) > _count_overlaps(own, _sorted_bounds(own))
        }

    def averaged(self, lane: int) -> list[Span]:
        """Return the spans that this rank divides by the number of workers after the last step of a lane."""
        if not self.operation.reduction.averages or self.me >= self.operation.layout.workers:
            return []
        units = self.operation.call.target(self.me, self.operation.cut.units)
        return self.spans(lane, Part("dst", (Range(units.start, units.stop),)))


def overlap(some: Sequence[Span], others: Sequence[Span]) -> bool:
    """Return whether any of the spans share an element with any of the others."""
    return _count_overlaps(some, _sorted_bounds(others)) > 0


def _sorted_bounds(spans: Sequence[Span]) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    return sorted((s.buffer, s.start) for s in spans), sorted((s.buffer, s.stop) for s in spans)


def _count_overlaps(spans: Sequence[Span], bounds: tuple[list[tuple[str, int]], list[tuple[str, int]]]) -> int:
    """Return the number of overlaps between ``spans`` and those with the sorted ``bounds``."""
    starts, stops = bounds
    return sum(bisect_left(starts, (s.buffer, s.stop)) - bisect_right(stops, (s.buffer, s.start)) for s in spans)


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
