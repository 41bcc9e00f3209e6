"""JSON Schemas from types: units by the names of keys, what may be null, and which keys a record may lack."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, NotRequired, TypedDict

import pytest

from hpccoll.common import json_schema
from hpccoll.common.json_schema import (
    OPTIONAL,
    OutputSchema,
    described,
    record_of_fields,
    type_at,
)


class Inner(TypedDict):
    """An inner record."""

    bytes: int


class Outer(TypedDict):
    median_s: float | None
    busbw_Bps: float
    rate_bps: Annotated[float, described("the rate")]
    inner: Inner | None
    extra: NotRequired[Annotated[str, OPTIONAL]]


@dataclass
class Made:
    count: int
    values: Mapping[str, float] = field(default_factory=dict)

    @property
    def half(self) -> float:
        return self.count / 2


@dataclass
class Holder:
    made: Made | None


@pytest.fixture
def schema(monkeypatch):
    """The schema of Outer, whose module has a name that cannot be imported."""
    monkeypatch.setattr(json_schema, "imported_object", lambda _name: Outer)
    return OutputSchema("outer", "outer --json", "an example", ("here:Outer",)).json_schema()


def test_units_follow_from_the_names_of_keys_and_null_from_their_types(schema):
    keys = schema["$defs"]["Outer"]["properties"]
    assert keys["median_s"] == {"type": ["number", "null"], "description": "in seconds"}
    assert keys["busbw_Bps"]["description"] == "in bytes per second"
    assert keys["rate_bps"]["description"] == "the rate, in bits per second"
    assert schema["$defs"]["Inner"]["properties"]["bytes"]["description"] == "in bytes"


def test_all_keys_are_required_but_those_that_say_otherwise(schema):
    outer = schema["$defs"]["Outer"]
    assert {*outer["properties"]} - {*outer["required"]} == {"extra"}


def test_a_record_of_fields_has_those_of_a_class_and_more():
    record = record_of_fields("RecordJson", Made, without=("count",), changed=Inner)
    assert record.__annotations__ == {"values": Mapping[str, float], "bytes": int}


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("made", Made | None),
        ("made.count", int | None),
        ("made.half", float | None),
        ("made.values.any", float | None),
    ],
)
def test_the_type_at_a_path_is_none_too_if_a_part_may_be(path, kind):
    assert type_at(Holder, path) == kind
