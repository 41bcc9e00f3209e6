"""The lowering of schedules for NCCL: it turns the steps of a rank into stages, each a group of messages and its folds.

The lanes of an operation are distributed over sequences as over MPI; the lanes of a sequence run
one after another. All sequences share the groups, which are numbered by logical time
(message_times.py). If sequences have several lanes each, channels start one group apart, so that a
rank of a pipeline receives for one channel while it forwards for another.

If an operation with a reduction has several channels in flight, each time has two groups, one for
the even and one for the odd channels: while the messages of one are transferred, the arrivals of
the other are folded (two_stream_plan.py).

A message is split into pieces that are contiguous on both ranks; the ranks exchange the lengths of
their pieces. Arrivals that are folded, or that would overwrite data which their step still reads,
are received into scratch.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from typing import NamedTuple, TypeAlias

from hpccoll.schedule import Copy, CopyReduce, RecvReduce, Send, Step
from hpccoll.schedule.operation import Operation
from hpccoll.transports.nccl.fold import Fold, fold_waves
from hpccoll.transports.nccl.message_times import message_times
from hpccoll.transports.shared_lowering import Lowering, Span, align_pieces, overlap

PieceLengths: TypeAlias = list[tuple[int, tuple[int, ...]]]
"""The messages between two ranks: the group of each, and the lengths of its pieces in elements."""


class Proposal(NamedTuple):
    """The message that a rank sends to each peer before its plan is made."""

    operation: str
    sends: PieceLengths  # the messages that this rank sends to the peer
    expects: PieceLengths  # the messages that it expects from the peer


@dataclass(frozen=True, slots=True)
class NcclMessage:
    """A piece of a message of this rank, contiguous on both ranks."""

    sends: bool
    peer: int
    span: Span


@dataclass(slots=True)
class Stage:
    """A group of messages, and the waves of folds that follow it."""

    messages: list[NcclMessage] = field(default_factory=list)
    waves: list[list[Fold]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _PendingMessage:
    """A message whose pieces are not yet agreed with the peer."""

    time: int
    sends: bool
    peer: int
    spans: list[Span]

    @property
    def proposal(self) -> tuple[int, tuple[int, ...]]:
        return self.time, tuple(map(len, self.spans))


class NcclLowering(Lowering):
    """Lowers the steps of a rank into stages on named buffers: src, dst, tmp and the scratch of each sequence."""

    def __init__(self, me: int, operation: Operation) -> None:
        super().__init__(me, operation)
        sequences = operation.sequences
        self.phases = (
            2 if len(sequences) > len(self.slice_steps) and operation.collective.has_op else 1
        )
        """The number of groups of each logical time."""
        self.sequences = [_Sequence(self, number, lanes) for number, lanes in enumerate(sequences)]
        self.lengths = {"tmp": self.tmp_length}
        for sequence in self.sequences:
            self.lengths[sequence.scratch] = sequence.scratch_length
        messages = chain.from_iterable(sequence.messages for sequence in self.sequences)
        # stable: by sequence, then as listed
        self.messages = sorted(messages, key=lambda message: message.time)

    def proposals(self) -> list[Proposal]:
        """Return the proposal for each rank."""
        proposals = [
            Proposal(self.operation.description, [], []) for _ in range(self.operation.layout.ranks)
        ]
        for message in self.messages:
            proposal = proposals[message.peer]
            lengths = proposal.sends if message.sends else proposal.expects
            lengths.append(message.proposal)
        return proposals

    def mismatched_peers(self, received: Sequence[Proposal]) -> list[int]:
        """Return the ranks that would send messages that this rank does not expect."""
        mismatched = []
        for peer, (own, proposal) in enumerate(zip(self.proposals(), received, strict=True)):
            agrees = _total_lengths(proposal.sends) == _total_lengths(own.expects)
            if proposal.operation != own.operation or not agrees:
                mismatched.append(peer)
        return mismatched

    def stages(self, received: Sequence[Proposal]) -> list[Stage]:
        """Return the stages of this rank, after all ranks have found that their proposals match."""
        agreed = {(True, peer): iter(proposal.expects) for peer, proposal in enumerate(received)}
        agreed |= {(False, peer): iter(proposal.sends) for peer, proposal in enumerate(received)}
        stages: dict[int, Stage] = defaultdict(Stage)
        for message in self.messages:
            _, lengths = next(agreed[message.sends, message.peer])
            cuts = [Span("", 0, length) for length in lengths]
            stages[message.time].messages += [
                NcclMessage(message.sends, message.peer, span)
                for span, _ in align_pieces(message.spans, cuts)
            ]
        folds_by_time: dict[int, list[list[Fold]]] = defaultdict(list)
        for sequence in self.sequences:
            for time, folds in sequence.folds.items():
                folds_by_time[time].append(folds)
        for time, folds_of_sequences in folds_by_time.items():
            waves_of_sequences = [fold_waves(folds) for folds in folds_of_sequences]
            side_by_side = zip_longest(*waves_of_sequences, fillvalue=[])
            stages[time].waves = [list(chain.from_iterable(waves)) for waves in side_by_side]
        return [stages[time] for time in sorted(stages)]


class _Sequence:
    """The lanes of a sequence, which run one after another."""

    def __init__(self, lowering: NcclLowering, number: int, lanes: range) -> None:
        self.lowering = lowering
        self.operation = lowering.operation
        self.scratch = f"scratch {number}"
        self.scratch_length = 0
        self.messages: list[_PendingMessage] = []
        self.folds: dict[int, list[Fold]] = defaultdict(list)
        channel, slice_number = divmod(number, len(lowering.slice_steps))
        self.phases = lowering.phases
        self.phase = channel % lowering.phases
        self.times = message_times(self.operation.slices[slice_number], len(lanes), lowering.me)
        self.delay = channel if self.operation.channels > self.operation.window else 0
        now = self._group(-1)
        for lane in lanes:
            for step in lowering.steps(lane):
                now = self._step(lane, step, now)
            workers = self.operation.layout.workers
            self.folds[now] += [Fold(span, (span,), workers) for span in lowering.averaged(lane)]
        self.folds = {time: folds for time, folds in self.folds.items() if folds}

    def _group(self, time: int) -> int:
        """Return the number of this sequence's group of a logical time."""
        return (self.delay + time) * self.phases + self.phase

    def _step(self, lane: int, step: Step, now: int) -> int:
        """Lower a step that starts after group ``now``, and return the group with which it ends."""
        times = self._times_of_messages(step)
        end = max(times, default=now)
        message_time = iter(times)
        spans = self.lowering.spans
        overlapping = self.lowering.overlapping(lane, step)
        used = 0
        for number, action in enumerate(step.actions):
            target = spans(lane, action.target if isinstance(action, Copy) else action.part)
            time = now if isinstance(action, Copy) else next(message_time)
            if not target:
                continue
            if isinstance(action, Send):
                self.messages.append(_PendingMessage(time, True, int(action.peer), target))
                continue
            source = spans(lane, action.source) if isinstance(action, Copy) else []
            needs_staging = isinstance(action, RecvReduce)
            if isinstance(action, Copy) and not isinstance(action, CopyReduce):
                needs_staging = overlap(source, target)
            staged = number in overlapping or needs_staging
            arrival = target
            if staged:
                staging, used = self._allocate_scratch(target, used)
                arrival = [staging]
            if isinstance(action, Copy):
                self.folds[now] += (
                    [Fold(out, (span,)) for out, span in align_pieces(arrival, source)]
                    if staged
                    else []
                )
                arrival = arrival if staged else source
            else:
                self.messages.append(_PendingMessage(time, False, int(action.peer), arrival))
            if isinstance(action, RecvReduce | CopyReduce):
                pieces = align_pieces(target, spans(lane, action.operand), arrival)
                self.folds[end] += [Fold(out, (own, arrived)) for out, own, arrived in pieces]
            elif arrival is not target:
                self.folds[end] += [
                    Fold(out, (arrived,)) for out, arrived in align_pieces(target, arrival)
                ]
        self.scratch_length = max(self.scratch_length, used)
        return end

    def _times_of_messages(self, step: Step) -> list[int]:
        """Return the group of each message of a step, which is the next one in the order of the schedule."""
        messages = [action for action in step.actions if not isinstance(action, Copy)]
        return [
            self._group(self.times[isinstance(m, Send), int(m.peer)].popleft()) for m in messages
        ]

    def _allocate_scratch(self, target: list[Span], used: int) -> tuple[Span, int]:
        """Return a span of scratch after ``used``, aligned like the target for vector accesses, and its end."""
        grain = self.operation.cut.grain
        start = used + (target[0].start - used) % grain
        stop = start + sum(map(len, target))
        return Span(self.scratch, start, stop), stop


def _total_lengths(messages: PieceLengths) -> list[tuple[int, int]]:
    return [(time, sum(lengths)) for time, lengths in messages]
