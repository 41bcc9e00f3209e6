import pytest
from schedule_examples import EXAMPLES, of_lists

from hpccoll.schedule import Layout, Schedule, ScheduleError
from hpccoll.schedule.collective_table import all_gather, all_reduce, barrier, broadcast
from hpccoll.schedule.prove import prove
from hpccoll.schedule.step import Copy, Recv, RecvReduce, Send, Step, dst, src, tmp

EXCHANGE = Step(Send(1, 0), RecvReduce(1, 0)), Step(Send(0, 0), RecvReduce(0, 0))


def is_proven(collective, schedules, *, in_place=True) -> None:
    prove(collective.call(schedules[0].layout.workers), schedules, in_place=in_place)


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8, 13])
def test_the_small_schedules_meet_their_postconditions(name, ranks):
    EXAMPLES[name].case(ranks).prove()


GATHERS = [Step(Send(1, 0), Recv(1, 1))], [Step(Send(0, 1), Recv(0, 0))]
MOVED = [Step(Send(1, 0), Recv(1, tmp[1]))], [Step(Send(0, 0), Recv(0, tmp[1]))]
BEFORE = [Step(Recv(1, tmp[0]), Send(1, 0), Copy(dst[0], tmp[1]), Recv(1, 0))]
SENDS = [Step(Send(2, 0))]
FOLDS = [Step(Recv(0, tmp[0]), RecvReduce(1, tmp[0]), Copy(dst[0], dst[0]))]
FOLDS_FIRST = [Step(RecvReduce(1, tmp[0]), Recv(0, tmp[0]))]


@pytest.mark.parametrize(
    ("collective", "programs", "units", "words"),
    [
        (
            all_reduce,
            ([EXCHANGE[0]], [EXCHANGE[1]], []),
            1,
            "rank 0 ends without rank 2's unit 0 in unit 0",
        ),
        (
            all_reduce,
            ([EXCHANGE[0]] * 2, [EXCHANGE[1]] * 2),
            1,
            "twice in unit 0: rank 0's unit 0, rank 1's unit 0",
        ),
        (
            all_reduce,
            ([Step(Send(1, tmp[0]))], [Step(Recv(0, 0))]),
            1,
            r"rank 0 reads tmp\[0\], which nothing has",
        ),
        (
            all_reduce,
            ([Step(Send(1, 0))], [Step(RecvReduce(0, 0, tmp[0]))]),
            1,
            r"rank 1 reads tmp\[0\]",
        ),
        (all_reduce, ([Step(Copy(src[0], dst[0]))],), 1, r"rank 0 reads src\[0\]"),  # in place
        (
            all_gather,
            (GATHERS[0], [Step(Send(0, 1), Recv(0, 1))]),
            2,
            "rank 1 ends without rank 0's unit 0 in unit 0",
        ),
        (
            all_gather,
            ([*GATHERS[0], Step(Send(1, 1))], [*GATHERS[1], Step(RecvReduce(0, 0))]),
            2,
            "rank 1 ends with rank 1's unit 1 in unit 0",
        ),
        (all_reduce, MOVED, 2, r"rank 0 puts divisible units \[0\] in the place of \[1\]"),
        (
            all_reduce,
            (BEFORE, [Step(Send(0, 0), Send(0, 0), Recv(0, tmp[0]))]),
            2,
            "rank 0 puts divisible units",
        ),
        (
            all_reduce,
            ([Step(Copy(dst[0], tmp[0]), Copy(tmp[0], dst[0]))],),
            1,
            r"rank 0 reads tmp\[0\]",
        ),
        (all_reduce, (SENDS, SENDS, FOLDS), 1, "ends without"),  # not before the end
        (all_reduce, (SENDS, SENDS, FOLDS_FIRST), 1, r"rank 2 reads tmp\[0\]"),
    ],
)
def test_a_postcondition_that_fails_is_named(collective, programs, units, words):
    with pytest.raises(ScheduleError, match=words):
        is_proven(collective, [of_lists(*programs, units=units)])


@pytest.mark.parametrize(
    ("collective", "programs", "units", "words"),
    [
        (all_reduce, ([EXCHANGE[0]], [EXCHANGE[1]]), 1, r"reads dst\[0\]"),
        (
            all_gather,
            ([Step(Send(1, src[1]))], [Step(Recv(0, dst[1]))]),
            2,
            r"rank 0 reads src\[1\]",
        ),
    ],
)
def test_out_of_place_a_rank_has_nothing_in_dst_and_only_its_own_units_in_src(
    collective, programs, units, words
):
    with pytest.raises(ScheduleError, match=words):
        is_proven(collective, [of_lists(*programs, units=units)], in_place=False)


def test_every_slice_meets_the_postcondition_and_a_token_may_count_twice():
    good, bad = of_lists([EXCHANGE[0]], [EXCHANGE[1]]), of_lists([], [])
    is_proven(all_reduce, [good, good])
    is_proven(barrier, [of_lists([EXCHANGE[0]] * 2, [EXCHANGE[1]] * 2)])
    with pytest.raises(ScheduleError, match="ends without"):
        is_proven(all_reduce, [good, bad])


