import numpy as np
import pytest
from schedules import (
    EXAMPLES,
    LEAST_RANKS,
    binomial_broadcast,
    broadcast,
    bruck,
    dissemination,
    of,
    recursive_doubling_of,
    reduce,
    ring_all_gather,
    ring_of,
    ring_reduce_scatter,
)

from hpccoll.schedule import (
    Copy,
    Layout,
    Receive,
    Reduce,
    Schedule,
    Send,
    Step,
    all_gather,
    all_reduce,
    dst,
    out_of_place,
    prove,
    relabel,
    reverse,
    src,
    then,
    tmp,
    within,
)


def steps_of(schedule: Schedule, me: int) -> list[Step]:
    return list(schedule.steps(me))


def of_lists(*programs: list[Step], units: int = 4) -> Schedule:
    def steps(me):
        yield from programs[me]

    return Schedule(Layout.of(len(programs)), units, steps)


# ---- then, reverse --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [1, 2, 3, 8])
def test_all_reduce_is_reduce_scatter_and_then_all_gather(p):
    layout = Layout.of(p)
    composed = then(of(ring_reduce_scatter)(layout), of(ring_all_gather)(layout))
    for me in range(p):
        assert steps_of(composed, me) == steps_of(ring_of(layout), me)


def test_schedules_over_different_units_do_not_follow_one_another():
    layout = Layout.of(4)
    with pytest.raises(ValueError, match="one layout and one number of units"):
        then(ring_of(layout), of(dissemination, lambda _p: 1)(layout))
    with pytest.raises(ValueError, match="one layout"):
        then(ring_of(layout), ring_of(Layout.of(4, 2)))


def test_backwards_who_sent_receives_and_the_last_step_is_the_first():
    forwards = of_lists([Step(Send(1, 0), Copy(dst[1], tmp[1])), Step(Receive(1, 2))], [Step(), Step()])
    assert steps_of(reverse(forwards), 0) == [Step(Send(1, 2)), Step(Receive(1, 0), Copy(tmp[1], dst[1]))]
    assert steps_of(reverse(forwards, Reduce), 0)[1] == Step(Reduce(1, 0), Copy(tmp[1], dst[1]))


@pytest.mark.parametrize("p", [1, 2, 3, 6, 8, 11])
def test_a_broadcast_backwards_is_a_reduction(p):
    there = of(binomial_broadcast, lambda _p: 1)(Layout.of(p))
    prove(broadcast, [there])
    prove(reduce, [reverse(there, Reduce)])


@pytest.mark.parametrize("name", EXAMPLES)
def test_backwards_and_backwards_again_is_forwards_where_nothing_is_folded(name):
    (schedule,) = EXAMPLES[name].slices(5)[:1]
    if any(isinstance(action, Reduce) for me in range(5) for step in schedule.steps(me) for action in step.actions):
        return
    for me in range(5):
        assert steps_of(reverse(reverse(schedule)), me) == steps_of(schedule, me)


# ---- relabel --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("root", range(5))
def test_a_root_is_a_relabelling(root):
    from_root = broadcast.__class__("from", "free", "all", "all", lambda _p, _me, unit: {(root, unit)}, None)
    there = of(binomial_broadcast, lambda _p: 1)(Layout.of(5))
    prove(from_root, [relabel(there, [(role + root) % 5 for role in range(5)])])
    prove(from_root, [relabel(there, [root, *(rank for rank in range(5) if rank != root)])])


def test_roles_may_be_played_in_any_order_where_units_are_free():
    prove(all_reduce, [relabel(ring_of(Layout.of(5)), [3, 0, 4, 1, 2])])
    prove(all_reduce, [relabel(recursive_doubling_of(Layout.of(5)), [3, 0, 4, 1, 2])])


@pytest.mark.parametrize("program", [ring_all_gather, bruck])
def test_units_are_named_after_their_ranks_where_they_are_owned(program):
    actual = [3, 0, 4, 1, 2]
    renamed = relabel(of(program)(Layout.of(5)), actual, units=actual)
    prove(all_gather, [renamed])
    prove(all_gather, [out_of_place(all_gather, renamed)], in_place=False)


