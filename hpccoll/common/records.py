"""Records of JSON files: dataclasses whose annotations say what is valid, decoded and checked here, once, by msgspec.

Rank processes read jobs: msgspec is one extension module without dependencies.
"""

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import inspect

from hpccoll.common.errors import BadInputError, UnusableError, format_value
from hpccoll.common.files import read_json

Record = TypeVar("Record")

Decoder: TypeAlias = Callable[[Any, Any], Any]
"""Returns a value of a type that JSON lacks, given the type and what stands for it in JSON."""

LAST_OF_SCHEMA_1 = "git+https://github.com/hpccoll/hpccoll@3d752ba"
"""The last version that reads and writes files of schema 1."""


def json_text(record: object) -> str:
    """Return a record as JSON for people and digests: keys are sorted, and each is on a line of its own."""
    return msgspec.json.format(msgspec.json.encode(record, order="sorted"), indent=1).decode()


def to_builtins(record: object, encode: Callable[[Any], Any] | None = None) -> Any:
    """Return a record as JSON has it; ``encode`` returns what stands for a value of a type that JSON lacks."""
    return msgspec.to_builtins(record, enc_hook=encode)


def from_builtins(
    values: object, kind: type[Record], key: str = "", decode: Decoder | None = None
) -> Record:
    """Return the record of a JSON value; ``key`` is its name in messages, ``decode`` is for types that JSON lacks.

    Raises:
        BadInputError: names the first key that is wrong, its value and what is valid.
    """
    for place, name, names in _unknown_keys(values, _shape_of(kind), key):
        raise BadInputError(f"{place}.key" if place else "key", name, names)
    try:
        return msgspec.convert(values, kind, dec_hook=decode)
    except msgspec.ValidationError as error:
        raise _to_bad_input(error, values, kind, key) from None
    except UnicodeEncodeError as error:  # half of a character
        raise BadInputError(key or "content", error.object, "text in UTF-8") from None


def load_record(
    path: Path,
    key: str,
    max_bytes: int,
    kind: type[Record],
    meaning: str,
    ignored: Sequence[str] = (),
    select: Callable[[dict[str, Any]], dict[str, Any]] = dict,
) -> Record:
    """Return the record of a JSON file (see ``read_json``) whose key ``schema`` names its format and version.

    In messages ``meaning`` says what the file is; ``ignored`` keys may be in it. ``select`` returns
    the values that are decoded and checked: of a large file perhaps a part.

    Raises:
        BadInputError: if the file cannot be read, is of an earlier version, or has a wrong value.
    """
    try:
        values = read_json(path, key, max_bytes)
    except UnusableError as error:
        raise UnusableError(key, f"{error.expected}; valid: {meaning}") from None
    (schema,) = get_args(*_parts(kind, "schema"))
    if isinstance(values, dict) and (schema_of_file := values.get("schema")) != schema:
        names = {*get_type_hints(kind)}
        if (
            str(schema_of_file or schema).startswith(schema.split()[0])
            and len(names & values.keys()) > len(names) // 2
        ):
            raise outdated(path, key)
        raise BadInputError(
            key, str(path), f"{meaning} (its schema is {format_value(schema_of_file)})"
        )
    if isinstance(values, dict):
        values = select(values)
        for name in ignored:
            values.pop(name, None)
    try:
        return from_builtins(values, kind)
    except BadInputError as error:
        raise BadInputError(key, str(path), f"{meaning} ({error})") from None


def outdated(path: Path, key: str) -> UnusableError:
    """Return the error of a file that an earlier version of hpccoll wrote."""
    why = f"{format_value(str(path))} is of schema 1, and this version of hpccoll reads schema 2"
    return UnusableError(
        key,
        f"{why}; do: measure anew, or read it by the last version: pip install {LAST_OF_SCHEMA_1}",
    )


_shape_of: Callable[[Any], inspect.Type] = lru_cache(inspect.type_info)
"""Returns the description of a type."""


