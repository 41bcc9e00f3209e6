"""Durable files: writes survive a crash of the machine, have one writer, and never follow a symbolic link."""

import errno
import fcntl
import glob
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any


def try_lock(file: IO[Any], kind: int = fcntl.LOCK_EX) -> bool:
    """Lock an open file until it is closed, and return False if another process holds the lock.

    Some parallel file systems have no locks: there the result is always True.
    """
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except OSError as error:
        return not isinstance(error, BlockingIOError)
    return True


def is_locked(file: IO[Any]) -> bool:
    """Return True if another process has locked an open file; a file opened for reading suffices, over NFS too."""
    is_free = try_lock(file, fcntl.LOCK_SH)
    with suppress(OSError):
        fcntl.flock(file, fcntl.LOCK_UN)
    return not is_free


def sync_directory(path: Path) -> None:
    """Wait until the content of a file, or the names in a directory, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_without_links(path: str, flags: int) -> int:
    """Open a regular file, as an ``opener`` of ``open``; a link, a pipe or a device at ``path`` is an error."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileExistsError(errno.EEXIST, "it exists and is not a regular file", path)
    return descriptor


def append_bytes(path: Path, data: bytes, *, sync: bool = True) -> None:
    """Append ``data`` to a file in one write; it is on disk when this returns, unless ``sync`` is False.

    Without ``sync`` it outlives this process, but not a crash of the host.

    Raises:
        OSError: if the file cannot be written; a symbolic link at ``path`` is not followed (ELOOP).
    """
    with open(path, "ab", buffering=0, opener=open_without_links) as file:
        rest = memoryview(data)
        while rest:  # a nearly full disk accepts a part; the next write raises the error
            rest = rest[file.write(rest) :]
        if sync:
            os.fsync(file.fileno())


def _create(path: Path) -> int:
    """Create a file and return its descriptor; an existing file or link at ``path`` is an error."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)


def write_new(path: Path, data: bytes) -> None:
    """Replace the file at ``path``; a link there is removed, not followed."""
    path.unlink(missing_ok=True)
    with os.fdopen(_create(path), "wb") as file:
        file.write(data)


class UnfinishedFile:
    """An empty new file with an unguessable name in the directory of ``path``, which it is to replace.

    Raises:
        OSError: if the file cannot be created or ``path`` is a device, a pipe or a directory.
    """

    def __init__(self, path: Path) -> None:
        with suppress(FileNotFoundError):
            if stat.S_IFMT(path.lstat().st_mode) not in (stat.S_IFREG, stat.S_IFLNK):
                raise FileExistsError(
                    errno.EEXIST, "it exists and is not a regular file", str(path)
                )
        self.path, self._final = path.with_name(f".{path.name}.{secrets.token_hex(8)}"), path
        os.close(_create(self.path))

    def replace(self) -> None:
        """Give the file its name, once its content is on disk."""
        sync_directory(self.path)
        self.path.replace(self._final)
        sync_directory(self._final.parent)

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


@contextmanager
def replacing_file(path: Path) -> Iterator[Path]:
    """Yield the path of an ``UnfinishedFile``, which replaces ``path`` if the block succeeds, and else is removed."""
    unfinished = UnfinishedFile(path)
    try:
        yield unfinished.path
        unfinished.replace()
    except BaseException:
        unfinished.remove()
        raise


def remove_unfinished(path: Path) -> None:
    """Remove the unfinished files of killed writers of ``path``; only its current writer may call this."""
    for unfinished in path.parent.glob(f".{glob.escape(path.name)}.{'[0-9a-f]' * 16}"):
        unfinished.unlink(missing_ok=True)
