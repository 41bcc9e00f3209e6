"""JSON with the line of each value, read as leniently as json-c reads it: with comments, and commas before an end."""

import json
import re
from dataclasses import dataclass, field
from typing import Any

_SPACE = re.compile(r"(?:\s|/\*.*?\*/|//[^\n]*)*", re.DOTALL)
_SCALAR = re.compile(r'"(?:[^"\\\n]|\\.)*"|-?[0-9][-+.0-9eE]*|true|false|null')
MAX_DEPTH = 50


@dataclass(frozen=True, slots=True)
class LinedValue:
    """A value of a JSON text."""

    line: int
    value: Any  # a scalar, a list of LinedValue, or None for an object
    members: tuple[tuple[str, int, "LinedValue"], ...] = ()  # of an object: keys, their lines, and what they hold

    def get(self, key: str) -> "LinedValue | None":
        """Return the value of a key; None if there is none."""
        return next((value for name, _, value in self.members if name == key), None)

    def items(self) -> "list[LinedValue]":
        """Return the items of a list; none if it is something else."""
        return self.value if isinstance(self.value, list) else []


@dataclass(slots=True)
class LinedText:
    """A JSON text and how far it is read."""

    text: str
    place: int = 0
    trailing_commas: list[int] = field(default_factory=list)  # their lines

    @property
    def line(self) -> int:
        """The line of the next character, counted from 1."""
        return self.text.count("\n", 0, self.place) + 1

    def read(self) -> LinedValue:
        """Return the whole text as a value; ValueError, with what is expected, where it is none."""
        value = self._value(0)
        if self._next():
            raise ValueError("the text goes on behind its end")
        return value

    def _next(self) -> str:
        self.place = _SPACE.match(self.text, self.place).end()  # type: ignore[union-attr]  # it matches nothing, too
        return self.text[self.place : self.place + 1]

    def _take(self, expected: str) -> None:
        if self._next() != expected:
            raise ValueError(f"{expected} is expected here")
        self.place += 1

    def _value(self, depth: int) -> LinedValue:
        begin, line = self._next(), self.line
        if depth > MAX_DEPTH:
            raise ValueError("it is nested too deeply")
        if begin not in ("{", "["):
            match = _SCALAR.match(self.text, self.place)
            if not match:
                raise ValueError("a value is expected here")
            self.place = match.end()
            return LinedValue(line, json.loads(match[0]))
        end, members, items = {"{": "}", "[": "]"}[begin], list[tuple[str, int, LinedValue]](), list[LinedValue]()
        self.place += 1
        while self._next() != end:
            if begin == "{":
                key = self._value(depth + 1)
                self._take(":")
                members.append((str(key.value), key.line, self._value(depth + 1)))
            else:
                items.append(self._value(depth + 1))
            if self._next() != end:
                comma = self.line
                self._take(",")
                self.trailing_commas += [comma] if self._next() == end else []
        self.place += 1
        return LinedValue(line, None, tuple(members)) if begin == "{" else LinedValue(line, items)
