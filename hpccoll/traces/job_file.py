"""The content of one file of a recorded job: its bytes, unpacked, and what they hold as JSON."""

import gzip
import re
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from hpccoll.common.errors import UnusableError, file_error, format_value, to_one_line
from hpccoll.common.files import open_regular
from hpccoll.common.units import format_size

KEY = "FILES"
"""What names the files on the command line."""

MAX_BYTES = 1 << 29
"""The maximum size of a file, unpacked."""
MAX_OBJECTS = 3_000_000
"""The maximum number of objects in a JSON text: each takes hundreds of bytes of memory."""

_NO_NUMBER = re.compile(rb"(?<=[:\[,])\s*-?(?:nan|inf|infinity)\b", re.IGNORECASE)
"""What recorders write where a number is missing, and JSON does not have; a text begins with a quotation mark."""

MAX_MEMBERS = 1 << 22
"""The maximum number of ranks of all groups of a file together."""

Content = TypeVar("Content")


def damaged(path: Path, why: object) -> UnusableError:
    """Return the error of a file that its format does not allow."""
    return UnusableError(KEY, f"{format_value(str(path))} {to_one_line(str(why))}")


def check_members(path: Path, sizes: Iterable[int]) -> None:
    """Check that the groups of a file are not larger than a job can have, before their ranks are listed."""
    if sum(sizes) > MAX_MEMBERS:
        raise damaged(path, f"has groups of more than {MAX_MEMBERS} ranks together, the most that are read")


def content_of(path: Path) -> bytes:
    """Return the bytes of a file, unpacked if gzip packed them.

    Raises:
        UnusableError: if it cannot be read or unpacked, or is larger than MAX_BYTES.
    """
    with open_regular(path, KEY) as file:
        try:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            content = (gzip.GzipFile(fileobj=file) if packed else file).read(MAX_BYTES + 1)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise damaged(path, f"cannot be unpacked: {error}") from None
        except OSError as error:
            raise file_error(KEY, path, error) from None
    if len(content) > MAX_BYTES:
        raise damaged(path, f"is larger than such a file can be, {format_size(MAX_BYTES)}")
    return content


def decode_json(path: Path, content: bytes, kind: type[Content], what: str) -> Content:
    """Return JSON as a record; ``what`` names the format.

    Raises:
        UnusableError: if the content is no JSON, lacks what the record needs, or is too large or too deep.
    """
    if content.count(b"{") > MAX_OBJECTS:
        raise damaged(path, f"has more than {MAX_OBJECTS} objects, the most that are read")
    try:
        try:
            return msgspec.json.decode(content, type=kind)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            return msgspec.json.decode(_NO_NUMBER.sub(b"null", content), type=kind)
    except (ValueError, RecursionError) as error:  # of msgspec: errors of syntax and of types
        raise damaged(path, f"is damaged, or no {what}: {error}") from None


def decode_part(content: bytes | msgspec.Raw) -> Any:
    """Return JSON of any form, which a record keeps undecoded; None if there is none.

    Raises:
        ValueError: if it is no JSON, is too deep, or has more lists and objects than memory should hold.
    """
    text = bytes(content)
    if text.count(b"{") + text.count(b"[") > MAX_OBJECTS:
        raise ValueError(f"it has more than {MAX_OBJECTS} lists and objects")
    try:
        return msgspec.json.decode(text) if text else None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
