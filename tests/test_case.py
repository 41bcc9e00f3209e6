"""A case and a job: what each round of a case has of the effort."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpccoll.case import LEAST_ITERATIONS, MOST_ROUNDS, Effort
from hpccoll.errors import BadInputError

efforts = st.builds(
    lambda least, more, rounds: Effort(min_iterations=least, max_iterations=least + more, rounds=rounds),
    st.integers(1, 100), st.integers(0, 1000), st.integers(1, MOST_ROUNDS),
)  # fmt: skip


@given(efforts)
def test_rounds_together_have_the_effort_of_the_case_and_each_has_enough_for_an_interval(effort):
    one = effort.of_a_round
    assert one.rounds == 1
    assert one.seconds * effort.rounds == pytest.approx(effort.seconds)
    assert one.min_iterations * effort.rounds >= effort.min_iterations
    assert one.max_iterations * effort.rounds >= effort.max_iterations
    assert one.min_iterations >= min(LEAST_ITERATIONS, effort.min_iterations)
    assert (one.warmup, one.precision, one.timeout) == (effort.warmup, effort.precision, effort.timeout)


@given(efforts)
def test_a_round_has_no_more_iterations_than_its_share_unless_its_interval_needs_them(effort):
    one = effort.of_a_round
    assert one.min_iterations <= max(LEAST_ITERATIONS, -(-effort.min_iterations // effort.rounds))
    assert one.max_iterations <= max(one.min_iterations, -(-effort.max_iterations // effort.rounds))


def test_one_round_is_the_whole_effort():
    effort = Effort(min_iterations=3, max_iterations=4)
    assert effort.of_a_round == effort


@pytest.mark.parametrize("rounds", [0, -1, MOST_ROUNDS + 1])
def test_rounds_that_the_raw_file_cannot_number_are_refused(rounds):
    with pytest.raises(BadInputError, match=f"effort.rounds.*from 1 to {MOST_ROUNDS}"):
        Effort(rounds=rounds)
