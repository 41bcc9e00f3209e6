"""The transfer of a pair of ranks over MPI: each sends the other a stream of messages, which the receiver times.

A stream lasts for a time, not for a number of bytes, so that a slow pair does not stretch a slot.
Both ends know how many messages are in flight: as many receives are posted at any time, and the
sender ends with as many empty messages, which match them. Nothing has to be cancelled, and no
clocks are compared.
"""

import math
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

Buffer: TypeAlias = NDArray[np.uint8]

LEAST_MESSAGES = 8
"""The fewest messages of a stream, however long they take."""

MOST_ARRIVALS = 64
"""The most arrivals between which slopes are computed, evenly taken from all."""


class MessageStream(NamedTuple):
    """What a pair sends."""

    bytes: int  # of a message
    in_flight: int  # messages, in each direction
    seconds: float  # of a slot: of a stream if both directions send at once, else of both

    def messages_at(self, rate: float) -> int:
        """Return how many messages a direction has, in turn, at a rate in bytes per second; NaN if it is not known."""
        share = self.seconds / 2 * rate / self.bytes
        if math.isnan(share):
            return LEAST_MESSAGES
        return max(LEAST_MESSAGES, round(share))


StreamTable: TypeAlias = Sequence[tuple[float, MessageStream]]

BY_RATE = (
    (20e9, MessageStream(4 << 20, 8, 0.02)),
    (4e9, MessageStream(1 << 20, 16, 0.02)),
    (400e6, MessageStream(1 << 20, 4, 0.1)),
    (25e6, MessageStream(1 << 20, 4, 0.2)),
    (0.0, MessageStream(16 << 10, 32, 0.2)),
)
"""From which rate on, in bytes per second, a pair sends what.

A pause of 1 ms costs 5 % of 20 ms, and 1 % of 100 ms. What is in flight lasts for longer than a
rank pauses. Tried on two cores that others used, too: at 100 Mbit/s the noise of a pair is 0.4 %
with 16 KiB x 32, and 3 % with 64 KiB x 4, whose wire was idle between messages; at 1 Gbit/s it is
1.4 % with 1 MiB x 4, and more than 10 % with 512 KiB and less, for which the cores were too slow.
"""

UNKNOWN_RATE = MessageStream(256 << 10, 4, 0.1)
"""What pairs send whose rate is not known yet."""


def stream_at(rate: float, by_rate: StreamTable = BY_RATE) -> MessageStream:
    """Return what pairs send whose usual rate is known, in bytes per second; NaN if it is not."""
    return next((stream for least, stream in by_rate if rate >= least), UNKNOWN_RATE)


class Transfer(NamedTuple):
    """The part of one rank in a transfer: a tuple, which is pickled for each rank in each slot."""

    partner: int  # rank
    tag: int  # that of the slot: what is late is not taken for another slot's
    stream: MessageStream
    together: bool  # whether both directions send at once
    first: bool  # whether this rank sends first otherwise
    # in each direction, at the usual rate; over NCCL, which cannot end a stream early, in any case
    messages: int


@dataclass(frozen=True, slots=True)
class Timing:
    """What a receiver measured of a stream."""

    seconds: float  # of a message; NaN without enough of them
    # half of the logarithm of its time in the second half of the stream over that in the first
    change: float
    error: str | None = None  # of this rank, with which the transfer ended


FAILED = Timing(math.inf, math.nan)
"""The timing of a transfer that failed on this rank, or on its partner."""

UNTIMED = Timing(math.nan, math.nan)
"""That of a transfer which has not ended, or had too few messages."""


class BegunTransfer(Protocol):
    """A transfer that has begun on this rank, and advances whenever it is asked to."""

    def advance(self) -> bool:
        """Do what can be done without waiting; return whether the transfer has ended.

        One that connects first also returns True when it has connected, and goes on with the next
        call.
        """

    def leave(self) -> None:
        """Have a transfer that the partner has not answered end as soon as it may; it still advances."""

    def complaint(self) -> str | None:
        """Return what is known of a transfer that does not connect; None of one that has, or need not."""

    @property
    def timing(self) -> Timing:
        """What was measured of the stream from the partner; the seconds are infinite if the transfer failed."""


@dataclass(frozen=True, slots=True)
class TransferKind:
    """How pairs transfer, on all ranks alike."""

    program: str  # as in ``recorded.Load``
    memory: str
    begin: Callable[[MPI.Intracomm, Transfer], BegunTransfer]
    by_rate: StreamTable  # from which rate on, in bytes per second, a pair sends what
    first_limit_s: float  # the deadline of the first slot
    least_limit_s: float  # and of any later one at least
    # whether pairs connect before all transfer at once, messages timed by the GPUs
    connects_first: bool = False


_FREE_BUFFERS = defaultdict[tuple[int, ...], list[Buffer]](list)
"""Buffers of transfers that have ended, by their shapes: networks register memory when they first use it."""


