"""Records: a file of JSON objects, one a line, each with a checksum of its own.

A line is ``{"sha256": "0123456789abcdef", ...}``: the first 16 digits of the SHA-256 of the bytes that follow them, and
then the record itself. A crash may cut a line short and a disk may flip a bit of it; either way that line is known to
be damaged and all others are not. Each line begins with a newline, so that one that was cut short spoils no other.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

from hpccoll.store.durable_files import append_bytes

_LINE_PREFIX = b'{"sha256": "'
_DIGEST_DIGITS = 16
_BODY_OFFSET = len(_LINE_PREFIX) + _DIGEST_DIGITS

MAX_LINE_BYTES = 1 << 28
"""Bytes: a record has the times of 2^22 samples at most."""


class Line(NamedTuple):
    """A line of a file of records.

    Args:
        number: of the line, from 1 on; the first line is empty.
        record: what it holds, None where it is damaged.
        truncated: whether it is damaged as by a kill: its end is missing.
    """

    number: int
    record: dict[str, Any] | None
    truncated: bool = False


def encode_line(record: Mapping[str, object]) -> bytes:
    """Return a record, which has at least one key, as a line."""
    body = b'", ' + json.dumps(record).encode()[1:]
    return b"\n" + _LINE_PREFIX + _digest(body) + body


def append_records(path: Path, *records: Mapping[str, object]) -> None:
    """Append records in one write; they are on disk when this returns."""
    append_bytes(path, b"".join(map(encode_line, records)))


def read_json_lines(path: Path) -> Iterator[Line]:
    """Yield the lines of a file, but for empty ones, one at a time: files may hold gigabytes. It stays open meanwhile.

    Files of hpccoll 0.1.0 and before have no checksums. Their lines are whole where they are JSON.
    """
    has_checksums = has_checksum_lines(path)
    with path.open("rb") as file:
        for number, line in enumerate(_bounded_lines(file), 1):
            for text in _split_records(line.removesuffix(b"\n")):
                record = _parse_record(text, checked=has_checksums)
                yield Line(number, record, truncated=record is None and not text.endswith(b"}"))


def _bounded_lines(file: IO[bytes]) -> Iterator[bytes]:
    """Yield lines, of one that is longer than any record only the first part."""
    while line := file.readline(MAX_LINE_BYTES):
        yield line
        while line and len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
            line = file.readline(MAX_LINE_BYTES)


def _split_records(text: bytes) -> Iterator[bytes]:
    """Yield the records of a line: two, where the newline between them is damaged, for no record holds another's begin.

    Quotes within the text of a record are escaped.
    """
    begin = 0
    while (end := text.find(_LINE_PREFIX, begin + 1)) != -1:
        yield from filter(None, [text[begin : end - 1]])
        begin = end
    yield from filter(None, [text[begin:]])


def starts_with_key(line: bytes, key: str) -> bool:
    """Return whether a line, as it is in a file, begins a record with this key; it may be cut short, and damaged."""
    body = line[_BODY_OFFSET + len(b'", ') :] if line.startswith(_LINE_PREFIX) else line[len(b"{") :]
    return body.startswith(f'"{key}"'.encode())


def has_checksum_lines(path: Path) -> bool:
    """Return whether a file was written with checksums: one of its first two records, which are alike, has one."""
    with path.open("rb") as file:
        return any(line.startswith(_LINE_PREFIX) for line, _ in zip(file, range(3), strict=False))


def _parse_record(text: bytes, *, checked: bool) -> dict[str, Any] | None:
    body = text[_BODY_OFFSET:]
    if checked and not (text.startswith(_LINE_PREFIX) and text[:_BODY_OFFSET] == _LINE_PREFIX + _digest(body)):
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
    return hashlib.sha256(body).hexdigest()[:_DIGEST_DIGITS].encode()
