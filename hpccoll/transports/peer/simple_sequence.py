"""The protocol ``simple`` of the peer kernel: a rank reads its messages in the memory of their senders.

The fold of an arrival loads a message from where it lies, and no byte is copied first. The programs
order that with flags (peer.cu): a sender says that a message is ready, the receiver says that it
has read it, and the sender awaits the latter before it overwrites the message, or before the
operation ends.

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

from hpccoll.schedule import Copy, CopyReduce, Send, Step
from hpccoll.transports.nccl.fold import Fold, fold_waves
from hpccoll.transports.nccl.message_times import message_times
from hpccoll.transports.peer.program import (
    Await,
    Flag,
    FoldWave,
    Instruction,
    Program,
    Raise,
    buffer_of_peer,
)
from hpccoll.transports.peer.sequence_lowering import SequenceLowering, copied
from hpccoll.transports.shared_lowering import Lowering, Span, overlap


@dataclass(slots=True)
class _Arrival:
    """A message that a step receives."""

    action: int  # the number of the action
    time: int
    flag: Flag
    source: list[Span]  # where it lies: at the peer, or once it is copied in scratch


def _by_time(arrivals: Sequence[_Arrival]) -> Iterator[list[_Arrival]]:
    """Yield the arrivals of each logical time together."""
    for _, batch in groupby(arrivals, key=attrgetter("time")):
        yield list(batch)


class SimpleSequence(SequenceLowering):
    """A sequence whose messages are read where they lie."""

    def __init__(
        self,
        lowering: Lowering,
        number: int,
        lanes: range,
        incoming: Mapping[int, Iterator[list[Span]]],
    ) -> None:
        super().__init__(lowering, number, lanes, incoming)
        self.instructions: list[Instruction] = []
        self._sent: dict[int, int] = defaultdict(int)
        self._received: dict[int, int] = defaultdict(int)
        self._unread: list[tuple[Flag, list[Span]]] = []  # sent, and not known to be read
        operation = lowering.operation
        slice_number = number % len(lowering.slice_steps)
        self._times = message_times(operation.slices[slice_number], len(lanes), lowering.me)

    def program(self) -> Program:
        """Return the program of the sequence."""
        self._lower_lanes()
        self._await([flag for flag, _ in self._unread])
        return Program(self.instructions, self._sent, self._received)

    def _lower_step(self, lane: int, step: Step) -> None:
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
                self._fold(copied([staging], source))
        for batch in _by_time(arrivals):
            folds = []
            for arrival in batch:
                staging, used = self._allocate_scratch(arrival.source, used)
                staged[arrival.action] = [staging]
                folds += copied([staging], arrival.source)
            self._fold(folds, batch)
            self._say_read(batch)
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

    def _append_folds(self, folds: Sequence[Fold]) -> None:
        self._fold(folds)

    def _fold(self, folds: Sequence[Fold], arrivals: Sequence[_Arrival] = ()) -> None:
        """Fold in order, when messages have arrived and what the folds overwrite has been read."""
        written = [fold.out for fold in folds]
        flags = [arrival.flag for arrival in arrivals]
        for flag, part in self._unread:
            if overlap(part, written):
                flags.append(flag)
        self._await(flags)
        self.instructions += [FoldWave(tuple(wave)) for wave in fold_waves(folds)]
