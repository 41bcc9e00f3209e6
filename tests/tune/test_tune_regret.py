"""Regret without noise: what is no difference costs nothing, what is one costs what it is."""

import numpy as np
import pytest

from hpccoll.choices.table import Choice
from hpccoll.tune.measured import Time, geometric_mean
from hpccoll.tune.regret import regret

SIZES, ROUNDS = 300, 5


def choices(*usual, noise=0.3):
    """Yield what choices that take so long took at each size, round by round, on a noisy machine."""
    numbers = np.random.default_rng(1)
    for _ in range(SIZES):
        seconds = np.array(usual)[:, None] * np.exp(noise * numbers.standard_normal((len(usual), ROUNDS)))
        yield {
            Choice(f"{place}", "mpi", ()): Time(
                float(np.median(took)), noise, {("call", "run", turn): took[turn] for turn in range(ROUNDS)}
            )
            for place, took in enumerate(seconds)
        }


def means(found):
    """Return the geometric mean of the regret of the first choice, and of its median over the least."""
    first = Choice("0", "mpi", ())
    found = [
        (regret(there, first), there[first].seconds / min(time.seconds for time in there.values())) for there in found
    ]
    return [geometric_mean(ratios) for ratios in zip(*found, strict=True)]


def test_one_of_six_that_are_alike_costs_nothing_though_the_least_time_is_less():
    fair, noisy = means(choices(*[1.0] * 6))
    assert fair == pytest.approx(1.0, abs=0.03)
    assert noisy > 1.15


def test_a_choice_that_is_slower_costs_as_much_as_it_is_slower():
    fair, _ = means(choices(1.5, 1.0, 3.0, noise=0.1))
    assert fair == pytest.approx(1.5, rel=0.02)


def test_what_slows_a_whole_round_slows_all_in_it():
    first, second = Choice("0", "mpi", ()), Choice("1", "mpi", ())
    level = {("call", "run", turn): 10.0 ** (turn % 2) for turn in range(ROUNDS)}
    there = {
        choice: Time(seconds, 0.0, {turn: seconds * slow for turn, slow in level.items()})
        for choice, seconds in ((first, 1.2), (second, 1.0))
    }
    assert regret(there, first) == pytest.approx(1.2)
    assert regret(there, second) == 1.0


def test_without_two_rounds_in_which_all_took_a_turn_it_is_over_the_least_time():
    one, other = {("call", "a", 1): 2.0, ("call", "a", 2): 2.0}, {("call", "a", 1): 1.0, ("call", "b", 2): 1.0}
    first, second = Choice("0", "mpi", ()), Choice("1", "mpi", ())
    assert regret({first: Time(2.0, 0.0, one), second: Time(1.0, 0.0, other)}, first) == 2.0