class PairTransfer:
    """A transfer in host memory over MPI."""

    def __init__(self, comm: MPI.Intracomm, transfer: Transfer) -> None:
        stream = transfer.stream
        shape = stream.in_flight + 1, stream.bytes
        if _FREE_BUFFERS[shape]:
            self._data = _FREE_BUFFERS[shape].pop()
        else:
            self._data = np.ones(shape, np.uint8)
        if transfer.together:
            seconds = stream.seconds
        else:
            seconds = stream.seconds / 2
        self._received = _Receiver(comm, transfer, self._data[1:])
        self._sent = _Sender(comm, transfer, self._data[0], seconds)
        self._sends = transfer.together or transfer.first

    def advance(self) -> bool:
        """Do what can be done without waiting; return whether the transfer has ended."""
        received = self._received.advance()
        self._sends |= received
        ended = self._sends and self._sent.advance() and received
        if ended:
            _FREE_BUFFERS[self._data.shape].append(self._data)
        return ended

    def leave(self) -> None:
        """Send no more than is needed to end: MPI cannot cancel what has been sent."""
        self._sent.shorten()

    def complaint(self) -> None:
        """Return None: MPI has connected the ranks."""

    @property
    def timing(self) -> Timing:
        """What was measured of the stream from the partner."""
        return timing_of(self._received.arrivals)


OVER_MPI = TransferKind("MPI", "host", PairTransfer, BY_RATE, first_limit_s=10.0, least_limit_s=2.0)


class _Sender:
    def __init__(
        self, comm: MPI.Intracomm, transfer: Transfer, message: Buffer, seconds: float
    ) -> None:
        self._comm = comm
        self._transfer = transfer
        self._message = message
        self._seconds = seconds
        self._requests: list[MPI.Request] = []
        self._until = math.inf
        self._sent = 0
        self._ends = 0

    def advance(self) -> bool:
        """Send what may be sent; return whether everything has been received."""
        in_flight = self._transfer.stream.in_flight
        if not self._requests:
            self._requests = [self._send(self._message) for _ in range(in_flight)]
        for k in MPI.Request.Testsome(self._requests) or ():
            if not self._sent:  # connecting takes part of the time of the first one
                self._until = time.perf_counter() + self._seconds
            self._sent += 1
            if not self._ends and (
                self._sent < LEAST_MESSAGES or time.perf_counter() < self._until
            ):
                self._requests[k] = self._send(self._message)
            elif self._ends < in_flight:
                self._requests[k] = self._send(self._message[:0])
                self._ends += 1
        return all(request == MPI.REQUEST_NULL for request in self._requests)

    def shorten(self) -> None:
        """End the stream as soon as it may."""
        self._seconds = 0.0
        self._until = 0.0

    def _send(self, message: Buffer) -> MPI.Request:
        # Synchronous: it ends when the receiver has its message, and not when a library has stored
        # it.
        return self._comm.Issend(message, self._transfer.partner, self._transfer.tag)


class _Receiver:
    def __init__(self, comm: MPI.Intracomm, transfer: Transfer, buffers: Buffer) -> None:
        self._comm = comm
        self._transfer = transfer
        self._buffers = buffers
        self.arrivals: list[float] = []  # of messages, in seconds
        self._requests = [self._receive(k) for k in range(len(buffers))]

    def advance(self) -> bool:
        """Receive what has come; return whether the stream has ended."""
        statuses = [MPI.Status() for _ in self._requests]
        arrived = MPI.Request.Testsome(self._requests, statuses) or ()
        now = time.perf_counter()
        for k, status in zip(arrived, statuses, strict=False):
            if status.Get_count():
                self.arrivals.append(now)
                self._requests[k] = self._receive(k)
        return all(request == MPI.REQUEST_NULL for request in self._requests)

    def _receive(self, k: int) -> MPI.Request:
        return self._comm.Irecv(self._buffers[k], self._transfer.partner, self._transfer.tag)


def timing_of(arrivals: Sequence[float]) -> Timing:
    """Return what follows from the times at which messages arrived, in seconds, without the first quarter.

    The time of a message is the median of the slopes between any two arrivals that are not too
    close (Theil and Sen): pauses of the receiver, after which several arrive at once, hardly move
    it.
    """
    used = np.asarray(arrivals[len(arrivals) // 4 :])
    if len(arrivals) < LEAST_MESSAGES:
        return UNTIMED
    middle = len(used) // 2
    early = _slope(used[: middle + 1])
    late = _slope(used[middle:])
    return Timing(_slope(used), math.log(late / early) / 2 if early > 0 < late else math.nan)


def _slope(times: NDArray[np.float64]) -> float:
    number = np.linspace(0, len(times) - 1, min(len(times), MOST_ARRIVALS)).astype(np.int64)
    earlier, later = np.triu_indices(len(number), max(1, len(number) // 8))
    return float(
        np.median(
            (times[number[later]] - times[number[earlier]]) / (number[later] - number[earlier])
        )
    )
