"""The times of training steps: what belongs to which pass, what communication takes, and what of it is exposed."""

import json

import numpy as np
import pytest
import step_examples
from step_examples import stage, step_case, step_outcome, step_times, steps, timeline_ms

from hpccoll.store.load_results import to_results
from hpccoll.store.plausibility import ImplausibleError, OutcomeCheck
from hpccoll.store.result_files import ResultFiles
from hpccoll.store.step_times import StepTimes


def of(events_ms, end_ms=None, program=None):
    times = step_times(events_ms, end_ms)
    return StepTimes.of(times, json.dumps(program or [stage()]), len(events_ms))


def rows(*raw_results):
    return {row.algorithm: row for row in to_results(ResultFiles(raw_results=list(raw_results))).rows}


def test_a_step_is_divided_into_passes_and_a_tail():
    step = of([timeline_ms(12)] * 2)
    figures = step.forward_s, step.backward_s, step.tail_s, step.communication_s
    assert figures == pytest.approx((0.010, 0.020, 0.004, 0.012))


def test_without_overlap_all_communication_is_in_the_tail():
    step = of([timeline_ms(12, overlap=False)] * 2)
    assert (step.backward_s, step.tail_s, step.communication_s) == pytest.approx((0.020, 0.012, 0.012))


def test_each_figure_is_that_of_the_slowest_rank():
    step = of([timeline_ms(12), timeline_ms(3)])
    assert (step.tail_s, step.communication_s) == pytest.approx((0.004, 0.012))


def test_passes_of_several_micro_batches_add_up_with_the_waiting_before_them():
    events = [0, 10, 12, 30, 30, 40, 40, 60]  # 2 ms of waiting before the first backward pass
    step = of([events], [63], [stage((), ("forward", "backward") * 2)])
    assert (step.forward_s, step.backward_s, step.tail_s) == pytest.approx((0.020, 0.040, 0.003))
    assert step.communication_s == 0


def test_stages_of_a_pipeline_have_programs_of_their_own():
    first = [1, 2, 5, *(0, 4), *(20, 30)]  # a message, a forward and a backward computation
    second = [*(5, 10), *(10, 20)]
    step = of([first, first, second, second], [31, 31, 20, 20],
              [stage((64,), ("forward", "backward")), stage((), ("forward", "backward"))])  # fmt: skip
    assert list(step.stages) == [0, 0, 1, 1]
    assert (step.forward_s, step.backward_s) == pytest.approx((0.010, 0.026))  # of stage 1 with its bubble, of stage 0
    assert step.communication_s == pytest.approx(0.003)
    assert np.isnan(step.event_s[:, 2:, 4:]).all()


def test_rows_of_steps_have_these_figures_and_other_rows_do_not():
    ring = rows(steps({"ring": 12, "null": 0}))["ring"]
    assert (ring.forward_s, ring.backward_s, ring.tail_s, ring.communication_s) == pytest.approx(
        (0.010, 0.020, 0.004, 0.012)
    )
    other = rows(step_examples.raw_examples.raw(step_examples.raw_examples.outcome()))["ring"]
    assert (other.forward_s, other.communication_s, other.exposed_s, other.exposed_share) == (None,) * 4


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


def check(outcome):
    raw = steps({"ring": 12})
    OutcomeCheck(raw.job)(raw.attempts[0][0], outcome)


def test_a_plausible_timeline_passes():
    check(steps({"ring": 12}).attempts[0][1][0])


@pytest.mark.parametrize(
    "program", [[stage((1, 2))], [], [stage()] * 3, [{"label": "a"}], [["bucket"]], {"a": 1}, [[{"label": "a"}, {}]]]
)
def test_a_timeline_of_another_program_is_implausible(program):
    times = step_times([timeline_ms(12)] * 2)
    with pytest.raises(ImplausibleError, match=r"program|stages|events"):
        check(step_outcome(step_case(), times, program=program or [[]]))


def test_an_event_before_the_step_is_implausible():
    events = timeline_ms(12)
    with pytest.raises(ImplausibleError, match="before the step"):
        check(step_outcome(step_case(), step_times([events, [-1.0, *events[1:]]], [40, 40])))
