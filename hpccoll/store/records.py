"""Records: a file of JSON objects, one a line, each with a checksum of its own.

A line is ``{"sha256": "0123456789abcdef", ...}``: the first 16 digits of the SHA-256 of the bytes that follow them, and
then the record itself. A crash may cut a line short and a disk may flip a bit of it; either way that line is known to
be damaged and all others are not. Each line begins with a newline, so that one that was cut short spoils no other.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from hpccoll.store.disk import append_bytes

_BEGIN = b'{"sha256": "'
_DIGITS = 16
_BODY = len(_BEGIN) + _DIGITS


class Line(NamedTuple):
    """A line of a file of records.

    Args:
        number: of the line, from 1 on; the first line is empty.
        record: what it holds, None where it is damaged.
    """

    number: int
    record: dict[str, Any] | None


def to_line(record: Mapping[str, object]) -> bytes:
    """Return a record, which has at least one key, as a line."""
    body = b'", ' + json.dumps(record).encode()[1:]
    return b"\n" + _BEGIN + _digest(body) + body


def append(path: Path, *records: Mapping[str, object]) -> None:
    """Append records in one write; they are on disk when this returns."""
    append_bytes(path, b"".join(map(to_line, records)))


def read_lines(path: Path) -> Iterator[Line]:
    """Yield the lines of a file, but for empty ones, one at a time: files may hold gigabytes. It stays open meanwhile.

    Files of hpccoll 0.1.0 and before have no checksums. Their lines are whole where they are JSON.
    """
    has_checksums = has_checksum_lines(path)
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            for text in _split(line.removesuffix(b"\n")):
                yield Line(number, _record(text, checked=has_checksums))


def _split(text: bytes) -> Iterator[bytes]:
    """Yield the records of a line: two, where the newline between them is damaged, for no record holds another's begin.

    Quotes within the text of a record are escaped.
    """
    begin = text.find(_BEGIN, 1)
    if begin == -1:
        yield from filter(None, [text])
        return
    yield from filter(None, [text[: begin - 1]])
    yield from _split(text[begin:])


def has_checksum_lines(path: Path) -> bool:
    """Return whether a file was written with checksums: one of its first two records, which are alike, has one."""
    with path.open("rb") as file:
        return any(line.startswith(_BEGIN) for line, _ in zip(file, range(3), strict=False))


def _record(text: bytes, *, checked: bool) -> dict[str, Any] | None:
    body = text[_BODY:]
    if checked and text[:_BODY] != _BEGIN + _digest(body):
        return None
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    record.pop("sha256", None)
    return record


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest()[:_DIGITS].encode()