def _parts(kind: Any, name: str = "") -> tuple[Any, ...]:
    """Return the types of a field, of the items of a list, or of the keys and values of a mapping."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _parts(arguments[0], name)
    if origin in (Union, UnionType):
        return next(filter(None, (_parts(argument, name) for argument in arguments)), ())
    if dataclasses.is_dataclass(kind):
        return (get_type_hints(kind, include_extras=True)[name],)
    if origin is tuple and arguments[-1] is not Ellipsis:
        return (arguments[int(name)],)
    if origin is tuple:
        return arguments[:1]
    return arguments


def _to_bad_input(
    error: msgspec.ValidationError, values: Any, kind: Any, key: str
) -> BadInputError:
    """Return the error of a value, whose place msgspec names as ``$.cases[0].bytes`` at the end of its message."""
    message, _, place = str(error).partition(" - at ")
    names = []
    if key:
        names.append(key)
    for field, index in re.findall(r"\.(\w+)|\[(\d+|\.\.\.)\]", place):
        if index == "...":
            name, kind = _wrong_entry(values, kind)
        else:
            name = field or index
            kind = _parts(kind, name)[0]
        names.append(name)
        if index.isdecimal():
            values = values[int(index)]
        else:
            values = values[name]
    cause = error.__cause__
    if isinstance(cause, BadInputError):  # of a record whose values must fit each other
        names.append(cause.key)
        return cause.with_key(".".join(names))
    if missing := re.search(r"missing required field `(\w+)`", message):
        names.append(missing[1])
        values, (kind,) = None, _parts(kind, missing[1])
    elif values is None:
        values = "null"
    return BadInputError(".".join(names) or "content", values, _describe(_shape_of(kind)))


def _wrong_entry(values: Mapping[str, Any], kind: Any) -> tuple[str, Any]:
    """Return the name of the first entry of a mapping whose value is wrong, and its type: msgspec names neither."""
    *_, kind = _parts(kind)
    wrong = ""
    for name, value in values.items():
        try:
            msgspec.convert(value, kind)
        except msgspec.ValidationError:
            wrong = name
            break
    return wrong, kind


def _describe(shape: inspect.Type) -> str:
    if isinstance(shape, inspect.UnionType):
        return " or ".join(map(_describe, shape.types))
    return next(
        (describe(shape) for kind, describe in _WORDS.items() if isinstance(shape, kind)), "a value"
    )


_WORDS: Mapping[type, Callable[[Any], str]] = {
    inspect.NoneType: lambda _: "null",
    inspect.BoolType: lambda _: "true or false",
    inspect.LiteralType: lambda shape: f"choose from {', '.join(map(str, shape.values))}",
    inspect.IntType: lambda shape: (
        "a whole number" + ("" if shape.ge is None else f" from {shape.ge} to {shape.le}")
    ),
    inspect.FloatType: lambda shape: (
        "a number" + ("" if shape.le is None else f" above 0, at most {shape.le:g}")
    ),
    inspect.StrType: lambda shape: (
        f"a text of {shape.min_length or 0} to {shape.max_length} printable characters"
        if shape.max_length
        else "a text"
    ),
    inspect.DictType: lambda shape: (
        f"names{_at_most(shape)}, each with {_describe(shape.value_type)}"
    ),
    inspect.CollectionType: lambda shape: (
        f"a list{_at_most(shape)}, each {_describe(shape.item_type)}"
    ),
    inspect.DataclassType: lambda shape: (
        f"keys and values: {', '.join(field.encode_name for field in shape.fields)}"
    ),
}
"""What values of a type are, in words."""


def _at_most(shape: Any) -> str:
    if shape.max_length is None:
        return ""
    return f", {shape.min_length or 0} to {shape.max_length}"


def _alternatives(shape: inspect.Type) -> tuple[inspect.Type, ...]:
    if isinstance(shape, inspect.UnionType):
        return shape.types
    return (shape,)


def _unknown_keys(
    value: Any, shape: inspect.Type, key: str
) -> Iterator[tuple[str, str, list[str]]]:
    """Yield the place of each key that a record lacks, the key, and the known ones: it may be a misspelt one."""
    for alternative in _alternatives(shape):
        if isinstance(alternative, inspect.DataclassType) and isinstance(value, dict):
            parts = _record_parts(alternative.cls)
            for name in value:
                if name not in parts:
                    yield key, name, list(parts)
            for name, part in parts.items():
                if part is not None and name in value:
                    place = f"{key}.{name}" if key else name
                    yield from _unknown_keys(value[name], part, place)
        elif isinstance(alternative, inspect.ListType | inspect.VarTupleType) and isinstance(
            value, list | tuple
        ):
            for number, item in enumerate(value):
                yield from _unknown_keys(item, alternative.item_type, f"{key}.{number}")


@lru_cache
def _record_parts(kind: type[Any]) -> Mapping[str, inspect.Type | None]:
    """Return the type of each field of a dataclass that holds records; None for other fields."""
    fields: Any = _shape_of(kind)
    return {
        field.encode_name: field.type if _holds_records(field.type) else None
        for field in fields.fields
    }


def _holds_records(shape: inspect.Type) -> bool:
    return any(
        isinstance(alternative, inspect.DataclassType)
        or (
            isinstance(alternative, inspect.ListType | inspect.VarTupleType)
            and _holds_records(alternative.item_type)
        )
        for alternative in _alternatives(shape)
    )
