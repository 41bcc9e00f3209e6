"""The choice of the executor: one for all ranks, because ranks of different executors cannot synchronise."""

import os

from mpi4py import MPI

from hpccoll.errors import UnusableError
from hpccoll.host.process_facts import is_oversubscribed
from hpccoll.measure.ranks import Ranks
from hpccoll.native.library import NativeUnavailableError, load_library
from hpccoll.native.structures import DTYPES, kernel
from hpccoll.spec.case import COMPILED, PYTHON
from hpccoll.transports.mpi.native_executor import CompiledOptions
from hpccoll.transports.mpi.native_functions import mpi_functions


def agree_on_executor(ranks: Ranks, requested: str | None) -> CompiledOptions | None:
    """Return how the compiled executor runs, or None for the Python executor; all ranks call this together.

    Args:
        ranks: the ranks.
        requested: ``compiled``, ``python``, or None for the compiled one if all ranks have it.

    Raises:
        UnusableError: on all ranks, if a library is stale, or if ``compiled`` is requested and a rank lacks it.
    """
    if requested == PYTHON:
        return None
    failure: UnusableError | None = None
    dtypes: tuple[str, ...] = ()
    try:
        library = load_library()
        mpi_functions()
        dtypes = tuple(dtype for dtype in DTYPES if library.hpccoll_has_fold(kernel("add", dtype)))
    except UnusableError as error:
        failure = error
    reports: list[tuple[UnusableError | None, tuple[str, ...]]] = ranks.comm.allgather((failure, dtypes))
    for reported in filter(None, (reported for reported, _ in reports)):
        if requested == COMPILED or not isinstance(reported, NativeUnavailableError):
            raise reported
        return None
    common = tuple(dtype for dtype in DTYPES if all(dtype in of_rank for _, of_rank in reports))
    return CompiledOptions(yields=_shares_cores(ranks.comm, ranks.node_id[1]), dtypes=common)


def _shares_cores(comm: MPI.Intracomm, machine: str) -> bool:
    """Return whether ranks outnumber the cores on any machine; hosts of a testbed share one.

    Args:
        comm: the communicator of all ranks.
        machine: a name that is equal on all ranks of a machine.
    """
    masks: dict[str, list[frozenset[int]]] = {}
    for name, mask in comm.allgather((machine, frozenset(os.sched_getaffinity(0)))):
        masks.setdefault(name, []).append(mask)
    return any(map(is_oversubscribed, masks.values()))
