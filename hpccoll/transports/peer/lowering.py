"""The lowering of schedules for the peer kernel: for each sequence of a rank, a program that one block runs.

A rank reads a message where it lies in the memory of its sender: the fold of an arrival loads it
from there, and no byte is copied first. The programs order that with flags (peer.cu): a sender says
that a message is ready, the receiver says that it has read it, and the sender awaits the latter
before it overwrites the message, or before the operation ends.

A step of a rank is lowered to

1. a flag for each message that it sends, raised at once: the step sends what the buffers hold now;
2. for the messages that it receives, in the order of their logical times (message_times.py): await
   their flags, fold them, and say that they are read;
3. nothing else: whether a message is read is awaited only in front of a fold that overwrites it.

Two ranks that exchange what both overwrite would await each other for ever. If a step receives into
what it sends or copies, all its arrivals are therefore first copied into scratch, and folded when
its own messages are read.

No rank waits for ever. Each instruction has a logical time, and awaits only instructions of other
ranks of an earlier time, or of the same time that await nothing of this one: a message is ready at
the beginning of the step of its sender, at or before its time, and is read at its time.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Literal, NamedTuple, TypeAlias

from hpccoll.schedule import Copy, CopyReduce, Part, RecvReduce, Send, Step
from hpccoll.schedule.operation import Operation
from hpccoll.schedule.step import Action
from hpccoll.transports.nccl.fold import Fold, fold_waves
from hpccoll.transports.nccl.message_times import message_times
from hpccoll.transports.shared_lowering import Lowering, Span, align_pieces, overlap

FlagKind: TypeAlias = Literal["ready", "read"]
FLAG_KINDS: tuple[FlagKind, ...] = ("ready", "read")

SentSpans: TypeAlias = list[list[list[Span]]]
"""What a rank sends to another one, by sequence and message: the spans of the part in its own buffers."""


class Flag(NamedTuple):
    """A count of messages between this rank and a peer in one sequence, as one of the two raises or awaits it."""

    kind: FlagKind
    peer: int
    number: int  # the messages from the first one on that are ready, or read
    step: int  # of this rank, counted over the lanes of the sequence


@dataclass(frozen=True, slots=True)
class Await:
    """Waits until all of the flags, which peers raise, have been raised."""

    flags: tuple[Flag, ...]


@dataclass(frozen=True, slots=True)
class Raise:
    """Raises flags in the memory of peers, after everything before it is done."""

    flags: tuple[Flag, ...]


@dataclass(frozen=True, slots=True)
class FoldWave:
    """Folds that do not depend on each other; inputs may lie in the memory of peers."""

    folds: tuple[Fold, ...]


Instruction: TypeAlias = Await | Raise | FoldWave


@dataclass(frozen=True, slots=True)
class Program:
    """The instructions of a block."""

    instructions: list[Instruction]
    sent: Mapping[int, int]  # the number of messages to each peer
    received: Mapping[int, int]  # the number of messages from each peer


class PeerProposal(NamedTuple):
    """What a rank tells each peer before its programs are made."""

    operation: str
    sends: SentSpans
    expects: list[list[int]]  # by sequence and message: the elements that it expects from the peer


@dataclass(slots=True)
class _Arrival:
    """A message that a step receives."""

    action: int  # the number of the action
    time: int
    flag: Flag
    source: list[Span]  # where it lies: at the peer, or once it is copied in scratch


def buffer_of_peer(peer: int, buffer: str) -> str:
    """Return the name of a peer's buffer."""
    return f"{buffer} of rank {peer}"


class PeerLowering(Lowering):
    """Lowers the steps of a rank on its buffers src, dst and tmp, the scratch of each sequence, and those of peers.

    ``scratch_lengths`` has the elements of each sequence's scratch, once ``programs`` has been
    called.
    """

    def __init__(self, me: int, operation: Operation) -> None:
        super().__init__(me, operation)
        self.sequences = operation.sequences
        self.scratch_lengths: dict[str, int] = {}

    def proposals(self) -> list[PeerProposal]:
        """Return the proposal for each rank."""
        proposals = list(map(self._empty_proposal, range(self.operation.layout.ranks)))
        for number, lanes in enumerate(self.sequences):
            for lane in lanes:
                for step in self.steps(lane):
                    self._propose(step, lane, number, proposals)
        return proposals

    def _empty_proposal(self, _peer: int) -> PeerProposal:
        sequences = self.sequences
        return PeerProposal(
            self.operation.description, [[] for _ in sequences], [[] for _ in sequences]
        )

    def _propose(
        self, step: Step, lane: int, sequence: int, proposals: Sequence[PeerProposal]
    ) -> None:
        """Append the messages of a step to the proposals for its peers, without empty ones."""
        for action in step.actions:
            if isinstance(action, Copy):
                continue
            part = self.spans(lane, action.part)
            if not part:
                continue
            proposal = proposals[int(action.peer)]
            if isinstance(action, Send):
                proposal.sends[sequence].append(part)
            else:
                proposal.expects[sequence].append(_length(part))

    def mismatched_peers(self, received: Sequence[PeerProposal]) -> list[int]:
        """Return the ranks that would send messages that this rank does not expect."""
        mismatched = []
        for peer, (own, proposal) in enumerate(zip(self.proposals(), received, strict=True)):
            lengths = [list(map(_length, messages)) for messages in proposal.sends]
            if proposal.operation != own.operation or lengths != own.expects:
                mismatched.append(peer)
        return mismatched

    def programs(self, received: Sequence[PeerProposal]) -> list[Program]:
        """Return the program of each sequence, after all ranks have found that their proposals match."""
        programs = []
        for number, lanes in enumerate(self.sequences):
            incoming = {}
            for peer, proposal in enumerate(received):
                incoming[peer] = iter(proposal.sends[number])
            sequence = _Sequence(self, number, lanes, incoming)
            self.scratch_lengths[sequence.scratch] = sequence.scratch_length
            programs.append(sequence.program)
        return programs


