import pytest
from schedules import EXAMPLES, LEAST_RANKS

from hpccoll.schedule import (
    Copy,
    Layout,
    Receive,
    Reduce,
    Schedule,
    ScheduleError,
    Send,
    Step,
    all_gather,
    all_reduce,
    barrier,
    dst,
    out_of_place,
    prove,
    src,
    tmp,
)


def of_lists(*programs: list[Step], units: int = 1, aggregators: int = 0) -> Schedule:
    def steps(me):
        yield from programs[me]

    return Schedule(Layout.of(len(programs) - aggregators, aggregators=aggregators), units, steps)


EXCHANGE = Step(Send(1, 0), Reduce(1, 0)), Step(Send(0, 0), Reduce(0, 0))


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 16])
def test_the_small_schedules_keep_their_promises(name, ranks):
    if ranks < LEAST_RANKS.get(name, 1):
        return
    example = EXAMPLES[name]
    slices = example.slices(ranks)
    prove(example.collective, slices)
    prove(example.collective, [out_of_place(example.collective, each) for each in slices], in_place=False)


@pytest.mark.parametrize(
    ("programs", "words"),
    [
        ([[EXCHANGE[0]], [EXCHANGE[1]], []], "rank 0 ends without rank 2's unit 0 in unit 0"),
        ([[EXCHANGE[0]] * 2, [EXCHANGE[1]] * 2], "counts twice in unit 0: rank 0's unit 0, rank 1's unit 0"),
        ([[Step(Send(1, tmp[0]))], [Step(Receive(0, 0))]], r"rank 0 reads tmp\[0\], which nothing has defined"),
        ([[Step(Send(1, 0))], [Step(Reduce(0, 0, tmp[0]))]], r"rank 1 reads tmp\[0\], which nothing has defined"),
        ([[Step(Copy(tmp[0], dst[0]))]], r"rank 0 reads tmp\[0\]"),
        ([[Step(Copy(src[0], dst[0]))]], r"rank 0 reads src\[0\]"),
    ],
)
def test_a_promise_that_is_not_kept_is_named(programs, words):
    with pytest.raises(ScheduleError, match=words):
        prove(all_reduce, [of_lists(*programs)])


def test_every_slice_keeps_the_promise():
    good, bad = of_lists([EXCHANGE[0]], [EXCHANGE[1]]), of_lists([], [])
    prove(all_reduce, [good, good])
    with pytest.raises(ScheduleError, match="ends without"):
        prove(all_reduce, [good, bad])


def test_what_does_not_belong_to_the_result_is_named():
    step = Step(Send(1, 0), Receive(1, 1)), Step(Send(0, 1), Receive(0, 1))
    with pytest.raises(ScheduleError, match="rank 1 ends without rank 0's unit 0 in unit 0"):
        prove(all_gather, [of_lists([step[0]], [step[1]], units=2)])
    again = Step(Send(1, 1)), Step(Reduce(0, 0))
    right = Step(Send(1, 0), Receive(1, 1)), Step(Send(0, 1), Receive(0, 0))
    with pytest.raises(ScheduleError, match="rank 1 ends with rank 1's unit 1 in unit 0"):
        prove(all_gather, [of_lists([right[0], again[0]], [right[1], again[1]], units=2)])


def test_free_units_keep_their_places_because_their_lengths_differ():
    moved = Step(Send(1, 0), Receive(1, tmp[1])), Step(Send(0, 0), Receive(0, tmp[1]))
    with pytest.raises(ScheduleError, match=r"rank 0 puts free units \[0\] in the place of \[1\]"):
        prove(all_reduce, [of_lists([moved[0]], [moved[1]], units=2)])
    with pytest.raises(ScheduleError, match="free units"):
        prove(all_reduce, [of_lists([Step(Copy(dst[0], tmp[1]))], units=2)])


def test_owned_units_may_lie_anywhere():
    first = Step(Send(1, 0), Receive(1, tmp[7])), Step(Copy(tmp[7], dst[1]))
    second = Step(Send(0, 1), Receive(0, tmp[0])), Step(Copy(tmp[0], dst[0]))
    prove(all_gather, [of_lists(list(first), list(second), units=2)])


def test_sends_and_copies_read_what_was_there_before_the_step():
    step = Step(Receive(1, tmp[0]), Send(1, 0), Copy(dst[0], tmp[1]), Receive(1, 0))
    with pytest.raises(ScheduleError, match="rank 0 puts free units"):
        prove(all_reduce, [of_lists([step], [Step(Send(0, 0), Send(0, 0), Receive(0, tmp[0]))], units=2)])
    with pytest.raises(ScheduleError, match=r"rank 0 reads tmp\[0\]"):
        prove(all_reduce, [of_lists([Step(Copy(dst[0], tmp[0]), Copy(tmp[0], dst[0]))])])


def test_arrivals_are_folded_in_the_order_listed():
    sends = [Step(Send(2, 0))]
    receive_first = of_lists(sends, sends, [Step(Receive(0, tmp[0]), Reduce(1, tmp[0]), Copy(dst[0], dst[0]))])
    reduce_first = of_lists(sends, sends, [Step(Reduce(1, tmp[0]), Receive(0, tmp[0]))])
    with pytest.raises(ScheduleError, match="ends without"):  # not before the end
        prove(all_reduce, [receive_first])
    with pytest.raises(ScheduleError, match=r"rank 2 reads tmp\[0\]"):
        prove(all_reduce, [reduce_first])


def test_an_aggregator_contributes_nothing_so_its_first_arrival_cannot_be_folded():
    up, down = [Step(Send(2, 0)), Step(Receive(2, 0))], Step(Send(0, 0), Send(1, 0))
    prove(all_reduce, [of_lists(up, up, [Step(Receive(0, 0), Reduce(1, 0)), down], aggregators=1)])
    with pytest.raises(ScheduleError, match=r"rank 2 reads dst\[0\]"):
        prove(all_reduce, [of_lists(up, up, [Step(Reduce(0, 0), Reduce(1, 0)), down], aggregators=1)])


def test_who_has_heard_twice_has_heard():
    twice = of_lists([EXCHANGE[0]] * 2, [EXCHANGE[1]] * 2)
    prove(barrier, [twice])
    with pytest.raises(ScheduleError, match="counts twice"):
        prove(all_reduce, [twice])


def test_out_of_place_nothing_is_in_dst_at_the_start():
    with pytest.raises(ScheduleError, match=r"reads dst\[0\]"):
        prove(all_reduce, [of_lists([EXCHANGE[0]], [EXCHANGE[1]])], in_place=False)


def test_in_place_there_is_no_src():
    from_src = of_lists([Step(Send(1, src[0]), Reduce(1, 0))], [Step(Send(0, src[0]), Reduce(0, 0))])
    with pytest.raises(ScheduleError, match=r"reads src\[0\]"):
        prove(all_reduce, [from_src])


def test_a_rank_has_only_its_own_unit_of_a_source_that_is_owned():
    wrong = of_lists([Step(Send(1, src[1]))], [Step(Receive(0, dst[1]))], units=2)
    with pytest.raises(ScheduleError, match=r"rank 0 reads src\[1\]"):
        prove(all_gather, [wrong], in_place=False)


def test_a_message_of_no_ranges_is_no_contribution():
    nothing = dst[0:0].within("dst")
    empty = type(nothing)("dst", ())
    prove(all_reduce, [of_lists([EXCHANGE[0], Step(Send(1, empty))], [EXCHANGE[1], Step(Receive(0, empty))])])
