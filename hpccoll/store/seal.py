"""The seal of a raw file: a digest of its bytes, which is checked before HDF5 opens the file.

In a damaged index or heap HDF5 may loop for ever or take all memory. Therefore it opens only files whose bytes are
those that were written. The seal is a text in a dataset near the beginning of the file, which h5py and h5dump show.
"""

import hashlib
from pathlib import Path
from typing import IO, Any

import numpy as np

SEAL_DATASET = "bytes_sha256"
"""The dataset of the root group that holds the seal."""

_TEXT = b"SHA-256 of all bytes of this file but these 64 digits: "
_DIGITS = 64
_HEAD_BYTES = 1 << 16
"""The seal is within the first bytes of a file, because it is written first."""

SIGNATURE = b"\x89HDF\r\n\x1a\n"


class IntegrityError(ValueError):
    """The bytes of a file are not those of a raw file, or not those that were written."""


def reserve_seal(file: Any) -> None:
    """Create the dataset of the seal in an empty file."""
    dataset = file.create_dataset(SEAL_DATASET, data=np.bytes_(_TEXT + b"0" * _DIGITS))
    dataset.attrs["long_name"] = "the seal; a file that was changed is refused"


def seal(path: Path) -> None:
    """Write the digest of a closed file into its reserved dataset.

    Raises:
        ValueError: if the file has no such dataset.
    """
    with path.open("rb+") as file:
        position, _, digest = _digest(file)
        file.seek(position)
        file.write(digest)


def check_seal(file: IO[bytes]) -> bool:
    """Check the bytes of a raw file against its seal; return False if it has none, as files of schema 1.10 and earlier.

    Raises:
        IntegrityError: if they differ, or the file is not HDF5.
    """
    file.seek(0)
    if file.read(len(SIGNATURE)) != SIGNATURE:
        raise IntegrityError("the signature of HDF5 is missing")
    try:
        _, sealed, digest = _digest(file)
    except ValueError:
        return False
    if sealed == digest:
        return True
    raise IntegrityError(
        'its bytes differ from its seal: it was damaged, or a program changed it (h5py: open it with "r", not "r+" or '
        '"a"); bring back a copy'
    )


def _digest(file: IO[bytes]) -> tuple[int, bytes, bytes]:
    """Return the position of the digits of the seal, the digits there, and those of the bytes of the file.

    Raises:
        ValueError: if there is no seal.
    """
    file.seek(0)
    head = file.read(_HEAD_BYTES)
    position = head.index(_TEXT) + len(_TEXT)
    digest = hashlib.sha256(head[:position] + head[position + _DIGITS :])
    while block := file.read(1 << 20):
        digest.update(block)
    return position, head[position : position + _DIGITS], digest.hexdigest().encode()
