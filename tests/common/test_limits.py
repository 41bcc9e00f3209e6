"""Kinds of values and their bounds, which messages name."""

import pytest

from hpccoll.common.errors import BadInputError
from hpccoll.common.limits import IntegerRange, PositiveNumber

NUMBER, TIME = IntegerRange(-2, 3), PositiveNumber(10.0, "seconds")


@pytest.mark.parametrize(
    "text", ["", "x", "-3", "4", "1e0", "9" * 5000, "\N{ARABIC-INDIC DIGIT THREE}", "1_0", " 1", "+1"]
)
def test_a_text_that_is_no_number_within_the_bounds_is_refused_with_them(text):
    assert [NUMBER.read("-n", number) for number in ("-2", "3")] == [-2, 3]
    with pytest.raises(BadInputError, match=r"-n: .* a whole number from -2 to 3"):
        NUMBER.read("-n", text)


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "11", "1e308", "x"])
def test_a_text_that_is_not_a_time_is_refused_with_the_bound(text):
    with pytest.raises(BadInputError, match="a number of seconds above 0, at most 10"):
        TIME.read("--seconds", text)
