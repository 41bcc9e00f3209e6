"""The MPI library of this process: its version, its path, and whether it reports CUDA support."""

import ctypes
import re
from pathlib import Path
from typing import Any

GPU_SUPPORT_CUDA = 0
"""MPIX_GPU_SUPPORT_CUDA of MPICH."""


def mpi_library() -> dict[str, str]:
    """Return the version string of the MPI library on one line, its path and its thread level."""
    # here: the import starts MPI, and a child process must select its GPU before that
    from mpi4py import MPI

    version = MPI.Get_library_version().strip("\0 \n").splitlines()[0]
    path = library_path()
    levels = {
        MPI.THREAD_SINGLE: "single",
        MPI.THREAD_FUNNELED: "funneled",
        MPI.THREAD_SERIALIZED: "serialized",
    }
    return {
        "version": re.sub(r"\s*Version:?\s*", " ", version),
        "path": str(path) if path else "",
        # mpi4py requests multiple; MPICH's own small all-reduce takes twice as long with it as with
        # funneled.
        "threads": levels.get(MPI.Query_thread(), "multiple"),
    }


def cuda_support(library: Any = None) -> tuple[bool | None, str]:
    """Return whether the MPI of this process reports CUDA support (None if it cannot report it), and a description.

    mpi4py loads the library with local symbols, so that it is opened again by its path. MPI must be
    initialised.
    """
    path = library_path()
    if path and not library:
        library = ctypes.CDLL(str(path))
    supported = ctypes.c_int(0)
    if hasattr(library, "MPIX_GPU_query_support"):  # MPICH
        query = "MPIX_GPU_query_support"
        library.MPIX_GPU_query_support(GPU_SUPPORT_CUDA, ctypes.pointer(supported))
    elif hasattr(library, "MPIX_Query_cuda_support"):  # Open MPI
        query = "MPIX_Query_cuda_support"
        supported.value = library.MPIX_Query_cuda_support()
    else:
        return None, "the library has no query for CUDA support"
    answer = "yes" if supported else "no"
    return bool(supported), f"{query} reports {answer}"


def library_path(maps: Path = Path("/proc/self/maps")) -> Path | None:
    """Return the path of the MPI library of this process, None if it is not loaded.

    Other files have similar names: libmpi_cxx, and Cray's libmpi_gtl_cuda, which transports GPU
    memory for it. But Cray's library itself has the name of a compiler in its file name, such as
    libmpi_gnu_123.
    """
    paths = re.findall(r"(/\S*/libmpi(?!_gtl_)(?:_\w+)?\.so\S*)", maps.read_text())
    if not paths:
        return None
    return Path(min(paths, key=lambda path: ("/libmpi.so" not in path, len(path))))