def test_per_rank_units_may_lie_anywhere():
    first = Step(Send(1, 0), Recv(1, tmp[7])), Step(Copy(tmp[7], dst[1]))
    second = Step(Send(0, 1), Recv(0, tmp[0])), Step(Copy(tmp[0], dst[0]))
    is_proven(all_gather, [of_lists(list(first), list(second), units=2)])


def test_an_aggregator_contributes_nothing_so_its_first_arrival_cannot_be_folded():
    up, down = [Step(Send(2, 0)), Step(Recv(2, 0))], Step(Send(0, 0), Send(1, 0))
    is_proven(
        all_reduce, [of_lists(up, up, [Step(Recv(0, 0), RecvReduce(1, 0)), down], aggregators=1)]
    )
    with pytest.raises(ScheduleError, match=r"rank 2 reads dst\[0\]"):
        is_proven(
            all_reduce,
            [of_lists(up, up, [Step(RecvReduce(0, 0), RecvReduce(1, 0)), down], aggregators=1)],
        )


def test_only_the_root_has_something_to_send_in_a_broadcast():
    there = [Step(Send(1, 0))], [Step(Recv(0, 0))]
    prove(broadcast.call(2), [of_lists(*there)])
    with pytest.raises(ScheduleError, match=r"rank 0 reads dst\[0\], which nothing has defined"):
        prove(broadcast.call(2, 1), [of_lists(*there)])
    with pytest.raises(ScheduleError, match=r"rank 0 reads src\[0\]"):
        prove(broadcast.call(2, 1), [of_lists([Step(Send(1, src[0]))], there[1])], in_place=False)


def test_contributions_of_several_units_fold_where_nothing_needs_the_sum():
    """A fold of two blocks is no error as long as no result holds it."""
    first = Step(Send(1, 0), Recv(1, tmp[0])), Step(Copy(tmp[0], dst[1]), Send(1, 0))
    second = (
        Step(Send(0, 1), Recv(0, tmp[0])),
        Step(Copy(tmp[0], dst[0]), RecvReduce(0, tmp[5], dst[1])),
    )
    is_proven(all_gather, [of_lists(list(first), list(second), units=2)])
    twice = Step(RecvReduce(0, tmp[5], tmp[5]))
    with pytest.raises(ScheduleError, match="rank 1 counts twice in unit 5: rank 0's unit 0"):
        is_proven(all_gather, [of_lists([*first, Step(Send(1, 0))], [*second, twice], units=2)])


@pytest.mark.parametrize(
    "name", ["ring", "recursive_doubling", "rabenseifner", "double_binary_tree"]
)
def test_schedules_of_hundreds_of_ranks_are_proven(name):
    call = all_reduce.call(256)
    prove(call, call.slices(all_reduce.algorithm(name), Layout.of(256)))


def test_one_fault_among_many_ranks_is_named():
    schedule = all_reduce.algorithm("ring").schedule(Layout.of(32))

    def steps(me):
        for number, step in enumerate(schedule.steps(int(me))):
            send, arrival = step.actions
            yield Step(send, Recv(arrival.peer, tmp[3])) if me == 20 and number == 40 else step

    with pytest.raises(
        ScheduleError, match=r"step 41: rank 20 puts divisible units \[10\] in the place of \[3\]"
    ):
        prove(all_reduce.call(32), [Schedule(schedule.layout, 32, steps)])


def test_what_a_rank_received_last_is_named_with_an_undefined_read_and_shows_a_doubled_receive():
    doubled = [Step(Recv(1, 1), Recv(1, 1)), Step(Send(2, dst[1:3]))]
    sender = [Step(Send(0, 1), Send(0, 1))]
    reader = [Step(), Step(Recv(0, tmp[1:3]))]
    words = (
        "step 2: rank 0 reads dst[2], which nothing has defined; it received last, in step 1: "
        "dst[1] from rank 1, dst[1] from rank 1"
    )
    with pytest.raises(ScheduleError) as raised:
        prove(all_gather.call(3), [of_lists(doubled, sender, reader, units=3)])
    assert str(raised.value) == words


def test_a_fault_names_the_own_step_of_its_rank_if_that_has_another_number():
    """Rank 2 begins when all others have gone through two steps."""
    relay = (
        [Step(Send(1, 0))],
        [Step(Recv(0, 0)), Step(Send(2, 0))],
        [Step(Recv(1, 0)), Step(Send(3, tmp[0]))],
    )
    last = [Step(Recv(2, tmp[0]))]
    with pytest.raises(ScheduleError, match=r"^step 3 \(step 2 of rank 2\): rank 2 reads tmp\[0\]"):
        is_proven(broadcast, [of_lists(*relay, last)])
