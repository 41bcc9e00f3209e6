"""Who holds what, against the tables that the algorithms' pages have, and against the postconditions of collectives."""

import pytest
from drawing_examples import NAMES, view, views

from hpccoll.common.errors import BadInputError
from hpccoll.render.pictures.buffer_state import BufferState, buffer_state, spans
from hpccoll.render.pictures.schedule_text import WIDTH, table_lines
from hpccoll.render.pictures.schedule_view import view_of
from hpccoll.schedule.walk import trace_schedule


def followed(name, ranks, unit=None):
    one = view(name, ranks)
    return buffer_state(one, trace_schedule(one.slices[0]), unit)


def rows(name, ranks, unit=None):
    state = followed(name, ranks, unit)
    return [[state.cell_text(cell, 8) for cell in row] for row in state.rows]


def test_the_sum_travels_round_a_ring():
    assert rows("all_reduce-ring", 4, unit=3) == [
        ["a", "b", "c", "d"],
        ["a", "ab", "c", "d"],
        ["a", "ab", "abc", "d"],
        ["a", "ab", "abc", "abcd"],
        ["abcd", "ab", "abc", "abcd"],
        ["abcd", "abcd", "abc", "abcd"],
        ["abcd", "abcd", "abcd", "abcd"],
    ]


def test_recursive_doubling_doubles_what_all_have_folded():
    assert rows("all_reduce-recursive_doubling", 4)[1:] == [["ab", "ab", "cd", "cd"], ["abcd"] * 4]


def test_blocks_gather_at_all_ranks():
    assert rows("all_gather-bruck", 3) == [["a", "b", "c"], ["ab", "bc", "ac"], ["abc"] * 3]


def test_a_broadcast_only_shows_what_the_root_has():
    assert rows("broadcast-binomial", 4) == [["a", "", "", ""], ["a", "", "a", ""], ["a"] * 4]


def test_of_one_origin_the_units_are_shown():
    assert rows("scatter-binomial", 3) == [["0,1,2", "", ""], ["0,1,2", "", "2"], ["0,1,2", "1", "2"]]
    assert rows("line", 2)[2] == ["*", "0,1"]


def test_of_one_origin_whose_units_go_together_the_origin_is_shown():
    one = view_of("binomial", "broadcast", 4, root=2)
    state = buffer_state(one, trace_schedule(one.slices[0]))
    assert [[state.cell_text(cell, 8) for cell in row] for row in state.rows] == [
        ["", "", "c", ""],
        ["c", "", "c", ""],
        ["c", "c", "c", "c"],
    ]


def test_where_src_is_read_dst_begins_empty():
    assert rows("send_recv-ping_pong", 3) == [["", "", ""], ["", "a", ""], ["b", "a", ""]]


def test_unequal_blocks_go_the_way_of_equal_ones():
    assert rows("all_to_all_v-pairwise", 3) == rows("all_to_all-pairwise", 3)


def test_of_an_all_to_all_the_blocks_for_one_rank_are_shown():
    assert rows("all_to_all-pairwise", 4, unit=2)[-1] == ["", "", "abcd", ""]
    assert rows("all_to_all-pairwise", 4) == rows("all_to_all-pairwise", 4, unit=0)


@pytest.mark.parametrize("name", NAMES)
def test_every_rank_ends_with_the_postcondition(name):
    for ranks in (1, 2, 5, 8):
        for one in views(name, ranks):
            if name != "all_reduce-null":
                state = buffer_state(one, trace_schedule(one.slices[-1]))
                for me, end in enumerate(state.rows[-1]):
                    assert end >= state.expected[me]
                    assert end <= state.all_symbols


def test_a_unit_that_is_not_there_is_bad_input():
    for unit in (-1, 4):
        with pytest.raises(BadInputError, match="from 0 to 3"):
            followed("all_reduce-ring", 4, unit)


@pytest.mark.parametrize(
    ("letters", "width", "text"),
    [
        ("", 8, ""), ("acd", 8, "acd"), ("abcdefgh", 8, "abcdefgh"), ("abcdefghi", 9, "a-i"), ("abcghi", 6, "abcghi"),
        ("abcghi", 5, "#6"), ("abcdefgi", 6, "a-gi"), ("abcdefghij", 8, "*"), ("abcdefghij", 1, "*"), ("abc", 1, "+"),
    ],
)  # fmt: skip
def test_a_cell_is_shortened_to_its_width(letters, width, text):
    symbols = frozenset("abcdefghij".index(letter) for letter in letters)
    assert BufferState("", (), frozenset(range(10)), (), letters=True, unit=None).cell_text(symbols, width) == text


def test_beyond_the_letters_ranks_have_numbers():
    assert rows("all_reduce-recursive_doubling", 32)[1][0] == "0,1"
    assert rows("all_reduce-recursive_doubling", 32)[3][8:10] == ["8-15", "8-15"]


def test_spans_are_written_as_people_write_them():
    assert spans([0, 2, 3, 4, 7]) == "0, 2..4, 7"


@pytest.mark.parametrize("name", NAMES)
def test_a_table_fits_a_terminal(name):
    for ranks in (1, 4, 16):
        for one in views(name, ranks):
            trace = trace_schedule(one.slices[0])
            lines = table_lines(buffer_state(one, trace), trace)
            assert len(lines) == trace.rounds + 3
            assert max(map(len, lines)) <= WIDTH


def test_columns_of_a_table_never_touch():
    one = view("all_reduce-ring", 16)
    trace = trace_schedule(one.slices[0])
    _, head, *body = table_lines(buffer_state(one, trace), trace)
    starts = [head.index(f" {me}") + 1 for me in range(16)]
    assert all(line[start - 1] == " " for line in body for start in starts)


@pytest.mark.parametrize(
    ("name", "ranks", "title"),
    [
        ("all_reduce-ring", 4, "whose unit 0 is folded in:"),
        ("all_reduce-ring", 12, "whose unit 0 is folded in (* all):"),
        ("all_gather-bruck", 12, "whose block each rank has (* all):"),
        ("all_reduce-ring", 32, "whose unit 0 is folded in (* all, #3 three of them):"),
        ("broadcast-binomial", 8, "whose block each rank has:"),
    ],
)
def test_the_title_says_what_the_signs_of_the_cells_mean(name, ranks, title):
    one = view(name, ranks)
    trace = trace_schedule(one.slices[0])
    assert table_lines(buffer_state(one, trace), trace)[0] == title


def test_a_row_names_the_messages_that_bring_what_is_followed():
    one = view("all_reduce-recursive_doubling", 4)
    trace = trace_schedule(one.slices[0])
    assert [line[-16:].strip() for line in table_lines(buffer_state(one, trace), trace)[3:]] == [
        "0 <-> 1, 2 <-> 3",
        "0 <-> 2, 1 <-> 3",
    ]
