"""The choice of the executor: one for all ranks, because ranks of different executors cannot synchronise."""

from mpi4py import MPI

from hpccoll.common.errors import UnusableError
from hpccoll.executor.compiled_executor import ExecutorOptions
from hpccoll.executor.library import ExecutorUnavailableError, load_library
from hpccoll.executor.mpi_functions import mpi_functions
from hpccoll.executor.structures import DTYPES, kernel


def agree_on_executor(
    comm: MPI.Intracomm, *, required: bool, oversubscribed: bool
) -> ExecutorOptions | None:
    """Return how the compiled executor runs, or None if a rank lacks it; all ranks call this together.

    Args:
        comm: the communicator of the ranks.
        required: whether no other executor may run.
        oversubscribed: whether ranks outnumber the cores, so that a waiting rank must yield its
            core.

    Raises:
        UnusableError: on all ranks, if a library is stale, or if a rank lacks the executor and it
            is required.
    """
    failure: UnusableError | None = None
    dtypes: tuple[str, ...] = ()
    try:
        library = load_library()
        mpi_functions()
        dtypes = tuple(dtype for dtype in DTYPES if library.hpccoll_has_fold(kernel("add", dtype)))
    except UnusableError as error:
        failure = error
    reports: list[tuple[UnusableError | None, tuple[str, ...]]] = comm.allgather((failure, dtypes))
    for failure_of_rank, _ in reports:
        if failure_of_rank is None:
            continue
        if required or not isinstance(failure_of_rank, ExecutorUnavailableError):
            raise failure_of_rank
        return None
    common = [
        dtype for dtype in DTYPES if all(dtype in dtypes_of_rank for _, dtypes_of_rank in reports)
    ]
    return ExecutorOptions(oversubscribed=oversubscribed, dtypes=tuple(common))
