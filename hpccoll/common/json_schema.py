"""JSON Schemas (draft 2020-12) of the records that commands print and write, made from their types by msgspec."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import isfunction
from pathlib import Path
from typing import Any, TypeAlias, TypedDict, get_type_hints

import msgspec

from hpccoll.common.extensions import imported_object
from hpccoll.common.version import __version__

DIALECT = "https://json-schema.org/draft/2020-12/schema"

LEFT_OUT = "left out where it says nothing"
"""The comment of keys that a record may lack; all others are always there."""

OPTIONAL = msgspec.Meta(extra_json_schema={"$comment": LEFT_OUT})
"""What annotates a key that a record may lack."""


def described(description: str) -> msgspec.Meta:
    """Return what annotates a key with its description."""
    return msgspec.Meta(description=description)


UNITS = {
    "_s": "in seconds",
    "seconds": "in seconds",
    "_bytes_per_s": "in bytes per second",
    "_flops_per_s": "in FLOP per second",
    "flops_per_s": "in FLOP per second",
    "_flops": "in FLOP",
    "_Bps": "in bytes per second",
    "_bps": "in bits per second",
    "bytes": "in bytes",
}
"""The units of keys by the ends of their names; the longest one counts."""

JsonSchema: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class OutputSchema:
    """The schema of what a command prints as JSON, or of a file that it writes."""

    name: str
    printed_by: str  # the words of the command, such as ``accept FILES --json``
    meaning: str  # what has this schema, as a phrase
    # the types that a record may have, each as ``module:NAME``: one that msgspec knows, one whose
    # ``json_record`` returns such a type, a function that does, or a model of pydantic
    records: Sequence[str]
    is_array: bool = False  # whether it is of an array of such records
    may_be_array: bool = False  # whether it is of a record, or of an array of them
    left_out: Sequence[str] = ()  # keys of dataclasses that a record may lack
    # as ``module:NAME``, what is known of keys that say nothing of themselves, a phrase for each
    meanings: str = ""

    def json_schema(self) -> JsonSchema:
        """Return the schema."""
        models: dict[str, JsonSchema] = {}
        types = []
        for record_name in self.records:
            types.append(_record_type(imported_object(record_name)))
        schemas, parts = msgspec.json.schema_components(
            types, schema_hook=_hook(models), ref_template="#/$defs/{name}"
        )
        meanings: Mapping[str, str] = {}
        if self.meanings:
            meanings = imported_object(self.meanings)
        for part in parts.values():
            _complete(part, meanings, self.left_out)
        record: JsonSchema = schemas[0]
        if len(schemas) > 1:
            record = {"anyOf": list(schemas)}
        array = {"type": "array", "items": record}
        content = record
        if self.is_array:
            content = array
        elif self.may_be_array:
            content = {"anyOf": [record, array]}
        definitions = {**parts, **models}
        schema = {
            "$schema": DIALECT,
            "$id": schema_id(self.name),
            "title": f"hpccoll {self.printed_by}",
            "description": self.meaning,
            **_short(content),
        }
        if definitions:
            schema["$defs"] = _short(definitions)
        return schema


def _record_type(record: Any) -> Any:
    """Return the type of a record, as msgspec knows it, or a model of pydantic."""
    if isfunction(record):
        return record()
    if hasattr(record, "json_record"):
        return record.json_record()
    return record


def schema_id(name: str) -> str:
    """Return the ``$id`` of a schema: it changes with the minor version, within which no key is removed or changed."""
    major, minor = __version__.split(".")[:2]
    return f"urn:hpccoll:{major}.{minor}:{name}"


def record_of_fields(
    name: str, kind: type, *, without: tuple[str, ...] = (), changed: type | None = None
) -> Any:
    """Return the type of a record with the fields of a class, and the keys of another record, ``changed``."""
    hints = get_type_hints(kind, include_extras=True)
    keys = {}
    for key in kind_fields(kind):
        if key not in without:
            keys[key] = hints[key]
    if changed:
        keys |= get_type_hints(changed, include_extras=True)
    return typed_dict(name, keys)


def kind_fields(kind: Any) -> tuple[str, ...]:
    """Return the names of the fields of a dataclass or of a named tuple."""
    if hasattr(kind, "_fields"):
        return tuple(kind._fields)
    return tuple(kind.__dataclass_fields__)


def typed_dict(name: str, keys: Mapping[str, Any], declared: type | None = None) -> Any:
    """Return the type of a record with these keys, each with its type, and those of a ``declared`` one."""
    if declared:
        keys = {**get_type_hints(declared, include_extras=True), **keys}
    return TypedDict(name, dict(keys))  # type: ignore[operator]  # mypy reads literal keys only


def type_at(kind: Any, path: str) -> Any:
    """Return the type of what is at a path of attributes, such as ``expected.low``; None is one if a part may be None.

    What is in a mapping is of its type of values.
    """
    may_be_none = False
    reached = kind
    for name in path.split("."):
        reached, is_optional = _without_none(reached)
        may_be_none |= is_optional
        reached = _attribute_type(reached, name)
    if may_be_none:
        return reached | None
    return reached


def _without_none(kind: Any) -> tuple[Any, bool]:
    """Return a type without None, and whether None was one of its alternatives."""
    alternatives = getattr(kind, "__args__", ())
    if type(None) not in alternatives:
        return kind, False
    remaining = list(alternatives)
    remaining.remove(type(None))
    return remaining[0], True


def _attribute_type(kind: Any, name: str) -> Any:
    origin = getattr(kind, "__origin__", None)
    if origin is not None and issubclass(origin, Mapping):
        return kind.__args__[1]
    hints = get_type_hints(kind)
    if name in hints:
        return _without_class_variable(hints[name])
    member = getattr(kind, name)
    function = getattr(member, "fget", None) or member.func
    return get_type_hints(function)["return"]


def _without_class_variable(hint: Any) -> Any:
    """Return the type of a class variable; other types as they are."""
    if str(hint).startswith("typing.ClassVar"):
        return hint.__args__[0]
    return hint


def _hook(models: dict[str, JsonSchema]) -> Callable[[type], JsonSchema]:
    """Return what gives msgspec the schemas of types that it lacks, and collects those of pydantic's models."""

    def schema_of(kind: type) -> JsonSchema:
        if kind in (re.Pattern, Path):
            return {"type": "string"}
        if kind is object:
            return {}
        if not hasattr(kind, "model_json_schema"):
            raise NotImplementedError(kind)
        model: JsonSchema = kind.model_json_schema(by_alias=True)
        models.update(model.pop("$defs", {}))
        models[kind.__name__] = model
        return {"$ref": f"#/$defs/{kind.__name__}"}

    return schema_of


