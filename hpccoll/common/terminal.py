"""Output streams: control characters of files and of other machines are shown, never executed; errors have one end."""

import errno
import io
import os
import re
from collections.abc import Callable
from contextlib import suppress
from typing import TextIO

_HIDDEN = re.compile(
    "[\0-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Control characters except tab and newline, changes of the writing direction, and bytes of names outside UTF-8."""
ERASE_LINE = "\r\x1b[K"


def printable(text: str) -> str:
    r"""Return the text with its control characters as Python escapes: ``\x1b``, ``\r``, ``\u202e``."""
    if text.isprintable():  # almost every text, in a fraction of the time
        return text
    return _HIDDEN.sub(lambda match: ascii(match[0])[1:-1], text)


class OutputError(Exception):
    """stdout cannot be written; no ``OSError``, because commands take that for an error of their files."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number  # the errno


class PrintableStream:
    """A text stream that writes only printable text; its other attributes are those of the wrapped stream.

    Characters that its encoding lacks are written as escapes. After the first error nothing more is
    written, also not by Python when it exits; if the stream ``must_succeed``, an error raises
    ``OutputError``, else messages are lost.
    """

    def __init__(self, stream: TextIO, *, must_succeed: bool = True) -> None:
        self._stream = stream
        self._must_succeed = must_succeed
        self._has_status = False
        self._error = 0  # the errno of the first error
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
            # PYTHONUNBUFFERED: lines of ranks that share the stream would mix
            if stream.write_through:
                stream.reconfigure(write_through=False, line_buffering=True)

    def write(self, text: str) -> int:
        self._write(ERASE_LINE * self._has_status + printable(text))
        self._has_status = False
        return len(text)

    def show_status(self, text: str) -> None:
        """Show a line on a terminal until the next output or status; an empty one removes it."""
        import shutil  # ranks show no progress

        if self._stream.isatty():
            columns = shutil.get_terminal_size().columns  # ERASE_LINE erases one row
            self._write(ERASE_LINE + printable(text)[: columns - 1])
            self._has_status = bool(text)
            self.flush()

    def flush(self) -> None:
        self._try(self._stream.flush)

    def _write(self, text: str) -> None:
        self._try(self._stream.write, text)

    def write_bytes(self, content: bytes) -> None:
        """Write bytes, which a terminal must not get: they are not escaped."""
        if not isinstance(self._stream, io.TextIOWrapper):
            raise TypeError("the stream takes text only")
        self.flush()
        self._try(self._stream.buffer.write, content)

    def _try(self, action: Callable[..., object], *arguments: str | bytes) -> None:
        try:
            if not self._error:
                action(*arguments)
        except OSError as error:
            self._error = error.errno or errno.EIO
            with suppress(OSError, ValueError):  # a stream without a descriptor
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, self._stream.fileno())
                os.close(null)
        # each time: click catches the first while it tries a stream
        if self._error and self._must_succeed:
            raise OutputError(self._error)

    def __getattr__(self, name: str) -> object:
        if name == "buffer":  # bytes would reach the terminal unescaped
            raise AttributeError(name)
        return getattr(self._stream, name)


def write_bytes(stream: TextIO, content: bytes) -> None:
    """Write bytes on a stream of this process that is not a terminal."""
    if isinstance(stream, PrintableStream):
        stream.write_bytes(content)
    else:
        stream.buffer.write(content)


def show_status(stream: object, text: str) -> None:
    """Show a line of progress on a stream of this process if that is a terminal; see ``PrintableStream``."""
    if isinstance(stream, PrintableStream):
        stream.show_status(text)
