"""JSON with the lines of its keys, read as leniently as json-c reads it: with comments, and commas before an end."""

import json
import re
from typing import NamedTuple

_COMMENT = r"/\*.*?\*/|//[^\n]*"
_TEXT = r'"(?:[^"\\\n]|\\.)*"'
_TOKEN = re.compile(
    rf"(?P<key>{_TEXT})(?=\s*:)|{_TEXT}|(?P<comment>{_COMMENT})|(?P<comma>,)(?=(?:\s|{_COMMENT})*[}}\]])",
    re.DOTALL,
)


class JsonMember(NamedTuple):
    """A key of an object and its value; an object is a tuple of them."""

    key: str
    line: int  # of the key, counted from 1
    value: object


def parse_json_lines(text: str) -> tuple[object, list[int]]:
    """Return the value of a JSON text, with tuples of ``JsonMember`` for objects, and the lines of its comments.

    Raises:
        ValueError: the text is not JSON, or nested too deeply; ``lineno`` is its line, if it is a
            JSONDecodeError.
    """
    line = 1
    counted = 0
    comments: list[int] = []

    def replaced(token: re.Match[str]) -> str:
        nonlocal line, counted
        line, counted = line + text.count("\n", counted, token.start()), token.start()
        if token["key"]:
            return f'"{line} {token[0][1:]}'
        if token["comment"]:
            comments.append(line)
        if token[0].startswith('"'):
            return token[0]
        return re.sub("[^\n]", " ", token[0])

    try:
        return json.loads(_TOKEN.sub(replaced, text), object_pairs_hook=_members), comments
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _members(pairs: list[tuple[str, object]]) -> tuple[JsonMember, ...]:
    split = ((key.partition(" "), value) for key, value in pairs)
    return tuple(JsonMember(key, int(line), value) for (line, _, key), value in split)


def members_of(value: object) -> tuple[JsonMember, ...]:
    """Return the members of an object; none of another value."""
    return value if isinstance(value, tuple) else ()


def value_of(value: object, key: str, default: object = None) -> object:
    """Return the value of a key of an object; the default if there is none."""
    return next((member.value for member in members_of(value) if member.key == key), default)
