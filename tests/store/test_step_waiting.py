"""Waiting and transfer of training steps, and which rank is late: by its own computations, not by the network."""

import json

import pytest
from step_examples import stage, step_case, step_outcome, step_rows, step_times, steps

from hpccoll.cases.catalogue import step_groups
from hpccoll.store.case_times import CaseTimes
from hpccoll.store.step_times import StepTimes
from hpccoll.store.step_waiting import StepWaiting, step_waiting

TWO = [stage((64, 64), ("backward",))]


def begun_and_ended(*operations, computed=1):
    """Return the events of a rank, of operations that began when they were ready."""
    return [*(moment for begin, end in operations for moment in (begin, begin, end)), 0, computed]


def of(*ranks, program=None, **workload):
    """Return transfer, waiting and the last rank of a step of ranks with these events in milliseconds."""
    steps = ranks if isinstance(ranks[0][0], list) else [ranks]
    times = [step_times(each, iterations=1) for each in steps]
    several = times[0]
    for each in times[1:]:
        several = several.merge(each)
    step = StepTimes.of(several, json.dumps(program or TWO), len(steps[0]))
    return step_waiting(step, lambda axis: step_groups(step_case(**workload), len(steps[0]), axis))


def test_a_rank_that_computes_longer_is_late_and_the_others_wait():
    on_time, late = begun_and_ended((10, 17), (20, 26)), begun_and_ended((15, 17), (25, 26))
    found = of(on_time, on_time, late)
    assert (found.transfer_s, found.waiting_s) == pytest.approx((0.003, 0.010))
    assert (found.last_rank, found.last_share) == (2, 1.0)
    assert found.last_s == pytest.approx(0.005)


def test_the_largest_lag_of_a_step_counts():
    on_time, late = begun_and_ended((10, 17), (20, 21)), begun_and_ended((15, 17), (20.5, 21))
    assert of(on_time, late).last_s == pytest.approx(0.005)


def test_a_rank_that_the_network_held_in_the_collective_before_is_not_late():
    first, last = begun_and_ended((10, 14), (14, 24)), begun_and_ended((10, 17), (17, 24))
    found = of(first, first, last)
    assert found.last_rank is None
    assert (found.transfer_s, found.waiting_s) == pytest.approx((0.011, 0.003))


def test_nor_if_it_computes_after_that_collective_as_the_others_do():
    first, last = begun_and_ended((10, 14), (34, 44)), begun_and_ended((10, 17), (37, 44))
    assert of(first, first, last).last_rank is None
    assert of(first, first, begun_and_ended((10, 17), (39, 44))).last_rank == 2  # it computes 2 ms longer


def test_a_rank_that_is_held_and_computes_longer_is_late_by_what_the_network_does_not_explain():
    first, last = begun_and_ended((10, 14), (14, 24)), begun_and_ended((10, 17), (18.5, 24))
    assert of(first, first, last).last_rank is None  # 1.5 ms, and they left 3 ms apart
    assert of(first, first, begun_and_ended((10, 17), (21, 24))).last_s == pytest.approx(0.004)


def test_how_often_a_rank_came_last_is_a_share_of_all_steps():
    on_time, late = begun_and_ended((10, 17), (17, 18)), begun_and_ended((15, 17), (17, 18))
    found = of([on_time, late], [late, on_time], [on_time, late], [on_time, on_time])
    assert (found.last_rank, found.last_share) == (1, 0.5)


def test_each_group_of_a_mesh_has_its_own_transfer_and_last_rank():
    program = [[{**each, "axis": "tp"} if "axis" in each else each for each in TWO[0]]]
    fast, slow, late = (begun_and_ended((10, end), (end, end + 1)) for end in (12, 18, 12))
    late[:2] = 11, 11
    found = of(late, fast, slow, slow, program=program, parallel="tp=2")
    assert found.transfer_s == pytest.approx(0.009)
    assert found.waiting_s == pytest.approx(0.001)
    assert (found.last_rank, found.last_s) == (0, pytest.approx(0.001))


def test_stages_of_a_pipeline_have_groups_of_their_own():
    program = [stage((64, 64), ("backward",)), stage((64,), ("backward",))]
    first, second = begun_and_ended((10, 12), (20, 23)), [10, 10, 19, 0, 1]
    found = of(first, first, second, [12, 12, 19, 0, 1], program=program, parallel="pp=2")
    assert (found.transfer_s, found.waiting_s) == pytest.approx((0.007, 0.002))
    assert (found.last_rank, found.last_share) == (None, None)  # rank 3 may have waited for a message


@pytest.mark.parametrize(("ranks", "collective"), [(1, "all_reduce"), (2, "broadcast"), (2, "send_recv"), (2, "codec")])
def test_without_a_collective_in_which_ranks_wait_for_all_nothing_is_known(ranks, collective):
    program = [[{**each, "collective": collective} if "axis" in each else each for each in TWO[0]]]
    assert of(*[begun_and_ended((10, 12), (12, 13))] * ranks, program=program) is None


def test_of_ranks_some_of_whose_times_are_kept_the_last_one_has_its_own_number():
    events = [begun_and_ended((10 + 5 * (rank == 2), 17), (20, 21)) for rank in range(4)]
    times = step_times(events)
    kept = CaseTimes.from_samples(times.start_ns, times.end_ns, one_clock=True, event_ns=times.event_ns, limit=100)
    assert kept.rank_stride == 2
    step = StepTimes.of(kept, json.dumps(TWO), 4)
    assert step_waiting(step, lambda axis: step_groups(step_case(), 4, axis)).last_rank == 2


def late_step(lag_ms, algorithm="ring"):
    """Return the row of a step of about 100 ms in which rank 1 is so late."""
    on_time = [*begun_and_ended((20, 100), (100, 101))]
    times = step_times([on_time, [20 + lag_ms, 20 + lag_ms, *on_time[2:]]])
    raw = steps({algorithm: 12})
    raw.attempts[0] = raw.attempts[0][0], [step_outcome(step_case(algorithm), times, TWO)]
    return step_rows(raw)[algorithm]


def test_rows_have_them_and_a_step_without_communication_does_not():
    row = late_step(5)
    assert (row.last_rank, row.last_share, row.late_rank) == (1, 1.0, 1)
    assert (row.transfer_s, row.waiting_s, row.last_s) == pytest.approx((0.076, 0.005, 0.005))
    null = late_step(5, "null")
    assert (null.transfer_s, null.waiting_s, null.last_rank, null.late_rank) == (None,) * 4


def test_a_rank_that_is_hardly_or_seldom_last_is_not_late():
    assert late_step(0.5).late_rank is None
    assert StepWaiting(0, 0, 1, 0.6, 0.005).late_rank(0.1) is None


def test_what_the_harness_takes_longer_at_a_rank_is_no_lag_in_a_short_step():
    assert StepWaiting(0, 0, 1, 1.0, 24e-6).late_rank(0.0004) is None
    assert StepWaiting(0, 0, 1, 1.0, 24e-5).late_rank(0.0004) == 1


def test_no_rank_is_named_where_ranks_also_wait_for_groups_of_another_axis():
    program = [[{**each, "axis": axis} for each, axis in zip(TWO[0], ("tp", "dp"), strict=False)] + TWO[0][2:]]
    held, late = begun_and_ended((10, 20), (20, 30)), begun_and_ended((10, 28), (28, 30))
    found = of(held, held, late, late, program=program, parallel="tp=2,dp=2")  # a slow group of tp, and nobody is late
    assert (found.last_rank, found.last_share) == (None, None)
