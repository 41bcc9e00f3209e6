from itertools import chain

import pytest
from schedule_examples import EXAMPLES, SUBJECTS, every_case, of, of_lists

from hpccoll.algorithms.ring import ring
from hpccoll.schedule import Layout, Schedule, in_groups, out_of_place, relabel, reverse, then
from hpccoll.schedule.step import Copy, Recv, RecvReduce, Send, Step, drop_null_peers, dst, src, tmp


def ring_of(layout: Layout) -> Schedule:
    return ring.schedule(layout)


def steps_of(schedule: Schedule, me: int) -> list[Step]:
    return list(schedule.steps(me))


# ---- then, reverse
# --------------------------------------------------------------------------------------------------


def test_schedules_over_different_units_do_not_follow_one_another():
    layout = Layout.of(4)
    with pytest.raises(ValueError, match="one layout and one number of units"):
        then(ring_of(layout), EXAMPLES["shift_by_one"].make(layout))
    with pytest.raises(ValueError, match="one layout"):
        then(ring_of(layout), ring_of(Layout.of(4, 2)))


def test_backwards_who_sent_receives_and_the_last_step_is_the_first():
    forwards = of_lists(
        [Step(Send(1, 0), Copy(dst[1], tmp[1])), Step(Recv(1, 2))], [Step(), Step()], units=4
    )
    assert steps_of(reverse(forwards), 0) == [
        Step(Send(1, 2)),
        Step(Recv(1, 0), Copy(tmp[1], dst[1])),
    ]
    assert steps_of(reverse(forwards, RecvReduce), 0)[1] == Step(
        RecvReduce(1, 0), Copy(tmp[1], dst[1])
    )


def test_a_fold_of_two_parts_into_a_third_has_no_backwards():
    fold = of_lists([Step(RecvReduce(1, 0, src[0]))], [Step(Send(0, 0))])
    with pytest.raises(ValueError, match=r"a fold of .* into .* cannot be reversed"):
        steps_of(reverse(fold), 0)


# ---- relabel
# --------------------------------------------------------------------------------------------------------


def test_a_role_is_a_plain_int_to_an_algorithm_that_wants_one():
    def steps(_layout, me):
        if me.bit_length() == 1:
            yield Step(Copy(dst[0], dst[0]))

    relabelled = relabel(of(steps)(Layout.of(4)), [3, 2, 1, 0])
    assert [len(steps_of(relabelled, me)) for me in range(4)] == [0, 0, 1, 0]


# ---- within
# ---------------------------------------------------------------------------------------------------------


def test_groups_run_by_themselves_over_their_own_units():
    layout = Layout.of(6, 2)
    schedule = in_groups(layout, 4, [[0, 1], [4, 2]], ring_of, share=True)
    assert steps_of(schedule, 1) == [
        Step(Send(0, 0), RecvReduce(0, 1)),
        Step(Send(0, 1), Recv(0, 0)),
    ]
    assert steps_of(schedule, 4) == [
        Step(Send(2, 3), RecvReduce(2, 2)),
        Step(Send(2, 2), Recv(2, 3)),
    ]
    assert steps_of(schedule, 3) == steps_of(schedule, 5) == []


def test_a_group_knows_where_its_ranks_are():
    layouts = []

    def inner(layout: Layout) -> Schedule:
        layouts.append(layout)
        return ring_of(layout)

    layout = Layout(node=(0, 0, 1, 1, 2), rack=(0, 0, 0, 1, 1), rail=(0, 1, 0, 1, 0), aggregators=1)
    in_groups(layout, 4, [[3, 1], [0, 2, 4]], inner)
    assert layouts == [
        Layout((0, 1), (0, 1), (0, 0)),
        Layout((0, 1, 2), (0, 0, 1), (0, 0, 0), aggregators=1),
    ]


# ---- out of place
# ---------------------------------------------------------------------------------------------------


def written(steps: list[Step]) -> set[int]:
    """Return the units of dst that a program writes."""
    actions = [
        a for step in steps for a in drop_null_peers(step).actions if not isinstance(a, Send)
    ]
    parts = [a.target if isinstance(a, Copy) else a.part for a in actions]
    return {unit for part in parts if part.buffer == "dst" for unit in part.units}


@pytest.mark.parametrize("name", SUBJECTS)
def test_time_goes_into_copies_only_of_units_that_are_never_written_and_once(name):
    for case in chain.from_iterable(every_case(name, ranks) for ranks in (2, 4, 6, 7)):
        for schedule in case.slices:
            for me in range(case.call.p):
                there, here = (
                    steps_of(schedule, me),
                    steps_of(out_of_place(case.call, schedule), me),
                )
                copies = [step.actions[0] for step in here if len(step.actions) == 1]
                copied = [
                    one
                    for one in copies
                    if isinstance(one, Copy) and one.source == one.target.in_buffer("src")
                ]
                units = [unit for one in copied for unit in one.target.units]
                assert len(units) == len(set(units))
                assert not written(there).intersection(units)
                assert len(here) == len(there) + len(copied)
