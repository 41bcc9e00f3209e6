"""Files that people or programs wrote, read whole: regular ones, of a size that such a file can have, and text."""

import errno
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from hpccoll.errors import UnusableError, file_error, format_value
from hpccoll.units import format_size

MAX_LINE_BYTES = 1 << 16
"""Bytes of a line of a log; a longer one is read in pieces."""
MAX_CONTAINERS = 1_000_000
"""Lists and objects in a text of JSON: each takes 30 times the memory that its brackets take in the text."""

_KINDS = {
    stat.S_IFDIR: "a directory", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}  # fmt: skip


def open_regular(path: Path, key: str) -> BinaryIO:
    """Open a regular file for reading; of a pipe or a device, opening alone may wait, and reading may never end.

    Args:
        path: of the file.
        key: what the file is given by, which begins the message: ``CONFIG``, ``--job``, ``table``.

    Raises:
        UnusableError: if the file cannot be opened, or is not a regular one.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ENXIO:  # the answer to open of a socket
            raise UnusableError(
                key, f"{format_value(str(path))} cannot be read: it is a socket, not a regular file"
            ) from None
        raise file_error(key, path, error) from None
    except ValueError:  # NUL, or a surrogate that no file system takes
        raise UnusableError(key, f"{format_value(str(path))} is not the name of a file") from None
    kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
    if kind == stat.S_IFREG:
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    what = _KINDS.get(kind, "something else")
    raise UnusableError(key, f"{format_value(str(path))} cannot be read: it is {what}, not a regular file")


def read_bytes(path: Path, key: str, most: int) -> bytes:
    """Return the content of a regular file.

    Args:
        path: of the file.
        key: what the file is given by.
        most: the bytes that a file of this kind can have.

    Raises:
        UnusableError: if the file cannot be read, is not a regular one, or has more than ``most`` bytes.
    """
    with open_regular(path, key) as file:
        try:
            content = file.read(most + 1)
        except OSError as error:
            raise file_error(key, path, error) from None
    if len(content) > most:
        raise _too_large(path, key, most)
    return content


def _too_large(path: Path, key: str, most: int) -> UnusableError:
    return UnusableError(key, f"{format_value(str(path))} is larger than such a file can be, {format_size(most)}")


def read_text(path: Path, key: str, most: int, errors: str = "strict") -> str:
    """Return the text of a regular file in UTF-8.

    Args:
        path: of the file.
        key: what the file is given by.
        most: the bytes that a file of this kind can have.
        errors: ``strict`` refuses bytes that are not UTF-8, ``replace`` puts a mark in their place.

    Raises:
        UnusableError: if the file cannot be read, is not a regular one, has more than ``most`` bytes, or is not text.
    """
    try:
        return read_bytes(path, key, most).decode(errors=errors)
    except UnicodeDecodeError as error:
        raise UnusableError(key, f"{format_value(str(path))} is not text in UTF-8, at byte {error.start}") from None


def read_lines(path: Path, key: str, most: int) -> Iterator[str]:
    """Yield the lines of a regular file that may be large; bytes that are not UTF-8 become marks.

    Args:
        path: of the file.
        key: what the file is given by.
        most: the bytes that a file of this kind can have.

    Raises:
        UnusableError: if the file cannot be read, is not a regular one, or has more than ``most`` bytes.
    """
    with open_regular(path, key) as file:
        read = 0
        try:
            while line := file.readline(MAX_LINE_BYTES):
                read += len(line)
                if read > most:
                    raise _too_large(path, key, most)
                yield line.decode(errors="replace")
        except OSError as error:
            raise file_error(key, path, error) from None


def read_json(path: Path, key: str, most: int) -> Any:
    """Return what a file of JSON holds.

    Args:
        path: of the file.
        key: what the file is given by.
        most: the bytes that a file of this kind can have.

    Raises:
        UnusableError: where ``read_text`` does, or the text is not JSON, or not what any program would have written:
            nested deeply, NaN, integers of thousands of digits.
    """
    try:
        return parse_json(read_text(path, key, most))
    except UnusableError:
        raise
    except ValueError as error:
        raise UnusableError(key, f"{format_value(str(path))} is not JSON: {error}") from None


def parse_json(text: str) -> Any:
    """Return what a text of JSON holds.

    Raises:
        ValueError: if the text is not JSON (NaN and Infinity are not), is nested deeply, or holds too much.
    """
    if text.count("[") + text.count("{") > MAX_CONTAINERS:
        raise ValueError(f"it holds more than {MAX_CONTAINERS} lists and objects")
    try:
        return json.loads(text, parse_constant=_reject_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _reject_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a number")
