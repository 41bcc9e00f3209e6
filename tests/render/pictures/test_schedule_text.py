"""The text of a schedule: it reads as the algorithm does."""

from dataclasses import replace

import pytest
from drawing_examples import NAMES, view, views

from hpccoll.render.pictures import describe, view_of
from hpccoll.render.pictures.action_text import round_lines
from hpccoll.render.pictures.schedule_text import layout_text
from hpccoll.schedule import Copy, Cost, Layout, Recv, RecvReduce, Schedule, Send, Step, dst, src, tmp
from hpccoll.schedule.walk import trace_schedule


def rounds(name, ranks):
    trace = trace_schedule(view(name, ranks).slices[0])
    return [round_lines(trace, number) for number in range(trace.rounds)]


def test_a_rotation_is_described_once_with_rank_0_as_the_example():
    (line,) = rounds("all_reduce-ring", 4)[0]
    rule, _, example = line.partition(": ")
    assert rule == "every rank r sends unit r-1 to r+1 and folds unit r+2 of r-1 (modulo 4)"
    assert example == "rank 0 sends unit 3 to 1, folds unit 2 of 3"


def test_a_step_that_is_no_rotation_is_described_for_each_rank():
    assert rounds("all_reduce-recursive_doubling", 4)[0] == [
        "rank 0 sends everything to 1, folds everything of 1",
        "rank 1 sends everything to 0, folds everything of 0",
        "rank 2 sends everything to 3, folds everything of 3",
        "rank 3 sends everything to 2, folds everything of 2",
    ]


def test_ranks_that_do_the_same_share_a_line():
    assert rounds("one_switch", 5) == [
        ["ranks 0..3 send everything to 4", "rank 4 receives everything from 0, folds everything of 1..3"],
        ["ranks 0..3 receive everything from 4", "rank 4 sends everything to 0..3"],
    ]


def test_reads_of_src_are_named():
    assert rounds("send_recv-ping_pong", 3)[0] == ["rank 0 sends all of src to 1", "rank 1 receives everything from 0"]


def test_arrivals_are_named_in_the_order_in_which_they_are_folded():
    def steps(me):
        yield Step(RecvReduce(2, 0), RecvReduce(1, 0)) if me == 0 else Step(Send(0, 0))

    assert round_lines(trace_schedule(Schedule(Layout.of(3), 1, steps)), 0)[0] == "rank 0 folds everything of 2, 1"


def test_other_buffers_and_folds_into_a_third_place_are_named():
    def steps(me):
        yield Step(Copy(dst[1], tmp[3]))
        yield Step(Send(0, src[0:2])) if me else Step(RecvReduce(1, tmp[0:2], src[0:2]))

    trace = trace_schedule(Schedule(Layout.of(2), 4, steps))
    assert round_lines(trace, 0) == ["ranks 0..1 copy unit 1 to unit 3 of tmp"]
    assert round_lines(trace, 1)[0] == "rank 0 folds units 0..1 of tmp of 1 with units 0..1 of src"


def test_units_that_wrap_round_keep_their_order():
    def steps(me):
        yield Step(Send(1, dst[3] + dst[0:2])) if me == 0 else Step(Recv(0, dst[3] + dst[0:2]))

    assert round_lines(trace_schedule(Schedule(Layout.of(2), 4, steps)), 0)[0] == "rank 0 sends units 3, 0..1 to 1"


@pytest.mark.parametrize(
    ("layout", "text"),
    [
        (Layout.of(1), "1 worker on 1 node"),
        (Layout.of(8, 2), "8 workers on 4 nodes of 2"),
        (Layout.of(5, 2), "5 workers on 3 nodes of unequal size"),
        (Layout.of(4, 2, aggregators=1), "4 workers on 2 nodes of 2, 1 aggregator"),
        (Layout((0, 0, 1, 1), (0, 0, 1, 1)), "4 workers on 2 nodes of 2, 2 racks"),
    ],
)
def test_layout_text(layout, text):
    assert layout_text(layout) == text


def test_the_head_says_what_it_is_and_what_it_takes():
    title, sentence, cost, units, *_ = describe(view_of("recursive_doubling", "all_reduce", 6)).splitlines()
    assert title == "all_reduce by recursive_doubling on 6 workers on 1 node"
    assert sentence.startswith("Recursive doubling: in round k every rank exchanges all")
    assert cost == "cost, on the critical path: 4 rounds, 4 S sent, 3 S reduced (declared and counted)"
    assert units == "4 units in one slice"


def test_a_cost_that_differs_from_the_declared_one_is_shown():
    lying = replace(view_of("ring", "all_reduce", 2), declared=Cost(rounds=1, sent=1, reduced=0.5))
    text = "2 rounds, 1 S sent, 0.5 S reduced (counted; DIFFERS from the declared cost: "
    text += "1 round, 1 S sent, 0.5 S reduced)"
    assert f"cost, on the critical path: {text}" in describe(lying)


def test_concurrent_trees_are_counted_one_after_the_other_and_the_text_notes_it():
    text = "4 rounds, 6 S sent, 3 S reduced (counted, bytes of slices in turn), "
    text += "4 rounds, 3 S sent, 1.5 S reduced (declared, slices at once)"
    assert f"cost, on the critical path: {text}\n" in describe(view_of("double_binary_tree", "all_reduce", 4))


def test_a_barrier_has_no_bytes_to_speak_of():
    assert "cost, on the critical path: 2 rounds (counted)" in describe(view("barrier-dissemination", 4))


def test_each_slice_is_described():
    lines = describe(view("all_reduce-bidirectional_ring", 4)).splitlines()
    assert [line for line in lines if line.startswith("slice")] == ["slice 1 of 2", "slice 2 of 2"]


def test_an_empty_schedule_says_so():
    assert "nothing is sent" in describe(view("all_reduce-null", 4)).splitlines()


@pytest.mark.parametrize("name", NAMES)
def test_all_lines_fit_in_120_columns(name):
    for ranks in (1, 3, 8, 16):
        for one in views(name, ranks):
            assert max(map(len, describe(one).splitlines())) <= 120
