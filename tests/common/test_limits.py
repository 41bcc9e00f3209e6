"""Kinds of values and their bounds, which messages name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpccoll.common.errors import BadInputError
from hpccoll.common.limits import (
    RANKS,
    SEED,
    AnyOf,
    Boolean,
    IntegerRange,
    PositiveNumber,
    PrintableText,
    check_mapping,
)

NUMBER, TIME = IntegerRange(-2, 3), PositiveNumber(10.0, "seconds")
ARABIC_SIX = "\N{ARABIC-INDIC DIGIT SIX}"
ANYTHING = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.integers())


def accepts(kind, value):
    try:
        kind.check("key", value)
    except BadInputError:
        return False
    return True


@given(ANYTHING)
def test_a_kind_accepts_only_its_own_values_within_bounds(value):
    whole = type(value) is int and -2 <= value <= 3
    time = type(value) in (int, float) and 0 < value <= 10
    assert accepts(NUMBER, value) is whole
    assert accepts(TIME, value) is time
    assert accepts(Boolean(), value) is isinstance(value, bool)
    assert accepts(PrintableText(5), value) is (isinstance(value, str) and len(value) <= 5 and value.isprintable())
    assert accepts(AnyOf((NUMBER, None)), value) is (value is None or whole)


@given(st.integers(-10, 10))
def test_a_number_is_parsed_from_digits(number):
    if -2 <= number <= 3:
        assert NUMBER.read("-n", str(number)) == number
    else:
        with pytest.raises(BadInputError, match=r"-n: .* a whole number from -2 to 3"):
            NUMBER.read("-n", str(number))


@pytest.mark.parametrize(
    "text", ["", "x", "1.0", "1e14", "9" * 5000, "\N{ARABIC-INDIC DIGIT THREE}", "1_0", " 1", "+1"]
)
def test_a_text_that_is_not_a_number_is_refused_with_the_bounds(text):
    for kind in (RANKS, SEED, NUMBER):
        with pytest.raises(BadInputError, match=f"from {kind.minimum} to {kind.maximum}"):
            kind.read("-n", text)


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "11", "1e308", "x"])
def test_a_text_that_is_not_a_time_is_refused_with_the_bound(text):
    with pytest.raises(BadInputError, match="a number of seconds above 0, at most 10"):
        TIME.read("--seconds", text)


@pytest.mark.parametrize("values", [7, [1], {"": 1}, {"a\0": 1}, {"a": "x"}, {"a": 1, "b": 1, "c": 1}])
def test_a_mapping_has_a_bounded_number_of_names_with_values_of_one_kind(values):
    check_mapping("key", {"a": 1, "b": 2}, 2, PrintableText(9, minimum=1), NUMBER)
    with pytest.raises(BadInputError, match="key"):
        check_mapping("key", values, 2, PrintableText(9, minimum=1), NUMBER)
