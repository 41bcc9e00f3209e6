"""Predictions in words: golden pages of a described and of a fitted machine, and the answer to what is best."""

from dataclasses import replace

import pytest
from golden_page import assert_golden
from predicted_machines import NCCL, cluster, fitted, in_racks

from hpccoll.model.machine_file import read_machine
from hpccoll.model.predict import PredictionPlan, Request, predict
from hpccoll.model.simulation import BOUNDS
from hpccoll.render.prediction_report import prediction_lines, question_lines, waiting_lines

SIZES = [1 << power for power in range(10, 22, 2)]


def test_the_predictions_of_a_described_and_of_a_fitted_machine():
    described = in_racks(
        nccl=NCCL,
        source="Guessed at night. Launches are not included.",
        aggregators={"kind": "switches", "source": "assumed: ideal switches"},
    )
    measured = fitted(
        validation={"cases": 40, "error_median": 0.07, "error_p90": 0.22, "ratio_p5": 0.9}
    )
    pages = (
        predict(described, Request(nodes=[2, 4, 6], sizes=SIZES)),
        predict(
            measured, Request(nodes=[2, 4], sizes=[1024], algorithms=["ring", "recursive_doubling"])
        ),
        # alone: not called the fastest
        predict(cluster(), Request(nodes=[2, 8], sizes=SIZES, algorithms=["ring"])),
        # on 3 nodes no algorithm runs, and there is NCCL's own model
        predict(
            in_racks(nccl=NCCL),
            Request(nodes=[2, 3], sizes=SIZES, collective="reduce_scatter", algorithms=["swing"]),
        ),
    )
    assert_golden(
        "predict",
        [line for page in pages for line in (*prediction_lines(page), *question_lines(page), "")],
    )


def test_an_answer_within_the_intervals_claims_no_lead():
    machine = in_racks()
    found = predict(machine, Request(nodes=[4], sizes=[1024], algorithms=["ring", "rabenseifner"]))
    near = [
        replace(each, algorithm=name, seconds=dict(zip(BOUNDS, times, strict=True)))
        for each, name, times in zip(
            found.predictions,
            ("ring", "rabenseifner"),
            ((1.5, 0.4, 2.5), (1.0, 0.5, 2.0)),
            strict=True,
        )
    ]
    (answer,) = question_lines(replace(found, predictions=near))
    assert ": rabenseifner, not clearly faster than the flat ring (0.80x to 1.50x)" in answer


@pytest.mark.parametrize(("times", "is_clear"), [((1.0, 0.9, 1.1), True), ((1.0, 0.5, 9.0), False)])
def test_words_of_doubt_are_of_a_simulated_interval_that_holds_the_time_of_the_formula(
    times, is_clear
):
    found = predict(in_racks(nccl=NCCL), Request(nodes=[2], sizes=[1024], algorithms=["ring"]))
    near = [
        replace(
            each,
            seconds={"value": 3.0} if each.of_library else dict(zip(BOUNDS, times, strict=True)),
        )
        for each in found.predictions
    ]
    answer = next(question_lines(replace(found, predictions=near)))
    assert ("which is not clear" not in answer) == is_clear
    assert "simulated without the launch and the 6.6 to 14 us" in answer


@pytest.mark.parametrize(
    ("factor", "algorithms", "words", "never"),
    [
        (
            None,
            ["nccl_ring"],
            ["nothing published is near", "NVLSTree, which NCCL may take on 2, 4 nodes"],
            ["simulated", "on 1 nodes"],
        ),
        (
            2,
            ["ring"],
            ["published figures do not apply to a scaled network", "simulated"],
            ["nothing published"],
        ),
    ],
)
def test_the_text_says_what_is_not_modelled_and_speaks_of_simulated_times_where_there_are_some(
    factor, algorithms, words, never
):
    machine = (
        read_machine("8xh100-400g", "--cluster")
        .with_network(factor)
        .model_copy(update={"source": None})
    )
    found = predict(machine, Request(nodes=[1, 2, 4], sizes=[1024], algorithms=algorithms))
    text = " ".join(line.strip() for line in prediction_lines(found))
    assert [word for word in words if word not in text] == []
    assert [word for word in never if word in text] == []


def expecting(*seconds):
    """Return the lines of a plan of three algorithms on 2 and 4 ranks whose simulations take so long."""
    names = ["ring", "recursive_doubling", "rabenseifner"][: len(seconds)]
    plan = PredictionPlan.of(cluster(), Request(nodes=[2, 4], sizes=[1024], algorithms=names))
    by_name = dict(zip(names, seconds, strict=True))
    planned = [replace(each, expected_s=by_name[each.algorithm] / 2) for each in plan.planned]
    return list(waiting_lines(replace(plan, planned=planned)))


def test_a_long_time_is_said_with_the_algorithms_that_take_it_and_the_words_that_leave_them_out():
    (line,) = expecting(7000, 5, 30)
    assert "about 117 min" in line
    assert "ring on 4 ranks takes most of it" in line
    assert "-a rabenseifner,recursive_doubling takes about 35 s" in line


def test_as_many_algorithms_are_named_as_take_long():
    (line,) = expecting(7000, 5, 3000)
    assert (
        "ring, rabenseifner on 4 ranks take most of it; -a recursive_doubling takes about 5 s"
        in line
    )


def test_one_algorithm_that_takes_long_cannot_be_left_out():
    (line,) = expecting(600)
    assert "about 10 min" in line
    assert "-a" not in line


def test_nothing_is_said_of_a_short_time():
    assert expecting(20, 5, 30) == []


def test_nothing_predicted_before_an_interrupt_is_a_line_of_what_was_left_out():
    reason = "interrupted before 1 prediction of ring"
    found = predict(cluster(), Request(nodes=[2], sizes=[1024], algorithms=["ring"]))
    assert list(prediction_lines(replace(found, predictions=[], left_out={reason: (2,)})))[-1] == (
        f"left out on 2 nodes: {reason}"
    )
