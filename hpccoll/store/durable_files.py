"""Disk: what is written stays written, even if the machine goes down, has one writer, and follows no planted link."""

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


def lock_exclusively(file: IO[Any]) -> bool:
    """Lock an open file against other processes, until it is closed; return whether nobody else holds it.

    Some parallel file systems know no locks: there, whoever asks first has it, and so does the second.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def is_locked(file: IO[Any]) -> bool:
    """Return whether another process has locked an open file; reading it is enough to know, over NFS too."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    fcntl.flock(file, fcntl.LOCK_UN)
    return False


def sync_directory(path: Path) -> None:
    """Return when the content of a file, or the names in a directory, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_without_links(path: str, flags: int) -> int:
    """Open a file of ours, as an ``opener`` of ``open``: a link, a pipe or a device in its place is an error."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileExistsError(errno.EEXIST, "it is there, and no regular file", path)
    return descriptor


def append_bytes(path: Path, data: bytes) -> None:
    """Append ``data`` in one write to a file of ours, on disk when this returns.

    Raises:
        OSError: where it cannot be written; a symbolic link in its place is not followed (ELOOP).
    """
    with open(path, "ab", buffering=0, opener=open_without_links) as file:
        rest = memoryview(data)
        while rest:  # on a disk that is nearly full the first part goes, and the next try says why
            rest = rest[file.write(rest) :]
        os.fsync(file.fileno())


def _create(path: Path) -> int:
    """Return the descriptor of a file that is new; whatever stands in its place, a link too, is an error."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)


def write_new(path: Path, data: bytes) -> None:
    """Write a file in place of any of that name, never through a link that stands there."""
    path.unlink(missing_ok=True)
    with os.fdopen(_create(path), "wb") as file:
        file.write(data)


@contextmanager
def replacing_file(path: Path) -> Iterator[Path]:
    """Yield an empty new file beside ``path`` with an unguessable name.

    It replaces ``path``, on disk, when the block ends well, and is removed when it does not.

    Raises:
        OSError: where that cannot be, or a device, a pipe or a directory is there.
    """
    with suppress(FileNotFoundError):
        if stat.S_IFMT(path.lstat().st_mode) not in (stat.S_IFREG, stat.S_IFLNK):
            raise FileExistsError(errno.EEXIST, "it is there, and no regular file", str(path))
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    os.close(_create(unfinished))
    try:
        yield unfinished
        sync_directory(unfinished)
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def remove_unfinished(path: Path) -> None:
    """Remove what writers of ``path`` that were killed have left beside it; only its one writer may call this."""
    for unfinished in path.parent.glob(f".{glob.escape(path.name)}.{'[0-9a-f]' * 16}"):
        unfinished.unlink(missing_ok=True)
