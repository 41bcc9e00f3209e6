"""Detection of CUDA-aware MPI: the library's own report, and a test transfer of GPU memory in child processes.

A library that is not CUDA-aware dereferences a device pointer on the host and crashes. Child
processes therefore do the test transfer, so that the ranks of this job survive it. Two children are
used, because UCX and MPICH have a separate path for messages of a process to itself: they use two
GPUs if there are two, with CUDA IPC or the library's substitute. The mpiexec next to the library
starts them as a separate job: MPI_Comm_spawn needs support by the launcher, and MPI_Comm_join and
MPI_Comm_connect need a server in Open MPI. If there is no such mpiexec, or if it cannot start two
processes (Cray's ranks start under srun only), one child sends to itself. If that cannot start
either, the library counts as not CUDA-aware; the user can state that it is with
HPCCOLL_CUDA_AWARE=yes. The children are on one node: what works there by CUDA IPC may crash between
nodes, which measure/run/gpu_pair_trial.py tries in a launch of its own.

Run as a program, this module is the child: ``python -m hpccoll.transports.mpi.cuda_aware NUMBER``,
the number of a GPU.
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
from typing import TYPE_CHECKING

from hpccoll.host.mpi_library import cuda_support, library_path
from hpccoll.transports.gpu import device_count

if TYPE_CHECKING:
    from mpi4py import MPI  # its import starts MPI

TRANSFER_ELEMENTS = 1 << 18
"""The elements of a transfer: 1 MiB, above the eager limits of libraries."""

PAIRED = "paired"
CORRECT = "correct"
WRONG = "wrong"
"""The output of children: MPI has connected two of them; the received data are correct, or wrong."""

SELF_TRANSFER, PAIR_TRANSFER = (
    "GPU transfer within one child process",
    "GPU transfer between two child processes",
)

TRANSFER_TIMEOUT_S, START_TIMEOUT_S = 40.0, 20.0
"""The limit for a transfer in seconds, and the part of it in which two children must start. The sum
is below the watchdog's limit, even if two children do not start and the single child then hangs."""

OVERRIDE = "HPCCOLL_CUDA_AWARE"
"""The variable by which the user answers ``yes`` or ``no``; no transfer is then tested."""

LAUNCHER_PREFIXES = (
    "PMI_",
    "PMIX_",
    "PMI2_",
    "OMPI_COMM_",
    "OMPI_MCA_ess",
    "OMPI_MCA_orte",
    "PRTE_",
    "PALS_",
    "SLURM_",
    "HYDI_",
    "MPI_LOCAL",
)
"""The prefixes of variables by which a launcher marks a process as a rank of a job; children start without them."""

OVERSUBSCRIBE: Mapping[str, str] = {
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}
"""The variables that let the mpiexec of Open MPI 4 and 5 start two processes on the CPUs of one rank, also as root."""


@dataclass(frozen=True, slots=True)
class CudaAwareVerdict:
    """The verdict on whether an MPI library accepts GPU memory."""

    # whether it does: the library does not deny it and the transfer was correct, or the user states
    # it
    aware: bool
    library: str  # the report of the library, with the function that returned it
    transfer: str
    assumed: bool = False  # whether the verdict is the user's statement
    # what is known of GPU memory between nodes; empty on one node, or if the user answers
    between_nodes: str = ""

    @property
    def description(self) -> str:
        return f"{self.library}; {self.transfer}"


def find_mpiexec(library: Path | None) -> str | None:
    """Return the mpiexec of the installation that contains ``library``, else the first on PATH; None without one."""
    directories = library.parents[:4] if library else ()
    for directory in directories:
        path = directory / "bin" / "mpiexec"
        if os.access(path, os.X_OK):
            return str(path)
    return shutil.which("mpiexec")


def run_transfer(
    command: Sequence[str],
    timeout: float = TRANSFER_TIMEOUT_S,
    environment: Mapping[str, str] = os.environ,
    *,
    kind: str = SELF_TRANSFER,
) -> tuple[bool | None, str]:
    """Return whether the transfer was correct (None if two children could not be started together), and its outcome.

    Args:
        command: the command that starts one child, or two; the first of two prints PAIRED, and then
            CORRECT or WRONG.
        timeout: the limit in seconds.
        environment: the environment of this process; children do not inherit the variables of its
            launcher.
        kind: the kind of transfer, SELF_TRANSFER or PAIR_TRANSFER.
    """
    inherited = {
        name: value for name, value in environment.items() if not name.startswith(LAUNCHER_PREFIXES)
    }
    try:
        child = subprocess.Popen(
            command,
            env={**inherited, **OVERSUBSCRIBE},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        return (None if kind == PAIR_TRANSFER else False, f"{kind} not possible: {error.strerror}")
    output = _communicate(
        child,
        (START_TIMEOUT_S, timeout - START_TIMEOUT_S) if kind == PAIR_TRANSFER else (timeout,),
    )
    if output is None:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)  # mpiexec and its processes
    out, err = output or child.communicate()
    if kind == PAIR_TRANSFER and PAIRED not in out.split():
        return None, f"{kind} not possible: the processes did not start as one job"
    if output is None:
        return False, f"{kind} did not finish in {timeout:g} s"
    return _judge_transfer(child.returncode, out, err, kind)


