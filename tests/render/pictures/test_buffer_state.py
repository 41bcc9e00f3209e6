"""Who holds what, against the tables that the algorithms' pages have, and against the postconditions of collectives."""

import pytest
from drawing_examples import NAMES, view, views

from hpccoll.render.pictures.buffer_state import BufferState, buffer_state
from hpccoll.render.pictures.schedule_text import buffer_lines
from hpccoll.render.pictures.schedule_view import view_of
from hpccoll.schedule.walk import trace_schedule


def followed(one, unit=None):
    trace = trace_schedule(one.slices[0])
    return buffer_state(one.call, trace, unit), trace


def rows(one, unit=None):
    """Return the cells of a view as words: ``_`` for an empty one."""
    state, _ = followed(one, unit)
    return [" ".join(state.cell_text(cell, 8) or "_" for cell in row) for row in state.rows]


@pytest.mark.parametrize(
    ("one", "unit", "expected"),
    [
        (
            view("all_reduce-ring", 4), 3,
            [
                "a b c d", "a ab c d", "a ab abc d", "a ab abc abcd", "abcd ab abc abcd", "abcd abcd abc abcd",
                "abcd abcd abcd abcd",
            ],
        ),
        (view("all_reduce-recursive_doubling", 4), None, ["a b c d", "ab ab cd cd", "abcd abcd abcd abcd"]),
        (view("all_gather-bruck", 3), None, ["a b c", "ab bc ac", "abc abc abc"]),
        (view("broadcast-binomial", 4), None, ["a _ _ _", "a _ a _", "a a a a"]),  # only what the root has
        (view("scatter-binomial", 3), None, ["0,1,2 _ _", "0,1,2 _ 2", "0,1,2 1 2"]),  # one origin: its units
        (view_of("binomial", "broadcast", 4, root=2), None, ["_ _ c _", "c _ c _", "c c c c"]),  # units go together
        (view("send_recv-ping_pong", 3), None, ["_ _ _", "_ a _", "b a _"]),  # dst begins empty where src is read
        (view("all_to_all-pairwise", 3), 2, ["a b c", "a _ bc", "a _ bc", "_ _ abc"]),  # the blocks for one rank
    ],
)  # fmt: skip
def test_the_cells_follow_the_contributions(one, unit, expected):
    assert rows(one, unit) == expected


@pytest.mark.parametrize("name", NAMES)
def test_every_rank_ends_with_the_postcondition(name):
    for one in (each for ranks in (1, 5, 8, 16) for each in views(name, ranks)):
        state, trace = followed(one)
        if name != "all_reduce-null":
            for end, expected in zip(state.rows[-1], state.expected, strict=True):
                assert expected <= end <= state.all_symbols
        assert len(buffer_lines(state, trace)) == trace.rounds + 3


@pytest.mark.parametrize(
    ("letters", "width", "text"),
    [
        ("", 8, ""), ("abcdefgh", 8, "abcdefgh"), ("abcdefghi", 9, "a-i"), ("abcghi", 5, "#6"), ("abcdefgi", 6, "a-gi"),
        ("abcdefghij", 8, "*"), ("abcdefghij", 1, "*"), ("abc", 1, "+"),
    ],
)  # fmt: skip
def test_a_cell_is_shortened_to_its_width(letters, width, text):
    symbols = frozenset("abcdefghij".index(letter) for letter in letters)
    assert BufferState("", (), frozenset(range(10)), (), letters=True, unit=None).cell_text(symbols, width) == text


@pytest.mark.parametrize(("ranks", "signs"), [(4, ""), (12, " (* all)"), (32, " (* all, #3 three of them)")])
def test_the_title_says_what_the_signs_of_the_cells_mean(ranks, signs):
    assert buffer_lines(*followed(view("all_reduce-ring", ranks)))[0] == f"whose unit 0 is folded in{signs}:"
