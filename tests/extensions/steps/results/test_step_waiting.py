"""Waiting and transfer of training steps, and which rank is late: by its own computations, not by the network."""

import json

import numpy as np
import pytest
from step_examples import stage, step_case, step_outcome, step_rows, step_times, steps

from hpccoll.extensions.steps.results.step_times import StepTimes
from hpccoll.extensions.steps.results.step_waiting import step_waiting
from hpccoll.extensions.steps.training.parallelism import Mesh
from hpccoll.store.case_times import CaseTimes, stage_programs
from hpccoll.store.waiting import is_lag

TWO = [stage((64, 64), ("backward", "backward"))]


def mesh_of(workers, **workload):
    return Mesh.parse(str(step_case(**workload).params.get("parallel", "")), workers)


def begun_and_ended(*operations):
    """Return the events of a rank that computes, runs an operation and waits for its end, and so on."""
    ends = 0, *(end for _, end in operations)
    computed = [
        moment
        for begun, (begin, _) in zip(ends, operations, strict=False)
        for moment in (begun, begin)
    ]
    return [*(moment for begin, end in operations for moment in (begin, begin, end)), *computed]


def of(*ranks, program=None, **workload):
    """Return transfer, waiting and the last rank of a step of ranks with these events in milliseconds."""
    steps = ranks if isinstance(ranks[0][0], list) else [ranks]
    times = [step_times(each, iterations=1) for each in steps]
    several = times[0]
    for each in times[1:]:
        several = several.merge(each)
    step = StepTimes.of(several, json.dumps(program or TWO), len(steps[0]))
    return step_waiting(step, mesh_of(len(steps[0]), **workload).groups)


def test_a_rank_that_computes_longer_is_late_and_the_others_wait():
    on_time, late = begun_and_ended((10, 17), (20, 26)), begun_and_ended((15, 17), (25, 26))
    found = of(on_time, on_time, late)
    assert (found.transfer_s, found.waiting_s) == pytest.approx((0.003, 0.010))
    assert (found.last_rank, found.last_share) == (2, 1.0)
    assert found.last_s == pytest.approx(0.010)


def test_lags_of_a_step_add_up():
    on_time, late = begun_and_ended((10, 17), (20, 21)), begun_and_ended((15, 17), (20.5, 21))
    assert of(on_time, late).last_s == pytest.approx(0.0055)


def test_a_rank_that_is_late_once_is_not_late_by_more_because_it_stays_behind():
    late = [15, 15, 17, 25, 25, 27, 0, 15, 15, 25]  # it computes on while others communicate
    on_time = [10, 10, 17, 20, 20, 27, 0, 10, 10, 20]
    assert of(on_time, on_time, late).last_s == pytest.approx(0.005)


def test_a_rank_that_the_network_held_in_the_collective_before_is_not_late():
    first, last = begun_and_ended((10, 14), (14, 24)), begun_and_ended((10, 17), (17, 24))
    found = of(first, first, last)
    assert found.last_rank is None
    assert (found.transfer_s, found.waiting_s) == pytest.approx((0.011, 0.003))


def test_nor_if_it_computes_after_that_collective_as_the_others_do():
    first, last = begun_and_ended((10, 14), (34, 44)), begun_and_ended((10, 17), (37, 44))
    assert of(first, first, last).last_rank is None
    # it computes 2 ms longer
    assert of(first, first, begun_and_ended((10, 17), (39, 44))).last_rank == 2


def test_a_rank_that_is_held_and_computes_longer_is_late_by_what_it_computes_longer():
    first, last = begun_and_ended((10, 14), (14, 24)), begun_and_ended((10, 17), (18.5, 24))
    assert of(first, first, last).last_s == pytest.approx(0.0015)
    assert of(first, first, begun_and_ended((10, 17), (21, 24))).last_s == pytest.approx(0.004)


