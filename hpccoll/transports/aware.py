"""CUDA-aware MPI: what the library says of itself, and what a transfer of GPU memory in a process of its own shows.

A library that is not CUDA-aware takes a device pointer for one of the host: that ends the process that tries. So a
child tries, alone in its world, and what becomes of it tells. Run as a program this is the child:
``python -m hpccoll.transports.aware NUMBER``, the number of a GPU.
"""

import ctypes
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COUNT = 1 << 18
"""Elements of the transfers: 1 MiB, above what libraries send eagerly."""

RIGHT, WRONG = "right", "wrong"
"""What the child says of what has arrived."""

TIMEOUT_S = 60.0

CUDA = 0
"""MPIX_GPU_SUPPORT_CUDA of MPICH."""

LAUNCHERS = (
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
"""Variables by which a launcher tells a process that it is one of many; a child without them is alone."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether an MPI library takes GPU memory.

    Args:
        aware: whether it does: it does not deny it, and the transfer was right.
        library: what it says of itself, and by which function.
        transfer: what became of the transfer.
    """

    aware: bool
    library: str
    transfer: str

    @property
    def words(self) -> str:
        return f"{self.library}; {self.transfer}"


def library_says(library: Any = None) -> tuple[bool | None, str]:
    """Return whether the MPI of this process says that it is CUDA-aware, None where it says nothing, and in words.

    mpi4py loads it where symbols are not seen by others, so it is asked by its path. MPI must be up.

    Args:
        library: to ask; None for that of this process.
    """
    library = library or _loaded()
    said = ctypes.c_int(0)
    if hasattr(library, "MPIX_GPU_query_support"):  # of MPICH
        query = "MPIX_GPU_query_support"
        library.MPIX_GPU_query_support(CUDA, ctypes.pointer(said))
    elif hasattr(library, "MPIX_Query_cuda_support"):  # of Open MPI
        query = "MPIX_Query_cuda_support"
        said.value = library.MPIX_Query_cuda_support()
    else:
        return None, "the library has no query for it"
    return bool(said), f"{query} says {'yes' if said else 'no'}"


def _loaded() -> ctypes.CDLL | None:
    paths = re.findall(r"(/\S*/libmpi(?:_\w+)?\.so\S*)", Path("/proc/self/maps").read_text())
    return ctypes.CDLL(min(paths, key=len)) if paths else None


def transferred(
    command: Sequence[str], timeout: float = TIMEOUT_S, environment: Mapping[str, str] = os.environ
) -> tuple[bool, str]:
    """Return whether a child's transfer was right, and what became of it, in words.

    Args:
        command: of the child, which says RIGHT, or WRONG and what.
        timeout: seconds after which it is ended.
        environment: of this process; of the launcher's variables the child is told none.
    """
    alone = {name: value for name, value in environment.items() if not name.startswith(LAUNCHERS)}
    try:
        child = subprocess.run(
            command, env=alone, capture_output=True, text=True, errors="replace", timeout=timeout, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return False, f"a transfer of GPU memory in a child did not end in {timeout:g} s"
    except OSError as error:
        return False, f"a transfer could not be tried: {error.strerror}"
    said = child.stdout.split()[-1:]
    if child.returncode < 0:
        return (
            False,
            f"a transfer of GPU memory ended the child that tried it by {signal.Signals(-child.returncode).name}",
        )
    if child.returncode == 0 and said in ([RIGHT], [WRONG]):
        right = said == [RIGHT]
        return right, f"a transfer of GPU memory in a child {'was right' if right else 'came out wrong'}"
    if "cudaErrorDevicesUnavailable" in child.stderr:
        return False, "a transfer could not be tried: the GPU admits one process alone (its compute mode)"
    last = (child.stderr.strip().splitlines() or ["it said nothing"])[-1]
    return False, f"a transfer could not be tried in a child, which ended with {child.returncode}: {last}"


def verdict(number: int) -> Verdict:
    """Return whether the MPI of this process takes the memory of GPU ``number``; a child tries unless MPI denies it."""
    says, words = library_says()
    if says is False:
        return Verdict(aware=False, library=words, transfer="no transfer was tried")
    right, became = transferred((sys.executable, "-m", "hpccoll.transports.aware", str(number)))
    return Verdict(aware=right, library=words, transfer=became)


def child(number: int) -> str:
    """Send GPU memory to this process itself and reduce it over it, and return RIGHT or WRONG."""
    import cupy

    cupy.cuda.Device(number).use()  # before MPI is up: some libraries look for it then
    from mpi4py import MPI

    sent = cupy.arange(COUNT, dtype=cupy.float32)
    arrived, reduced = cupy.zeros_like(sent), cupy.zeros_like(sent)
    cupy.cuda.get_current_stream().synchronize()
    MPI.COMM_SELF.Sendrecv(sent, 0, recvbuf=arrived, source=0)
    MPI.COMM_SELF.Allreduce(sent, reduced)
    right = bool((arrived == sent).all()) and bool((reduced == sent).all())
    return RIGHT if right else WRONG


if __name__ == "__main__":
    sys.stdout.write(f"{child(int(sys.argv[1]))}\n")
