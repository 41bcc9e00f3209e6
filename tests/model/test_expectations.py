"""Measured times over those that a machine file promises."""

from dataclasses import replace

import numpy as np
import pytest
import raw_examples
from predicted_machines import SEGMENT, cluster, fitted

from hpccoll.common.errors import UnusableError
from hpccoll.model.expectations import expectations
from hpccoll.model.predict import Request, predict
from hpccoll.render.model_report import expectation_lines
from hpccoll.store.case_times import CaseTimes

SIZES = [1 << 10, 1 << 14, 1 << 18]
ALGORITHMS = ("ring", "recursive_doubling")
MACHINE = cluster()


def measured(slower=2.0, machine=MACHINE, ranks=2):
    """Return raw results on nodes of one rank, whose times are ``slower`` times those that a machine promises."""
    request = Request(nodes=[ranks], sizes=SIZES, algorithms=ALGORITHMS)
    outcomes = []
    for each in predict(machine, request).predictions:
        case = raw_examples.case(each.nbytes, algorithm=each.algorithm)
        start = np.full((4, ranks), 10**15) + np.arange(4)[:, None] * 10**9
        took = round(slower * each.value_s * 1e9)
        times = CaseTimes.from_samples(start, start + took, one_clock=True, limit=1 << 22, round_number=1)
        outcomes.append(raw_examples.outcome(case, times=times, params=dict(each.params), cpu_s=np.zeros(ranks)))
    return raw_examples.raw(*outcomes)


def test_the_fraction_of_the_promise_leads_the_text():
    (found,) = expectations([measured(slower=2.0)], MACHINE)
    leading, second, *_ = expectation_lines(found)
    assert leading.startswith("this machine gives 0.5 of what the description promises (median of 6 cases; 0.5 to 0.5")
    assert "against paper; 6 of 6 cases in its intervals" in second


def test_each_case_has_its_ratio_and_its_interval():
    (found,) = expectations([measured(slower=3.0)], MACHINE)
    rows = list(found.rows())
    expected = predict(MACHINE, Request(nodes=[2], sizes=SIZES, algorithms=ALGORITHMS)).predictions
    assert {(row["algorithm"], row["bytes"]): row["median_s"] for row in rows} == {
        (each.algorithm, each.nbytes): pytest.approx(each.value_s) for each in expected
    }
    assert {(row["algorithm"], row["bytes"]): (row["ci_low_s"], row["ci_high_s"]) for row in rows} == {
        (each.algorithm, each.nbytes): (pytest.approx(each.low_s), pytest.approx(each.high_s)) for each in expected
    }
    assert [row["ratio"] for row in rows] == pytest.approx([3.0] * 6, rel=1e-3)
    assert {row["kind"] for row in rows} == {"simulated"}


def test_a_table_has_measured_over_expected_by_algorithm_and_size():
    (found,) = expectations([measured(slower=2.0)], MACHINE)
    lines = list(expectation_lines(found))
    heads = next(number for number, line in enumerate(lines) if line.split()[:1] == ["bytes"])
    assert lines[heads].split() == ["bytes", *ALGORITHMS]
    assert [line.split() for line in lines[heads + 1 : heads + 4]] == [[str(size), "2.00", "2.00"] for size in SIZES]


def test_a_fitted_machine_is_no_description_and_its_intervals_are_wider():
    machine = fitted(validation={"ratio_p5": 1.0, "ratio_p95": 10.0})
    (found,) = expectations([measured(slower=9.0)], machine)
    leading, second, *_ = expectation_lines(found)
    assert "of what the fitted machine promises" in leading
    assert "6 of 6 cases" in second


def test_measurements_on_other_layouts_than_the_description_has_are_named():
    machine = cluster(layout={"ranks_per_node": 4, "rails": 4}, tiers=dict.fromkeys(("node", "rack"), SEGMENT))
    raw = measured()
    attempt, outcomes = raw.attempts[0]
    places = tuple(replace(place, node=node) for place, node in zip(attempt.places, (0, 0), strict=True))
    together = replace(attempt, places=places, nodes=1, ranks_per_node=2)
    (found,) = expectations([replace(raw, attempts=[(together, outcomes)])], cluster())
    text = "\n".join(expectation_lines(found))
    assert "no case that paper can predict" in text
    assert "not predicted: ring of all_reduce: --ranks-per-node: 2 is not valid" in text
    assert all(row["reason"] and row["median_s"] is None for row in found.rows())
    (found,) = expectations([replace(raw, attempts=[(together, outcomes)])], machine)
    assert all(row["median_s"] for row in found.rows())


def test_the_librarys_own_algorithm_has_no_expectation():
    raw = measured()
    outcome = raw_examples.outcome(raw_examples.case(algorithm="native"), params={})
    (attempt, outcomes) = raw.attempts[0]
    with_native = replace(
        raw, job=raw_examples.job(*raw.job.cases, outcome.case), attempts=[(attempt, [*outcomes, outcome])]
    )
    (found,) = expectations([with_native], MACHINE)
    assert sum(row["median_s"] is None for row in found.rows()) == 1
    assert any("native" in line and "unknown" in line for line in expectation_lines(found))


def test_files_without_measurements_are_bad_input():
    with pytest.raises(UnusableError, match="no file has a correct measurement"):
        expectations([raw_examples.raw(raw_examples.skipped())], MACHINE)


def test_progress_ends_with_all_predictions():
    shown = []
    expectations([measured()], MACHINE, lambda *counts: shown.append(counts))
    assert shown == sorted(shown)
    assert shown[-1] == (18, 18)