def test_a_relabelled_schedule_still_tells_all_ranks_at_once():
    relabelled = relabel(ring_of(Layout.of(4)), [2, 3, 0, 1])
    at_once = next(relabelled.steps(np.arange(4)))
    assert at_once.actions[0].peer.tolist() == [next(relabelled.steps(me)).actions[0].peer for me in range(4)]


def test_a_role_is_a_plain_int_to_an_algorithm_that_wants_one():
    def steps(_layout, me):
        if me.bit_length() == 1:
            yield Step(Copy(dst[0], dst[0]))

    relabelled = relabel(of(steps)(Layout.of(4)), [3, 2, 1, 0])
    assert [len(steps_of(relabelled, me)) for me in range(4)] == [0, 0, 1, 0]


def test_nobody_stays_nobody_under_another_name():
    schedule = relabel(of_lists([Step(Send(-1, 0))], [Step(Receive(-1, 0))]), [1, 0])
    assert [steps_of(schedule, me)[0].actions[0].peer for me in range(2)] == [-1, -1]


# ---- within ---------------------------------------------------------------------------------------------------------


def test_groups_run_by_themselves_over_their_own_units():
    layout = Layout.of(6, 2)
    schedule = within(layout, 4, [[0, 1], [4, 2]], ring_of, lambda group, unit: 2 * group + unit)
    assert steps_of(schedule, 1) == [Step(Send(0, 0), Reduce(0, 1)), Step(Send(0, 1), Receive(0, 0))]
    assert steps_of(schedule, 4) == [Step(Send(2, 3), Reduce(2, 2)), Step(Send(2, 2), Receive(2, 3))]
    assert steps_of(schedule, 3) == steps_of(schedule, 5) == []


def test_a_group_knows_where_its_ranks_are():
    layouts = []

    def inner(layout: Layout) -> Schedule:
        layouts.append(layout)
        return ring_of(layout)

    layout = Layout(node=(0, 0, 1, 1, 2), rack=(0, 0, 0, 1, 1), rail=(0, 1, 0, 1, 0), aggregators=1)
    within(layout, 4, [[3, 1], [0, 2, 4]], inner)
    assert layouts == [Layout((1, 0), (1, 0), (1, 1)), Layout((0, 1, 2), (0, 0, 1), (0, 0, 0), aggregators=1)]


@pytest.mark.parametrize(
    "layout",
    [Layout.of(8, 4), Layout.of(8, 2), Layout.of(9, 3), Layout.of(6, 1), Layout.of(6), Layout((0, 1, 2, 0, 1, 2))],
)
def test_rings_inside_and_across_nodes_of_one_size_are_an_all_reduce(layout):
    schedule = EXAMPLES["rings_of_nodes"].make(layout)
    prove(all_reduce, [schedule])
    prove(all_reduce, [out_of_place(all_reduce, schedule)], in_place=False)


@pytest.mark.parametrize(
    "layout", [Layout.of(7, 3), Layout((0, 1, 1, 1, 2)), Layout((2, 0, 2, 1, 2, 0)), Layout.of(8, 4), Layout.of(1)]
)
def test_leaders_of_nodes_of_any_size_are_an_all_reduce(layout):
    prove(all_reduce, [EXAMPLES["leaders_of_nodes"].make(layout)])


# ---- out of place ---------------------------------------------------------------------------------------------------

SUBJECTS = {
    "ring": (all_reduce, lambda ranks: (ring_of(Layout.of(ranks)),)),
    "recursive_doubling": (all_reduce, lambda ranks: (recursive_doubling_of(Layout.of(ranks)),)),
    **{name: (example.collective, example.slices) for name, example in EXAMPLES.items()},
}


@pytest.mark.parametrize("name", SUBJECTS)
@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8])
def test_out_of_place_src_is_only_read(name, ranks):
    if ranks < LEAST_RANKS.get(name, 1):
        return
    collective, make = SUBJECTS[name]
    for schedule in make(ranks):
        for me in range(ranks):
            for step in out_of_place(collective, schedule).steps(me):
                for action in step.actions:
                    written = action.target if isinstance(action, Copy) else action.part
                    assert isinstance(action, Send) or written.buffer in ("dst", "tmp")