def _communicate(child: "subprocess.Popen[str]", limits: Sequence[float]) -> tuple[str, str] | None:
    """Return the output of a child, None if it exceeds a limit; after the first it must have printed PAIRED."""
    for limit in limits:
        try:
            return child.communicate(timeout=max(0.0, limit))
        except subprocess.TimeoutExpired as expired:
            if PAIRED.encode() not in (expired.output or b""):
                break
    return None


def _signal_name(code: int, out: str) -> str | None:
    """Return the name of the signal that killed a child, from its exit code or from the output of MPICH's mpiexec."""
    reported = re.search(r"\(signal (\d+)\)", out)
    number = -code if code < 0 else code - 128
    if reported:
        number = int(reported[1])
    return signal.Signals(number).name if number in signal.valid_signals() else None


def _judge_transfer(code: int, out: str, err: str, kind: str) -> tuple[bool, str]:
    """Return whether a transfer was correct, and its outcome, from the exit code and the output of the child."""
    name = _signal_name(code, out)
    if name:
        return False, f"{kind} killed by {name}"
    answer = out.split()[-1:]
    if code == 0 and answer in ([CORRECT], [WRONG]):
        return answer == [CORRECT], f"{kind} {answer[0]}"
    if "cudaErrorDevicesUnavailable" in err:
        return (False, f"{kind} not possible: the compute mode of the GPU admits only one process")
    last = next(
        (line.strip() for line in reversed(err.splitlines()) if line.strip(" =|-")),
        "no error message",
    )
    failed = "failed" if kind == PAIR_TRANSFER else "not possible: the child ended"
    return False, f"{kind} {failed} with exit code {code}: {last}"


def probe_transfer(numbers: Sequence[int], mpiexec: str | None) -> tuple[bool, str]:
    """Return whether a test transfer between two children, or within one, is correct, and its outcome."""
    first, second = (
        (sys.executable, "-m", "hpccoll.transports.mpi.cuda_aware", str(number))
        for number in numbers
    )
    why_alone = "mpiexec not found"
    if mpiexec:
        pair = (mpiexec, "-n", "1", *first, ":", "-n", "1", *second)
        correct, outcome = run_transfer(pair, kind=PAIR_TRANSFER)
        if correct is not None:
            return correct, outcome
        why_alone = f"{mpiexec} cannot start two processes"
    correct, outcome = run_transfer(first)
    return bool(correct), f"{outcome} ({why_alone})"


def cuda_aware_verdict(number: int) -> CudaAwareVerdict:
    """Return whether the MPI of this process accepts the memory of GPU ``number``.

    Children test a transfer, unless the library reports no CUDA support or the user has answered by
    ``OVERRIDE``.
    """
    supported, report = cuda_support()
    answer = os.environ.get(OVERRIDE)
    if answer is not None:
        meanings = {"yes": "stated by the user, transfer not tested", "no": "stated by the user"}
        transfer = f"{OVERRIDE}={answer}: {meanings.get(answer, 'not valid; valid: yes or no')}"
        return CudaAwareVerdict(
            aware=answer == "yes", library=report, transfer=transfer, assumed=True
        )
    if supported is False:
        return CudaAwareVerdict(aware=False, library=report, transfer="transfer not tested")
    correct, outcome = probe_transfer(
        (number, (number + 1) % max(1, device_count())), find_mpiexec(library_path())
    )
    hint = "" if correct else f"; set {OVERRIDE}=yes if you know that the library is CUDA-aware"
    return CudaAwareVerdict(aware=correct, library=report, transfer=f"{outcome}{hint}")


def transfer_in_child(number: int) -> str | None:
    """Exchange the memory of a GPU with the other child, or with itself, and all-reduce it.

    Returns:
        CORRECT or WRONG in the first child, None in the second.
    """
    import cupy

    # before MPI starts: some libraries look for the current device then
    cupy.cuda.Device(number).use()
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    if world.size == 2 and world.rank == 0:
        print(PAIRED, flush=True)
    correct = exchange_gpu_memory(world)
    if world.rank:
        return None
    return CORRECT if correct else WRONG


def exchange_gpu_memory(comm: "MPI.Intracomm") -> bool:
    """Exchange memory of the current GPU, each rank with the one at the other end of ``comm``, and all-reduce it.

    Values are made and compared on the host: kernels would need CUDA's headers, whose absence says
    nothing about MPI.

    Returns:
        Whether all data are correct on all ranks.
    """
    import cupy
    import numpy as np
    from mpi4py import MPI

    values = np.arange(TRANSFER_ELEMENTS, dtype=np.float32)
    sent = cupy.empty(values.size, values.dtype)
    received = cupy.empty(values.size, values.dtype)
    reduced = cupy.empty(values.size, values.dtype)
    sent.set(values + comm.rank)
    received.set(np.zeros_like(values))
    reduced.set(-values)
    cupy.cuda.get_current_stream().synchronize()  # of copies to this GPU
    peer = comm.size - 1 - comm.rank
    comm.Sendrecv(sent, peer, recvbuf=received, source=peer)
    comm.Allreduce(sent, reduced)
    total = values * comm.size + comm.size * (comm.size - 1) // 2
    own = np.array_equal(received.get(), values + peer) and np.array_equal(reduced.get(), total)
    return bool(comm.allreduce(own, MPI.LAND))


if __name__ == "__main__":
    if answer := transfer_in_child(int(sys.argv[1])):
        print(answer, flush=True)
