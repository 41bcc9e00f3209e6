"""Creates the transport of a case: the class that ``cases/transport_table.py`` names, imported at first use."""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import cast

from mpi4py import MPI

from hpccoll.cases.case import Case
from hpccoll.cases.catalogue import GRAPH
from hpccoll.cases.communicator_settings import BUFFERS, CommunicatorSettings, nccl_config
from hpccoll.cases.transport_table import TRANSPORTS
from hpccoll.executor.compiled_executor import ExecutorOptions
from hpccoll.schedule.collective import NATIVE
from hpccoll.transports.gpu import Gpu
from hpccoll.transports.nccl.communicator_config import ConfiguredNccl, NcclBuffers
from hpccoll.transports.transport_interface import Transport


def make_transport(
    case: Case, comm: MPI.Intracomm, gpu: Gpu | None, communicator: CommunicatorSettings,
    options: ExecutorOptions | None = None,
) -> Transport:  # fmt: skip
    """Return the transport that moves the data of ``case``; all ranks of ``comm`` call this together.

    Its transport, algorithm and device select the class; ``communicator`` has the settings of NCCL's communicators.
    """
    row = TRANSPORTS[case.transport]
    implementation = load_class((row.native if case.algorithm == NATIVE else row.schedules)[case.device])
    if gpu is None:
        return implementation(comm, options if options and case.dtype in options.dtypes else None)
    gpu.release()  # free the memory of earlier cases: NCCL and MPI allocate outside CuPy's pool
    if case.transport != "nccl":
        return implementation(comm, gpu)
    fields, buffers = nccl_config(communicator), communicator.get(BUFFERS)
    return implementation(
        comm, gpu, graph=bool(case.params.get(GRAPH)), library=ConfiguredNccl(fields) if fields else None,
        buffers=NcclBuffers(comm, gpu, str(buffers)) if buffers else None,
    )  # fmt: skip


@cache
def load_class(path: str) -> Callable[..., Transport]:
    """Return the class that ``path`` names as ``module:Class``."""
    module, _, name = path.partition(":")
    return cast("Callable[..., Transport]", getattr(import_module(module), name))
