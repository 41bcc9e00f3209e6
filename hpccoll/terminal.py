"""What is printed: text of files and of other machines is shown, and never obeyed, by the terminal that it comes to."""

import re
from typing import TextIO

_HIDDEN = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters but tab and newline; what turns the direction of writing; bytes of names that are not UTF-8."""


def printable(text: str) -> str:
    r"""Return text with its control characters as Python writes them: ``\x1b``, ``\r``, ``\u202e``."""
    return _HIDDEN.sub(lambda found: ascii(found[0])[1:-1], text)


class PrintableStream:
    """A text stream to which only printable text comes; all else is that of the stream below it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(printable(text))
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def __getattr__(self, name: str) -> object:
        if name == "buffer":  # by which bytes would come to the terminal as they are
            raise AttributeError(name)
        return getattr(self._stream, name)
