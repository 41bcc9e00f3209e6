"""Exposed communication: a step less the same step without communication."""

from dataclasses import replace

import pytest
import step_examples
from step_examples import step_case, step_outcome, step_rows, steps

from hpccoll.store.load_results import with_exposed_times


def test_exposed_is_the_step_less_the_step_without_communication():
    by_algorithm = step_rows(steps({"ring": 12, "native": 60, "null": 0}))
    assert by_algorithm["ring"].exposed_s == pytest.approx(0.004)
    assert by_algorithm["native"].exposed_s == pytest.approx(60e-3 - 2 / 3 * 20e-3)
    assert by_algorithm["ring"].exposed_share == pytest.approx(4 / 34)
    assert by_algorithm["null"].exposed_s is None


@pytest.mark.parametrize(
    ("workload", "attempt", "exposed_s"),
    [
        ({"scale": 1, "overlap": 1}, {}, 0.004),  # defaults that are named
        ({"scale": 2}, {}, None), ({"bucket": 4096}, {}, None), ({}, {"machine": "another"}, None),
        ({}, {"mapping": "cyclic"}, None), ({}, {"ranks_per_node": 2}, None),
    ],
)  # fmt: skip
def test_a_null_step_of_another_run_counts_if_workload_machine_and_layout_are_the_same(workload, attempt, exposed_s):
    null = steps({"null": 0}, [workload], path="null.h5", run_id="other", **attempt)
    assert step_rows(steps({"ring": 12}), null)["ring"].exposed_s == pytest.approx(exposed_s)


def test_the_null_step_of_the_same_launch_counts():
    slower = steps({"null": 30}, path="null.h5", run_id="other", number=2)
    assert step_rows(slower, steps({"ring": 12, "null": 0}))["ring"].exposed_s == pytest.approx(0.004)


def test_parameters_of_the_algorithm_are_no_part_of_the_workload():
    raw = steps({"null": 0, "ring": 12})
    attempt, (null, ring) = raw.attempts[0]
    split = step_outcome(step_case(channels=2), ring.times)
    raw.attempts[0] = attempt, [null, split]
    raw.job = step_examples.raw_examples.job(null.case, split.case, effort=raw.job.effort)
    assert step_rows(raw)["ring"].exposed_s == pytest.approx(0.004)


def test_the_interval_has_all_differences_of_both_intervals():
    of = step_rows(steps({"ring": 12, "null": 0}))
    ring = replace(of["ring"], ci_low_s=0.033, ci_high_s=0.036)
    null = replace(of["null"], ci_low_s=0.029, ci_high_s=0.031)
    exposed, _ = with_exposed_times([ring, null], {})
    assert (exposed.exposed_low_s, exposed.exposed_high_s) == pytest.approx((0.002, 0.007))
