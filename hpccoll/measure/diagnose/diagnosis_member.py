"""A rank of a diagnosis: it does what rank 0 orders, a transfer at a time, and waits for nobody but rank 0."""

import math
import os
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias, cast

from mpi4py import MPI

from hpccoll.diagnosis.slot_records import Floats
from hpccoll.host.machine_load import core_wait_ns
from hpccoll.measure.diagnose.loss_recorder import LossRecorder, RankLosses
from hpccoll.measure.diagnose.pair_transfers import (
    FAILED,
    BegunTransfer,
    Timing,
    Transfer,
    TransferKind,
)
from hpccoll.measure.provenance import LoadRecorder
from hpccoll.measure.ranks import Ranks, abort_job, print_of_rank

LEADER_LIMIT_S = 30.0
"""The seconds after the deadline of a slot after which rank 1 ends the launch if no order comes;
further ranks wait a second longer each."""

LEFT_LIMIT_S, END_LIMIT_S = 1.0, 300.0
"""How long, in the end, a rank waits for transfers that it has left, and for rank 0 to write the results and abort."""

MOST_OF_LIMIT = 0.8
"""The share of its limit after which a transfer that is left counts as one that did not connect."""

ORDERS = 0
"""The tag of orders; an answer has that of its slot."""


@dataclass(frozen=True, slots=True)
class Alone:
    """The order to measure what a rank does alone; the answer is that of ``measured_alone``."""

    tag: int


@dataclass(frozen=True, slots=True)
class End:
    """The order to finish; the answer is a ``Report``."""

    tag: int


@dataclass(frozen=True, slots=True)
class Go:
    """The order to go on with a transfer that has connected; the answer is its timing."""

    partner: int  # rank
    tag: int


@dataclass(frozen=True, slots=True)
class LastOrder:
    """The last order."""

    aborts: bool  # whether the launch ends by MPI_Abort


@dataclass(frozen=True, slots=True)
class Report:
    unfinished: bool  # whether this rank has left a transfer
    load: Mapping[str, object] | None  # what else used its host
    losses: RankLosses
    # the share of the time of its transfers in which it waited for a core
    waited: float | None = None


class CoreWaits:
    """For how long a rank waited for a core in its transfers."""

    def __init__(self) -> None:
        self._began: tuple[int, int] | None = None
        self._waited_ns = 0
        self._all_ns = 0

    @property
    def share(self) -> float | None:
        """The share of the time; None if there was no transfer, or the kernel counts nothing."""
        if not self._all_ns:
            return None
        return min(self._waited_ns / self._all_ns, 1.0)

    def begin(self) -> None:
        """Count from now on."""
        waited = core_wait_ns()
        if waited is None:
            self._began = None
        else:
            self._began = (waited, time.monotonic_ns())

    def end(self) -> None:
        """Count up to now, if that has begun."""
        if self._began:
            waited, began = self._began
            self._waited_ns += (core_wait_ns() or waited) - waited
            self._all_ns += time.monotonic_ns() - began
        self._began = None


def measured_alone(
    alone: Callable[[], Mapping[str, Floats]],
) -> tuple[Mapping[str, Floats], str | None]:
    """Return what a rank does alone, and the error with which that ended, such as of a GPU without memory."""
    try:
        return alone(), None
    except Exception as error:  # noqa: BLE001  whatever it is, the others are diagnosed on
        return {}, f"{type(error).__name__}: {error}"


Order: TypeAlias = Transfer | Go | Alone | End | LastOrder | None  # None: the rank rests

ReceivedOrder: TypeAlias = tuple[Order, float, float]
"""An order, the seconds for which rank 0 waits for its answer, and those after which a launch without another ends."""


