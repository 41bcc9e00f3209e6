"""The GPUs of all ranks in one process, on NumPy memory: streams that run in order, and groups of messages that block.

A group ends when each of its messages has met its other end, which is in a group that its peer is at: nothing is
buffered, and a message between two ranks meets the first one of the other end that is left. Where no stream can go on,
that is a deadlock. What a group, or a wave of moves, may do in any order must come to the same in each: it is refused
otherwise, and done in a random order.
"""

from collections import deque
from dataclasses import dataclass, field
from itertools import combinations
from random import Random

import numpy as np

from hpccoll.transports.nccl.compile import NcclCompiler, NcclMessage
from hpccoll.transports.nccl.transport import compile_plan


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


class FakeDevice:
    """A GPU of the cluster: what is queued on its stream is done by ``Cluster.run``."""

    def __init__(self, cluster, me):
        self.cluster, self.me = cluster, me
        self.stream = deque()
        self.queue = self.stream.append
        self.launches, self.said = 0, None

    def empty(self, count, dtype):
        return np.full(count, 99, dtype)

    def group_call(self, buffers, messages):
        requested = Group(buffers, [*messages])
        requested.check()
        return lambda: self.queue(lambda: Group(buffers, requested.messages, [*requested.messages]))

    def fold_calls(self, operation, buffers, waves):
        def launch(wave):
            def go():
                self.launches += 1
                for move in self.cluster.chance.sample(wave, len(wave)):
                    do(operation, buffers, move)

            return lambda: self.queue(go)

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
        return not self.stream

    def error(self):
        return self.said

    def capture(self, queue):
        taken = []
        self.queue = taken.append
        queue()
        self.queue = self.stream.append
        return FakeGraph(self, taken)


@dataclass
class FakeGraph:
    device: FakeDevice
    taken: list

    def launch(self):
        self.device.stream.extend(self.taken)

    def close(self):
        self.taken = None


def do(operation, buffers, move):
    """Do a move on buffers of NumPy."""
    out, *inputs = (buffers[span.buffer][span.start : span.stop] for span in (move.out, *move.inputs))
    value = inputs[0].copy()
    with np.errstate(all="ignore"):  # a first run, to warm up, folds whatever is there, and a GPU warns of nothing
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
        """Run all streams to their ends."""
        at = [None] * len(self.devices)
        while any(at) or any(device.stream for device in self.devices):
            went = [self._advance(device, at) for device in self.chance.sample(self.devices, len(self.devices))]
            if not any(went):
                raise DeadlockError("; ".join(self._waits(at)))

    def _advance(self, device, at):
        """Do what a stream can do now, and return whether it was anything."""
        me, went = device.me, False
        while True:
            while at[me] is None and device.stream:
                at[me], went = device.stream.popleft()(), True
            if at[me] is None or not self._meet(me, at):
                return went
            went = True

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
    compilers = [NcclCompiler(me, asked) for me in range(asked.layout.ranks)]
    proposals = [compiler.proposals() for compiler in compilers]
    made = []
    for me, compiler in enumerate(compilers):
        theirs = [proposal[me] for proposal in proposals]
        assert compiler.mismatched_peers(theirs) == []
        device, dtype = cluster.devices[me], asked.dtype
        scratch = {name: device.empty(count, dtype) for name, count in compiler.lengths.items()}
        made.append(
            compile_plan(device, compiler, compiler.stages(theirs), {"src": src[me], "dst": dst[me], **scratch})
        )
    return made
