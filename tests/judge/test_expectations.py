"""Measured times over those that a machine file promises."""

from dataclasses import replace

import pytest
import raw_examples
from predicted_machines import SEGMENT, cluster, fitted
from synthetic_timings import times_around

from hpccoll.judge.expectations import expectations
from hpccoll.model.predict import Request, predict
from hpccoll.render.model_report import expectation_lines

SIZES = [1 << 10, 1 << 14, 1 << 18]
ALGORITHMS = ("ring", "recursive_doubling")
MACHINE = cluster()
PROMISED = predict(MACHINE, Request(nodes=[2], sizes=SIZES, algorithms=ALGORITHMS)).predictions


def measured(slower=2.0, *others):
    """Return raw results on nodes of one rank that took ``slower`` times what a machine promises, and other ones."""
    outcomes = [
        raw_examples.outcome(
            raw_examples.case(each.nbytes, algorithm=each.algorithm),
            params=dict(each.params),
            times=times_around(slower * each.value_s),
        )
        for each in PROMISED
    ]
    return raw_examples.raw(*outcomes, *others)


def test_each_case_has_its_ratio_and_its_interval_and_progress_ends_with_all_predictions():
    shown = []
    (found,) = expectations([measured(3.0)], MACHINE, lambda *counts: shown.append(counts))
    rows = list(found.rows())
    assert {
        (row["algorithm"], row["bytes"]): (row["median_s"], row["ci_low_s"], row["ci_high_s"])
        for row in rows
    } == {
        (each.algorithm, each.nbytes): pytest.approx((each.value_s, each.low_s, each.high_s))
        for each in PROMISED
    }
    assert [row["ratio"] for row in rows] == pytest.approx([3.0] * 6, rel=1e-3)
    assert {row["kind"] for row in rows} == {"simulated"}
    assert shown == sorted(shown)
    assert shown[-1] == (18, 18)


def test_the_text_begins_with_the_fraction_of_the_promise_and_has_a_table_of_ratios():
    (found,) = expectations([measured()], MACHINE)
    leading, second, *lines = expectation_lines(found)
    assert leading.startswith(
        "this machine gives 0.5 of what the description promises (median of 6 cases; 0.5 to 0.5"
    )
    assert "against paper; 6 of 6 cases in its intervals" in second
    heads = next(number for number, line in enumerate(lines) if line.split()[:1] == ["bytes"])
    assert lines[heads].split() == ["bytes", *ALGORITHMS]
    assert [line.split() for line in lines[heads + 1 : heads + 4]] == [
        [str(size), "2.00", "2.00"] for size in SIZES
    ]


def test_a_fitted_machine_is_no_description_and_its_intervals_are_wider():
    machine = fitted(validation={"ratio_p5": 1.0, "ratio_p95": 10.0})
    leading, second, *_ = expectation_lines(*expectations([measured(9.0)], machine))
    assert "of what the fitted machine promises" in leading
    assert "6 of 6 cases" in second


def test_measurements_on_other_layouts_than_the_description_has_are_named():
    raw = measured()
    ((attempt, outcomes),) = raw.attempts
    places = tuple(replace(place, node=0) for place in attempt.places)
    together = replace(
        raw, attempts=[(replace(attempt, places=places, nodes=1, ranks_per_node=2), outcomes)]
    )
    (found,) = expectations([together], cluster())
    text = "\n".join(expectation_lines(found))
    assert "no case that paper can predict" in text
    assert "not predicted: ring of all_reduce: --ranks-per-node: 2 is not valid" in text
    assert all(row["reason"] and row["median_s"] is None for row in found.rows())
    machine = cluster(
        layout={"ranks_per_node": 4, "rails": 4}, tiers=dict.fromkeys(("node", "rack"), SEGMENT)
    )
    (found,) = expectations([together], machine)
    assert all(row["median_s"] for row in found.rows())


def test_calls_of_libraries_and_failed_cases_are_no_observations_of_schedules():
    native = raw_examples.outcome(raw_examples.case(algorithm="native"), params={})
    (found,) = expectations([measured(2.0, native)], MACHINE)
    assert {row["algorithm"] for row in found.rows()} == {*ALGORITHMS}
    assert [*expectations([raw_examples.raw(raw_examples.skipped())], MACHINE)] == []


def test_what_other_programs_measured_of_an_algorithm_is_compared_too():
    raw = measured(2.0)
    raw.attempts = [
        (replace(attempt, kind="imported"), outcomes) for attempt, outcomes in raw.attempts
    ]
    (found,) = expectations([raw], MACHINE)
    assert {row["measured_kind"] for row in found.rows()} == {"imported"}
    assert [row["ratio"] for row in found.rows()] == pytest.approx([2.0] * 6, rel=1e-3)
