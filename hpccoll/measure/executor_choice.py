"""The choice of the executor: one for all ranks, because ranks of different executors cannot synchronise."""

from mpi4py import MPI

from hpccoll.cases.case import COMPILED, PYTHON
from hpccoll.common.errors import UnusableError
from hpccoll.executor.library import NativeUnavailableError, load_library
from hpccoll.executor.structures import DTYPES, kernel
from hpccoll.transports.mpi.native_executor import CompiledOptions
from hpccoll.transports.mpi.native_functions import mpi_functions


def agree_on_executor(comm: MPI.Intracomm, requested: str | None, *, oversubscribed: bool) -> CompiledOptions | None:
    """Return how the compiled executor runs, or None for the Python executor; all ranks call this together.

    Args:
        comm: the communicator of the ranks.
        requested: ``compiled``, ``python``, or None for the compiled one if all ranks have it.
        oversubscribed: whether ranks outnumber the cores, so that a waiting rank must yield its core.

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
    reports: list[tuple[UnusableError | None, tuple[str, ...]]] = comm.allgather((failure, dtypes))
    for reported in filter(None, (reported for reported, _ in reports)):
        if requested == COMPILED or not isinstance(reported, NativeUnavailableError):
            raise reported
        return None
    common = tuple(dtype for dtype in DTYPES if all(dtype in of_rank for _, of_rank in reports))
    return CompiledOptions(oversubscribed=oversubscribed, dtypes=common)


def executor_provenance(compiled: CompiledOptions | None) -> dict[str, str]:
    """Return the record of the executor of an attempt, and of how its ranks wait."""
    if compiled is None:
        return {"executor": PYTHON, "waiting": "yields"}
    return {"executor": COMPILED, "waiting": "yields" if compiled.oversubscribed else "spins"}
