"""Kinds of values and their bounds, which messages name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpccoll.common.errors import BadInputError
from hpccoll.common.limits import RANKS, SEED, IntegerRange, PositiveNumber

NUMBER, TIME = IntegerRange(-2, 3), PositiveNumber(10.0, "seconds")


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
