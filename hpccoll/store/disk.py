"""Disk: what is written stays written, even if the machine goes down."""

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Return when the content of a file, or the names in a directory, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
