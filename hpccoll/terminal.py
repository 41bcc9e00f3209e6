"""Escaping for the terminal: control characters in text of files and of other machines are shown, never executed."""

import re
from typing import TextIO

_HIDDEN = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters except tab and newline, changes of the writing direction, and bytes of names outside UTF-8."""


def printable(text: str) -> str:
    r"""Return the text with its control characters as Python escapes: ``\x1b``, ``\r``, ``\u202e``."""
    return _HIDDEN.sub(lambda match: ascii(match[0])[1:-1], text)


class PrintableStream:
    """A text stream that writes only printable text; its other attributes are those of the wrapped stream."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(printable(text))
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def __getattr__(self, name: str) -> object:
        if name == "buffer":  # bytes would reach the terminal unescaped
            raise AttributeError(name)
        return getattr(self._stream, name)