def test_what_others_need_not_wait_for_makes_no_rank_late():
    held = [10, 10, 40, 20, 40, 50, 0, 10, 10, 20]
    assert of(held, held, [10, 10, 40, 30, 40, 50, 0, 10, 10, 30]).last_rank is None


def test_how_often_a_rank_came_last_is_a_share_of_all_steps():
    on_time, late = begun_and_ended((10, 17), (17, 18)), begun_and_ended((15, 17), (17, 18))
    found = of([on_time, late], [late, on_time], [on_time, late], [on_time, on_time])
    assert (found.last_rank, found.last_share) == (1, 0.5)


def test_each_group_of_a_mesh_has_its_own_transfer_and_last_rank():
    program = [[{**each, "axis": "tp"} if "axis" in each else each for each in TWO[0]]]
    fast, slow = (begun_and_ended((10, end), (end, end + 1)) for end in (12, 18))
    late = begun_and_ended((11, 12), (12, 13))
    found = of(late, fast, slow, slow, program=program, parallel="tp=2")
    assert found.transfer_s == pytest.approx(0.009)
    assert found.waiting_s == pytest.approx(0.001)
    assert (found.last_rank, found.last_s) == (0, pytest.approx(0.001))


def test_stages_of_a_pipeline_have_groups_of_their_own():
    program = [stage((64, 64), ("backward", "backward")), stage((64,), ("backward",))]
    first, second = begun_and_ended((10, 12), (20, 23)), [10, 10, 19, 0, 1]
    found = of(first, first, second, [12, 12, 19, 0, 1], program=program, parallel="pp=2")
    assert (found.transfer_s, found.waiting_s) == pytest.approx((0.007, 0.002))
    # rank 3 may have waited for a message
    assert (found.last_rank, found.last_share) == (None, None)


@pytest.mark.parametrize(
    ("ranks", "collective"), [(1, "all_reduce"), (2, "broadcast"), (2, "send_recv"), (2, "codec")]
)
def test_without_a_collective_in_which_ranks_wait_for_all_nothing_is_known(ranks, collective):
    program = [[{**each, "collective": collective} if "axis" in each else each for each in TWO[0]]]
    assert of(*[begun_and_ended((10, 12), (12, 13))] * ranks, program=program) is None


def test_of_ranks_some_of_whose_times_are_kept_the_last_one_has_its_own_number():
    events = [begun_and_ended((10 + 5 * (rank == 2), 17), (20, 21)) for rank in range(4)]
    times = step_times(events)
    kept = CaseTimes.from_samples(
        times.start_ns, times.end_ns, one_clock=True, event_ns=times.event_ns, limit=140
    )
    assert kept.rank_stride == 2
    step = StepTimes.of(kept, json.dumps(TWO), 4)
    assert step_waiting(step, mesh_of(4).groups).last_rank == 2


def late_step(lag_ms, algorithm="ring"):
    """Return the row of a step of about 100 ms in which rank 1 is so late."""
    on_time = [*begun_and_ended((20, 100), (100, 101))]
    times = step_times([on_time, begun_and_ended((20 + lag_ms, 100), (100, 101))])
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
    on_time, late = begun_and_ended((10, 17), (17, 18)), begun_and_ended((15, 17), (17, 18))
    assert of(*[[on_time, late]] * 13, *[[late, on_time]] * 7).late_rank is None
    assert of(*[[on_time, late]] * 18, *[[late, on_time]] * 2).late_rank == 1


def test_what_the_harness_takes_longer_at_a_rank_is_no_lag_in_a_short_step():
    assert not is_lag(24e-6, 0.0004)
    assert is_lag(24e-5, 0.0004)


def test_no_rank_is_named_where_ranks_also_wait_for_groups_of_another_axis():
    program = [
        [{**each, "axis": axis} for each, axis in zip(TWO[0], ("tp", "dp"), strict=False)]
        + TWO[0][2:]
    ]
    held, late = begun_and_ended((10, 20), (20, 30)), begun_and_ended((10, 28), (28, 30))
    # a slow group of tp, and nobody is late
    found = of(held, held, late, late, program=program, parallel="tp=2,dp=2")
    assert (found.last_rank, found.last_share) == (None, None)


