"""The events of a trace, read one after the other from a file of any length, and what is around them.

The list ``traceEvents`` may have millions of events; few of them matter. Where one ends is found by
its braces and texts; only what matters is decoded. Memory holds a piece of the file at a time, and
no event may be larger.
"""

import re
from collections.abc import Iterator
from typing import BinaryIO

PIECE_BYTES = 8 << 20
"""The number of bytes that are read at once."""
MAX_PART_BYTES = 32 << 20
"""The maximum size of an event, and of what is before or behind all of them."""
EVENTS_AT_ONCE = 1000

_MAX_DEPTH = 8
"""How deep objects in an event may be nested."""

_BEGIN = re.compile(rb'"traceEvents"\s*+:\s*+\[')
_END = re.compile(rb"[\s,]*+\]")
_TEXT = rb'"(?:[^"\\]++|\\.)*+"'


def _object(depth: int) -> bytes:
    """Return the pattern of an object; what is matched is never matched again in another way."""
    inner = rb"|" + _object(depth - 1) if depth else b""
    return rb'\{(?:[^{}"]++|' + _TEXT + inner + rb")*+\}"


_EVENT = re.compile(rb"(?s)[\s,]*+(" + _object(_MAX_DEPTH) + rb")")


class EventStream:
    """The events of a file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._buffer = b""
        self._place = 0
        self.around = b""  # the file with an empty list of events, once all are read

    def read(self, wanted: re.Pattern[bytes]) -> Iterator[list[bytes]]:
        """Yield the events in which a pattern is found, several at a time.

        Raises:
            ValueError: if the list has something other than objects, does not end, or has an object
                that is too large.
        """
        begin = _BEGIN.search(self._buffer)
        while begin is None:
            if not self._read_on():
                self.around = self._buffer
                return
            begin = _BEGIN.search(self._buffer)
        before = self._buffer[: begin.end()]
        self._place = begin.end()
        events = []
        for event in self._events():
            if wanted.search(event):
                events.append(event)
            if len(events) == EVENTS_AT_ONCE:
                yield events
                events = []
        yield events
        while self._read_on():
            pass
        self.around = before + self._buffer[self._place :]

    def _events(self) -> Iterator[bytes]:
        """Yield all events, and go to the bracket behind them."""
        while True:
            for match in iter(_EVENT.scanner(self._buffer, self._place).match, None):  # type: ignore[attr-defined]
                self._place = match.end()
                yield match[1]
            end = _END.match(self._buffer, self._place)
            if end is not None:
                self._place = end.end() - 1
                return
            if not self._read_on():
                raise ValueError("its events do not end, are not objects, or are nested too deeply")

    def _read_on(self) -> bool:
        """Read the next piece of the file; return whether there is one."""
        piece = self._file.read(PIECE_BYTES)
        self._buffer = self._buffer[self._place :] + piece
        self._place = 0
        if len(self._buffer) > MAX_PART_BYTES:
            raise ValueError(
                f"it has an event, or a part beside the events, of more than {MAX_PART_BYTES} bytes"
            )
        return bool(piece)
