"""A lowered step of one rank: work on its memory, messages that start together, and work after all have completed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from hpccoll.schedule import Reduction
from hpccoll.schedule.operation import Array

DeferredCall: TypeAlias = tuple[Callable[..., object], tuple[object, ...]]
"""A function and its arguments."""


@dataclass(frozen=True, slots=True)
class LocalCopy:
    """Copies contiguous elements."""

    target: Array
    source: Array

    def call(self) -> DeferredCall:
        return np.copyto, (self.target, self.source)


@dataclass(frozen=True, slots=True)
class LocalFold:
    """Folds two contiguous arrays into a third one, which may be one of them."""

    fold: np.ufunc
    a: Array
    b: Array
    target: Array

    def call(self) -> DeferredCall:
        return partial(self.fold, out=self.target), (self.a, self.b)


@dataclass(frozen=True, slots=True)
class LocalScale:
    """Divides a sum by the number of workers, in place."""

    reduction: Reduction
    target: Array
    workers: int

    def call(self) -> DeferredCall:
        return self.reduction.scale, (self.target, self.workers)


@dataclass(frozen=True, slots=True)
class LocalCall:
    """Calls a function that only Python can call, or that only the Python executor needs, such as a memory fence."""

    function: Callable[..., object]
    arguments: tuple[object, ...] = ()

    def call(self) -> DeferredCall:
        return self.function, self.arguments


LocalWork: TypeAlias = LocalCopy | LocalFold | LocalScale | LocalCall
"""Work of one rank; ``call`` returns the call that does it in Python."""


@dataclass(frozen=True, slots=True)
class MpiMessage:
    """One message of this rank."""

    sends: bool
    data: tuple[NDArray[np.uint8], int, MPI.Datatype]  # the buffer specification for mpi4py
    peer: int
    tag: int
    lane: int
    # the bytes that the message carries, or that the receiver reads from shared memory after a
    # signal
    nbytes: int

    @property
    def is_signal(self) -> bool:
        """Whether the message carries no bytes, and only synchronises two ranks."""
        return self.data[1] == 0

    def persistent(self, comm: MPI.Intracomm) -> MPI.Prequest:
        begin = comm.Send_init if self.sends else comm.Recv_init
        return begin(self.data, self.peer, self.tag)

    def transient(self, comm: MPI.Intracomm) -> Callable[[], MPI.Request]:
        begin = comm.Isend if self.sends else comm.Irecv
        return partial(begin, self.data, self.peer, self.tag)


@dataclass(slots=True)
class LoweredStep:
    """The work of this rank in a step."""

    # the work to do before the messages start
    before: list[LocalWork] = field(default_factory=list)
    messages: list[MpiMessage] = field(default_factory=list)
    # the work to do after all messages have completed
    after: list[LocalWork] = field(default_factory=list)


def describe_progress(sequences: Sequence[Sequence[LoweredStep]], current: Sequence[int]) -> str:
    """Return the current step of each sequence that has not ended, and the peers of that step."""
    unfinished = []
    for number, (at, sequence) in enumerate(zip(current, sequences, strict=True)):
        if at < len(sequence):
            messages = sequence[at].messages
            peers = [f"to rank {m.peer}" if m.sends else f"from rank {m.peer}" for m in messages]
            awaited = ", ".join(peers) or "no messages"
            unfinished.append(f"sequence {number}, step {at + 1} of {len(sequence)} ({awaited})")
    return "; ".join(unfinished) or "done"