def of_chance(
    seed, ranks, *, slow=1.0, several=1, collectives=10, blocking=True, steps=12, spikes=0.5
):
    """Return what is found in steps of 100 ms of computation, of which the last ranks need a multiple.

    Computations differ by 1 to 6 %, with spikes in half of the jobs; ranks leave collectives in one
    order.
    """
    chance = np.random.default_rng(seed)
    part_s, shape = 0.1 / collectives, (steps, ranks, collectives)
    computed = part_s * (1 + chance.uniform(0.01, 0.06) * chance.standard_normal(shape))
    computed += chance.uniform(0.002, 0.01) * (
        chance.random(shape) < chance.choice([0, spikes]) / collectives
    )
    computed[:, -several:] *= slow
    left = part_s * (0.1 + chance.choice([0, 2]) * np.arange(ranks) / ranks)
    now, last, operations, computations = np.zeros(shape[:2]), np.zeros(shape[:2]), [], []
    for each in np.moveaxis(computed, 2, 0):
        computations += now, (now := now + each)
        begin = np.maximum(now, last)
        last = begin.max(axis=1, keepdims=True) + left
        operations += now, begin, last
        now = last if blocking else now
    program = json.dumps([stage((64,) * collectives, ("backward",) * collectives)])
    about = np.arange(ranks), np.zeros(ranks, int), stage_programs(program)
    times = np.stack([*operations, *computations], axis=2), np.maximum(now, last)
    return step_waiting(StepTimes(*about, *times), lambda _: [range(ranks)])


@pytest.mark.parametrize("blocking", [True, False])
@pytest.mark.parametrize("ranks", [2, 4, 8, 64])
def test_no_rank_of_a_healthy_job_is_late(ranks, blocking):
    for seed in range(200 if ranks < 64 else 20):
        about = {
            "collectives": (1, 10, 100)[seed % 3] if ranks < 64 else 10,
            "steps": (6, 12, 42)[seed // 3 % 3],
        }
        found = of_chance(seed, ranks, blocking=blocking, **about)
        assert (found.late_rank, found.late_ranks) == (None, ()), (seed, about)


@pytest.mark.parametrize("slow", [1.1, 1.5])
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_a_rank_that_is_slow_all_the_time_is_late_by_all_that_it_computes_longer(ranks, slow):
    for seed in range(10):
        found = of_chance(seed, ranks, slow=slow, collectives=100, steps=42, spikes=0.05)
        assert (found.late_rank, found.late_ranks) == (ranks - 1, (ranks - 1,))
        assert found.last_s == pytest.approx(0.1 * (slow - 1), rel=0.15)


@pytest.mark.parametrize(("ranks", "several"), [(4, 2), (8, 2), (8, 4), (64, 3)])
def test_ranks_that_are_slow_alike_are_all_late_though_none_of_them_is_always_the_latest(
    ranks, several
):
    for seed in range(10):
        found = of_chance(seed, ranks, slow=1.5, several=several, steps=42, spikes=0.05)
        assert {*found.late_ranks} == {*range(ranks - several, ranks)}
        assert found.late_rank == found.last_rank == found.late_ranks[0]
        assert found.last_s == pytest.approx(0.05, rel=0.15)


def test_of_two_late_ranks_the_later_one_comes_first_also_if_a_third_one_is_late_by_chance():
    on_time, late, later = (begun_and_ended((begin, 30), (30, 31)) for begin in (10, 15, 20))
    of_ranks = [[on_time, later, on_time, late, on_time]] * 18 + [
        [on_time, later, later, late, on_time]
    ] * 2
    assert of(*of_ranks).late_ranks == (1, 3)


def test_where_more_than_half_of_the_ranks_compute_longer_none_is_late():
    assert of_chance(1, 4, slow=1.5, several=3, steps=42).late_ranks == ()
