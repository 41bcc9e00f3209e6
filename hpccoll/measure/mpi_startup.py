"""Start and end of MPI on a rank, each with a deadline, and the signals that request its end."""

import atexit
import faulthandler
import os
import re
import signal
import sys
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

from hpccoll.common.errors import BadInputError, UnusableError, check_resources
from hpccoll.common.limits import SECONDS
from hpccoll.common.own_variables import START_TIMEOUT_VARIABLE
from hpccoll.host.abandoned_memory import remove_abandoned_files
from hpccoll.host.cpu_and_memory import (
    MPICH_BYTES_PER_RANK,
    SHARED_MEMORY_REMEDY,
    SHARED_MEMORY_WARNING,
    SharedMemorySpace,
    testbed_facts,
    usable_cpus,
)

if TYPE_CHECKING:
    from socket import socket

    from mpi4py import MPI

MPICH_FAMILY = ("MPICH", "MVAPICH", "Intel MPI")
"""Libraries that do not start under Open MPI's launcher, which uses PMIx."""

THREAD_LEVEL_VARIABLE = "MPI4PY_RC_THREAD_LEVEL"
"""Variable of mpi4py: the thread level to request from MPI."""
MPI4PY_VALUES = {
    "THREAD_LEVEL": ("multiple", "serialized", "funneled", "single"),
    "ERRORS": ("exception", "default", "abort", "fatal"),
    "IRECV_BUFSZ": "a number of bytes",
}
"""The values of the variables MPI4PY_RC_* that are not 0 or 1, from the documentation of ``mpi4py.rc``."""

RANKS_OF_NODE_VARIABLES = (
    "MPI_LOCALNRANKS",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "SLURM_STEP_TASKS_PER_NODE",
)
"""The variables in which launchers give the number of ranks on this node: those of MPICH, Open MPI
and srun. That of srun may be a list such as ``2(x3),1``, which begins with the number of the first
node."""
LAUNCHERS = {
    "PMI_SIZE": "mpiexec of MPICH",
    "OMPI_COMM_WORLD_SIZE": "mpirun of Open MPI",
    "SLURM_STEP_NUM_TASKS": "srun",
}
"""The variables in which launchers give the number of all ranks that they started."""

STDERR = 2


def start_deadline() -> None:
    """Exit with a traceback if the deadline passes before ``cancel_deadline``.

    MPI_Init and MPI_Finalize have no timeout: if one rank never starts, all others wait until the
    job's time limit. A Python thread cannot interrupt them, because MPI holds the GIL; the thread
    of faulthandler does not need it.

    Raises:
        BadInputError: if the variable is not a number of seconds.
    """
    faulthandler.dump_traceback_later(start_timeout_s(), exit=True, file=STDERR)


def start_timeout_s() -> float:
    """Return the seconds of the deadline."""
    return SECONDS.read(START_TIMEOUT_VARIABLE, os.environ.get(START_TIMEOUT_VARIABLE, "300"))


cancel_deadline = faulthandler.cancel_dump_traceback_later


@contextmanager
def deadline() -> Iterator[None]:
    """Set the deadline for a section in which ranks wait for one another without a watchdog."""
    start_deadline()
    try:
        yield
    finally:
        cancel_deadline()


class StopSignal:
    """Keeps the first signal that requests an end; the current round of a case is finished before.

    With ``sbatch --signal=USR1@60`` Slurm sends SIGUSR1 60 s before the time limit. On Ctrl-C the
    launcher sends SIGINT (srun with -X).
    """

    def __init__(self) -> None:
        self.signal = 0
        # before MPI starts: the default action ends this process
        signal.signal(signal.SIGUSR1, self._record)

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """Treat SIGINT as a stop signal while measuring, without the deadline: a watchdog supervises this section."""
        before = signal.getsignal(signal.SIGINT)
        if before is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, self._record)
        try:
            cancel_deadline()
            yield
        finally:
            start_deadline()
            signal.signal(signal.SIGINT, before)

    def _record(self, number: int, _frame: object) -> None:
        self.signal = self.signal or number


