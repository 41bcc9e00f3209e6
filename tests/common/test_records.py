"""Records and kinds of values: what annotations allow is read; anything else is one line with what is valid."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpccoll.common.errors import BadInputError
from hpccoll.common.limits import IntegerRange, PositiveNumber, PrintableText
from hpccoll.common.records import from_builtins, json_text, load_record, to_builtins

NUMBER, TIME, TEXT = IntegerRange(-2, 3), PositiveNumber(10.0, "seconds"), PrintableText(5)


@dataclass(frozen=True, kw_only=True)
class Part:
    number: Annotated[int, NUMBER.meta]
    time: Annotated[float, TIME.meta] = 1.0
    text: Annotated[str, TEXT.meta] | None = None
    is_on: bool = False
    values: Annotated[
        Mapping[Annotated[str, TEXT.meta], Annotated[int, NUMBER.meta] | str],
        msgspec.Meta(max_length=2),
    ] = field(default_factory=dict)

    def __post_init__(self):
        if self.number == 3:
            raise BadInputError("number", 3, "another one")


@dataclass(frozen=True, kw_only=True)
class Whole:
    schema: Literal["test 2.0"] = "test 2.0"
    kind: Literal["a", "b"] = "a"
    parts: tuple[Part, ...] = ()


ANYTHING = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.integers())
)


@given(ANYTHING)
def test_a_value_is_accepted_if_it_is_of_its_kind_and_within_bounds(value):
    def accepts(kind):
        try:
            from_builtins(value, kind)
        except BadInputError:
            return False
        return True

    assert accepts(Annotated[int, NUMBER.meta]) is (type(value) is int and -2 <= value <= 3)
    assert accepts(Annotated[float, TIME.meta]) is (type(value) in (int, float) and 0 < value <= 10)
    assert accepts(bool) is isinstance(value, bool)
    if isinstance(value, str) and value.isprintable() and len(value) <= 5:
        assert accepts(Annotated[str, TEXT.meta])


@pytest.mark.parametrize("character", ["\0", "\x1b", "\x9b", "\u2028", "\u202e"])
def test_a_text_has_no_character_that_controls_a_terminal(character):
    with pytest.raises(BadInputError, match="printable"):
        from_builtins({"number": 1, "text": f"a{character}"}, Part)


WRONG = {
    "a bound": (
        {"parts": [{"number": 4}]},
        "parts.0.number: 4 is not valid: a whole number from -2 to 3",
    ),
    "a type": (
        {"parts": [{"number": 1, "time": "x"}]},
        "parts.0.time: 'x' is not valid: a number above 0, at most 10",
    ),
    "a choice": ({"kind": "c"}, "kind: 'c' is not valid: choose from a, b"),
    "a missing key": (
        {"parts": [{"number": 1}, {}]},
        "parts.1.number is missing: a whole number from -2 to 3",
    ),
    "a misspelt key": (
        {"parts": [{"nunber": 1}]},
        "parts.0.key: 'nunber' is not valid: did you mean number? choose",
    ),
    "an entry": (
        {"parts": [{"number": 1, "values": {"a": 1, "b": []}}]},
        "parts.0.values.b: [] is not valid: a whole",
    ),
    "null": ({"parts": None}, "parts: 'null' is not valid: a list"),
    "values that do not fit": (
        {"parts": [{"number": 3}]},
        "parts.0.number: 3 is not valid: another one",
    ),
    "half a character": (
        {"parts": [{"number": "\ud800"}]},
        r"content: '\ud800' is not valid: text in UTF-8",
    ),
    "another document": ([1], "content: [1] is not valid: keys and values: schema, kind, parts"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_value_is_named_with_its_key_and_what_is_valid(wrong):
    values, line = WRONG[wrong]
    with pytest.raises(BadInputError) as caught:
        from_builtins(values, Whole)
    assert str(caught.value).startswith(line)


def test_a_record_survives_its_json():
    whole = Whole(
        kind="b", parts=(Part(number=1, values={"a": 1, "b": "x"}), Part(number=-2, text="y"))
    )
    assert (
        from_builtins(json.loads(json_text(whole)), Whole)
        == from_builtins(to_builtins(whole), Whole)
        == whole
    )


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (
            '{"kind": "a", "parts": []}',
            "is of schema 1, and this version of hpccoll reads schema 2; do: ",
        ),
        ('{"schema": "test", "kind": "a", "parts": []}', "is of schema 1, "),
        ('{"schema": "other 1"}', "a test (its schema is 'other 1')"),
        (
            '{"schema": "test 2.0", "kind": "c"}',
            "a test (kind: 'c' is not valid: choose from a, b)",
        ),
        ("[", "is not JSON"),
        ("\0", "is not JSON"),
    ],
)
def test_another_file_is_one_line_and_one_of_schema_1_says_how_to_read_it(tmp_path, content, line):
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(BadInputError) as caught:
        load_record(tmp_path / "a.json", "--file", 100, Whole, "a test")
    assert str(caught.value).startswith("--file: ")
    assert line in str(caught.value)


@pytest.mark.parametrize(
    "text",
    ["", "x", "-3", "4", "1e0", "9" * 5000, "\N{ARABIC-INDIC DIGIT THREE}", "1_0", " 1", "+1"],
)
def test_a_text_that_is_no_number_within_the_bounds_is_refused_with_them(text):
    assert [NUMBER.read("-n", number) for number in ("-2", "3")] == [-2, 3]
    with pytest.raises(BadInputError, match=r"-n: .* a whole number from -2 to 3"):
        NUMBER.read("-n", text)


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "11", "1e308", "x"])
def test_a_text_that_is_not_a_time_is_refused_with_the_bound(text):
    with pytest.raises(BadInputError, match="a number of seconds above 0, at most 10"):
        TIME.read("--seconds", text)
