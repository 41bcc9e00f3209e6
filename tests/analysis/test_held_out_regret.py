"""What a regret is at least: no more than it is, whatever noise times is, and all of it where times is little."""

from statistics import geometric_mean

import numpy as np
import pytest

from hpccoll.analysis.held_out_regret import held_out_regret

SIZES, ROUNDS = 300, 5


def measured(*usual, noise=0.3):
    """Yield what options that take so long took at each size, round by round, on a noisy machine."""
    numbers = np.random.default_rng(1)
    for _ in range(SIZES):
        seconds = np.array(usual)[:, None] * np.exp(
            noise * numbers.standard_normal((len(usual), ROUNDS))
        )
        yield {option: dict(enumerate(took.tolist())) for option, took in enumerate(seconds)}


def means(found):
    """Return the geometric mean of the estimate for the first option, and of its median over the least median."""
    medians = [
        [float(np.median(list(rounds.values()))) for rounds in seconds.values()]
        for seconds in found
    ]
    estimates = [held_out_regret(seconds, 0) for seconds in found]
    return geometric_mean(estimates), geometric_mean(each[0] / min(each) for each in medians)


@pytest.mark.parametrize("noise", [0.05, 0.1, 0.3])
@pytest.mark.parametrize("slower", [1.0, 1.1, 1.5])
def test_the_estimate_is_below_the_regret_by_the_least_time(slower, noise):
    least, most = means([*measured(slower, *[1.0] * 5, noise=noise)])
    assert least < slower * 1.03
    assert slower * 0.99 < most


def test_a_slow_round_does_not_change_the_estimate():
    level = {turn: 10.0 ** (turn % 2) for turn in range(ROUNDS)}
    seconds = {
        name: {turn: usual * slow for turn, slow in level.items()}
        for name, usual in {"a": 1.2, "b": 1.0}.items()
    }
    assert held_out_regret(seconds, "a") == pytest.approx(1.2)
    assert held_out_regret(seconds, "b") == 1.0


def test_choices_with_fewer_than_two_common_rounds_are_ignored():
    seconds = {"a": {1: 2.0, 2: 2.0}, "b": {1: 1.0, 3: 1.0}}
    assert held_out_regret(seconds, "a") is None
    seconds["c"] = {1: 1.6, 2: 1.6}
    assert held_out_regret(seconds, "a") == pytest.approx(1.25)
