"""A share of tests/benchmarks/simulated_traces.py: no rank of a healthy job is blamed, and late ones are found."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from simulated_jobs import FORMATS, SHAPES, drawn_plan, simulate

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

from simulated_traces import ASKED, judged

HEALTHY, LATE = 60, 20


@pytest.mark.parametrize("tens", range(HEALTHY // 10))
def test_no_rank_of_a_healthy_job_is_called_late_or_stuck(tens):
    verdicts = [judged(seed, is_late=False) for seed in range(10 * tens, 10 * tens + 10)]
    assert [each for each in verdicts if not each.is_right] == []


def test_a_rank_that_is_late_by_a_part_of_each_step_is_named_alone():
    verdicts = [judged(seed, is_late=True) for seed in range(LATE)]
    assert sum(each.is_right for each in verdicts) >= ASKED * LATE


def test_the_simulated_jobs_are_of_all_shapes_and_recorders():
    plans = [drawn_plan(seed, is_late=False) for seed in range(400)]
    assert {(plan.shape, plan.format) for plan in plans} == {
        (shape, each) for shape in SHAPES for each in FORMATS
    }


@pytest.mark.parametrize("shape", SHAPES)
def test_a_simulated_late_rank_makes_each_step_longer_by_about_its_lag(shape):
    plan = next(
        plan
        for seed in range(1000)
        for plan in [drawn_plan(seed, is_late=True)]
        if (plan.shape, plan.noise < 0.005, plan.lag > 0.2) == (shape, True, True)
    )
    healthy = simulate(replace(plan, late=None))
    late = simulate(plan)
    usual, longer = (np.median(np.diff(job.step_ends[0])) for job in (healthy, late))
    least = 0.2 if shape == "pipeline" else 0.5  # a stage may have to wait anyway
    assert least * plan.lag <= longer / usual - 1 <= 1.5 * plan.lag


@pytest.mark.parametrize("shape", SHAPES)
def test_no_simulated_operation_ends_before_all_have_come_unless_a_root_sends_it(shape):
    job = simulate(
        next(
            plan
            for plan in (drawn_plan(n, is_late=False) for n in range(99))
            if plan.shape == shape
        )
    )
    assert job.calls
    for call in job.calls:
        if call.collective != "broadcast":
            assert max(call.begin_s.values()) <= min(call.end_s.values())