def default_thread_level(device: str) -> str:
    """Return the thread level to request from MPI, ``funneled`` or ``multiple``.

    Only the main thread of a rank calls MPI, except on GPUs, where the watchdog's thread looks for
    messages of other ranks. With ``funneled`` MPICH takes half as long for small messages as with
    ``multiple``. But its blocking calls then never yield: with four ranks on two cores an
    all-reduce of 8 bytes took 7.9 ms, and 0.02 ms with ``multiple``.
    """
    # All hosts of a testbed share the CPUs of one machine.
    ranks = count_ranks(RANKS_OF_NODE_VARIABLES if testbed_facts() is None else LAUNCHERS)
    return "multiple" if device == "cuda" or ranks > usable_cpus() else "funneled"


def count_ranks(names: Iterable[str]) -> int:
    """Return the number of ranks in the first variable of a launcher that is set; 1 if none is."""
    counts = (re.match(r"\d+", os.environ.get(name, "")) for name in names)
    return next((int(count[0]) for count in counts if count), 1)


def start_mpi(device: str) -> "MPI.Intracomm":
    """Start MPI and return its world; for device cuda, assign a GPU to this rank first.

    Raises:
        BadInputError: if no MPI library can be loaded, or it would abort under this launcher.
    """
    import mpi4py

    mpi4py.rc.initialize, mpi4py.rc.finalize = False, True
    # on every rank, in three lines
    warnings.filterwarnings("ignore", r"\s*suspicious MPI", RuntimeWarning)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "mpi4py.rc", RuntimeWarning)
            from mpi4py import MPI
    except RuntimeWarning as error:  # "mpi4py.rc.thread_level: unexpected value 'x'"
        option = str(error).split(":")[0].removeprefix("mpi4py.rc.").upper()
        expected = MPI4PY_VALUES.get(option, "0 or 1")
        raise BadInputError(
            f"MPI4PY_RC_{option}", os.environ.get(f"MPI4PY_RC_{option}"), expected
        ) from None
    except (ImportError, RuntimeError) as error:
        remedy = "pip install 'hpccoll[local]', or load your site's MPI module"
        raise UnusableError(
            "MPI library", f"mpi4py can load none; do: {remedy} ({error})"
        ) from None
    vendor, version = MPI.get_vendor()
    if vendor in MPICH_FAMILY and "OMPI_COMM_WORLD_SIZE" in os.environ:
        library = f"{vendor} {'.'.join(map(str, version))}"
        raise UnusableError(
            "launcher",
            f"mpiexec is Open MPI's, but the library is {library}; do: use the library's mpiexec",
        )
    remove_abandoned_files()  # a full /dev/shm would end MPI_Init by a signal
    if vendor == "MPICH":
        check_resources("MPI library", file_bytes=MPICH_BYTES_PER_RANK)
        _warn_of_shared_memory()
        if os.environ.get("SLURM_MPI_TYPE") == "pmi2":
            from hpccoll.measure.pmi_relay import shorten_values  # other servers need no relay

            shorten_values()
    if device == "cuda":
        from hpccoll.measure.gpu_assignment import assign_gpu_before_mpi

        assign_gpu_before_mpi()
    if not MPI.Is_initialized():
        if THREAD_LEVEL_VARIABLE in os.environ:
            level = mpi4py.rc.thread_level
        else:
            level = default_thread_level(device)
        with _late_init_named():
            MPI.Init_thread(getattr(MPI, f"THREAD_{level.upper()}"))
        atexit.register(_start_finalize_alarm)
    return MPI.COMM_WORLD


LATE_INIT_S = 30.0
"""After how many seconds rank 0 says that MPI_Init waits."""

LATE_INIT = (
    "r0 | MPI_Init has not returned after {:g} s: a large launch takes as long, or a rank has not come to it; "
    "do: if it does not return, launch 'hostname' in the same way, and see which host is missing"
)

WATCH = 'timeout "$0" cat; [ $? != 124 ] || echo "$1" >&2'
"""Says something, unless its input ends before."""


