"""Shared memory that killed processes have left: files that their library would have removed at the end."""

import fcntl
import os
import signal
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  where the libraries create the files

NAMES = (
    "mpich_shm_*",
    "mpich_vci_*",
    "mpich_shar_tmp*",
    "vader_segment.*",
    "sm_segment.*",
    "nccl-*",
)
"""The names of the files of MPICH (posix_init.c, mpl_shm_mmap.c), Open MPI 4 and 5 (btl_vader,
btl_sm) and NCCL (shmutils.cc)."""


def abandoned_files(directory: Path = SHARED_MEMORY) -> list[tuple[Path, int]]:
    """Return the abandoned files of this user in ``directory``, each with its size in bytes."""
    files = []
    for path in _candidates(directory):
        with _unused(path) as size:
            if size is not None:
                files.append((path, size))
    return files


def remove_abandoned_files(directory: Path = SHARED_MEMORY) -> None:
    """Remove the abandoned files of this user in ``directory``, unless another process is doing so."""
    with suppress(OSError), _locked(directory):
        for path in _candidates(directory):
            with _unused(path) as size:
                if size is not None:
                    path.unlink(missing_ok=True)


def _candidates(directory: Path) -> list[Path]:
    return [path for name in NAMES for path in directory.glob(name)]


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Lock ``directory``: two processes that test the same file would each find it used by the other.

    Raises:
        OSError: if there is no such directory, or another process has locked it.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _unused(path: Path) -> Iterator[int | None]:
    """Yield the size of a file of this user that no process has opened for writing or mapped, otherwise None.

    The process that creates such a file keeps it mapped as long as it lives. Linux grants a write
    lease (fcntl(2)) only if no other process uses the file, in any container, and makes processes
    that open it wait until the lease ends.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:  # it is gone, or of another user
        yield None
        return
    try:
        status = os.fstat(descriptor)
        size = None
        with suppress(OSError):
            if status.st_uid == os.geteuid() and stat.S_ISREG(status.st_mode):
                # Linux announces a process that wants to open the file by SIGIO, which would end
                # this one.
                fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
                fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
                size = status.st_size
        yield size
    finally:
        os.close(descriptor)
