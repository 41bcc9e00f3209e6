"""Exposed communication: a step less the same step without communication."""

from dataclasses import replace

import pytest
import step_examples
from step_examples import step_case, step_outcome, steps

from hpccoll.store.load_results import to_results, with_exposed_times
from hpccoll.store.result_files import ResultFiles


def rows(*raw_results):
    return {row.algorithm: row for row in to_results(ResultFiles(raw_results=list(raw_results))).rows}


def test_exposed_is_the_step_less_the_step_without_communication():
    by_algorithm = rows(steps({"ring": 12, "native": 60, "null": 0}))
    assert by_algorithm["ring"].exposed_s == pytest.approx(0.004)
    assert by_algorithm["native"].exposed_s == pytest.approx(60e-3 - 2 / 3 * 20e-3)
    assert by_algorithm["ring"].exposed_share == pytest.approx(4 / 34)
    assert by_algorithm["null"].exposed_s is None
    assert by_algorithm["ring"].exposed_low_s <= by_algorithm["ring"].exposed_s <= by_algorithm["ring"].exposed_high_s


@pytest.mark.parametrize("other", [{"scale": 2}, {"overlap": 0}, {"compute_us": 10}, {"bucket": 4096}])
def test_a_null_step_of_another_workload_does_not_count(other):
    null = steps({"null": 0}, [other], path="null.h5", run_id="other")
    assert rows(steps({"ring": 12}), null)["ring"].exposed_s is None


def test_a_default_that_is_named_is_the_same_workload():
    null = steps({"null": 0}, [{"scale": 1, "overlap": 1}], path="null.h5", run_id="other")
    assert rows(steps({"ring": 12}), null)["ring"].exposed_s == pytest.approx(0.004)


@pytest.mark.parametrize("other", [{"machine": "another"}, {"mapping": "cyclic"}, {"ranks_per_node": 2}])
def test_a_null_step_of_another_machine_or_layout_does_not_count(other):
    null = steps({"null": 0}, path="null.h5", run_id="other", **other)
    assert rows(steps({"ring": 12}), null)["ring"].exposed_s is None


def test_the_null_step_of_the_same_launch_counts():
    slower = steps({"null": 30}, path="null.h5", run_id="other", number=2)
    assert rows(slower, steps({"ring": 12, "null": 0}))["ring"].exposed_s == pytest.approx(0.004)


def test_parameters_of_the_algorithm_are_no_part_of_the_workload():
    raw = steps({"null": 0, "ring": 12})
    attempt, (null, ring) = raw.attempts[0]
    split = step_outcome(step_case(channels=2), ring.times)
    raw.attempts[0] = attempt, [null, split]
    raw.job = step_examples.raw_examples.job(null.case, split.case, effort=raw.job.effort)
    assert rows(raw)["ring"].exposed_s == pytest.approx(0.004)


def test_the_interval_has_all_differences_of_both_intervals():
    of = rows(steps({"ring": 12, "null": 0}))
    ring = replace(of["ring"], ci_low_s=0.033, ci_high_s=0.036)
    null = replace(of["null"], ci_low_s=0.029, ci_high_s=0.031)
    exposed, _ = with_exposed_times([ring, null], {})
    assert (exposed.exposed_low_s, exposed.exposed_high_s) == pytest.approx((0.002, 0.007))
