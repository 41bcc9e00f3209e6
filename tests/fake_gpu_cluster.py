"""The GPUs of all ranks in one process, on NumPy memory: streams that run in order, and groups of messages that block.

Each GPU has two streams, of which either may be ahead of the other, as far as events allow.

A group ends when each of its messages has met its other end, which is in a group that its peer is
at: nothing is buffered, and a message between two ranks meets the first one of the other end that
is left. Where no stream can go on, that is a deadlock. What a group, or a wave of moves, may do in
any order must come to the same in each: it is refused otherwise, and done in a random order.
"""

from collections import deque
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from random import Random

import numpy as np

from hpccoll.transports.nccl.lowering import NcclLowering, NcclMessage
from hpccoll.transports.nccl.transport import stream_plan_of


class DeadlockError(AssertionError):
    """Streams that wait for each other for ever; says who waits for whom."""


@dataclass
class Group:
    """A group that a stream is at, or comes to."""

    buffers: dict
    messages: list[NcclMessage]
    left: list[NcclMessage] = field(default_factory=list)

    def check(self):
        for one, other in combinations(self.messages, 2):
            if not (one.sends and other.sends) and one.span.overlaps(other.span):
                raise AssertionError(f"{one} and {other} of a group touch the same elements")

    def first(self, sends, peer):
        return next((m for m in self.left if m.sends == sends and m.peer == peer), None)

    def view(self, message):
        return self.buffers[message.span.buffer][message.span.start : message.span.stop]


MESSAGES, FOLDS = range(2)
"""The streams of a GPU."""


@dataclass
class Event:
    """An event: how often it was recorded, and how many of these records its stream has passed."""

    recorded: int = 0
    passed: int = 0


@dataclass(frozen=True)
class Record:
    event: Event


@dataclass(frozen=True)
class Await:
    event: Event
    number: int = 0


class FakeDevice:
    """A GPU of the cluster: what is queued on its streams is done by ``Cluster.run``."""

    def __init__(self, cluster, me):
        self.cluster, self.me, self.gpu = cluster, me, self
        self.streams = deque(), deque()
        self.captured = None
        self.launches, self.said = 0, None

    @property
    def queued(self):
        """How much is queued on both streams."""
        return sum(map(len, self.streams))

    def queue(self, stream, work):
        """Queue work on a stream, or capture it. A wait is for the last record before it."""
        if self.captured is not None:
            self.captured.append((stream, work))
            return
        if isinstance(work, Record):
            work.event.recorded += 1
        elif isinstance(work, Await):
            work = replace(work, number=work.event.recorded)
        self.streams[stream].append(work)

    def empty(self, count, dtype):
        return np.full(count, 99, dtype)

    def group_call(self, buffers, messages):
        requested = Group(buffers, [*messages])
        requested.check()
        return lambda: self.queue(
            MESSAGES, lambda: Group(buffers, requested.messages, [*requested.messages])
        )

    def folds_after_messages(self):
        return self._in_order(MESSAGES, FOLDS)

    def messages_after_folds(self):
        return self._in_order(FOLDS, MESSAGES)

    def _in_order(self, first, then):
        event = Event()
        return partial(self.queue, first, Record(event)), partial(self.queue, then, Await(event))

    def fold_calls(self, operation, buffers, waves, *, own_stream=False):
        def launch(wave):
            def go():
                self.launches += 1
                for move in self.cluster.chance.sample(wave, len(wave)):
                    do(operation, buffers, move)

            return lambda: self.queue(FOLDS if own_stream else MESSAGES, go)

        for wave in waves:
            for one, other in combinations(wave, 2):
                if one.conflicts_with(other):
                    raise AssertionError(f"{one} and {other} of a wave touch the same elements")
        return [launch(wave) for wave in waves]

    def wait(self):
        """The streams run in ``Cluster.run``, where those of all ranks do."""

    def select(self):
        """A rank has one GPU here."""

    def idle(self):
        return not self.streams[MESSAGES]

    def complaint(self):
        return self.said and f"NCCL reports: {self.said}"

    def capture(self, queue):
        self.captured = []
        queue()
        taken, self.captured = self.captured, None
        return FakeGraph(self, taken)


