"""The part of the variance between rounds that all series of a call share."""

from dataclasses import replace

import numpy as np
import pytest
from finding_values import only_values

from hpccoll.render.chart_groups import chart_groups
from hpccoll.render.shared_variance import shared_variance


@pytest.fixture
def made(make_row, of_rows):
    """A group of calls whose rounds differ by so much for all ways alike and for each alone, in log seconds."""

    def make(common, alone, calls=40, ways=5, rounds=4, seed=1, **more):
        numbers = np.random.default_rng(seed)
        rows = []
        for call in range(calls):
            drift = common * numbers.standard_normal(rounds)
            for way in range(ways):
                seconds = tuple(1e-5 * (way + 1) * np.exp(drift + alone * numbers.standard_normal(rounds)))
                medians = {"round_medians_s": seconds, "round_intervals_s": (None,) * rounds}
                row = make_row(f"way{way}", nbytes=8 << call, seconds=float(np.median(seconds)), rounds=rounds, **more)
                rows.append(replace(row, round_run_ids=("run-1",) * rounds, **medians))
        (group,) = chart_groups(of_rows(*rows))
        return group

    return make


@pytest.mark.parametrize(("common", "alone"), [(0.3, 0.1), (0.1, 0.1), (0.1, 0.2), (0.2, 0.0)])
def test_the_value_is_the_part_of_the_variance_that_series_share(made, common, alone):
    part = common**2 / (common**2 + alone**2)
    assert shared_variance(made(common, alone).usable) == pytest.approx(part, abs=0.08)


@pytest.mark.parametrize("shape", [(1, 2, 2), (1, 2, 3), (2, 4, 2), (4, 2, 3), (8, 4, 3)], ids=str)
def test_noise_alone_rarely_passes_the_test(made, shape):
    """1 of 100 by Fisher's F; 4 or more of 60 come about once in 300 times, and these are always the same ones."""
    assert sum(shared_variance(made(0.0, 0.1, *shape, seed=seed).usable) is not None for seed in range(60)) < 4


def test_one_series_and_the_floor_share_no_variance(made):
    assert shared_variance(made(0.3, 0.1, ways=1).usable) is None
    assert shared_variance(made(0.3, 0.1, floor=True).usable) is None


def test_pairs_of_ranks_are_calls_of_their_own(made):
    points = made(0.3, 0.0, ways=2).usable
    pairs = [
        replace(point, row=replace(point.row, collective="send_recv", root=0, params={"peer": 1 + (i % 2)}))
        for i, point in enumerate(points)
    ]
    assert shared_variance(points) == pytest.approx(1.0)
    assert shared_variance(pairs) is None


def test_rounds_of_different_launches_share_no_variance(made):
    points = made(0.3, 0.1, ways=2).usable
    other = [replace(p, row=replace(p.row, round_run_ids=("run-2",) * 4)) for p in points if p.series == "way1"]
    assert shared_variance([*(p for p in points if p.series == "way0"), *other]) is None


@pytest.mark.parametrize(
    ("common", "alone", "machine_varies"), [(0.3, 0.1, True), (0.1, 0.2, False), (0.0, 0.2, False)]
)
def test_the_machine_is_the_cause_if_series_share_most_of_the_variance(made, common, alone, machine_varies):
    values = only_values(made(common, alone), "between_rounds")
    assert values["machine_varies"] is machine_varies
    assert (values["shared_variance"] is None) is (common == 0)
