"""What a regret is at least: no more than it is, whatever noise there is, and all of it where there is little."""

import numpy as np
import pytest

from hpccoll.tuning.judge_table import held_out_regret
from hpccoll.tuning.measured_choices import ChoiceTime, geometric_mean
from hpccoll.tuning.table import Choice

SIZES, ROUNDS = 300, 5


def choices(*usual, noise=0.3):
    """Yield what choices that take so long took at each size, round by round, on a noisy machine."""
    numbers = np.random.default_rng(1)
    for _ in range(SIZES):
        seconds = np.array(usual)[:, None] * np.exp(noise * numbers.standard_normal((len(usual), ROUNDS)))
        yield {
            Choice(f"{place}", "mpi", ()): ChoiceTime(
                float(np.median(took)), noise, {("call", "run", turn): took[turn] for turn in range(ROUNDS)}
            )
            for place, took in enumerate(seconds)
        }


def means(found):
    """Return the geometric mean of the regret of the first choice, and of its median over the least."""
    first = Choice("0", "mpi", ())
    found = [
        (held_out_regret(there, first), there[first].seconds / min(time.seconds for time in there.values()))
        for there in found
    ]
    return [geometric_mean(ratios) for ratios in zip(*found, strict=True)]


@pytest.mark.parametrize("noise", [0.05, 0.1, 0.3])
@pytest.mark.parametrize("slower", [1.0, 1.1, 1.5])
def test_it_is_no_more_than_the_regret_that_the_least_time_makes_too_large(slower, noise):
    least, most = means(choices(slower, *[1.0] * 5, noise=noise))
    assert least < slower * 1.03
    assert slower * 0.99 < most


def test_one_of_six_that_are_alike_costs_nothing_though_the_least_time_is_less():
    least, most = means(choices(*[1.0] * 6))
    assert least == pytest.approx(1.0, abs=0.03)
    assert most > 1.15


def test_a_choice_that_is_clearly_slower_costs_as_much_as_it_is_slower():
    assert means(choices(1.5, 1.0, 3.0, noise=0.1))[0] == pytest.approx(1.5, rel=0.02)


def test_what_slows_a_whole_round_slows_all_in_it():
    first, second = Choice("0", "mpi", ()), Choice("1", "mpi", ())
    level = {("call", "run", turn): 10.0 ** (turn % 2) for turn in range(ROUNDS)}
    there = {
        choice: ChoiceTime(seconds, 0.0, {turn: seconds * slow for turn, slow in level.items()})
        for choice, seconds in ((first, 1.2), (second, 1.0))
    }
    assert held_out_regret(there, first) == pytest.approx(1.2)
    assert held_out_regret(there, second) == 1.0


def test_who_took_no_two_turns_beside_a_choice_is_left_out_and_without_another_it_is_not_known():
    first, second, third = (Choice(name, "mpi", ()) for name in "012")
    often, alone = {("call", "a", turn): 2.0 for turn in (1, 2)}, {("call", "a", 1): 1.0, ("call", "b", 2): 1.0}
    there = {first: ChoiceTime(2.0, 0.0, often), second: ChoiceTime(1.0, 0.0, alone)}
    assert held_out_regret(there, first) is None
    there[third] = ChoiceTime(1.6, 0.0, dict.fromkeys(often, 1.6))
    assert held_out_regret(there, first) == pytest.approx(1.25)
