"""Disk: what is written stays written, even if the machine goes down, and has one writer."""

import fcntl
import os
from pathlib import Path
from typing import IO, Any


def lock_alone(file: IO[Any]) -> bool:
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


def locked(file: IO[Any]) -> bool:
    """Return whether another process has locked an open file; reading it is enough to know, over NFS too."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    fcntl.flock(file, fcntl.LOCK_UN)
    return False


def sync(path: Path) -> None:
    """Return when the content of a file, or the names in a directory, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
