"""How many cases must be decided."""

from hypothesis import given
from hypothesis import strategies as st

from hpccoll.common.decided_cases import DecidedCases


@given(st.integers(0, 50), st.integers(0, 50), st.none() | st.integers(0, 50))
def test_half_of_the_cases_must_be_decided_or_as_many_as_the_user_requires(
    decided, others, required
):
    cases = DecidedCases(decided, decided + others, "case", required)
    assert cases.are_few == (decided < others if required is None else decided < required)
    assert f"{decided} of " in cases.line
