"""JSON in the files of recorded jobs, with what memory may hold of it."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from hpccoll.common.files import read_bytes

MAX_BYTES = 1 << 29
"""The maximum size of a file."""
MAX_STREAMED_BYTES = 1 << 33
"""The maximum size of a file that is read one event after the other, and of one that is unpacked."""
MAX_OBJECTS = 1_800_000
"""The maximum number of objects in a JSON text: each takes hundreds of bytes of memory."""
MAX_MEMBERS = 1 << 22
"""The maximum number of ranks of all groups of a file together."""

_NO_NUMBER = re.compile(rb"(?<=[:\[,])\s*-?(?:nan|inf|infinity)\b", re.IGNORECASE)
"""What recorders write where a number is missing, and JSON does not have; a text begins with a quotation mark."""

Content = TypeVar("Content")


def check_members(sizes: Iterable[int]) -> None:
    """Check that the groups of a file are not larger than a job can have, before their ranks are listed; ValueError."""
    if sum(sizes) > MAX_MEMBERS:
        raise ValueError(f"it has groups of more than {MAX_MEMBERS} ranks together")


def read_trace_json(path: Path, kind: type[Content]) -> Content:
    """Return the JSON of a file as a record.

    Raises:
        ValueError: if the file cannot be read, is not JSON, lacks what the record needs, or is too
            large or too deep.
    """
    return decode_trace_json(read_bytes(path, "FILES", MAX_BYTES), kind)


def decode_trace_json(content: bytes, kind: type[Content]) -> Content:
    """Return a JSON text as a record.

    Raises:
        ValueError: if it is not JSON, lacks what the record needs, or is too large or too deep.
    """
    if content.count(b"{") > MAX_OBJECTS:
        raise ValueError(f"it has more than {MAX_OBJECTS} objects")
    try:
        try:
            return msgspec.json.decode(content, type=kind)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            return msgspec.json.decode(_NO_NUMBER.sub(b"null", content), type=kind)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def decode_part(content: bytes | msgspec.Raw) -> Any:
    """Return JSON of any form, which a record keeps undecoded; None if there is none.

    Raises:
        ValueError: if it is not JSON, is too deep, or has more lists and objects than memory should
            hold.
    """
    text = bytes(content)
    if text.count(b"{") + text.count(b"[") > MAX_OBJECTS:
        raise ValueError(f"it has more than {MAX_OBJECTS} lists and objects")
    try:
        if not text:
            return None
        return msgspec.json.decode(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
