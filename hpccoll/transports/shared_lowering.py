"""What the lowerings for MPI and NCCL share: the steps of a rank, and where their parts lie in its buffers."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, chain, pairwise
from typing import Any

from hpccoll.schedule import Copy, CopyReduce, Part, Recv, Send, Step
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
        self.me = me
        self.operation = operation
        slices = map(operation.lane_schedule, range(len(operation.slices)))
        self.slice_steps = [list(map(drop_null_peers, schedule.steps(me))) for schedule in slices]
        self.tmp_length = self._tmp_length()
        self._element_ranges = cache(operation.cut.spans)

    def _tmp_length(self) -> int:
        steps = chain.from_iterable(self.slice_steps)
        parts = [part for step in steps for action in step.actions for part in parts_of(action)]
        ranges = [part.ranges for part in parts if part.buffer == "tmp"]
        if ranges and self.operation.collective.units == "divisible":
            return self.operation.count
        blocks = max((int(r.last) for r in chain.from_iterable(ranges)), default=0)
        return blocks * self.operation.count

    def steps(self, lane: int) -> list[Step]:
        """Return the steps of a lane."""
        return self.slice_steps[lane % len(self.slice_steps)]

    def spans(self, lane: int, *parts: Part) -> list[Span]:
        """Return the spans of parts at this rank, one part after the other."""
        spans: list[Span] = []
        for part in parts:
            spans += [
                Span(part.buffer, start, stop)
                for start, stop in self._element_ranges(lane, self.me, part)
            ]
        return spans

    def overlapping(self, lane: int, step: Step) -> set[int]:
        """Return the indices of the actions that overlap another action of the step, and so need staging.

        A receive and a local fold need none if only what comes after them in the list overlaps.
        """
        spans_of_actions = [self.spans(lane, *parts_of(action)) for action in step.actions]
        bounds = _sorted_bounds(list(chain.from_iterable(spans_of_actions)))
        overlapping = set()
        for number, spans in enumerate(spans_of_actions):
            with_itself = _count_overlaps(spans, _sorted_bounds(spans))
            if _count_overlaps(spans, bounds) > with_itself:
                overlapping.add(number)
        return {number for number in overlapping if not self._is_undisturbed(lane, step, number)}

    def _is_undisturbed(self, lane: int, step: Step, number: int) -> bool:
        """Return whether a receive, or a local fold, may use its part itself: nothing else does before its turn."""
        action = step.actions[number]
        earlier = Step(*step.actions[:number])
        if isinstance(action, CopyReduce):
            return not overlap(self.written(lane, earlier), self.spans(lane, action.source))
        if not isinstance(action, Recv):
            return False
        used = list(chain.from_iterable(map(parts_of, earlier.actions)))
        for later in step.actions[number + 1 :]:
            if isinstance(later, Send):
                used.append(later.part)
            elif isinstance(later, Copy):
                used.append(later.source)
        return not overlap(self.spans(lane, *used), self.spans(lane, action.part))

    def written(self, lane: int, step: Step) -> list[Span]:
        """Return the spans that a step writes at this rank."""
        parts = []
        for action in step.actions:
            if isinstance(action, Copy):
                parts.append(action.target)
            elif not isinstance(action, Send):
                parts.append(action.part)
        return self.spans(lane, *parts)

    def averaged(self, lane: int) -> list[Span]:
        """Return the spans that this rank divides by the number of workers after the last step of a lane."""
        if not self.operation.reduction.averages or self.me >= self.operation.layout.workers:
            return []
        units = self.operation.call.target(self.me, self.operation.cut.units)
        return self.spans(lane, Part("dst", (Range(units.start, units.stop),)))


def overlap(left: Sequence[Span], right: Sequence[Span]) -> bool:
    """Return whether any of the left spans shares an element with any of the right ones."""
    return _count_overlaps(left, _sorted_bounds(right)) > 0


def _sorted_bounds(spans: Sequence[Span]) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    starts = sorted((span.buffer, span.start) for span in spans)
    stops = sorted((span.buffer, span.stop) for span in spans)
    return starts, stops


def _count_overlaps(
    spans: Sequence[Span], bounds: tuple[list[tuple[str, int]], list[tuple[str, int]]]
) -> int:
    """Return the number of overlaps between ``spans`` and those with the sorted ``bounds``."""
    starts, stops = bounds
    overlaps = 0
    for span in spans:
        begin_before_its_end = bisect_left(starts, (span.buffer, span.stop))
        end_before_its_start = bisect_right(stops, (span.buffer, span.start))
        overlaps += begin_before_its_end - end_before_its_start
    return overlaps


def align_pieces(*lists: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """Yield the views (arrays or spans) of lists of equal total length, cut so that each piece is contiguous in all."""
    bounds = [list(accumulate(map(len, views))) for views in lists]
    for start, stop in pairwise(sorted({0, *chain.from_iterable(bounds)})):
        yield tuple(
            _piece(views, ends, start, stop) for views, ends in zip(lists, bounds, strict=True)
        )


def _piece(views: Sequence[Any], bounds: list[int], start: int, stop: int) -> Any:
    """Return the elements [start, stop) of the concatenated ``views``; all of them are in one view."""
    number = bisect_right(bounds, start)
    view = views[number]
    begin = bounds[number] - len(view)
    return view[start - begin : stop - begin]
