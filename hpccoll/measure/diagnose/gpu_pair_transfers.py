"""The transfer of a pair of ranks over NCCL: each sends the other a stream of messages, which the receiver's GPU times.

Each transfer has a communicator of its own, none of whose calls waits for the partner: one that has
stopped takes nobody along. Making and connecting it takes up to seconds, more on some pairs than on
others; therefore all pairs of a slot connect first, and then transfer at once.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast

import numpy as np
from mpi4py import MPI

from hpccoll.common.errors import UnusableError
from hpccoll.common.units import format_size
from hpccoll.diagnosis.nodes_alone import GpusOfHosts
from hpccoll.diagnosis.recorded import DiagnosisOptions
from hpccoll.evidence.own_nccl_log import OWN_LOG
from hpccoll.measure.diagnose.pair_transfers import (
    FAILED,
    OVER_MPI,
    UNTIMED,
    MessageStream,
    Transfer,
    TransferKind,
    timing_of,
)
from hpccoll.measure.gpu_assignment import BASE_TRANSPORT, RankGpus
from hpccoll.transports.gpu_errors import gpu_errors
from hpccoll.transports.nccl.nccl_errors import NCCL_EXCEPTIONS, nccl_error_text
from hpccoll.transports.nccl.pair_communicator import PairCommunicator, new_unique_id

if TYPE_CHECKING:
    from hpccoll.transports.gpu import Event, Gpu, GpuArray

Result = TypeVar("Result")
Steps: TypeAlias = Generator[bool, None, Result]
"""What a transfer does step by step: it yields False where it goes on, and True when it is connected."""

BY_RATE_ON_GPUS = (
    (80e9, MessageStream(64 << 20, 1, 0.1)),
    (8e9, MessageStream(16 << 20, 1, 0.1)),
    (1e9, MessageStream(2 << 20, 1, 0.1)),
    (0.0, MessageStream(128 << 10, 1, 0.2)),
)
"""From which rate on, in bytes per second, a pair sends what.

Each message is a kernel, which takes longer than its start. Slots are longer than over MPI, because
making a communicator takes as long anyway.
"""

FIRST_LIMIT_S, LEAST_LIMIT_S = 25.0, 10.0
"""Deadlines of slots, in which communicators are made: a second each, and more where NCCL starts."""

MOST_QUEUED = 128
"""The most messages that wait on a GPU: where CUDA's queue is full, of about 1,000 entries, the host would wait."""


def choose_transfers(
    gpus: RankGpus, options: DiagnosisOptions
) -> tuple[TransferKind, GpusOfHosts | None]:
    """Return how pairs transfer, and which GPUs hosts have; None if none has any, or the user asks for the host.

    They transfer over NCCL if that is asked for, or if each rank has a GPU of its own; else over
    MPI. All ranks call this together.

    Raises:
        UnusableError: on all ranks, if NCCL is asked for, and a rank lacks something, or both
            directions at once.
    """
    if options.device == "cpu":
        return OVER_MPI, None
    visible = gpus.visible_on_hosts
    lacking = _first(gpus.silent) or gpus.missing_for(BASE_TRANSPORT) or _first(gpus.failures)
    lacking = lacking or gpus.missing_for("nccl")
    if lacking is None and options.together:
        why = "over NCCL the directions of a pair take turns; do: --directions in-turn, or --device cpu"
        raise UnusableError("--directions together", why)
    if lacking is not None and options.device == "cuda":
        raise UnusableError("--device cuda", lacking)
    gpus_of_hosts = None
    if any(visible.values()) or gpus.silent:
        gpus_of_hosts = GpusOfHosts(visible=visible, unused_because=lacking)
    if lacking is not None:
        return OVER_MPI, gpus_of_hosts
    OWN_LOG.begin()
    begin = partial(GpuPairTransfer, gpus.gpu_of_rank)
    return TransferKind(
        "NCCL", "GPU", begin, BY_RATE_ON_GPUS, FIRST_LIMIT_S, LEAST_LIMIT_S, connects_first=True
    ), gpus_of_hosts


def _first(reasons: Mapping[str, str]) -> str | None:
    return next((f"{host}: {why}" for host, why in reasons.items()), None)


