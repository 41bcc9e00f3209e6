from itertools import chain

import pytest
from schedule_examples import ALGORITHMS, EXAMPLES, SUBJECTS, cases, of, places

from hpccoll.algorithms.binomial import binomial_broadcast
from hpccoll.algorithms.bruck import bruck_all_gather
from hpccoll.algorithms.hierarchical import three_phases
from hpccoll.algorithms.ring import ring, ring_all_gather, ring_reduce_scatter
from hpccoll.schedule import Layout, Schedule, in_groups, on_power_of_two, out_of_place, prove, relabel, reverse, then
from hpccoll.schedule.collective_table import all_gather, all_reduce, broadcast, reduce
from hpccoll.schedule.step import Copy, Recv, RecvReduce, Send, Step, dst, src, tmp


def ring_of(layout: Layout) -> Schedule:
    return ring.schedule(layout)


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
    composed = then(ring_reduce_scatter.schedule(layout), ring_all_gather.schedule(layout))
    for me in range(p):
        assert steps_of(composed, me) == steps_of(ring_of(layout), me)


def test_schedules_over_different_units_do_not_follow_one_another():
    layout = Layout.of(4)
    with pytest.raises(ValueError, match="one layout and one number of units"):
        then(ring_of(layout), EXAMPLES["shift_by_one"].make(layout))
    with pytest.raises(ValueError, match="one layout"):
        then(ring_of(layout), ring_of(Layout.of(4, 2)))


def test_backwards_who_sent_receives_and_the_last_step_is_the_first():
    forwards = of_lists([Step(Send(1, 0), Copy(dst[1], tmp[1])), Step(Recv(1, 2))], [Step(), Step()])
    assert steps_of(reverse(forwards), 0) == [Step(Send(1, 2)), Step(Recv(1, 0), Copy(tmp[1], dst[1]))]
    assert steps_of(reverse(forwards, RecvReduce), 0)[1] == Step(RecvReduce(1, 0), Copy(tmp[1], dst[1]))


@pytest.mark.parametrize("p", [1, 2, 3, 6, 8, 11])
def test_a_broadcast_backwards_is_a_reduction_and_an_all_gather_backwards_a_reduce_scatter(p):
    there = binomial_broadcast.schedule(Layout.of(p))
    prove(broadcast.call(p), [there])
    prove(reduce.call(p), [reverse(there, RecvReduce)])
    round_and_back = then(
        ring_reduce_scatter.schedule(Layout.of(p)), reverse(ring_reduce_scatter.schedule(Layout.of(p)))
    )
    prove(all_reduce.call(p), [round_and_back])


def test_a_fold_of_two_parts_into_a_third_has_no_backwards():
    fold = of_lists([Step(RecvReduce(1, 0, src[0]))], [Step(Send(0, 0))])
    with pytest.raises(ValueError, match=r"a fold of .* into .* cannot be reversed"):
        steps_of(reverse(fold), 0)


# ---- relabel --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", [ring_all_gather, bruck_all_gather])
def test_units_are_named_after_their_ranks_where_they_are_owned(algorithm):
    actual = [3, 0, 4, 1, 2]
    renamed = relabel(algorithm.schedule(Layout.of(5)), actual, units=actual)
    prove(all_gather.call(5), [renamed])
    prove(all_gather.call(5), [out_of_place(all_gather.call(5), renamed)], in_place=False)


def test_a_role_is_a_plain_int_to_an_algorithm_that_wants_one():
    def steps(_layout, me):
        if me.bit_length() == 1:
            yield Step(Copy(dst[0], dst[0]))

    relabelled = relabel(of(steps)(Layout.of(4)), [3, 2, 1, 0])
    assert [len(steps_of(relabelled, me)) for me in range(4)] == [0, 0, 1, 0]


def test_the_null_peer_stays_null_under_another_name():
    schedule = relabel(of_lists([Step(Send(-1, 0))], [Step(Recv(-1, 0))]), [1, 0])
    assert [steps_of(schedule, me)[0].actions[0].peer for me in range(2)] == [-1, -1]


# ---- within ---------------------------------------------------------------------------------------------------------


def test_groups_run_by_themselves_over_their_own_units():
    layout = Layout.of(6, 2)
    schedule = in_groups(layout, 4, [[0, 1], [4, 2]], ring_of, share=True)
    assert steps_of(schedule, 1) == [Step(Send(0, 0), RecvReduce(0, 1)), Step(Send(0, 1), Recv(0, 0))]
    assert steps_of(schedule, 4) == [Step(Send(2, 3), RecvReduce(2, 2)), Step(Send(2, 2), Recv(2, 3))]
    assert steps_of(schedule, 3) == steps_of(schedule, 5) == []


def test_a_group_knows_where_its_ranks_are():
    layouts = []

    def inner(layout: Layout) -> Schedule:
        layouts.append(layout)
        return ring_of(layout)

    layout = Layout(node=(0, 0, 1, 1, 2), rack=(0, 0, 0, 1, 1), rail=(0, 1, 0, 1, 0), aggregators=1)
    in_groups(layout, 4, [[3, 1], [0, 2, 4]], inner)
    assert layouts == [Layout((0, 1), (0, 1), (1, 1)), Layout((0, 1, 2), (0, 0, 1), (0, 0, 0), aggregators=1)]