class Member:
    """A rank of a diagnosis: it has a transfer at a time. Created on all ranks together."""

    def __init__(
        self,
        ranks: Ranks,
        kind: TransferKind,
        stop: Callable[[], int],
        losses: LossRecorder,
        *,
        oversubscribed: bool,
    ) -> None:
        self.kind = kind
        self._losses = losses
        self.rank = ranks.comm.rank
        self.size = ranks.comm.size
        self.stop = stop
        self._oversubscribed = oversubscribed
        self._leader = f"rank 0 on {ranks.node_ids[0][0]}"
        self._host = ranks.node_id[0]
        self.control, self._data = ranks.comm.Dup(), ranks.comm.Dup()
        self._arriving = self.control.irecv(source=0, tag=ORDERS)
        self._transfer: BegunTransfer | None = None
        self.limit_s = math.inf  # of the next transfer: how long rank 0 waits for it
        self._began, self._limit_s = 0.0, math.inf  # of the transfer
        self._connects = False  # whether the transfer waits for an order when it has connected
        self.rests = True  # whether nothing that is to be answered is under way
        self._failed: list[BegunTransfer] = []
        self._waits = CoreWaits()
        # by rank; one that has stopped does not receive them
        self._sends = defaultdict[int, list[MPI.Request]](list)
        # that have not ended: a late partner may still write in their buffers
        self._left: list[BegunTransfer] = []

    def send(self, content: object, to: int, tag: int) -> None:
        """Send a message without waiting for it."""
        self._sends[to].append(self.control.issend(content, to, tag))

    def has_received(self, rank: int) -> bool:
        """Return whether a rank has received all that was sent; MPI stores few messages for one that has stopped."""
        self._sends[rank] = [send for send in self._sends[rank] if not send.Test()]
        return not self._sends[rank]

    def take(self, order: Order) -> None:
        """Go on with the current transfer, or leave it, and begin that of an order."""
        if self._transfer and not isinstance(order, Go):
            self._print_complaint()
            with suppress(MPI.Exception):  # whatever it is, the next order counts
                self._transfer.leave()
            self._left.append(self._transfer)
            self._transfer = None
        if isinstance(order, Transfer):
            self._transfer = self.kind.begin(self._data, order)
            self._began, self._limit_s = time.monotonic(), self.limit_s
        self._waits.end()
        if self._transfer:
            self._waits.begin()
        self._connects = self.kind.connects_first and isinstance(order, Transfer)
        self.rests = self._transfer is None

    def _print_complaint(self) -> None:
        """Print what is known of the current transfer if it has not connected within its limit."""
        lasted = time.monotonic() - self._began
        if self._transfer is None or lasted < MOST_OF_LIMIT * self._limit_s:
            return  # it is left because another rank has failed
        complaint = self._transfer.complaint()
        if complaint:
            print_of_rank(self.rank, f"{complaint} (on {self._host})")

    def arrived_order(self) -> ReceivedOrder | None:
        """Return the order that has come, if one has; rank 0 sends itself none.

        Rank 0 looks for orders all the same. MPI goes on with a transfer in each of its calls: if
        rank 0 makes one call less each time, it receives 6 to 16 % more slowly than others where it
        waits for cores (on two cores with a load of 8 to 18), and its healthy node is accused.
        """
        arrived, received = self._arriving.test()
        if not arrived:
            return None
        self._arriving = self.control.irecv(source=0, tag=ORDERS)
        return cast("ReceivedOrder", received)

    def advance(self) -> Timing | None:
        """Continue the transfer, and those that were left; return the timing of the former if it ends or connects."""
        self._left = [transfer for transfer in self._left if not self._has_ended(transfer)]
        if self.rests or self._transfer is None or not self._has_ended(self._transfer):
            return None
        self._waits.end()
        if self._transfer in self._failed:
            timing = FAILED
        else:
            timing = self._transfer.timing
        self.rests = True
        if not self._connects or math.isinf(timing.seconds):
            self._transfer = None
        return timing

    def _has_ended(self, transfer: BegunTransfer) -> bool:
        try:
            return transfer.advance()
        except MPI.Exception as error:  # such as of a network port, or a partner that has died
            print_of_rank(self.rank, f"a transfer failed: {error}")
            self._failed.append(transfer)
            return True

    def report(self, load: LoadRecorder) -> Report:
        """Leave the current transfer, let those that were left end if they do soon, and return what is left."""
        self.take(None)
        until = time.monotonic() + LEFT_LIMIT_S
        while self._left and time.monotonic() < until:
            self.advance()
            self.pause()
        return Report(
            bool(self._left or self._failed), load.end(), self._losses.end(), self._waits.share
        )

    def pause(self) -> None:
        """Wait for a moment: where ranks share cores, another one may need this one's."""
        seconds = PAUSES_S[self._oversubscribed, self.rests]
        time.sleep(seconds) if seconds else os.sched_yield()

    def follow(self, alone: Callable[[], Mapping[str, Floats]], load: LoadRecorder) -> None:
        """Do what rank 0 asks for, until it ends the diagnosis; return if the launch can end by MPI_Finalize."""
        tag = 0
        until = time.monotonic() + LEADER_LIMIT_S + self.rank
        leaves = math.inf
        while True:
            # More orders may have arrived: the partners of earlier ones wait for their transfers, too.
            if received := self.arrived_order():
                order, limit_s, silent_s = received
                if isinstance(order, LastOrder):
                    break
                until = time.monotonic() + silent_s + self.rank
                self.limit_s = limit_s
                self.take(order)
                leaves = math.inf
                if isinstance(order, Transfer | Go):
                    tag = order.tag
                    leaves = time.monotonic() + limit_s
                elif order:
                    self.send(
                        measured_alone(alone) if isinstance(order, Alone) else self.report(load),
                        0,
                        order.tag,
                    )
            elif timing := self.advance():
                leaves = math.inf
                self.send((timing, self.stop()), 0, tag)
            elif time.monotonic() > leaves:  # the partner does not answer, but this rank does
                leaves = math.inf
                self.take(None)
                self.send((FAILED, self.stop()), 0, tag)
            elif time.monotonic() > until:
                reason = f"{self._leader}, which leads the diagnosis, does not answer; the launch ends by MPI_Abort"
                print_of_rank(self.rank, reason)
                abort_job(MPI.COMM_WORLD)
                os._exit(1)  # under srun MPI_Abort may return
            else:
                self.pause()
        if order.aborts:
            time.sleep(END_LIMIT_S)
            os._exit(1)

    def close(self) -> None:
        """Free the communicators, when all ranks have answered; all of them call this, and wait for one another."""
        MPI.Request.Waitall(list(chain.from_iterable(self._sends.values())))
        self._arriving.Cancel()
        self._arriving.Wait()
        self.control.Free()
        self._data.Free()


PAUSES_S = {
    (False, False): 0.0,
    (False, True): 1e-4,
    (True, False): 2e-4,
    (True, True): 2e-3,
}
"""Seconds between two looks for messages: by whether ranks outnumber the cores, and this one rests."""