def _length(part: Sequence[Span]) -> int:
    return sum(map(len, part))


def _target(action: Action) -> Part:
    """Return the part that an action writes."""
    if isinstance(action, Copy):
        return action.target
    return action.part


def _copied(target: Sequence[Span], source: Sequence[Span]) -> list[Fold]:
    """Return the copies of ``source`` to ``target``."""
    return [Fold(out, (span,)) for out, span in align_pieces(target, source)]


def _by_time(arrivals: Sequence[_Arrival]) -> Iterator[list[_Arrival]]:
    """Yield the arrivals of each logical time together."""
    for _, batch in groupby(arrivals, key=attrgetter("time")):
        yield list(batch)


class _Sequence:
    """The program of the lanes of a sequence, which run one after another."""

    def __init__(
        self,
        lowering: PeerLowering,
        number: int,
        lanes: range,
        incoming: Mapping[int, Iterator[list[Span]]],
    ) -> None:
        self.lowering = lowering
        self.scratch = f"scratch {number}"
        self.scratch_length = 0
        self.instructions: list[Instruction] = []
        self._incoming = incoming
        self._sent: dict[int, int] = defaultdict(int)
        self._received: dict[int, int] = defaultdict(int)
        self._unread: list[tuple[Flag, list[Span]]] = []  # sent, and not known to be read
        self._step_number = 0
        operation = lowering.operation
        slice_number = number % len(lowering.slice_steps)
        self._times = message_times(operation.slices[slice_number], len(lanes), lowering.me)
        for lane in lanes:
            for step in lowering.steps(lane):
                self._step(lane, step)
                self._step_number += 1
            workers = operation.layout.workers
            self._fold([Fold(span, (span,), workers) for span in lowering.averaged(lane)])
        self._await([flag for flag, _ in self._unread])

    @property
    def program(self) -> Program:
        return Program(self.instructions, self._sent, self._received)

    def _step(self, lane: int, step: Step) -> None:
        ready = []
        for action in step.actions:
            if isinstance(action, Send):
                ready.append(self._send(lane, action))
        self._raise(ready)
        arrivals = self._arrivals(lane, step)
        if self._needs_staging(lane, step, arrivals):
            self._staged(lane, step, arrivals)
        else:
            self._direct(lane, step, arrivals)

    def _direct(self, lane: int, step: Step, arrivals: Sequence[_Arrival]) -> None:
        """Fold the arrivals of a step from where they lie."""
        for action in step.actions:
            if isinstance(action, Copy):
                self._fold(self._copies(lane, action, self.lowering.spans(lane, action.source)))
        for batch in _by_time(arrivals):
            folds = []
            for arrival in batch:
                folds += self._folds_of(lane, step, arrival.action, arrival.source)
            self._fold(folds, batch)
            self._say_read(batch)

    def _staged(self, lane: int, step: Step, arrivals: Sequence[_Arrival]) -> None:
        """Copy all arrivals and copies of a step into scratch, and then fold them in the order listed."""
        used = 0
        staged: dict[int, list[Span]] = {}
        for number, action in enumerate(step.actions):
            if not isinstance(action, Copy):
                continue
            source = self.lowering.spans(lane, action.source)
            if source:
                staging, used = self._allocate_scratch(source, used)
                staged[number] = [staging]
                self._fold(_copied([staging], source))
        for batch in _by_time(arrivals):
            folds = []
            for arrival in batch:
                staging, used = self._allocate_scratch(arrival.source, used)
                staged[arrival.action] = [staging]
                folds += _copied([staging], arrival.source)
            self._fold(folds, batch)
            self._say_read(batch)
        self.scratch_length = max(self.scratch_length, used)
        folds = []
        for number in sorted(staged):
            folds += self._folds_of(lane, step, number, staged[number])
        self._fold(folds)

    def _send(self, lane: int, action: Send) -> Flag | None:
        """Return the flag of a message that is sent; None if it is empty."""
        part = self.lowering.spans(lane, action.part)
        if not part:
            return None
        peer = int(action.peer)
        self._sent[peer] += 1
        number = self._sent[peer]
        self._unread.append((Flag("read", peer, number, self._step_number), part))
        return Flag("ready", peer, number, self._step_number)

    def _arrivals(self, lane: int, step: Step) -> list[_Arrival]:
        """Return the messages that a step receives, without empty ones, in the order listed."""
        arrivals = []
        for number, action in enumerate(step.actions):
            if isinstance(action, (Copy, Send)):
                continue
            peer = int(action.peer)
            time = self._times[False, peer].popleft()
            if not self.lowering.spans(lane, action.part):
                continue
            self._received[peer] += 1
            flag = Flag("ready", peer, self._received[peer], self._step_number)
            source = []
            for span in next(self._incoming[peer]):
                source.append(Span(buffer_of_peer(peer, span.buffer), span.start, span.stop))
            arrivals.append(_Arrival(number, time, flag, source))
        return sorted(arrivals, key=lambda arrival: arrival.time)  # stable: then as listed

    def _needs_staging(self, lane: int, step: Step, arrivals: Sequence[_Arrival]) -> bool:
        """Return whether the arrivals of a step cannot be folded one by one from where they lie.

        That is if the step writes what it sends or copies, if a copy is not alone with its target
        or is folded, or if messages arrive in another order than they are listed.
        """
        spans = self.lowering.spans
        overlapping = self.lowering.overlapping(lane, step)
        sent: list[Span] = []
        written: list[Span] = []
        for number, action in enumerate(step.actions):
            if isinstance(action, Send):
                sent += spans(lane, action.part)
            elif isinstance(action, CopyReduce):
                return True  # it takes its turn among the arrivals
            elif isinstance(action, Copy):
                if number in overlapping or overlap(
                    spans(lane, action.source), spans(lane, action.target)
                ):
                    return True
            else:
                written += spans(lane, action.part)
        as_listed = [arrival.action for arrival in arrivals]
        return as_listed != sorted(as_listed) or overlap(sent, written)

    def _folds_of(self, lane: int, step: Step, number: int, source: Sequence[Span]) -> list[Fold]:
        """Return the folds that put what action ``number`` receives or copies from ``source`` to its place."""
        action = step.actions[number]
        spans = self.lowering.spans
        if isinstance(action, RecvReduce | CopyReduce):
            operand = spans(lane, action.operand)
            pieces = align_pieces(spans(lane, _target(action)), operand, source)
            return [Fold(out, (own, arrived)) for out, own, arrived in pieces]
        return _copied(spans(lane, _target(action)), source)

    def _copies(self, lane: int, action: Copy, source: Sequence[Span]) -> list[Fold]:
        return _copied(self.lowering.spans(lane, action.target), source)

    def _allocate_scratch(self, source: Sequence[Span], used: int) -> tuple[Span, int]:
        """Return a span of scratch after ``used``, aligned like the source for vector accesses, and its end."""
        grain = self.lowering.operation.cut.grain
        start = used + (source[0].start - used) % grain
        stop = start + _length(source)
        return Span(self.scratch, start, stop), stop

    # ---- instructions

    def _raise(self, flags: Sequence[Flag | None]) -> None:
        """Raise flags. If a peer has more than one of a kind, the last one says all."""
        last = {}
        for flag in flags:
            if flag:
                last[flag.kind, flag.peer] = flag
        if last:
            self.instructions.append(Raise(tuple(last.values())))

    def _say_read(self, arrivals: Sequence[_Arrival]) -> None:
        self._raise([arrival.flag._replace(kind="read") for arrival in arrivals])

    def _await(self, flags: Sequence[Flag]) -> None:
        """Await flags. If a peer has more than one of a kind, the last one says all."""
        last: dict[tuple[str, int], Flag] = {}
        for flag in flags:
            kept = last.setdefault((flag.kind, flag.peer), flag)
            if flag.number > kept.number:
                last[flag.kind, flag.peer] = flag
        if last:
            self.instructions.append(Await(tuple(last.values())))
        read: dict[int, int] = defaultdict(int)
        for flag in last.values():
            if flag.kind == "read":
                read[flag.peer] = flag.number
        self._unread = [entry for entry in self._unread if entry[0].number > read[entry[0].peer]]

    def _fold(self, folds: Sequence[Fold], arrivals: Sequence[_Arrival] = ()) -> None:
        """Fold in order, when messages have arrived and what the folds overwrite has been read."""
        written = [fold.out for fold in folds]
        flags = [arrival.flag for arrival in arrivals]
        for flag, part in self._unread:
            if overlap(part, written):
                flags.append(flag)
        self._await(flags)
        self.instructions += [FoldWave(tuple(wave)) for wave in fold_waves(folds)]