@contextmanager
def _late_init_named() -> Iterator[None]:
    """Say at rank 0, unless it is alone, that MPI_Init waits; another process does, because MPI holds the GIL."""
    command = ["sh", "-c", WATCH, f"{LATE_INIT_S:g}", LATE_INIT.format(LATE_INIT_S)]
    with ExitStack() as stack:
        if launcher_rank() == 0 and count_ranks(LAUNCHERS) > 1:
            import subprocess  # the other ranks start no process

            with suppress(OSError):  # its input ends with this process, too
                stack.enter_context(
                    subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
                )
        yield


def check_launch(comm: "MPI.Intracomm") -> None:
    """Check that the launcher and the MPI library agree on the number of ranks.

    Raises:
        UnusableError: if a rank is alone in MPI_COMM_WORLD although the launcher started several.
    """
    for variable, launcher in LAUNCHERS.items():
        started = os.environ.get(variable, "1")
        if started.isdigit() and int(started) > 1 and comm.size == 1:
            from hpccoll.host.mpi_library import mpi_library

            library = mpi_library()
            remedy = f"use the launcher of {library['version']} ({library['path']})"
            raise UnusableError(
                "launcher",
                f"{launcher} started {started} ranks, but MPI_COMM_WORLD has one rank; {remedy}, "
                "or on Slurm an --mpi type that the library supports (srun --mpi=list)",
            )


def _warn_of_shared_memory() -> None:
    """Print that shared memory is small, on the first rank of each launcher's process that comes here.

    MPICH may die of a signal in MPI_Init, which prints nothing, and a rank that dies ends those
    that come later.
    """
    memory = SharedMemorySpace.read()
    ranks = count_ranks(RANKS_OF_NODE_VARIABLES)
    if ranks > 1 and memory.is_too_small_for(ranks) and _is_first("shared-memory"):
        used = f"{ranks} ranks of MPICH use {ranks * MPICH_BYTES_PER_RANK / 2**20:.4g} MiB"
        remedy = f"if they die of signal 7 or 11, do: {SHARED_MEMORY_REMEDY}"
        print(f"{SHARED_MEMORY_WARNING}{memory}, and {used}; {remedy}", file=sys.stderr, flush=True)


def _is_first(subject: str) -> bool:
    """Return whether no other living process with the same parent has asked for a subject; MPI is not needed."""
    from socket import AF_UNIX, socket  # only ranks with little shared memory ask

    claim = socket(AF_UNIX)
    _CLAIMS.append(claim)  # it ends with this process
    try:
        # an abstract name (unix(7)): no file stays
        claim.bind(f"\0hpccoll-{os.getppid()}-{subject}")
    except OSError:
        return False
    return True


_CLAIMS: "list[socket]" = []


def _start_finalize_alarm() -> None:
    """Let SIGALRM end this process if MPI_Finalize hangs; mpi4py calls it after Python's own shutdown."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, start_timeout_s())


def launcher_rank() -> int:
    """Return the rank that the launcher assigned to this process; usable before MPI_Init."""
    names = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "PMIX_RANK")
    return next((int(os.environ[name]) for name in names if os.environ.get(name, "").isdigit()), 0)


def rank_on_node() -> int:
    """Return the number that the launcher gave to this process among those of its node; 0 without a launcher."""
    names = ("MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")
    return next((int(os.environ[name]) for name in names if os.environ.get(name, "").isdigit()), 0)


ROOT_LAST_S = 0.5
"""Seconds by which rank 0 exits after the others: srun kills the remaining ranks once one exits with an error."""


def finalize_mpi(code: int) -> int:
    """Call MPI_Finalize and return the exit code of this rank: ``code``, that of the job, on rank 0, else 0."""
    sys.modules["mpi4py.MPI"].Finalize()
    if launcher_rank():
        return 0
    time.sleep(ROOT_LAST_S)
    return code


def is_connected() -> bool:
    """Return whether MPI is initialised with more than one rank, and not ended."""
    mpi = sys.modules.get("mpi4py.MPI")
    return (
        mpi is not None
        and mpi.Is_initialized()
        and not mpi.Is_finalized()
        and mpi.COMM_WORLD.size > 1
    )
