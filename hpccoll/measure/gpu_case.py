"""On a GPU: how the bytes of a subject move there, and what its events say of an operation."""

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from mpi4py import MPI

from hpccoll.evidence.communicator_settings import BUFFERS, CommunicatorSettings, nccl_config
from hpccoll.spec.case import Case
from hpccoll.spec.catalogue import GRAPH
from hpccoll.transports.gpu import Gpu
from hpccoll.transports.mpi.gpu_memory import ON_GPU
from hpccoll.transports.nccl.communicator_config import Buffers, Configured
from hpccoll.transports.nccl.grouped import Nccl, StreamPlan
from hpccoll.transports.nccl.vendor import NcclVendor
from hpccoll.transports.operation import CompiledPlan, Transport

Wait: TypeAlias = Callable[[Callable[[], bool], Callable[[], str | None]], None]
"""Waits until the first says that all is done, and gives up where the second says why it will never be."""


def transport_of(
    case: Case, comm: MPI.Intracomm, gpu: Gpu, communicator: CommunicatorSettings, *, native: bool
) -> Transport:
    """Return how the bytes of ``case`` move between the GPUs of ``comm``, by schedules or by a library's own calls.

    Args:
        case: of device cuda.
        comm: of the ranks.
        gpu: of this one.
        communicator: what NCCL's are made with.
        native: whether by a library's own calls.
    """
    gpu.release()  # what an earlier case had: NCCL and MPI take memory past CuPy
    if case.transport != "nccl":
        return ON_GPU[case.transport, native](comm, gpu)
    graph, settings, how = bool(case.params.get(GRAPH)), nccl_config(communicator), communicator.get(BUFFERS)
    library = Configured(settings) if settings else None
    if not native:
        return Nccl(comm, gpu, graph=graph, library=library)
    buffers = Buffers(comm, gpu, str(how)) if how else None
    return NcclVendor(comm, gpu, graph=graph, library=library, buffers=buffers)


class EventTimed:
    """A plan that queues all that it does, between two events: their time is the operation's by the clock of the GPU.

    The host's time holds the recording of both, some hundreds of nanoseconds each.
    """

    def __init__(self, plan: StreamPlan, gpu: Gpu) -> None:
        self._gpu, self._stream, self._queue = gpu, gpu.stream, plan.enqueue
        self._start, self._end = gpu.event(), gpu.event()
        self._plan = plan
        self._wait: Callable[[], object] = gpu.stream.synchronize

    def run(self) -> None:
        self._start.record(self._stream)
        self._queue()
        self._end.record(self._stream)
        self._wait()

    def wait_by(self, wait: Wait) -> None:
        """Have runs wait so, instead of for ever."""
        self._wait = partial(wait, self._plan.idle, self._plan.error)

    def device_ns(self) -> int:
        """Return the time of the last run."""
        return self._gpu.elapsed_ns(self._start, self._end)


def event_timed(plan: CompiledPlan, gpu: Gpu | None) -> EventTimed | None:
    """Return ``plan`` between events, None where the host has a part in it: its time is then the host's alone."""
    return EventTimed(plan, gpu) if gpu and isinstance(plan, StreamPlan) else None
