"""What a regret is at least: no more than it is, whatever noise times is, and all of it where times is little."""

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
        (held_out_regret(times, first), times[first].seconds / min(time.seconds for time in times.values()))
        for times in found
    ]
    return [geometric_mean(ratios) for ratios in zip(*found, strict=True)]


@pytest.mark.parametrize("noise", [0.05, 0.1, 0.3])
@pytest.mark.parametrize("slower", [1.0, 1.1, 1.5])
def test_the_estimate_is_below_the_regret_by_the_least_time(slower, noise):
    least, most = means(choices(slower, *[1.0] * 5, noise=noise))
    assert least < slower * 1.03
    assert slower * 0.99 < most


def test_one_of_six_equal_choices_has_no_regret_although_the_least_time_is_less():
    least, most = means(choices(*[1.0] * 6))
    assert least == pytest.approx(1.0, abs=0.03)
    assert most > 1.15


def test_a_clearly_slower_choice_has_its_full_regret():
    assert means(choices(1.5, 1.0, 3.0, noise=0.1))[0] == pytest.approx(1.5, rel=0.02)


def test_a_slow_round_does_not_change_the_estimate():
    first, second = Choice("0", "mpi", ()), Choice("1", "mpi", ())
    level = {("call", "run", turn): 10.0 ** (turn % 2) for turn in range(ROUNDS)}
    times = {
        choice: ChoiceTime(seconds, 0.0, {turn: seconds * slow for turn, slow in level.items()})
        for choice, seconds in ((first, 1.2), (second, 1.0))
    }
    assert held_out_regret(times, first) == pytest.approx(1.2)
    assert held_out_regret(times, second) == 1.0


def test_choices_with_fewer_than_two_common_rounds_are_ignored():
    first, second, third = (Choice(name, "mpi", ()) for name in "012")
    often, alone = {("call", "a", turn): 2.0 for turn in (1, 2)}, {("call", "a", 1): 1.0, ("call", "b", 2): 1.0}
    times = {first: ChoiceTime(2.0, 0.0, often), second: ChoiceTime(1.0, 0.0, alone)}
    assert held_out_regret(times, first) is None
    times[third] = ChoiceTime(1.6, 0.0, dict.fromkeys(often, 1.6))
    assert held_out_regret(times, first) == pytest.approx(1.25)
