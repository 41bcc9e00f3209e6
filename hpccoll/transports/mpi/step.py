"""A step of one rank, compiled: calls, messages that start together, and calls once all of them have ended."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeAlias

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from hpccoll.transports.operation import Array

DeferredCall: TypeAlias = tuple[Callable[..., object], tuple[object, ...]]


class QueuedMemory(Protocol):
    """Memory that is not the host's, and what is done in it queued."""

    def empty(self, count: int, dtype: np.dtype[np.generic]) -> Array:
        """Return an uninitialised array there."""

    @property
    def fences(self) -> Sequence[DeferredCall]:
        """Calls that return when all that was queued is done."""


@dataclass(frozen=True, slots=True)
class MpiMessage:
    """One message of this rank.

    Args:
        sends: whether it is sent, or received.
        data: which bytes, as mpi4py takes them.
        peer: to or from whom.
        tag: of MPI.
        nbytes: how many bytes it is for: an empty one stands for those that the receiver takes where they lie.
    """

    sends: bool
    data: tuple[NDArray[np.uint8], int, MPI.Datatype]
    peer: int
    tag: int
    nbytes: int

    @property
    def empty(self) -> bool:
        """Whether it is only a word: nothing waits for its bytes."""
        return self.data[1] == 0

    def persistent(self, comm: MPI.Intracomm) -> MPI.Prequest:
        return (comm.Send_init if self.sends else comm.Recv_init)(self.data, self.peer, self.tag)

    def transient(self, comm: MPI.Intracomm) -> Callable[[], MPI.Request]:
        return partial(comm.Isend if self.sends else comm.Irecv, self.data, self.peer, self.tag)


@dataclass(slots=True)
class CompiledStep:
    """What this rank does in a step: calls, then messages, then calls."""

    before: list[DeferredCall] = field(default_factory=list)
    messages: list[MpiMessage] = field(default_factory=list)
    after: list[DeferredCall] = field(default_factory=list)
    requests: list[MPI.Prequest] = field(default_factory=list)
    starts: list[Callable[[], MPI.Request]] = field(default_factory=list)

    def prepare(self, comm: MPI.Intracomm, *, persistent: bool) -> None:
        """Make what ``start`` starts: requests that persist, or calls that make new ones."""
        if persistent:
            self.requests = [message.persistent(comm) for message in self.messages]
        else:
            self.starts = [message.transient(comm) for message in self.messages]

    def start(self) -> Sequence[MPI.Request]:
        for call, arguments in self.before:
            call(*arguments)
        if self.requests:
            MPI.Prequest.Startall(self.requests)
            return self.requests
        return [start() for start in self.starts]

    def finish(self) -> None:
        for call, arguments in self.after:
            call(*arguments)


def merge_steps(steps: Iterable[CompiledStep]) -> list[CompiledStep]:
    """Return the same with fewer steps: words follow words at once where nothing is to be done between them."""
    fewer: list[CompiledStep] = []
    for step in steps:
        words = all(message.empty for part in (*fewer[-1:], step) for message in part.messages)
        if fewer and words and not (fewer[-1].after or step.before):
            fewer[-1].messages += step.messages
            fewer[-1].after = step.after
        else:
            fewer.append(step)
    return fewer