class GpuPairTransfer:
    """A transfer between GPUs, whose directions take turns.

    A group of a send and a receive would be one kernel, with one time for both.
    """

    def __init__(self, gpu: "Gpu", comm: MPI.Intracomm, transfer: Transfer) -> None:
        self.timing = UNTIMED
        self._transfer = transfer
        self._connected = False
        self._steps = self._reported(gpu, comm)
        self._abort: Thread | None = None  # of the communicator

    def advance(self) -> bool:
        """Do what can be done without waiting; return whether it is connected, and the next time, whether it ended."""
        if not next(self._steps, True):
            return False
        failed = self.timing is not UNTIMED  # then there is an answer, however long the abort takes
        return failed or self._abort is None or not self._abort.is_alive()

    def leave(self) -> None:
        """Abort the communicator."""
        self._steps.close()

    def complaint(self) -> str | None:
        """Return NCCL's last warnings, and where its log is, if the pair has not connected."""
        if self._connected:
            return None
        return (
            f"connecting NCCL with rank {self._transfer.partner} has not ended; {OWN_LOG.report()}"
        )

    def _reported(self, gpu: "Gpu", comm: MPI.Intracomm) -> Steps[None]:
        """Transfer, and take an error of CUDA or NCCL for the answer: the others are diagnosed on."""
        try:
            with gpu_errors(gpu):
                yield from self._transfer_all(gpu.with_own_stream(), comm)
        except MemoryError:
            error = (
                f"GPU memory: {format_size(gpu.free_bytes)} of {format_size(gpu.total_bytes)} free"
            )
        except NCCL_EXCEPTIONS as failed:
            error = nccl_error_text(failed)
        else:
            return
        self.timing = replace(FAILED, error=error)

    def _transfer_all(self, gpu: "Gpu", comm: MPI.Intracomm) -> Steps[None]:
        # NCCL and the GPU still work on an earlier communicator
        while any(thread.is_alive() for thread in _ENDING):
            yield False
        _ENDING.clear()
        partner = self._transfer.partner
        tag = self._transfer.tag
        first = self._transfer.first
        partners = comm.irecv(source=partner, tag=tag)
        try:
            buffers = [gpu.empty(self._transfer.stream.bytes, np.dtype(np.uint8)) for _ in range(2)]
            own = new_unique_id() if first else b""
        except BaseException:  # the partner need not wait
            with suppress(MPI.Exception):  # the first error is the one to be seen
                self._sent = comm.isend(None, partner, tag)
                _cancel(partners)
            raise
        self._sent = comm.isend(own, partner, tag)
        theirs = yield from _received(partners)
        if theirs is None:
            self.timing = FAILED
            return
        communicator = PairCommunicator(own or theirs, int(not first))
        try:
            yield from _until(gpu, communicator, lambda: True)
            yield from self._queue(gpu, communicator, buffers, 1)  # these connect
            self._connected = True
            yield True
            arrivals = yield from self._queue(gpu, communicator, buffers, self._transfer.messages)
        except BaseException:
            # of a thread that cannot start: the first error is the one to be seen
            with suppress(RuntimeError):
                self._abort = _started(_abort, gpu, communicator, buffers)
            raise
        self.timing = timing_of(
            [gpu.elapsed_ns(arrivals[0], arrival) / 1e9 for arrival in arrivals]
        )
        destroys = _started(_destroy, gpu, communicator)
        while destroys.is_alive():
            yield False

    def _queue(
        self,
        gpu: "Gpu",
        communicator: PairCommunicator,
        buffers: "Sequence[GpuArray]",
        messages: int,
    ) -> "Steps[Sequence[Event]]":
        """Queue messages of both directions, and return the events of those that were received."""
        queued: list[Event] = []
        for sends in (self._transfer.first, not self._transfer.first):
            buffer = buffers[sends]
            for _ in range(messages):
                communicator.queue(gpu.address(buffer), buffer.nbytes, gpu.stream.ptr, sends=sends)
                yield from _until(gpu, communicator, lambda: True)
                queued.append(gpu.event())
                gpu.record(queued[-1])
                yield from _until(
                    gpu,
                    communicator,
                    lambda: len(queued) < MOST_QUEUED or queued[-MOST_QUEUED].done,
                )
        yield from _until(gpu, communicator, gpu.idle)
        if self._transfer.first:
            return queued[messages:]
        return queued[:messages]


_ENDING: list[Thread] = []
"""Threads that end communicators of this rank: its next transfer begins when they have ended."""


def _started(end: Callable[..., None], *arguments: object) -> Thread:
    thread = Thread(target=end, args=arguments, daemon=True)
    thread.start()
    _ENDING.append(thread)
    return thread


def _abort(gpu: "Gpu", communicator: PairCommunicator, _buffers: object) -> None:
    """Abort a communicator, and keep the buffers of its messages until then."""
    gpu.select()  # a thread begins with the first GPU
    communicator.abort()


def _destroy(gpu: "Gpu", communicator: PairCommunicator) -> None:
    gpu.select()  # as above
    communicator.destroy()


def _until(
    gpu: "Gpu", communicator: PairCommunicator, condition: Callable[[], bool]
) -> Steps[None]:
    """Wait until the last call of NCCL has ended and a condition holds; raise the error of NCCL or of the GPU."""
    while not (communicator.is_ready and condition()):
        yield False
        gpu.idle()


def _received(request: MPI.Request) -> Steps[bytes | None]:
    arrived = False
    try:
        while not arrived:
            arrived, content = request.test()
            if not arrived:
                yield False
    finally:
        if not arrived:
            with suppress(MPI.Exception):
                _cancel(request)
    return cast("bytes | None", content)


def _cancel(request: MPI.Request) -> None:
    """Cancel what has not been received."""
    request.Cancel()
    request.Wait()