# ---- nested, and powers of two --------------------------------------------------------------------------------------


def test_groups_of_different_sizes_do_not_nest():
    with pytest.raises(ValueError, match=r"shorter|longer"):
        three_phases(Layout.of(3), [[0, 1], [2]], ring_reduce_scatter.schedule, ring.slices)


def doubling(layout: Layout, me) -> object:
    everything = dst[0 : layout.workers]
    for k in range(layout.workers.bit_length() - 1):
        partner = me ^ (1 << k)
        yield Step(Send(partner, everything), RecvReduce(partner, everything))


@pytest.mark.parametrize("p", [1, 2, 3, 5, 6, 7, 8, 9, 15, 16, 17])
def test_ranks_beyond_a_power_of_two_hand_in_and_are_given_the_sum(p):
    whole = on_power_of_two(Layout.of(p), lambda core: Schedule.of(core, doubling))
    core = 1 << (p.bit_length() - 1)
    prove(all_reduce.call(p), [whole])
    assert [len(steps_of(whole, me)) for me in range(core)] == [core.bit_length() - 1 + 2 * (core < p)] * core
    for me in range(core, p):
        hands_in, takes_out = steps_of(whole, me)
        assert [action.peer for action in hands_in.actions] == [me - core, -1]
        assert [action.peer for action in takes_out.actions] == [-1, me - core]


@pytest.mark.parametrize(
    "layout", [Layout.of(7, 3), Layout((0, 1, 1, 1, 2)), Layout((2, 0, 2, 1, 2, 0)), Layout.of(8, 4), Layout.of(1)]
)
def test_leaders_of_nodes_of_any_size_are_an_all_reduce(layout):
    prove(all_reduce.call(layout.workers), [EXAMPLES["leaders_of_nodes"].make(layout)])


# ---- out of place ---------------------------------------------------------------------------------------------------


def calls(name: str, ranks: int):
    """Return every call of a subject on so many workers, to any root."""
    if name in EXAMPLES:
        return [EXAMPLES[name].case(ranks)]
    collective, algorithm = ALGORITHMS[name]
    return list(cases(collective, algorithm, places(algorithm, ranks)))


def written(steps: list[Step]) -> set[int]:
    """Return the units of dst that a program writes."""
    drop_null_peers = [action for step in steps for action in step.actions if getattr(action, "peer", 0) != -1]
    parts = [a.target if isinstance(a, Copy) else a.part for a in drop_null_peers if not isinstance(a, Send)]
    return {unit for part in parts if part.buffer == "dst" for r in part.ranges for unit in range(*map(int, r))}


@pytest.mark.parametrize("name", SUBJECTS)
def test_time_goes_into_copies_only_of_units_that_are_never_written_and_once(name):
    for case in chain.from_iterable(calls(name, ranks) for ranks in (2, 4, 6, 7)):
        for schedule in case.slices:
            for me in range(case.call.p):
                there, here = steps_of(schedule, me), steps_of(out_of_place(case.call, schedule), me)
                copies = [step.actions[0] for step in here if len(step.actions) == 1]
                copied = [one for one in copies if isinstance(one, Copy) and one.source == one.target.in_buffer("src")]
                units = [unit for one in copied for r in one.target.ranges for unit in range(*map(int, r))]
                assert len(units) == len(set(units))
                assert not written(there).intersection(units)
                assert len(here) == len(there) + len(copied)


@pytest.mark.parametrize(
    ("there", "here", "units"),
    [
        ([Step(Send(1, 0), RecvReduce(1, 0), RecvReduce(2, 0)), Step(Send(1, 0))],
         [Step(Send(1, src[0]), RecvReduce(1, 0, src[0]), RecvReduce(2, 0)), Step(Send(1, 0))], 1),
        ([Step(Recv(1, 1))], [Step(Recv(1, 1)), Step(Copy(src[0] + src[2], dst[0] + dst[2]))], 3),
        ([Step(Recv(1, 0)), Step(Send(1, dst[0:3]), RecvReduce(1, dst[2:4]))],
         [Step(Recv(1, 0)), Step(Copy(src[1] + src[2], dst[1] + dst[2])), Step(Copy(src[3], dst[3])),
          Step(Send(1, dst[0:3]), RecvReduce(1, dst[2:4]))], 4),
        ([Step(Recv(1, 0)), Step(Send(-1, dst[0:3]), RecvReduce(-1, dst[2:9]))],
         [Step(Recv(1, 0)), Step(), Step(Copy(src[1] + src[2], dst[1] + dst[2]))], 3),
        ([Step(Copy(dst[1:3], tmp[0:2])), Step(Recv(1, dst[0:3]))],
         [Step(Copy(src[1:3], tmp[0:2])), Step(Recv(1, dst[0:3]))], 3),
    ],
    ids=["folded", "never written", "half written", "to the null peer", "into tmp"],
)  # fmt: skip
def test_what_is_not_written_yet_is_read_in_src_and_copied_only_where_it_must_be(there, here, units):
    schedule = of_lists(there, [], [], units=units)
    assert steps_of(out_of_place(all_reduce.call(3), schedule), 0) == here
