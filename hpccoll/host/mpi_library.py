"""The MPI library of this process: what it says of itself, where it lies, and whether it takes GPU memory."""

import ctypes
import re
from pathlib import Path
from typing import Any

GPU_SUPPORT_CUDA = 0
"""MPIX_GPU_SUPPORT_CUDA of MPICH."""


def mpi_library() -> dict[str, str]:
    """Return the MPI library's own words for itself, on one line, and the file that it was loaded from."""
    from mpi4py import MPI  # here, because importing it starts MPI, and a child must choose its GPU before that

    maps = Path("/proc/self/maps").read_text()
    paths = sorted(set(re.findall(r"(/\S*/libmpi\S*\.so\S*)", maps)))
    words = MPI.Get_library_version().strip("\0 \n").splitlines()[0]
    levels = {MPI.THREAD_SINGLE: "single", MPI.THREAD_FUNNELED: "funneled", MPI.THREAD_SERIALIZED: "serialized"}
    return {
        "version": re.sub(r"\s*Version:?\s*", " ", words),
        "path": ", ".join(paths),
        # mpi4py asks for multiple; MPICH's own small all-reduce takes twice as long with it as with funneled.
        "threads": levels.get(MPI.Query_thread(), "multiple"),
    }


def cuda_support(library: Any = None) -> tuple[bool | None, str]:
    """Return whether the MPI of this process says that it is CUDA-aware, None where it says nothing, and in words.

    mpi4py loads it where symbols are not seen by others, so it is asked by its path. MPI must be up.

    Args:
        library: to ask; None for that of this process.
    """
    library = library or _load_library()
    said = ctypes.c_int(0)
    if hasattr(library, "MPIX_GPU_query_support"):  # of MPICH
        query = "MPIX_GPU_query_support"
        library.MPIX_GPU_query_support(GPU_SUPPORT_CUDA, ctypes.pointer(said))
    elif hasattr(library, "MPIX_Query_cuda_support"):  # of Open MPI
        query = "MPIX_Query_cuda_support"
        said.value = library.MPIX_Query_cuda_support()
    else:
        return None, "the library has no query for it"
    return bool(said), f"{query} says {'yes' if said else 'no'}"


def _load_library() -> ctypes.CDLL | None:
    path = library_path()
    return ctypes.CDLL(str(path)) if path else None


def library_path() -> Path | None:
    """Return where the MPI library of this process lies."""
    paths = re.findall(r"(/\S*/libmpi(?:_\w+)?\.so\S*)", Path("/proc/self/maps").read_text())
    return Path(min(paths, key=len)) if paths else None
