"""A compiled step of one rank: calls, messages that start together, and calls after all messages have completed."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeAlias

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from hpccoll.transports.transport_interface import Array

DeferredCall: TypeAlias = tuple[Callable[..., object], tuple[object, ...]]
"""A function and its arguments."""


class QueuedMemory(Protocol):
    """Memory, such as a GPU's, in which copies and folds are queued instead of executed at once."""

    def empty(self, count: int, dtype: np.dtype[np.generic]) -> Array:
        """Return an uninitialised array in this memory."""

    @property
    def sync_calls(self) -> Sequence[DeferredCall]:
        """The calls that wait for all queued work."""


@dataclass(frozen=True, slots=True)
class MpiMessage:
    """One message of this rank.

    Args:
        sends: whether this rank sends it; otherwise it receives it.
        data: the buffer specification for mpi4py.
        peer: the other rank.
        tag: the MPI tag.
        nbytes: the bytes that the message carries, or that the receiver reads from shared memory after a signal.
    """

    sends: bool
    data: tuple[NDArray[np.uint8], int, MPI.Datatype]
    peer: int
    tag: int
    nbytes: int

    @property
    def is_signal(self) -> bool:
        """Whether the message carries no bytes, and only synchronises two ranks."""
        return self.data[1] == 0

    def persistent(self, comm: MPI.Intracomm) -> MPI.Prequest:
        return (comm.Send_init if self.sends else comm.Recv_init)(self.data, self.peer, self.tag)

    def transient(self, comm: MPI.Intracomm) -> Callable[[], MPI.Request]:
        return partial(comm.Isend if self.sends else comm.Irecv, self.data, self.peer, self.tag)


@dataclass(slots=True)
class CompiledStep:
    """The work of this rank in a step.

    Args:
        before: the calls to make before the messages start.
        messages: the messages of the step.
        after: the calls to make after all messages have completed.
        requests: the persistent requests of the messages, if they are persistent.
        starts: the functions that start new requests, otherwise.
    """

    before: list[DeferredCall] = field(default_factory=list)
    messages: list[MpiMessage] = field(default_factory=list)
    after: list[DeferredCall] = field(default_factory=list)
    requests: list[MPI.Prequest] = field(default_factory=list)
    starts: list[Callable[[], MPI.Request]] = field(default_factory=list)

    def prepare(self, comm: MPI.Intracomm, *, persistent: bool) -> None:
        """Create persistent requests, or functions that create a new request in each run."""
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
    """Return fewer steps: consecutive steps that only exchange signals, without calls between them, become one."""
    merged: list[CompiledStep] = []
    for step in steps:
        only_signals = all(message.is_signal for part in (*merged[-1:], step) for message in part.messages)
        if merged and only_signals and not (merged[-1].after or step.before):
            merged[-1].messages += step.messages
            merged[-1].after = step.after
        else:
            merged.append(step)
    return merged