@pytest.mark.parametrize("name", ["ring", "recursive_doubling", "two_slices", "two_way_ring", "rings_of_nodes"])
@pytest.mark.parametrize("ranks", [2, 4, 6, 7])
def test_no_time_goes_into_copies_where_every_unit_is_written(name, ranks):
    collective, make = SUBJECTS[name]
    for schedule in make(ranks):
        for me in range(ranks):
            there, here = steps_of(schedule, me), steps_of(out_of_place(collective, schedule), me)
            assert len(there) == len(here)
            assert not any(isinstance(action, Copy) for step in here for action in step.actions)


def test_a_unit_is_read_in_src_until_it_is_written():
    me = 0
    schedule = of_lists(
        [Step(Send(1, 0), Reduce(1, 1)), Step(Send(1, 1), Receive(1, 0)), Step(Send(1, 0))], [], units=2
    )
    assert steps_of(out_of_place(all_reduce, schedule), me) == [
        Step(Send(1, src[0]), Reduce(1, 1, src[1])),
        Step(Send(1, 1), Receive(1, 0)),
        Step(Send(1, 0)),
    ]


def test_what_is_folded_twice_in_a_step_is_read_in_src_the_first_time_only():
    schedule = of_lists([Step(Send(1, 0), Reduce(1, 0), Reduce(2, 0))], [], [], units=1)
    assert steps_of(out_of_place(all_reduce, schedule), 0) == [
        Step(Send(1, src[0]), Reduce(1, 0, src[0]), Reduce(2, 0))
    ]


def test_units_that_are_never_written_are_copied_at_the_end():
    schedule = of_lists([Step(Receive(1, 1))], [Step(Send(0, 1))], units=3)
    assert steps_of(out_of_place(all_reduce, schedule), 0)[-1] == Step(Copy(src[0] + src[2], dst[0] + dst[2]))
    assert steps_of(out_of_place(all_gather, ring_of(Layout.of(1))), 0) == [Step(Copy(src[0], dst[0]))]


def test_a_part_that_is_half_written_is_completed_before_the_step():
    schedule = of_lists([Step(Receive(1, 0)), Step(Send(1, dst[0:3]), Reduce(1, dst[2:4]))], [], units=4)
    assert steps_of(out_of_place(all_reduce, schedule), 0) == [
        Step(Receive(1, 0)),
        Step(Copy(src[1] + src[2], dst[1] + dst[2])),
        Step(Copy(src[3], dst[3])),
        Step(Send(1, dst[0:3]), Reduce(1, dst[2:4])),
    ]


def test_what_would_be_sent_to_nobody_is_not_completed_by_a_copy():
    schedule = of_lists([Step(Receive(1, 0)), Step(Send(-1, dst[0:3]), Reduce(-1, dst[2:9]))], [], units=3)
    assert steps_of(out_of_place(all_reduce, schedule), 0) == [
        Step(Receive(1, 0)),
        Step(),
        Step(Copy(src[1] + src[2], dst[1] + dst[2])),
    ]


def test_half_written_parts_make_the_right_all_gather():
    (schedule,) = EXAMPLES["halves_then_whole"].slices(5)
    here = steps_of(out_of_place(all_gather, schedule), 2)
    assert here[0].actions[0] == Send(3, src[2])
    assert here[1] == Step(Copy(src[2], dst[2]))
    assert all(not isinstance(action, Copy) for step in here[2:] for action in step.actions)


def test_copies_into_tmp_come_from_src():
    (schedule,) = EXAMPLES["bruck"].slices(3)
    assert steps_of(out_of_place(all_gather, schedule), 1)[0] == Step(Copy(src[1], tmp[0]))


def test_an_aggregator_has_no_source():
    (schedule,) = EXAMPLES["one_switch"].slices(4)
    assert steps_of(out_of_place(all_reduce, schedule), 3) == steps_of(schedule, 3)
