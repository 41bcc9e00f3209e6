"""The text of an acceptance: the first line, the tables, and what is grouped."""

import re

import pytest
from acceptance_examples import GB, GIB, MIB, acceptance, judged, of_two_nodes, timed
from golden_page import assert_golden

from hpccoll.judge.acceptance import Judged
from hpccoll.judge.held import MODEL, PUBLISHED, RATE, Expected, HeldVerdict
from hpccoll.render.acceptance_text import ORIGINS, acceptance_lines, first_line, verdict_table


def test_the_text_of_an_output_that_fails_one_that_passes_and_times_of_ours():
    times = [
        timed(1e-3, 0.9e-3, 1.1e-3, 8),
        timed(1.3e-3, 0.9e-3, 1.1e-3, verdict=HeldVerdict.SLOWER),
    ]
    shown = acceptance(), acceptance(of_two_nodes(450 * GB), required=8), acceptance(times)
    assert_golden("acceptance", (line for each in shown for line in (*acceptance_lines(each), "")))


def test_the_first_line_has_all_that_a_ticket_needs():
    line = first_line(acceptance())
    for words in (
        "fail",
        "all_reduce 1 GiB",
        "2 nodes x 8 GPUs",
        "180 GB/s",
        "445 to 459",
        "8xh100-400g",
        "4 sources",
    ):
        assert words in line
    assert line.endswith("6 rows: 1 pass, 2 fail, 3 cannot tell")


def test_the_first_line_says_how_many_rows_are_required_where_fewer_are_judged():
    assert "3 rows judged, 8 required" in first_line(acceptance(of_two_nodes(450 * GB), required=8))


@pytest.mark.parametrize("origin", ORIGINS)
def test_the_first_line_says_where_the_range_comes_from(origin):
    expected = Expected(340 * GB, 350 * GB, 370 * GB, origin, ("a",))
    row = judged(360 * GB).row
    passed = Judged(
        row=row,
        quantity=RATE,
        measured=360 * GB,
        expected=expected,
        verdict=HeldVerdict.AS_EXPECTED,
    )
    line = first_line(acceptance([passed]))
    assert ORIGINS[origin].sentence.format(against="8xh100-400g") in line
    assert ("NCCL's own model" in line, "normal" in line) == (origin == MODEL, origin == PUBLISHED)


@pytest.mark.parametrize(
    ("rate", "said"),
    [
        (430, "430 GB/s busbw, 3.4 % below the 445 to 459 GB/s that"),
        (470, "2.4 % above the 445 to 459 GB/s that"),
        (450, "450 GB/s busbw; 445 to 459 GB/s are"),
    ],
)
def test_a_row_that_passes_outside_its_range_says_by_how_much(rate, said):
    assert said in first_line(acceptance([judged(rate * GB, 445 * GB, 459 * GB)]))


def test_an_operator_is_named_once_with_all_its_repositories():
    of_sizes = ("Nebius: a/b", "c/d"), ("Nebius: a/b and e/f", "c/d"), ("Nebius: e/f",)
    rows = [
        judged(450 * GB, 445 * GB, 459 * GB, MIB << k, sources=each)
        for k, each in enumerate(of_sizes)
    ]
    *_, last = acceptance_lines(acceptance(rows))
    assert last.endswith(": c/d; Nebius: a/b and e/f")


def test_the_table_has_the_rows_with_an_expectation_and_columns_only_for_what_differs():
    head, cells = verdict_table(acceptance())
    assert head == ["size", "measured", "low", "expected", "high", "from", "verdict"]
    assert [row[0] for row in cells] == ["64 MiB", "256 MiB", "1 GiB", "8 GiB"]
    several = [
        judged(450 * GB, 445 * GB, 459 * GB, in_place=in_place, dtype=dtype)
        for in_place in (False, True)
        for dtype in ("float32", "float16")
    ]
    head, cells = verdict_table(acceptance(several))
    assert head[:3] == ["size", "type", "buffers"]
    assert {tuple(row[1:3]) for row in cells} == {
        (dtype, place) for dtype in ("float32", "float16") for place in ("in place", "out of place")
    }