def _complete(part: JsonSchema, meanings: Mapping[str, str], left_out: Sequence[str]) -> None:
    """Say of a record which keys it always has, and what is known of them."""
    keys = part.get("properties")
    if not keys:
        return
    for name, key in keys.items():
        if name in left_out:
            key["$comment"] = LEFT_OUT
        phrases = [key.get("description", meanings.get(name, "")), _unit(name)]
        key.pop("default", None)  # of a record that is made, not of one that is read
        description = ", ".join(filter(None, phrases))
        if description:
            key["description"] = description
    required = []
    for name, key in keys.items():
        if key.get("$comment") != LEFT_OUT:
            required.append(name)
    part["required"] = required


def _unit(name: str) -> str:
    """Return the unit of a key in words; empty if its name has none."""
    longest = ""
    for end in UNITS:
        if name.endswith(end) and len(end) > len(longest):
            longest = end
    return UNITS.get(longest, "")


def _short(schema: Any) -> Any:
    """Return a schema in which alternatives that are bare types are one list of types."""
    if isinstance(schema, list):
        return list(map(_short, schema))
    if not isinstance(schema, dict):
        return schema
    shortened = {}
    for key, value in schema.items():
        shortened[key] = _short(value)
    types = []
    for alternative in shortened.get("anyOf", ()):
        if list(alternative) != ["type"]:
            return shortened
        types.append(alternative["type"])
    if types:
        del shortened["anyOf"]
        shortened["type"] = types
    return shortened
