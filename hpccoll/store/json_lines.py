"""JSON lines with checksums: a file of JSON objects, one per line, each with its own checksum.

A line is ``{"sha256": "0123456789abcdef", ...}``: the first 16 digits of the SHA-256 of the bytes that follow them, and
then the record itself. If a crash truncates a line or a disk flips a bit of it, only that line is damaged, and the
reader detects it. Each line begins with a newline, so that a truncated line does not damage the next one.
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
"""The maximum number of bytes of a line: a record has the times of at most 2^22 samples."""


class Line(NamedTuple):
    """A line of a file of records.

    Args:
        number: the line number, from 1; the first line is empty.
        record: the object of the line; None if the line is damaged.
        truncated: True if the end of the line is missing, as after a kill.
    """

    number: int
    record: dict[str, Any] | None
    truncated: bool = False


def encode_line(record: Mapping[str, object]) -> bytes:
    """Return a record, which needs at least one key, as a line."""
    body = b'", ' + json.dumps(record).encode()[1:]
    return b"\n" + _LINE_PREFIX + _digest(body) + body


def append_records(path: Path, *records: Mapping[str, object]) -> None:
    """Append records in one write, and wait until they are on disk."""
    append_bytes(path, b"".join(map(encode_line, records)))


def read_json_lines(path: Path) -> Iterator[Line]:
    """Yield the non-empty lines of a file one at a time, because files may hold gigabytes; the file stays open.

    Files that were written before checksums were added have none. Their lines count as whole if they are JSON.
    """
    has_checksums = has_checksum_lines(path)
    with path.open("rb") as file:
        for number, line in enumerate(_bounded_lines(file), 1):
            for text in _split_records(line.removesuffix(b"\n")):
                record = _parse_record(text, checked=has_checksums)
                yield Line(number, record, truncated=record is None and not text.endswith(b"}"))


def _bounded_lines(file: IO[bytes]) -> Iterator[bytes]:
    """Yield lines; of a line that is longer than any record only the first part."""
    while line := file.readline(MAX_LINE_BYTES):
        yield line
        while line and len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
            line = file.readline(MAX_LINE_BYTES)


def _split_records(text: bytes) -> Iterator[bytes]:
    """Yield the records of a line: two if the newline between them is damaged.

    No record contains the prefix of another, because quotes within a record are escaped.
    """
    begin = 0
    while (end := text.find(_LINE_PREFIX, begin + 1)) != -1:
        yield from filter(None, [text[begin : end - 1]])
        begin = end
    yield from filter(None, [text[begin:]])


def starts_with_key(line: bytes, key: str) -> bool:
    """Return True if the bytes of a line, which may be truncated or damaged, begin a record with this key."""
    body = line[_BODY_OFFSET + len(b'", ') :] if line.startswith(_LINE_PREFIX) else line[len(b"{") :]
    return body.startswith(f'"{key}"'.encode())


def has_checksum_lines(path: Path) -> bool:
    """Return True if one of the first two records of a file, which are copies, has a checksum."""
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
