"""JSON lines with checksums: a file of JSON objects, one per line, each with its own checksum.

A line is ``{"sha256": "0123456789abcdef", ...}``: the first 16 digits of the SHA-256 of the bytes
that follow them, and then the record itself. If a crash truncates a line or a disk flips a bit of
it, only that line is damaged, and the reader detects it. Each line begins with a newline, so that a
truncated line does not damage the next one.

The lines of a journal also form a chain: each holds the checksum of the line before it, and the
first line, of a fixed length, the number of the others. So the reader detects lines that are
missing, repeated or in another order.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeAlias

from hpccoll.store.durable_files import append_bytes
from hpccoll.store.schema import VERSION

_LINE_PREFIX = b'{"sha256": "'
_DIGEST_DIGITS = 16
_BODY_OFFSET = len(_LINE_PREFIX) + _DIGEST_DIGITS
_AFTER_PREFIX = b'", "after": "'

JsonObject: TypeAlias = Mapping[str, Any]

MAX_LINE_BYTES = 1 << 28
"""The maximum number of bytes of a line: a record has the times of at most 2^22 samples."""


class RecordPlace(NamedTuple):
    """Where a record begins in its file, and its bytes, without the newline."""

    offset: int
    size: int


class Line(NamedTuple):
    """A line of a file of records."""

    number: int  # the line number, from 1
    # the object of the line without its checksums; None if the line is damaged
    record: dict[str, Any] | None
    truncated: bool = False  # True if the end of the line is missing, as after a kill
    checksum: str = ""  # the checksum of the line; empty if the line is damaged
    after: str = ""  # the checksum of the line before it in its chain; empty if the line is in none
    place: RecordPlace = RecordPlace(0, 0)  # where it is in its file


class ChainEnd(NamedTuple):
    """The end of a chain of lines: the checksum of the last line, and the number of lines."""

    checksum: str = "0" * _DIGEST_DIGITS
    lines: int = 0

    @property
    def first_line(self) -> bytes:
        """The first line of the file, which no newline precedes."""
        return encode_line({"lines": f"{self.lines:012}", "version": VERSION})[1:]

    def encode(self, records: Iterable[JsonObject]) -> tuple[bytes, "ChainEnd"]:
        """Return records as the next lines of the chain, and its new end."""
        end, lines = self, []
        for record in records:
            lines.append(encode_line({"after": end.checksum, **record}))
            end = ChainEnd(
                lines[-1][len(b"\n" + _LINE_PREFIX) :][:_DIGEST_DIGITS].decode(), end.lines + 1
            )
        return b"".join(lines), end


def encode_line(record: JsonObject) -> bytes:
    """Return a record, which needs at least one key, as a line."""
    body = b'", ' + json.dumps(record).encode()[1:]
    return b"\n" + _LINE_PREFIX + _digest(body) + body


def append_records(path: Path, *records: JsonObject) -> None:
    """Append records in one write, and wait until they are on disk."""
    append_bytes(path, b"".join(map(encode_line, records)))


def read_json_lines(path: Path) -> Iterator[Line]:
    """Yield the non-empty lines of a file one at a time, because files may hold gigabytes; the file stays open."""
    with path.open("rb") as file:
        for number, (offset, line) in enumerate(_bounded_lines(file), 1):
            for begin, text in _split_records(line.removesuffix(b"\n")):
                yield parse_line(text, number, offset + begin)


def _bounded_lines(file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield the offsets of lines, and the lines; of one that is longer than any record only the first part."""
    offset = 0
    while line := file.readline(MAX_LINE_BYTES):
        yield offset, line
        offset += len(line)
        while line and len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
            line = file.readline(MAX_LINE_BYTES)
            offset += len(line)


def _split_records(text: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the records of a line and where they begin in it: two if the newline between them is damaged.

    No record contains the prefix of another, because quotes within a record are escaped.
    """
    begin = 0
    while (end := text.find(_LINE_PREFIX, begin + 1)) != -1:
        if end - 1 > begin:
            yield begin, text[begin : end - 1]
        begin = end
    if begin < len(text):
        yield begin, text[begin:]


def starts_with_key(line: bytes, key: str) -> bool:
    """Return True if the bytes of a line of a chain, perhaps truncated or damaged, begin a record with this key."""
    return line[_BODY_OFFSET + len(_AFTER_PREFIX) + _DIGEST_DIGITS :].startswith(
        f'", "{key}"'.encode()
    )


def parse_line(text: bytes, number: int = 0, offset: int = 0) -> Line:
    """Return the line of a record, without its newline, at this offset of its file."""
    body = text[_BODY_OFFSET:]
    place = RecordPlace(offset, len(text))
    damaged = Line(number, None, truncated=not text.endswith(b"}"), place=place)
    checksum = _digest(body)
    if text[:_BODY_OFFSET] != _LINE_PREFIX + checksum:
        return damaged
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return damaged
    record.pop("sha256")
    return Line(
        number, record, checksum=checksum.decode(), after=str(record.pop("after", "")), place=place
    )


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest()[:_DIGEST_DIGITS].encode()
