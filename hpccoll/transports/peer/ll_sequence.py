"""The protocol ``ll`` (low latency) of the peer kernel: a rank writes its messages into words of their receivers.

It follows NCCL's protocol of this name. Half of a word is the flag of the operation, and a receiver
takes a word when it has this flag (peer.cu): a message needs no other flag, and no fence.

A step of a rank is lowered to

1. writing all messages that it sends, as the buffers hold them now: they may then be overwritten;
2. its copies, and the folds of the messages that it receives, in the order listed.

No rank waits for ever: it sends all messages of a step before it awaits one, and awaits only those
that the step needs to end.

Each message of an operation has words of its own (words.py), for even and for odd operations, so
that the words of operation e are those of operation e - 2, and nothing else. A receiver takes words
of exactly its operation. A sender must not overwrite words of operation e - 2 that are not read.
They are read if the receiver has begun operation e - 1, because launches follow each other on its
stream. In operation e the sender knows that of

- a rank that sends to it, in whatever sequence: it has ended operation e - 1, in which it read
  words that the other rank wrote after it had begun operation e - 1;
- any other rank by a flag, ``begun``, which that raises at the beginning of each operation.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from hpccoll.schedule import Copy, CopyReduce, Send, Step
from hpccoll.transports.nccl.fold import Fold, fold_waves
from hpccoll.transports.peer.program import (
    Await,
    Flag,
    FoldWave,
    Instruction,
    Program,
    Push,
    PushedSpan,
    Raise,
)
from hpccoll.transports.peer.sequence_lowering import SequenceLowering, copied
from hpccoll.transports.shared_lowering import Lowering, Span, overlap


class LLSequence(SequenceLowering):
    """A sequence whose messages are written in words.

    Args:
        incoming: by peer, where each of its messages lies in words for this rank, in order.
        outgoing: by peer, where each message to it lies in words for it, in order.
        begun: the peers that have to know that this rank has begun an operation.
        awaited: the peers that tell this rank so.
    """

    def __init__(
        self,
        lowering: Lowering,
        number: int,
        lanes: range,
        incoming: Mapping[int, Iterator[list[Span]]],
        outgoing: Mapping[int, Iterator[list[Span]]],
        *,
        begun: Sequence[int],
        awaited: Sequence[int],
    ) -> None:
        super().__init__(lowering, number, lanes, incoming)
        self.instructions: list[Instruction] = []
        self._outgoing = outgoing
        self._begun = begun
        self._awaited = awaited
        self._sent: dict[int, int] = defaultdict(int)
        self._arrived: dict[int, list[tuple[int, Flag]]] = defaultdict(list)

    def program(self) -> Program:
        """Return the program of the sequence."""
        if self._begun:
            self.instructions.append(
                Raise(tuple(Flag("begun", peer, 1, 0) for peer in self._begun))
            )
        if self._awaited:
            flags = tuple(Flag("begun", peer, 0, 0) for peer in self._awaited)
            self.instructions.append(Await(flags))
        self._lower_lanes()
        received = {peer: len(messages) for peer, messages in self._arrived.items()}
        return Program(self.instructions, self._sent, received, self._arrived)

    def _lower_step(self, lane: int, step: Step) -> None:
        self._push(lane, step)
        sources = self._arrivals(lane, step)
        if self._needs_staging(lane, step):
            sources |= self._staged_copies(lane, step)
        else:
            self._copy(lane, step)
        folds = []
        for number in sorted(sources):
            folds += self._folds_of(lane, step, number, sources[number])
        self._append_folds(folds)

    def _push(self, lane: int, step: Step) -> None:
        """Write all messages that a step sends."""
        pushed = []
        for action in step.actions:
            if not isinstance(action, Send):
                continue
            part = self.lowering.spans(lane, action.part)
            if not part:
                continue
            peer = int(action.peer)
            self._sent[peer] += 1
            for words, source in zip(next(self._outgoing[peer]), part, strict=True):
                pushed.append(PushedSpan(peer, source, words.start))
        if pushed:
            self.instructions.append(Push(tuple(pushed)))

    def _arrivals(self, lane: int, step: Step) -> dict[int, list[Span]]:
        """Return where each message lies that a step receives, by the number of its action, without empty ones."""
        arrivals = {}
        for number, action in enumerate(step.actions):
            if isinstance(action, (Copy, Send)) or not self.lowering.spans(lane, action.part):
                continue
            peer = int(action.peer)
            source = next(self._incoming[peer])
            message = len(self._arrived[peer]) + 1
            flag = Flag("ready", peer, message, self._step_number)
            self._arrived[peer].append((source[0].start, flag))
            arrivals[number] = source
        return arrivals

    def _needs_staging(self, lane: int, step: Step) -> bool:
        """Return whether a copy must read its source before the messages of its step arrive, and write after them."""
        spans = self.lowering.spans
        overlapping = self.lowering.overlapping(lane, step)
        for number, action in enumerate(step.actions):
            if isinstance(action, CopyReduce):
                return True  # it takes its turn among the arrivals
            if not isinstance(action, Copy):
                continue
            if number in overlapping:
                return True
            if overlap(spans(lane, action.source), spans(lane, action.target)):
                return True
        return False

    def _staged_copies(self, lane: int, step: Step) -> dict[int, list[Span]]:
        """Copy the sources of all copies of a step into scratch; return where they lie, by the number of the action."""
        used = 0
        staged = {}
        folds = []
        for number, action in enumerate(step.actions):
            if not isinstance(action, Copy):
                continue
            source = self.lowering.spans(lane, action.source)
            if source:
                staging, used = self._allocate_scratch(source, used)
                staged[number] = [staging]
                folds += copied([staging], source)
        self._append_folds(folds)
        return staged

    def _copy(self, lane: int, step: Step) -> None:
        """Make the copies of a step, which nothing else of it concerns."""
        folds = []
        for action in step.actions:
            if isinstance(action, Copy):
                folds += self._copies(lane, action, self.lowering.spans(lane, action.source))
        self._append_folds(folds)

    def _append_folds(self, folds: Sequence[Fold]) -> None:
        self.instructions += [FoldWave(tuple(wave)) for wave in fold_waves(folds)]
