"""Creates the transport of a case: the class that ``cases/transport_table.py`` names, imported at first use."""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, cast

from mpi4py import MPI

from hpccoll.cases.case import Case
from hpccoll.cases.catalogue import GRAPH
from hpccoll.cases.communicator_settings import BUFFERS, CommunicatorSettings, nccl_config
from hpccoll.cases.transport_table import TRANSPORTS
from hpccoll.executor.plan_arrays import ExecutorOptions
from hpccoll.transports.gpu import Gpu
from hpccoll.transports.nccl.communicator_config import ConfiguredNccl, NcclBuffers
from hpccoll.transports.transport_interface import Transport


def make_transport(
    case: Case, comm: MPI.Intracomm, gpu: Gpu | None, communicator: CommunicatorSettings, *, native: bool,
    executor_options: ExecutorOptions | None = None,
) -> Transport:  # fmt: skip
    """Return the transport that moves the data of ``case``; all ranks of ``comm`` call this together.

    Args:
        case: the case, whose transport and device select the class.
        comm: the communicator of the ranks.
        gpu: the GPU of this rank for a case of device cuda, else None.
        communicator: the settings of NCCL's communicators.
        native: whether the library's own collectives run, instead of a schedule.
        executor_options: how the compiled executor runs plans in host memory; None for the Python executor.
    """
    spec = TRANSPORTS[case.transport]
    implementation = load_class((spec.native if native else spec.schedules)[case.device])
    if gpu is None:
        can_fold = executor_options and case.dtype in executor_options.dtypes
        return implementation(comm, executor_options if can_fold else None)
    gpu.release()  # free the memory of earlier cases: NCCL and MPI allocate outside CuPy's pool
    options = _nccl_options(case, comm, gpu, communicator) if case.transport == "nccl" else {}
    return implementation(comm, gpu, **options)


@cache
def load_class(path: str) -> Callable[..., Transport]:
    """Return the class that ``path`` names as ``module:Class``."""
    module, _, name = path.partition(":")
    return cast("Callable[..., Transport]", getattr(import_module(module), name))


def _nccl_options(case: Case, comm: MPI.Intracomm, gpu: Gpu, communicator: CommunicatorSettings) -> dict[str, Any]:
    """Return the keyword arguments of the NCCL transports."""
    settings, buffers = nccl_config(communicator), communicator.get(BUFFERS)
    return {
        "graph": bool(case.params.get(GRAPH)),
        "library": ConfiguredNccl(settings) if settings else None,
        "buffers": NcclBuffers(comm, gpu, str(buffers)) if buffers else None,
    }
