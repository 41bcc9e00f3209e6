"""Colours of series."""

from hypothesis import given
from hypothesis import strategies as st

from hpccoll.render.colours import series_colour


@given(st.integers(1, 60))
def test_there_is_a_colour_for_any_number_of_lines(count):
    assert len({series_colour(i) for i in range(count)}) == count
