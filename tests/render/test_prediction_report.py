"""Predictions in words: golden pages of a described and of a fitted machine, and the answer to what is best."""

from dataclasses import replace

from golden_page import assert_golden
from predicted_machines import NCCL, cluster, fitted, in_racks

from hpccoll.model.predict import Request, predict
from hpccoll.model.simulation import BOUNDS
from hpccoll.render.prediction_report import prediction_lines, question_lines

SIZES = [1 << power for power in range(10, 22, 2)]


def test_the_predictions_of_a_described_and_of_a_fitted_machine():
    described = in_racks(
        nccl=NCCL, source="Guessed at night. Launches are not included.",
        aggregators={"kind": "switches", "source": "assumed: ideal switches"},
    )  # fmt: skip
    measured = fitted(validation={"cases": 40, "error_median": 0.07, "error_p90": 0.22, "ratio_p5": 0.9})
    pages = (
        predict(described, Request(nodes=[2, 4, 6], sizes=SIZES)),
        predict(measured, Request(nodes=[2, 4], sizes=[1024], algorithms=["ring", "recursive_doubling"])),
        predict(cluster(), Request(nodes=[2, 8], sizes=SIZES, algorithms=["ring"])),  # alone: not called the fastest
        # on 3 nodes no algorithm runs, and there is NCCL's own model
        predict(
            in_racks(nccl=NCCL),
            Request(nodes=[2, 3], sizes=SIZES, collective="reduce_scatter", algorithms=["swing"]),
        ),
    )
    assert_golden("predict", [line for page in pages for line in (*prediction_lines(page), *question_lines(page), "")])


def test_an_answer_within_the_intervals_claims_no_lead():
    machine = in_racks()
    found = predict(machine, Request(nodes=[4], sizes=[1024], algorithms=["ring", "rabenseifner"]))
    near = [replace(each, algorithm=name, seconds=dict(zip(BOUNDS, times, strict=True)))
            for each, name, times in zip(found.predictions, ("ring", "rabenseifner"),
                                         ((1.5, 0.4, 2.5), (1.0, 0.5, 2.0)), strict=True)]  # fmt: skip
    (answer,) = question_lines(replace(found, predictions=near))
    assert ": rabenseifner, not clearly faster than the flat ring (0.80x to 1.50x)" in answer
