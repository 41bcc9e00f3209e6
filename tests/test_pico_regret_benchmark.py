"""tests/benchmarks/pico_regret.py: what choices of a fitted machine cost, beside all that a launch measured."""

import sys
from pathlib import Path

import pytest
from raw_examples import attempt, case, job, outcome
from synthetic_timings import times_around

from hpccoll.model.observations import observations
from hpccoll.model.run_model import RunModel
from hpccoll.model.validation import Validated
from hpccoll.store.raw_results import RawResults
from hpccoll.store.rows import PICO

sys.path.append(str(Path(__file__).parent / "benchmarks"))
from pico_regret import JudgedChoice, judged_choices, misses

MEASURED_US = {
    ("ring", "ring_over"): 2,
    ("ring", "ring_ompi"): 8,  # on average an implementation of a ring takes 4 us
    ("recursive_doubling", "recursive_doubling_over"): 1,
    ("sparbit_over", ""): 0.5,  # ours lacks it
    ("native", ""): 3,
}


def launch(factor=1):
    """Return a launch of another program with what algorithms took at a size."""
    outcomes = []
    for (algorithm, implementation), us in MEASURED_US.items():
        params = {"implementation": implementation} if implementation else {}
        of = case(1024, algorithm=algorithm, params=params)
        took = times_around(factor * us * 1e-6)
        outcomes.append(outcome(of, source=PICO, params=params, times=took))
    return attempt(run_id=f"launch {factor}", kind="imported"), outcomes


def model(launches, **predicted):
    """Return a model that predicts the times of algorithms."""
    cases = [of_case.case for of_case in launches[0][1]]
    raw = RawResults(path=Path("pico.h5"), job=job(*cases), attempts=launches)
    validated = []
    for observation in observations(raw, imported=True):
        name = observation.algorithm.name if observation.algorithm else ""
        validated.append(Validated(observation, predicted.get(name)))
    return RunModel([raw], "mpi", None, validated)


def test_a_choice_is_held_beside_what_is_predicted_everything_and_the_library():
    (wrong,) = judged_choices(model([launch()], ring=1, recursive_doubling=2))
    expected = JudgedChoice(
        is_of_fitted_collective=False,
        over_predicted=pytest.approx(4),
        over_all=pytest.approx(8),
        own_over_all=pytest.approx(6),
    )
    assert wrong == expected
    (right,) = judged_choices(model([launch()], ring=2, recursive_doubling=1))
    assert (right.over_predicted, right.over_all) == (pytest.approx(1), pytest.approx(2))


def test_launches_are_judged_apart_and_one_algorithm_is_no_choice():
    both = list(judged_choices(model([launch(), launch(3)], ring=2, recursive_doubling=1)))
    assert [choice.over_predicted for choice in both] == [pytest.approx(1)] * 2
    assert not list(judged_choices(model([launch()], ring=1)))


def test_regrets_that_are_larger_than_asked_are_named():
    (wrong,) = judged_choices(model([launch()], ring=1, recursive_doubling=2))
    assert len(list(misses("here", [wrong]))) == 2
    fine = JudgedChoice(True, 1.0, 1.0, None)
    assert not list(misses("here", [fine] * 9))
