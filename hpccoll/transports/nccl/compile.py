"""Compile for NCCL: the steps of one rank turned into stages, a group of messages and then the folds that it allows.

The lanes of an operation are dealt to sequences as over MPI: those of a sequence follow one another. All sequences
share the groups, which are numbered by logical time (timetable.py); those that go round more than once start one group
after the other, so that a rank of a pipeline receives in one while it passes on in another.

A message has as many pieces as it takes for each to be contiguous at both of its ends, which the ranks tell each other.
Arrivals that are to be folded, or that land on what their own step still needs, go to scratch.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, zip_longest
from typing import NamedTuple, TypeAlias

from hpccoll.schedule import Copy, Part, Recv, RecvReduce, Send, Step
from hpccoll.schedule.step import Range, drop_null_peers
from hpccoll.transports.buffer_pieces import (
    Piece,
    Span,
    accessed_parts,
    align_pieces,
    count_overlaps,
    overlapping_actions,
    sorted_bounds,
    workspace_elements,
)
from hpccoll.transports.nccl.fold import Fold, fold_waves
from hpccoll.transports.nccl.message_times import message_times
from hpccoll.transports.operation import Operation

PieceLengths: TypeAlias = list[tuple[int, tuple[int, ...]]]
"""Of messages between two ranks, the group of each and the elements of its pieces."""


class Proposal(NamedTuple):
    """What a rank tells another: what the operation is, what it sends it and what it expects of it."""

    what: str
    sends: PieceLengths
    expects: PieceLengths


@dataclass(frozen=True, slots=True)
class NcclMessage:
    """A piece of a message of this rank, contiguous at both ends."""

    sends: bool
    peer: int
    span: Span


@dataclass(slots=True)
class Stage:
    """A group of messages, and then the waves of moves that follow it."""

    messages: list[NcclMessage] = field(default_factory=list)
    waves: list[list[Fold]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _PendingMessage:
    """A message as this rank sees it."""

    time: int
    sends: bool
    peer: int
    spans: list[Span]

    @property
    def proposal(self) -> tuple[int, tuple[int, ...]]:
        return self.time, tuple(map(len, self.spans))


class NcclCompiler:
    """Turns the steps of a rank into stages on named buffers: src, dst, tmp and the scratch of each sequence.

    Args:
        me: the rank.
        operation: what to do.
    """

    def __init__(self, me: int, operation: Operation) -> None:
        self.me, self.operation = me, operation
        slices = map(operation.lane_schedule, range(len(operation.schedules)))
        self.slices = [[*map(drop_null_peers, schedule.steps(me))] for schedule in slices]
        self.spans = cache(operation.cut.spans)
        self.room = {"tmp": workspace_elements(chain.from_iterable(self.slices), operation.cut, operation.count)}
        window = max(1, min(operation.window * len(self.slices), operation.lanes))
        self.sequences = [_Sequence(self, first, window) for first in range(window)]
        self.room |= {sequence.scratch: sequence.room for sequence in self.sequences}
        drafts = chain.from_iterable(sequence.drafts for sequence in self.sequences)
        self.drafts = sorted(drafts, key=lambda draft: draft.time)  # stable: sequence by sequence, then as listed

    @property
    def what(self) -> str:
        of = self.operation
        return f"{of.collective.name} {of.count} {of.dtype} {of.reduction.name}"

    def proposals(self) -> list[Proposal]:
        """Return what to tell each rank."""
        said = [Proposal(self.what, [], []) for _ in range(self.operation.layout.ranks)]
        for draft in self.drafts:
            (said[draft.peer].sends if draft.sends else said[draft.peer].expects).append(draft.proposal)
        return said

    def mismatched_peers(self, theirs: Sequence[Proposal]) -> list[int]:
        """Return the ranks that say they send what this one does not expect, by what they told it."""
        mine = self.proposals()
        return [
            peer
            for peer, told in enumerate(theirs)
            if (told.what, _total_lengths(told.sends)) != (self.what, _total_lengths(mine[peer].expects))
        ]

    def stages(self, theirs: Sequence[Proposal]) -> list[Stage]:
        """Return the stages, for ranks that told what fits together: none of them is strange to any other."""
        told = {(True, peer): iter(of.expects) for peer, of in enumerate(theirs)}
        told |= {(False, peer): iter(of.sends) for peer, of in enumerate(theirs)}
        stages: dict[int, Stage] = defaultdict(Stage)
        for draft in self.drafts:
            _, lengths = next(told[draft.sends, draft.peer])
            cuts = [Span("", 0, length) for length in lengths]
            stages[draft.time].messages += [
                NcclMessage(draft.sends, draft.peer, span) for span, _ in align_pieces(draft.spans, cuts)
            ]
        for time in sorted({time for sequence in self.sequences for time in sequence.moves}):
            found = [fold_waves(sequence.moves[time]) for sequence in self.sequences if time in sequence.moves]
            stages[time].waves = [[*chain.from_iterable(level)] for level in zip_longest(*found, fillvalue=[])]
        return [stages[time] for time in sorted(stages)]


class _Sequence:
    """Lanes that follow one another, every ``window``-th from ``first`` on."""

    def __init__(self, compiler: NcclCompiler, first: int, window: int) -> None:
        self.compiler, self.operation, self.me = compiler, compiler.operation, compiler.me
        self.scratch, self.room = f"scratch {first}", 0
        self.drafts: list[_PendingMessage] = []
        self.moves: dict[int, list[Fold]] = defaultdict(list)
        lanes, slices = range(first, self.operation.lanes, window), compiler.slices
        which = first % len(slices)
        self.times = message_times(self.operation.schedules[which], len(lanes), self.me)
        delay = first // len(slices) if self.operation.lanes > window else 0
        now = delay - 1
        for lane in lanes:
            for step in slices[which]:
                now = self._step(lane, step, now, delay)
            self.moves[now] += self._scaling(lane)
        self.moves = {time: moves for time, moves in self.moves.items() if moves}

    def _step(self, lane: int, step: Step, now: int, delay: int) -> int:
        """Compile a step that follows what is there after group ``now``, and return the group that it ends with."""
        times = [delay + self.times[isinstance(a, Send), int(a.peer)].popleft() for a in _messages(step)]
        end, of = max(times, default=now), iter(times)
        used, common = (
            0,
            overlapping_actions([self._pieces(lane, *accessed_parts(Step(action))) for action in step.actions]),
        )
        for place, action in enumerate(step.actions):
            target = self._spans(lane, action.target if isinstance(action, Copy) else action.part)
            time = now if isinstance(action, Copy) else next(of)
            if not target:
                continue
            if isinstance(action, Send):
                self.drafts.append(_PendingMessage(time, True, int(action.peer), target))
                continue
            source = self._spans(lane, action.source) if isinstance(action, Copy) else []
            staged = place in common or (self._meets(source, target) if source else isinstance(action, RecvReduce))
            arrival = target
            if staged:
                room, used = self._stage(target, used)
                arrival = [room]
            if isinstance(action, Copy):
                self.moves[now] += (
                    [Fold(room, (span,)) for room, span in align_pieces(arrival, source)] if staged else []
                )
                arrival = arrival if staged else source
            else:
                self.drafts.append(_PendingMessage(time, False, int(action.peer), arrival))
            if isinstance(action, RecvReduce):
                own = self._spans(lane, action.operand)
                self.moves[end] += [
                    Fold(out, (mine, theirs)) for out, mine, theirs in align_pieces(target, own, arrival)
                ]
            elif arrival is not target:
                self.moves[end] += [Fold(out, (theirs,)) for out, theirs in align_pieces(target, arrival)]
        self.room = max(self.room, used)
        return end

    def _stage(self, target: list[Span], used: int) -> tuple[Span, int]:
        """Return room in scratch behind ``used``, aligned as the target is, so that vectors of both lie alike."""
        grain = self.operation.cut.grain
        start = used + (target[0].start - used) % grain
        stop = start + sum(map(len, target))
        return Span(self.scratch, start, stop), stop

    def _scaling(self, lane: int) -> list[Fold]:
        """Return the last moves of an average: the lane's sum over p."""
        workers = self.operation.layout.workers
        if not self.operation.reduction.averages or self.me >= workers:
            return []
        units = self.operation.call.target(self.me, self.operation.cut.units)
        spans = self._spans(lane, Part("dst", (Range(units.start, units.stop),)))
        return [Fold(span, (span,), workers) for span in spans]

    def _spans(self, lane: int, part: Part) -> list[Span]:
        return [Span(part.buffer, a, b) for a, b in self.compiler.spans(lane, self.me, part)]

    def _pieces(self, lane: int, *of: Part) -> list[Piece]:
        return [_piece(span) for part in of for span in self._spans(lane, part)]

    @staticmethod
    def _meets(source: list[Span], target: list[Span]) -> bool:
        return bool(count_overlaps([*map(_piece, source)], *sorted_bounds(map(_piece, target))))


def _piece(span: Span) -> Piece:
    return (span.buffer, span.start), (span.buffer, span.stop)


def _messages(step: Step) -> Iterator[Send | Recv | RecvReduce]:
    return (action for action in step.actions if not isinstance(action, Copy))


def _total_lengths(said: PieceLengths) -> list[tuple[int, int]]:
    return [(time, sum(lengths)) for time, lengths in said]
