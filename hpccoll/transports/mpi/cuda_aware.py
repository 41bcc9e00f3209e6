"""CUDA-aware MPI: what the library says of itself, and what a transfer of GPU memory in processes of their own shows.

A library that is not CUDA-aware takes a device pointer for one of the host: that ends the process that tries, so that
children try, and what becomes of them tells. Two of them, for what a process sends itself takes another way in UCX and
MPICH: on two GPUs where there are, by CUDA IPC or what the library has in its place. They are started by the mpiexec
that stands beside the library, as a job of their own. The ranks of this job cannot be risked; MPI_Comm_spawn needs a
launcher that takes part, and MPI_Comm_join and MPI_Comm_connect, in Open MPI, a server. Where that mpiexec is not there
or does not start two (Cray's ranks start under srun alone), one child tries with itself, and where that cannot start
either, nothing shows that the library is CUDA-aware: HPCCOLL_CUDA_AWARE=yes is then the word of who knows.

Run as a program this is a child: ``python -m hpccoll.transports.mpi.cuda_aware NUMBER``, the number of a GPU.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hpccoll.host.mpi_library import cuda_support, library_path
from hpccoll.transports.gpu import device_count

TRANSFER_ELEMENTS = 1 << 18
"""Elements of the transfers: 1 MiB, above what libraries send eagerly."""

PAIRED, CORRECT, WRONG = "paired", "right", "wrong"
"""What children say: that MPI has joined two of them, and of what has arrived."""

SELF_TRANSFER = "a transfer of GPU memory of a child with itself"
PAIR_TRANSFER = "a transfer of GPU memory between two children"

TRANSFER_TIMEOUT_S, START_TIMEOUT_S = 40.0, 20.0
"""Seconds for a transfer, and how many of them two children have to be started: less than the watchdog waits, together,
also where two do not start and one then hangs."""

OVERRIDE = "HPCCOLL_CUDA_AWARE"
"""The variable by which a user says ``yes`` or ``no`` himself: then nothing is tried."""

LAUNCHER_PREFIXES = (
    "PMI_", "PMIX_", "PMI2_", "OMPI_COMM_", "OMPI_MCA_ess", "OMPI_MCA_orte", "PRTE_", "PALS_", "SLURM_", "HYDI_",
    "MPI_LOCAL",
)  # fmt: skip
"""Variables by which a launcher tells a process that it is one of many; a child without them is alone."""

OVERSUBSCRIBE: Mapping[str, str] = {
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}
"""Variables by which the mpiexec of Open MPI, 4 and 5, starts two processes on the CPUs of one rank, whoever it is."""


@dataclass(frozen=True, slots=True)
class CudaAwareVerdict:
    """Whether an MPI library takes GPU memory.

    Args:
        aware: whether it does: it does not deny it, and the transfer was right; or as its user says.
        library: what it says of itself, and by which function.
        transfer: what became of the transfer.
        assumed: whether that is the user's word.
    """

    aware: bool
    library: str
    transfer: str
    assumed: bool = False

    @property
    def words(self) -> str:
        return f"{self.library}; {self.transfer}"


def find_mpiexec(library: Path | None) -> str | None:
    """Return the mpiexec that stands beside an MPI library, else the first one on PATH; None where there is none."""
    beside = (place / "bin" / "mpiexec" for place in library.parents[:4]) if library else ()
    return next((str(path) for path in beside if os.access(path, os.X_OK)), None) or shutil.which("mpiexec")


def run_transfer(
    command: Sequence[str],
    timeout: float = TRANSFER_TIMEOUT_S,
    environment: Mapping[str, str] = os.environ,
    *,
    what: str = SELF_TRANSFER,
) -> tuple[bool | None, str]:
    """Return whether the transfer of children was right, None of two that never met; and what became of it, in words.

    Args:
        command: that starts one child, or two of them, of which the first says PAIRED, and then RIGHT or WRONG.
        timeout: seconds after which it is ended.
        environment: of this process; of the launcher's variables children are told none.
        what: is tried, ONE or TWO.
    """
    alone = {name: value for name, value in environment.items() if not name.startswith(LAUNCHER_PREFIXES)}
    try:
        child = subprocess.Popen(
            command, env={**alone, **OVERSUBSCRIBE}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        return None if what == PAIR_TRANSFER else False, f"{what} could not be tried: {error.strerror}"
    said = _communicate(child, (START_TIMEOUT_S, timeout - START_TIMEOUT_S) if what == PAIR_TRANSFER else (timeout,))
    if said is None:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)  # an mpiexec and what it has started
    out, err = said or child.communicate()
    if what == PAIR_TRANSFER and PAIRED not in out.split():
        return None, f"{what} could not be tried: they are not started together"
    if said is None:
        return False, f"{what} did not end in {timeout:g} s"
    return _judge_transfer(child.returncode, out, err, what)


def _communicate(child: "subprocess.Popen[str]", waits: Sequence[float]) -> tuple[str, str] | None:
    """Return what a child has said when it ended, else None; who has said PAIRED is waited for again."""
    for wait in waits:
        try:
            return child.communicate(timeout=max(0.0, wait))
        except subprocess.TimeoutExpired as expired:
            if PAIRED.encode() not in (expired.output or b""):
                break
    return None


def _signal_name(code: int, out: str) -> str | None:
    """Return the signal that ended a child: an mpiexec tells of it as a shell does, or as that of MPICH in words."""
    told = re.search(r"\(signal (\d+)\)", out)
    number = int(told[1]) if told else -code if code < 0 else code - 128
    return signal.Signals(number).name if number in signal.valid_signals() else None


def _judge_transfer(code: int, out: str, err: str, what: str) -> tuple[bool, str]:
    if name := _signal_name(code, out):
        return False, f"{what} ended {'them' if what == PAIR_TRANSFER else 'it'} by {name}"
    said = out.split()[-1:]
    if code == 0 and said in ([CORRECT], [WRONG]):
        right = said == [CORRECT]
        return right, f"{what} {'was right' if right else 'came out wrong'}"
    if "cudaErrorDevicesUnavailable" in err:
        return False, f"{what} could not be tried: the GPU admits one process alone (its compute mode)"
    last = next((line.strip() for line in reversed(err.splitlines()) if line.strip(" =|-")), "it said nothing")
    failed = "ended them" if what == PAIR_TRANSFER else "could not be tried: the child ended"
    return False, f"{what} {failed} with exit code {code}: {last}"


def probe_transfer(numbers: Sequence[int], starter: str | None) -> tuple[bool, str]:
    """Return whether GPU memory that two children exchange arrives, or one sends itself, and what became of it.

    Args:
        numbers: of their GPUs.
        starter: the mpiexec for two, None where there is none.
    """
    one, two = ((sys.executable, "-m", "hpccoll.transports.mpi.cuda_aware", str(number)) for number in numbers)
    if starter:
        right, became = run_transfer((starter, "-n", "1", *one, ":", "-n", "1", *two), what=PAIR_TRANSFER)
        if right is not None:
            return right, became
    right, became = run_transfer(one)
    return bool(right), f"{became} ({f'{starter} starts no two' if starter else 'there is no mpiexec to start two'})"


def cuda_aware_verdict(number: int) -> CudaAwareVerdict:
    """Return whether the MPI of this process takes the memory of GPU ``number``; children try unless MPI denies it.

    Nor do they where the user has said it.
    """
    says, words = cuda_support()
    told = os.environ.get(OVERRIDE)
    if told is not None:
        known = {"yes": "the user says so, nothing was tried", "no": "the user says so"}
        transfer = f"{OVERRIDE}={told}: {known.get(told, 'it is yes or no')}"
        return CudaAwareVerdict(aware=told == "yes", library=words, transfer=transfer, assumed=True)
    if says is False:
        return CudaAwareVerdict(aware=False, library=words, transfer="no transfer was tried")
    right, became = probe_transfer((number, (number + 1) % max(1, device_count())), find_mpiexec(library_path()))
    hint = "" if right else f"; {OVERRIDE}=yes is for who knows better"
    return CudaAwareVerdict(aware=right, library=words, transfer=f"{became}{hint}")


def transfer_in_child(number: int) -> str | None:
    """Exchange GPU memory with the other child, or with itself alone, and reduce it; return RIGHT or WRONG.

    Returns:
        what the first of two has to say, None at the second.
    """
    import cupy

    cupy.cuda.Device(number).use()  # before MPI is up: some libraries look for it then
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    if world.size == 2 and world.rank == 0:
        print(PAIRED, flush=True)
    values = cupy.arange(TRANSFER_ELEMENTS, dtype=cupy.float32)
    sent, arrived, reduced = values + world.rank, cupy.zeros_like(values), cupy.zeros_like(values)
    cupy.cuda.get_current_stream().synchronize()
    peer = world.size - 1 - world.rank
    world.Sendrecv(sent, peer, recvbuf=arrived, source=peer)
    world.Allreduce(sent, reduced)
    own = bool((arrived == values + peer).all()) and bool((reduced == values * world.size + world.size - 1).all())
    right = world.allreduce(own, MPI.LAND)
    return (CORRECT if right else WRONG) if world.rank == 0 else None


if __name__ == "__main__":
    if said := transfer_in_child(int(sys.argv[1])):
        print(said, flush=True)