@dataclass
class FakeGraph:
    device: FakeDevice
    taken: list

    def launch(self):
        for stream, work in self.taken:
            self.device.queue(stream, work)

    def close(self):
        self.taken = None


def do(operation, buffers, move):
    """Do a move on buffers of NumPy."""
    out, *inputs = (
        buffers[span.buffer][span.start : span.stop] for span in (move.out, *move.inputs)
    )
    value = inputs[0].copy()
    # a first run, to warm up, folds whatever is there, and a GPU warns of nothing
    with np.errstate(all="ignore"):
        for arrival in inputs[1:]:
            value = operation.reduction.fold(value, arrival)
        if move.divisor:
            operation.reduction.scale(value, move.divisor)
    out[:] = value


class Cluster:
    """So many ranks, each with a GPU."""

    def __init__(self, ranks):
        self.chance = Random(ranks)  # noqa: S311
        self.devices = [FakeDevice(self, me) for me in range(ranks)]

    def run(self):
        """Run all streams to their ends, those of messages first, or those of folds, or in turn."""
        at = [None] * len(self.devices)
        eager = self.chance.choice([(MESSAGES,), (FOLDS,), (MESSAGES, FOLDS)])
        while any(at) or any(device.queued for device in self.devices):
            for streams in (eager, (MESSAGES, FOLDS)):
                devices = self.chance.sample(self.devices, len(self.devices))
                if any(self._advance(device, at, streams) for device in devices):
                    break
            else:
                raise DeadlockError("; ".join(self._waits(at)))

    def _advance(self, device, at, streams):
        """Do the next work of some streams of a GPU if it can be done, and return whether any could."""
        me, went = device.me, False
        for stream in self.chance.sample(streams, len(streams)):
            busy, queued = stream == MESSAGES and at[me] is not None, device.streams[stream]
            if busy:
                went |= self._meet(me, at)
            elif queued and not (
                isinstance(queued[0], Await) and queued[0].event.passed < queued[0].number
            ):
                work, went = queued.popleft(), True
                if isinstance(work, Record):
                    work.event.passed += 1
                elif not isinstance(work, Await):
                    at[me] = work() or at[me]
        return went

    @staticmethod
    def _meet(me, at):
        """Bring what rank ``me`` is at together with the other ends that are there, and return whether any was."""
        met = False
        for message in [*at[me].left]:
            there = at[message.peer] if message.peer != me else None
            other = there and there.first(not message.sends, me)
            if other is None or message is not at[me].first(message.sends, message.peer):
                continue
            source, target = (at[me], there) if message.sends else (there, at[me])
            sent, landed = (message, other) if message.sends else (other, message)
            assert len(sent.span) == len(landed.span), f"{sent} meets {landed}"
            target.view(landed)[:] = source.view(sent)
            at[me].left.remove(message)
            there.left.remove(other)
            met = True
            if not there.left:
                at[message.peer] = None
        if not at[me].left:
            at[me] = None
        return met

    @staticmethod
    def _waits(at):
        for me, group in enumerate(at):
            for message in group.left if group else []:
                yield f"rank {me} waits to {'send to' if message.sends else 'receive from'} rank {message.peer}"


def plans(cluster, asked, src, dst):
    """Compile an operation for all ranks, as they would together."""
    lowerings = [NcclLowering(me, asked) for me in range(asked.layout.ranks)]
    proposals = [lowering.proposals() for lowering in lowerings]
    made = []
    for me, lowering in enumerate(lowerings):
        theirs = [proposal[me] for proposal in proposals]
        assert lowering.mismatched_peers(theirs) == []
        device, dtype = cluster.devices[me], asked.dtype
        scratch = {name: device.empty(count, dtype) for name, count in lowering.lengths.items()}
        made.append(
            stream_plan_of(
                device,
                lowering,
                lowering.stages(theirs),
                {"src": src[me], "dst": dst[me], **scratch},
            )
        )
    return made
