"""The transfer of a pair of ranks over NCCL: each sends the other a stream of messages, which the receiver's GPU times.

Each transfer has a communicator of its own, so that a rank that stops takes nobody along but its partner. The calls of
NCCL that make and connect it wait on the host, and nothing can end that wait: a thread makes them, and is left with
them. What waits on the GPU is aborted.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from hpccoll.analysis.diagnosis.recorded import DiagnosisOptions
from hpccoll.common.errors import GpuFailedError, UnusableError
from hpccoll.host.process_facts import node_name
from hpccoll.measure.gpu_assignment import BASE_TRANSPORT, RankGpus
from hpccoll.measure.pair_transfers import (
    FAILED,
    OVER_MPI,
    MessageStream,
    Transfer,
    TransferKind,
    timing_of,
)
from hpccoll.measure.ranks import print_of_rank
from hpccoll.transports.gpu import gpu_errors
from hpccoll.transports.nccl.communicators import NCCL_EXCEPTIONS, NcclFailedError, cupys_nccl, nccl_error_text
from hpccoll.transports.nccl.cupy_device import NCCL_UINT8, CupyDevice

if TYPE_CHECKING:
    from hpccoll.transports.gpu import Event, Gpu

BY_RATE_ON_GPUS = (
    (80e9, MessageStream(64 << 20, 1, 0.1)),
    (8e9, MessageStream(16 << 20, 1, 0.1)),
    (1e9, MessageStream(2 << 20, 1, 0.1)),
    (0.0, MessageStream(128 << 10, 1, 0.2)),
)
"""From which rate on, in bytes per second, a pair sends what.

Each message is a kernel, which takes much longer than its start. Slots are longer than over MPI, because making a
communicator takes as long anyway.
"""

FIRST_LIMIT_S, LEAST_LIMIT_S = 25.0, 10.0
"""Deadlines of slots, in which communicators are made: a second each, and more where NCCL starts."""

PAUSE_S = 1e-3
"""The time between two looks at a thread or a GPU."""


def choose_transfers(gpus: RankGpus, options: DiagnosisOptions) -> TransferKind:
    """Return how pairs transfer: over NCCL if that is asked for, or if each rank has a GPU of its own; else over MPI.

    All ranks call this together.

    Raises:
        UnusableError: on all ranks, if NCCL is asked for, and a rank lacks something, or both directions at once.
    """
    lacking = "" if options.device == "cpu" else gpus.missing_for("nccl")
    if lacking is None:
        if options.together:
            why = "over NCCL the directions of a pair take turns; do: --directions in-turn, or --device cpu"
            raise UnusableError("--directions together", why)
        begin = partial(GpuPairTransfer, gpus.gpu_of_rank)
        return TransferKind("NCCL", "GPU", begin, BY_RATE_ON_GPUS, FIRST_LIMIT_S, LEAST_LIMIT_S)
    if options.device == "cuda":
        raise UnusableError("--device cuda", lacking)
    if lacking and gpus.missing_for(BASE_TRANSPORT) is None and gpus.ranks.comm.rank == 0:
        print_of_rank(0, f"transfers are in host memory over MPI: {lacking}")
    return OVER_MPI


class GpuPairTransfer:
    """A transfer between GPUs, whose directions take turns.

    A group of a send and a receive would be one kernel, with one time for both.
    """

    def __init__(self, gpu: "Gpu", comm: MPI.Intracomm, transfer: Transfer) -> None:
        self.timing = FAILED
        self._gpu, self._transfer, self._rank, self._nccl = gpu, transfer, comm.rank, cupys_nccl()
        self._left, self._thread = False, Thread(target=self._run, daemon=True)
        self._unique_id: Any = None
        self._exchange: MPI.Request | None = None  # of the unique id
        if not transfer.first:
            self._exchange = comm.irecv(source=transfer.partner, tag=transfer.tag)
            return
        with self._reported_errors():
            self._unique_id = self._nccl.get_unique_id()
        if self._unique_id:
            self._exchange = comm.isend(self._unique_id, transfer.partner, transfer.tag)

    def advance(self) -> bool:
        """Do what can be done without waiting for the partner; return whether the transfer has ended."""
        if self._left:  # none is made any more: a communicator without a partner keeps others waiting
            return self._thread.ident is not None and not self._thread.is_alive()
        if self._thread.ident is not None:
            self._thread.join(PAUSE_S)
            return not self._thread.is_alive()
        if self._exchange is None:
            return True
        arrived, received = self._exchange.test()
        if arrived:
            self._unique_id = self._unique_id or received
            self._thread.start()
        return False

    def leave(self) -> None:
        """Have the thread abort the communicator, unless a call of NCCL waits there for the partner."""
        self._left = True

    def _run(self) -> None:
        with self._reported_errors():
            self._gpu.select()
            gpu = self._gpu.with_own_stream()  # the work of a transfer that was left may never end
            communicator = self._nccl.NcclCommunicator(2, self._unique_id, int(not self._transfer.first))
            device = CupyDevice(gpu, communicator)
            try:
                arrivals = self._queue(device)
                while not gpu.idle():
                    self._check(device)
                    time.sleep(PAUSE_S)
            except BaseException:
                communicator.abort()
                raise
            communicator.destroy()
            self.timing = timing_of([gpu.elapsed_ns(arrivals[0], each) / 1e9 for each in arrivals])

    def _queue(self, device: CupyDevice) -> "list[Event]":
        """Queue all messages; return the events of those that are received."""
        gpu, communicator, transfer, arrivals = device.gpu, device.communicator, self._transfer, []
        out, into = (gpu.empty(transfer.stream.bytes, np.dtype(np.uint8)) for _ in range(2))
        self._buffers = out, into  # the calls hold their addresses alone
        for messages in (1, transfer.messages):  # the first ones connect
            for sends in (transfer.first, not transfer.first):
                self._check(device)
                call, buffer = (communicator.send, out) if sends else (communicator.recv, into)
                for _ in range(messages):
                    call(gpu.address(buffer), buffer.nbytes, NCCL_UINT8, int(transfer.first), gpu.stream.ptr)
                    if not sends:
                        arrivals.append(gpu.event())
                        gpu.record(arrivals[-1])
        return arrivals

    def _check(self, device: CupyDevice) -> None:
        if error := "the transfer is left" if self._left else device.error():
            raise NcclFailedError(error)

    @contextmanager
    def _reported_errors(self) -> Iterator[None]:
        """Print an error of CUDA or NCCL with the host: its GPU may have failed, and the others are diagnosed on."""
        try:
            with gpu_errors(self._gpu):
                yield
        except NCCL_EXCEPTIONS as error:
            if not self._left:
                of_nccl = f"NCCL fails on {node_name()}: "
                named = "" if isinstance(error, GpuFailedError) else of_nccl
                print_of_rank(self._rank, f"{named}{nccl_error_text(error)}")
