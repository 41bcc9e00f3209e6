"""The text of a schedule: the golden page of some, and what must hold for all."""

from dataclasses import replace

import pytest
from drawing_examples import NAMES, view, views
from golden_page import assert_golden

from hpccoll.render.pictures.buffer_state import BufferState, buffer_state
from hpccoll.render.pictures.schedule_text import action_lines, buffer_lines, describe
from hpccoll.render.pictures.schedule_view import view_of
from hpccoll.schedule import (
    Copy,
    Cost,
    Layout,
    Recv,
    RecvReduce,
    Schedule,
    Send,
    Step,
    dst,
    src,
    tmp,
)
from hpccoll.schedule.walk import trace_schedule


def test_the_texts_of_some_schedules_are_the_golden_page():
    shown = [
        view("all_reduce-ring", 4),
        view_of("binomial", "broadcast", 4, root=2),  # units go together
        view("all_to_all-pairwise", 4),  # several origins: their first unit
        view_of("sharp_emulated", "all_reduce", 2, aggregators=1),
        replace(view_of("ring", "all_reduce", 2), declared=Cost(steps=1, sent=1, reduced=0.5)),
    ]
    steps = [
        line
        for steps in (folds_in_order, wraps, uses_other_buffers)
        for trace in [trace_schedule(Schedule(Layout.of(3), 4, steps))]
        for number in range(trace.steps)
        for line in action_lines(trace, number)
    ]
    assert_golden("schedules", "\n\n".join([*map(describe, shown), "\n".join(steps)]) + "\n")


def folds_in_order(me):
    yield Step(RecvReduce(2, 0), RecvReduce(1, 0)) if me == 0 else Step(Send(0, 0))


def wraps(me):
    part = dst[3] + dst[0:2]
    yield Step(*([Send(1, part)] if me == 0 else [Recv(0, part)] if me == 1 else []))


def uses_other_buffers(me):
    yield Step(Copy(dst[1], tmp[3]))
    yield Step(
        *(
            [RecvReduce(1, tmp[0:2], src[0:2])]
            if me == 0
            else [Send(0, src[0:2])]
            if me == 1
            else []
        )
    )


@pytest.mark.parametrize("name", NAMES)
def test_all_lines_fit_in_120_columns(name):
    lines = [
        line
        for ranks in (1, 3, 8, 16)
        for one in views(name, ranks)
        for line in describe(one).splitlines()
    ]
    assert max(map(len, lines)) <= 120


@pytest.mark.parametrize("name", NAMES)
def test_every_rank_ends_with_the_postcondition(name):
    for one in (each for ranks in (1, 5, 8, 16) for each in views(name, ranks)):
        trace = trace_schedule(one.slices[0])
        state = buffer_state(one.call, trace)
        if name != "all_reduce-null":
            for end, expected in zip(state.rows[-1], state.expected, strict=True):
                assert expected <= end <= state.all_symbols
        assert len(buffer_lines(state, trace)) == trace.steps + 3


@pytest.mark.parametrize(
    ("letters", "width", "text"),
    [
        ("", 8, ""),
        ("abcdefgh", 8, "abcdefgh"),
        ("abcdefghi", 9, "a-i"),
        ("abcghi", 5, "#6"),
        ("abcdefgi", 6, "a-gi"),
        ("abcdefghij", 8, "*"),
        ("abcdefghij", 1, "*"),
        ("abc", 1, "+"),
    ],
)
def test_a_cell_is_shortened_to_its_width(letters, width, text):
    symbols = frozenset("abcdefghij".index(letter) for letter in letters)
    assert (
        BufferState("", (), frozenset(range(10)), (), letters=True, unit=None).cell_text(
            symbols, width
        )
        == text
    )
