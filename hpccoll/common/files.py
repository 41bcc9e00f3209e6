"""Readers of whole files that people or programs wrote: regular files of at most ``max_bytes`` bytes, text and JSON.

Text is UTF-8, or what its byte order mark names: Windows PowerShell redirects output to files in
UTF-16.

The ``key`` is the option or key that names the file (``CONFIG``, ``--job``, ``table``); it begins
each message.
"""

import codecs
import errno
import hashlib
import io
import json
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from hpccoll.common.errors import BadInputError, UnusableError, file_error, format_value
from hpccoll.common.units import format_size

MAX_LINE_LENGTH = 1 << 16
"""The maximum number of characters of a line of a log; a longer line is read in pieces."""
CHECKED_LENGTH = 1 << 20
"""The number of characters of a long file that are read before its size is checked again."""
MAX_CONTAINERS = 1_000_000
"""The maximum number of lists and objects in a JSON text; each takes 30 times the memory of its brackets."""

_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def open_regular(path: Path, key: str) -> BinaryIO:
    """Open a regular file for reading; opening a pipe or a device may block, and reading it may never end.

    Raises:
        UnusableError: if the file cannot be opened or is not a regular file.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ENXIO:  # open() of a socket
            raise _refusal(
                key, path, "cannot be read: it is a socket, not a regular file"
            ) from None
        raise file_error(key, path, error) from None
    except ValueError:  # a NUL, or a surrogate that no file system accepts
        raise _refusal(key, path, "is not the name of a file") from None
    kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
    if kind == stat.S_IFREG:
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    raise _refusal(
        key, path, f"cannot be read: it is {_KINDS.get(kind, 'something else')}, not a regular file"
    )


def _refusal(key: str, path: Path, why: str) -> UnusableError:
    return UnusableError(key, f"{format_value(str(path))} {why}")


def with_digest(name: str, key: str, max_bytes: int) -> str:
    """Return the path of a file with a digest of what it holds: file.csv#1a2b3c4d.

    Raises:
        BadInputError: if the file cannot be read, or ``name`` has the digest of something else.
    """
    path = without_digest(name)
    actual = hashlib.sha256(read_bytes(Path(path), key, max_bytes)).hexdigest()[:8]
    if name not in (path, f"{path}#{actual}"):
        raise BadInputError(
            key, name, f"the file as it was planned; it has changed since (now #{actual})"
        )
    return f"{path}#{actual}"


def without_digest(name: str) -> str:
    """Return the path in a name that ``with_digest`` returned, or in one without a digest; paths may have a #, too."""
    return re.sub(r"#[0-9a-f]{8}\Z", "", name)


def read_bytes(path: Path, key: str, max_bytes: int) -> bytes:
    """Return the content of a regular file.

    Raises:
        UnusableError: if the file cannot be read, is not a regular file, or has more than
            ``max_bytes`` bytes.
    """
    with open_regular(path, key) as file:
        try:
            content = file.read(max_bytes + 1)
        except OSError as error:
            raise file_error(key, path, error) from None
    if len(content) > max_bytes:
        raise _too_large(path, key, max_bytes)
    return content


_PACKED = (
    (
        (b"\x1f\x8b", b"\xfd7zXZ", b"BZh", b"\x28\xb5\x2f\xfd"),
        "it is compressed; do: decompress it",
    ),
    ((b"PK\x03\x04",), "it is a zip archive; do: unpack it"),
)
"""First bytes of files that hold text in another form (gzip, xz, bzip2, zstd; zip), and what to do."""


def unpacking_hint(path: Path, key: str) -> str:
    """Return how to get the text that a packed file holds, as the end of a message; empty for any other file.

    Raises:
        UnusableError: if the file cannot be read.
    """
    with open_regular(path, key) as file:
        begin = file.read(8)
    return next((f": {hint}" for begins, hint in _PACKED if begin.startswith(begins)), "")


_ENCODINGS = {
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
    codecs.BOM_UTF8: "UTF-8-sig",
}
"""The codecs of texts that begin with a byte order mark."""


def text_encoding(begin: bytes) -> str:
    """Return the codec of a text from its first bytes: the one of its byte order mark, or UTF-8 without a mark."""
    for mark, codec in _ENCODINGS.items():
        if begin.startswith(mark):
            return codec
    return "UTF-8"


def to_utf8(content: bytes) -> bytes:
    """Return the bytes of a text in UTF-8, without a byte order mark; the same bytes if no mark begins them."""
    encoding = text_encoding(content)
    if encoding == "UTF-8":
        return content
    return content.decode(encoding, "replace").encode()


def _too_large(path: Path, key: str, max_bytes: int) -> UnusableError:
    return _refusal(key, path, f"is larger than such a file can be, {format_size(max_bytes)}")


def read_text(path: Path, key: str, max_bytes: int, errors: str = "strict") -> str:
    """Return the text of a regular file; bytes that are not text are an error (``strict``) or U+FFFD (``replace``).

    Raises:
        UnusableError: if the file cannot be read, is not a regular file, is too large or is not
            text.
    """
    content = read_bytes(path, key, max_bytes)
    encoding = text_encoding(content)
    try:
        return content.decode(encoding, errors)
    except UnicodeDecodeError as error:
        raise _refusal(key, path, f"is not text in {encoding}, at byte {error.start}") from None


def read_fact(path: Path) -> str:
    """Return the text of a small file of the kernel or the system without blanks around it; empty if there is none."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:  # it does not exist, or the driver does not support it
        return ""


def read_lines(path: Path, key: str, max_bytes: int) -> Iterator[str]:
    """Yield the lines of a regular file that may be large; U+FFFD replaces bytes that are not text.

    Raises:
        UnusableError: if the file cannot be read, is not a regular file, or has more than
            ``max_bytes`` bytes.
    """
    with open_regular(path, key) as file:
        try:
            encoding = text_encoding(file.read(len(codecs.BOM_UTF8)))
            file.seek(0)
            text = io.TextIOWrapper(file, encoding, "replace", newline="\n")
            unchecked = 0
            while line := text.readline(MAX_LINE_LENGTH):
                yield line
                unchecked += len(line)
                if unchecked > CHECKED_LENGTH:
                    unchecked = 0
                    _check_place(file, path, key, max_bytes)
            _check_place(file, path, key, max_bytes)
        except OSError as error:
            raise file_error(key, path, error) from None


def _check_place(file: BinaryIO, path: Path, key: str, max_bytes: int) -> None:
    """Check that no more than ``max_bytes`` bytes of a file were read."""
    if file.tell() > max_bytes:
        raise _too_large(path, key, max_bytes)


def read_json(path: Path, key: str, max_bytes: int) -> Any:
    """Return the value of a JSON file.

    Raises:
        UnusableError: if ``read_text`` raises it, or ``parse_json`` refuses the text.
    """
    text = read_text(path, key, max_bytes)
    try:
        return parse_json(text)
    except ValueError as error:
        raise _refusal(key, path, f"is not JSON: {error}") from None


def parse_json(text: str) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: if the text is not JSON (NaN and Infinity are not), or too deeply nested or too
            large.
    """
    if text.count("[") + text.count("{") > MAX_CONTAINERS:
        raise ValueError(f"it holds more than {MAX_CONTAINERS} lists and objects")
    try:
        return json.loads(text, parse_constant=_reject_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _reject_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a number")
