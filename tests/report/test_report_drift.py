"""Drift: what part of the variance between rounds all ways to do a call share."""

from dataclasses import replace

import numpy as np
import pytest

from hpccoll.report.drift import shared
from hpccoll.report.findings import findings
from hpccoll.report.groups import groups

CALLS, WAYS, ROUNDS = 40, 5, 4


@pytest.fixture
def made(make_row, of_rows):
    """A group of calls whose rounds differ by so much for all ways alike and for each alone, in log seconds."""

    def make(common, alone, ways=WAYS, floor=False):
        numbers = np.random.default_rng(1)
        rows = []
        for call in range(CALLS):
            drift = common * numbers.standard_normal(ROUNDS)
            for way in range(ways):
                seconds = tuple(1e-5 * (way + 1) * np.exp(drift + alone * numbers.standard_normal(ROUNDS)))
                row = make_row(
                    f"way{way}", nbytes=8 << call, seconds=float(np.median(seconds)), floor=floor and way > 0
                )
                rows.append(
                    replace(
                        row,
                        rounds=ROUNDS,
                        round_medians_s=seconds,
                        round_intervals_s=(None,) * ROUNDS,
                        round_run_ids=("run-1",) * ROUNDS,
                    )
                )
        (group,) = groups(of_rows(*rows))
        return group

    return make


@pytest.mark.parametrize(("common", "alone"), [(0.3, 0.1), (0.1, 0.1), (0.1, 0.3), (0.0, 0.1), (0.2, 0.0)])
def test_it_is_the_part_of_the_variance_that_rounds_have_in_common(made, common, alone):
    part = common**2 / (common**2 + alone**2)
    assert shared(made(common, alone).usable) == pytest.approx(part, abs=0.08)


def test_one_way_shares_with_nobody_and_a_floor_is_no_way_to_do_a_call(made):
    assert shared(made(0.3, 0.1, ways=1).usable) is None
    assert shared(made(0.3, 0.1, floor=True).usable) is None


def test_rounds_of_different_launches_are_not_side_by_side(made):
    points = made(0.3, 0.1, ways=2).usable
    other = [replace(p, row=replace(p.row, round_run_ids=("run-2",) * ROUNDS)) for p in points if p.series == "way1"]
    assert shared([*(p for p in points if p.series == "way0"), *other]) is None


def test_a_machine_that_changes_is_told_from_noise(made):
    def said(*about):
        return {finding.about: finding.says for finding in findings(made(*about))}["Between rounds"]

    assert "it is the machine that changes" in said(0.3, 0.1)
    assert "All ways to do a call share " in said(0.1, 0.3)
    assert "machine" not in said(0.1, 0.3)
    assert "share" not in said(0.1, 0.3, 1)
