"""The times of training steps: what belongs to which pass, what communication takes, and what of it is exposed."""

import json
from dataclasses import replace

import numpy as np
import pytest
import step_examples
from step_examples import stage, step_case, step_outcome, step_rows, step_times, steps, timeline_ms

from hpccoll.extensions.steps.results.step_figures import with_exposed_times
from hpccoll.extensions.steps.results.step_times import StepTimes
from hpccoll.store.load_results import to_results
from hpccoll.store.plausibility import ImplausibleError, OutcomeCheck
from hpccoll.store.result_files import ResultFiles


def of(events_ms, end_ms=None, program=None):
    times = step_times(events_ms, end_ms)
    return StepTimes.of(times, json.dumps(program or [stage()]), len(events_ms))


@pytest.mark.parametrize(
    ("events", "figures_ms"),
    [
        ([timeline_ms(12), timeline_ms(3)], (10, 20, 4, 12)),  # of the slowest rank
        # all communication is in the tail
        ([timeline_ms(12, overlap=False)] * 2, (10, 20, 12, 12)),
    ],
)
def test_a_step_is_divided_into_passes_and_a_tail(events, figures_ms):
    step = of(events)
    figures = step.forward_s, step.backward_s, step.tail_s, step.communication_s
    assert figures == pytest.approx([each / 1000 for each in figures_ms])


def test_passes_of_several_micro_batches_add_up_with_the_waiting_before_them():
    events = [0, 10, 12, 30, 30, 40, 40, 60]  # 2 ms of waiting before the first backward pass
    step = of([events], [63], [stage((), ("forward", "backward") * 2)])
    assert (step.forward_s, step.backward_s, step.tail_s) == pytest.approx((0.020, 0.040, 0.003))
    assert step.communication_s == 0


def test_stages_of_a_pipeline_have_programs_of_their_own():
    first = [1, 2, 5, *(0, 4), *(20, 30)]  # a message, a forward and a backward computation
    second = [*(5, 10), *(10, 20)]
    step = of(
        [first, first, second, second],
        [31, 31, 20, 20],
        [stage((64,), ("forward", "backward")), stage((), ("forward", "backward"))],
    )
    assert list(step.stages) == [0, 0, 1, 1]
    # of stage 1 with its bubble, of stage 0
    assert (step.forward_s, step.backward_s) == pytest.approx((0.010, 0.026))
    assert step.communication_s == pytest.approx(0.003)
    assert np.isnan(step.event_s[:, 2:, 4:]).all()


def test_the_receipt_of_a_message_is_no_communication():
    sends, receives = stage((64, 64), ("forward",))[:2]
    events = [*(0, 0, 9), *(10, 10, 12), 9, 20]
    program = [[{**receives, "receives": True}, sends, {"phase": "forward"}]]
    assert of([events], program=program).communication_s == pytest.approx(0.002)


def test_rows_of_steps_have_these_figures_and_other_rows_do_not():
    ring = step_rows(steps({"ring": 12, "null": 0}))["ring"]
    assert (ring.forward_s, ring.backward_s, ring.tail_s, ring.communication_s) == pytest.approx(
        (0.010, 0.020, 0.004, 0.012)
    )
    other = step_rows(step_examples.raw_examples.raw(step_examples.raw_examples.outcome()))["ring"]
    assert (other.forward_s, other.communication_s, other.exposed_s, other.exposed_share) == (
        None,
    ) * 4


def test_codecs_are_no_communication_and_have_a_figure_of_their_own():
    compressed = step_rows(step_examples.compressed_step(6, 9))["ring"]
    assert (compressed.communication_s, compressed.codec_s) == pytest.approx((0.009, 0.006))
    assert step_rows(steps({"ring": 12}))["ring"].codec_s is None


def check(outcome):
    raw = steps({"ring": 12})
    OutcomeCheck(raw.job)(raw.attempts[0][0], outcome)


@pytest.mark.parametrize(
    "program", [[[]], [stage((1, 2))], [stage()] * 3, [{"label": "a"}], {"a": 1}]
)
def test_a_timeline_of_another_program_is_implausible(program):
    with pytest.raises(ImplausibleError, match=r"program|stages|events"):
        check(step_outcome(step_case(), step_times([timeline_ms(12)] * 2), program=program))


def test_an_event_before_the_step_is_implausible():
    events = timeline_ms(12)
    with pytest.raises(ImplausibleError, match="before the step"):
        check(step_outcome(step_case(), step_times([events, [-1.0, *events[1:]]], [40, 40])))


def test_the_iteration_that_is_kept_is_the_closest_to_the_median_over_rounds():
    """Rounds of 30, 40 and 90 ms have a median of 40 ms: an iteration of the second one, though the last was slow."""
    rounds = [
        step_times([timeline_ms(each)] * 2, number=number)
        for number, each in enumerate((0, 22, 66), 1)
    ]
    times = rounds[0].merge(rounds[1]).merge(rounds[2])
    raw = steps({"ring": 0}, rounds=3)
    raw.attempts[0] = raw.attempts[0][0], [step_outcome(step_case(), times)]
    (kept,) = to_results(ResultFiles(raw_results=[raw])).timelines.values()
    assert kept.communication_s == pytest.approx(0.022)


# Exposed communication: a step less the same step without communication


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
        ({"scale": 2}, {}, None),
        ({"bucket": 4096}, {}, None),
        ({}, {"machine": "another"}, None),
        ({}, {"mapping": "cyclic"}, None),
        ({}, {"ranks_per_node": 2}, None),
    ],
)
def test_a_null_step_of_another_run_counts_if_workload_machine_and_layout_are_the_same(
    workload, attempt, exposed_s
):
    null = steps({"null": 0}, [workload], path="null.h5", run_id="other", **attempt)
    assert step_rows(steps({"ring": 12}), null)["ring"].exposed_s == pytest.approx(exposed_s)


def test_a_compressed_step_is_compared_with_the_null_step_without_compression():
    null, compressed = (
        steps({"null": 0}, path="null.h5", run_id="other"),
        steps({"ring": 12}, [{"compress": "fp16"}]),
    )
    assert step_rows(compressed, null)["ring"].exposed_s == pytest.approx(0.004)


def test_the_null_step_of_the_same_launch_counts():
    slower = steps({"null": 30}, path="null.h5", run_id="other", number=2)
    assert step_rows(slower, steps({"ring": 12, "null": 0}))["ring"].exposed_s == pytest.approx(
        0.004
    )


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
