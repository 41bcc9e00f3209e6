"""The start and the end of MPI on a rank."""

import atexit
import faulthandler
import os
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hpccoll.errors import UnusableError
from hpccoll.limits import SECONDS
from hpccoll.run.pmi_relay import shorten_values

if TYPE_CHECKING:
    from mpi4py import MPI

MPICH_FAMILY = ("MPICH", "MVAPICH", "Intel MPI")
"""Libraries that do not start under the launcher of Open MPI, which speaks PMIx."""

START_TIMEOUT_VARIABLE = "HPCCOLL_START_S"
"""The variable that says how many seconds a rank waits for the others as MPI starts, and as it ends [300]."""
STDERR = 2


def start_deadline() -> None:
    """Have this process end where it still waits after so many seconds, and say where, whatever it waits in.

    MPI has no clock for its start and its end: one rank that never comes, and all wait for as long as the job may last.
    Python cannot look after them, for MPI keeps its lock meanwhile; faulthandler has a thread that needs none.

    Raises:
        BadInputError: where the variable is no number of seconds.
    """
    faulthandler.dump_traceback_later(_start_timeout_s(), exit=True, file=STDERR)


def _start_timeout_s() -> float:
    return SECONDS.read(START_TIMEOUT_VARIABLE, os.environ.get(START_TIMEOUT_VARIABLE, "300"))


cancel_deadline = faulthandler.cancel_dump_traceback_later


@contextmanager
def deadline() -> Iterator[None]:
    """Have the limit for a while in which ranks wait for one another, and no watchdog looks after them."""
    start_deadline()
    try:
        yield
    finally:
        cancel_deadline()


@contextmanager
def without_deadline() -> Iterator[None]:
    """Take the limit away for as long as there is a watchdog."""
    cancel_deadline()
    try:
        yield
    finally:
        start_deadline()


def start_mpi(device: str) -> "MPI.Intracomm":
    """Start MPI and return its world; where buffers are to lie on a GPU, each rank has taken its own before.

    Raises:
        BadInputError: where there is no library, or one that would abort under this launcher before it can be asked.
    """
    import mpi4py

    mpi4py.rc.initialize, mpi4py.rc.finalize = False, True
    warnings.filterwarnings("ignore", r"\s*suspicious MPI", RuntimeWarning)  # on every rank, in three lines
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        remedy = "pip install 'hpccoll[local]', or load your site's MPI module"
        raise UnusableError("MPI library", f"mpi4py can load none: {remedy} ({error})") from None
    vendor, version = MPI.get_vendor()
    if vendor in MPICH_FAMILY and "OMPI_COMM_WORLD_SIZE" in os.environ:
        library = f"{vendor} {'.'.join(map(str, version))}"
        raise UnusableError("launcher", f"mpiexec of Open MPI, and the library is {library}: use the mpiexec of that")
    if vendor == "MPICH":
        shorten_values()
    if device == "cuda":
        from hpccoll.measure.gpu_assignment import take_early

        take_early()
    if not MPI.Is_initialized():
        MPI.Init_thread(getattr(MPI, f"THREAD_{mpi4py.rc.thread_level.upper()}"))
        atexit.register(_start_finalize_alarm)
    return MPI.COMM_WORLD


def _start_finalize_alarm() -> None:
    """Have the kernel end this process where MPI, which mpi4py ends when nothing of Python is left, does not end."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, _start_timeout_s())


def launcher_rank() -> int:
    """Return the rank that the launcher gave this process, before MPI is up."""
    names = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "PMIX_RANK")
    return next((int(os.environ[name]) for name in names if os.environ.get(name, "").isdigit()), 0)


ROOT_LAST_S = 0.5
"""How long rank 0 leaves the others to end: srun kills who is left when one ends badly, and has a code for that."""


def finalize_mpi(code: int) -> int:
    """Part from the other ranks, which is done together, and return this one's exit code: rank 0 speaks for all.

    Args:
        code: of a bad end.
    """
    sys.modules["mpi4py.MPI"].Finalize()
    if launcher_rank():
        return 0
    time.sleep(ROOT_LAST_S)
    return code


def is_connected() -> bool:
    """Return whether the ranks end together, as MPI sees to where it is up and they have found each other."""
    mpi = sys.modules.get("mpi4py.MPI")
    return mpi is not None and mpi.Is_initialized() and mpi.COMM_WORLD.size > 1
