"""Schedules with the same steps, as arrays of all ranks and rank by rank."""

from dataclasses import replace

import pytest

from hpccoll.cases import algorithm_registry  # registers the algorithms
from hpccoll.schedule import COLLECTIVES, Layout, Schedule
from hpccoll.schedule.same_steps import have_same_steps
from hpccoll.schedule.step import Copy, Recv, RecvReduce, Send, Step, dst, src, tmp

RING = algorithm_registry.collective("all_reduce").algorithm("ring").schedule(Layout.of(4))


def of_steps(*steps):
    return Schedule(Layout.of(2), 4, lambda me: iter(steps if me == 0 else ()))


def test_a_schedule_has_its_own_steps_in_either_form():
    by_rank = replace(RING, vectorised=False)
    assert RING.vectorised
    assert have_same_steps(RING, replace(RING))
    assert have_same_steps(RING, by_rank)
    assert have_same_steps(by_rank, by_rank)


@pytest.mark.parametrize("family", COLLECTIVES.values(), ids=lambda family: family.name)
def test_algorithms_that_differ_on_five_ranks_of_three_nodes_have_different_steps(family):
    layout = Layout.of(5, 2)
    found = [
        one.slices(layout)
        for one in family.algorithms.values()
        # on a prime number of ranks a bucket is a ring
        if not one.floor and not one.unmet(layout) and one.name != "bucket"
    ]
    for number, slices in enumerate(found):
        for others in found[:number]:
            assert len(slices) != len(others) or not all(map(have_same_steps, slices, others))


STEP = Step(Send(1, src[0:2]), RecvReduce(1, dst[2], tmp[2]), Copy(dst[0], tmp[0]))


@pytest.mark.parametrize(
    "steps",
    [
        (),
        (STEP, STEP),
        (Step(*STEP.actions[:2]),),
        (Step(*reversed(STEP.actions)),),
        (Step(Send(0, src[0:2]), *STEP.actions[1:]),),
        (Step(Send(1, src[0:3]), *STEP.actions[1:]),),
        (Step(Send(1, src[0] + src[1]), *STEP.actions[1:]),),
        (Step(Send(1, dst[0:2]), *STEP.actions[1:]),),
        (Step(Recv(1, src[0:2]), *STEP.actions[1:]),),
        (Step(STEP.actions[0], RecvReduce(1, dst[2]), STEP.actions[2]),),
        (Step(*STEP.actions[:2], Copy(dst[0], tmp[1])),),
    ],
)
def test_any_difference_makes_other_steps(steps):
    assert have_same_steps(of_steps(STEP), of_steps(STEP))
    assert not have_same_steps(of_steps(STEP), of_steps(*steps))
    assert not have_same_steps(of_steps(*steps), of_steps(STEP))


def test_layout_and_units_are_part_of_a_schedule():
    assert not have_same_steps(RING, replace(RING, units=8))
    assert not have_same_steps(RING, replace(RING, layout=Layout.of(4, 2)))


@pytest.mark.parametrize(
    "steps",
    [
        (STEP, Step(Recv(-1, dst[0]))),
        (Step(Send(-1, src[3]), *STEP.actions),),
        (Step(*STEP.actions[1:], STEP.actions[0]),),
        (Step(Send(1, src[0:2] + src[0:0]), *STEP.actions[1:]),),
    ],
)
def test_what_does_nothing_and_where_a_send_is_listed_make_no_other_steps(steps):
    assert have_same_steps(of_steps(STEP), of_steps(*steps))


@pytest.mark.parametrize(
    "names",
    [
        ("recursive_doubling", "recursive_multiplying", "bine"),
        ("ring", "swing", "reduce_scatter_all_gather", "rabenseifner", "direct"),
        ("binomial_tree", "star"),
    ],
)
def test_on_two_ranks_textbook_algorithms_coincide_and_on_eight_they_do_not(names):
    all_reduce = algorithm_registry.collective("all_reduce")
    for ranks, are_same in ((2, True), (8, False)):
        layout = Layout.of(ranks, ranks)
        first, *others = [all_reduce.algorithm(name).schedule(layout) for name in names]
        for other in others:
            assert have_same_steps(first, other) is are_same