def test_rows_of_several_files_name_theirs():
    rows = [judged(450 * GB, 445 * GB, 459 * GB, run_id=run) for run in ("a", "b")]
    head, cells = verdict_table(acceptance(rows, files={"a": "one.txt", "b": "two.txt"}))
    assert ("file" in head, [row[1] for row in cells]) == (True, ["one.txt", "two.txt"])


def test_a_wrong_result_is_in_the_table_and_in_the_first_line_with_its_reason():
    found = acceptance([judged(3 * GB, verdict=HeldVerdict.WRONG, reason="2 elements are wrong")])
    head, ((*_, verdict, why),) = verdict_table(found)
    assert (head[-1], verdict, why) == ("why", "fail", "2 elements are wrong")
    assert "2 elements are wrong" in first_line(found)


def test_the_first_line_names_the_largest_row_that_cannot_be_told_with_its_reason():
    rows = [
        judged(5 * GB, 4 * GB, 6 * GB, MIB),
        judged(885 * GB, nbytes=GIB, reason="above what is expected"),
    ]
    line = first_line(acceptance(rows))
    assert line.startswith(
        "cannot tell: all_reduce 1 GiB on 2 nodes x 8 GPUs reaches 885 GB/s busbw: above what"
    )


def test_the_first_line_says_which_file_lacks_rows_and_how_many_cases_are_missing():
    rows, files = (
        [judged(450 * GB, 445 * GB, 459 * GB, run_id="a")],
        {"a": "one.txt", "b": "two.txt"},
    )
    line = first_line(acceptance(rows, files=files, required=1, missing=42))
    assert "0 rows of two.txt judged, 1 required" in line
    assert "42 cases of the reference missing" in line


def reasons_in(rows):
    lines = [*acceptance_lines(acceptance(rows))]
    return [line.strip() for line in lines if re.match(r"  \d+ rows? \(", line)]


def test_reasons_that_differ_in_figures_only_are_one_line_with_their_ranges():
    published = {
        MIB: "1 source published 153 GB/s",
        GIB: "2 sources published 340 GB/s to 350 GB/s",
    }
    rows = [
        judged(GB, nbytes=size, in_place=in_place, reason=f"too few: on 2 nodes, {words}")
        for size, words in published.items()
        for in_place in (False, True)
    ]
    assert reasons_in(rows) == [
        "4 rows (all_reduce 1 MiB to 1 GiB): too few: on 2 nodes, 1 to 2 sources published 153 to 350 GB/s"
    ]


def test_reasons_of_several_places_and_sources_are_several_lines():
    reasons = "on 2 nodes: 1 GB/s", "on 4 nodes: 1 GB/s", "of a/b: 1 GB/s"
    rows = [judged(GB, nbytes=GIB, reason=reason) for reason in reasons]
    assert len(reasons_in(rows)) == len(reasons)


def test_a_line_of_reasons_names_its_sizes_and_its_placement_if_others_were_measured():
    rows = [judged(GB, nbytes=size, reason="too few") for size in (8, MIB, GIB)]
    rows[1] = judged(GB, nbytes=MIB, reason="too noisy")
    rows.append(judged(GB, nbytes=MIB, in_place=True, reason="unknown"))
    assert reasons_in(rows) == [
        "2 rows (all_reduce 8 B and 1 GiB): too few",
        "1 row (all_reduce 1 MiB out of place): too noisy",
        "1 row (all_reduce 1 MiB in place): unknown",
    ]


def test_rows_that_cannot_be_told_for_one_reason_have_one_line_and_none_in_the_table():
    rows = [judged(1 * GB, nbytes=nbytes, reason="nothing is known") for nbytes in (8, MIB, GIB)]
    lines = [*acceptance_lines(acceptance(rows))]
    assert [line for line in lines if "nothing is known" in line and line.startswith(" ")] == [
        "  3 rows (all_reduce 8 B to 1 GiB): nothing is known"
    ]
    assert not any("measured" in line for line in lines)
