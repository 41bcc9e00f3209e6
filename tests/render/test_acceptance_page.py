"""The page of an acceptance: a chart for each collective and shape, its marks and bands, and the files of pictures."""

import pytest
from acceptance_examples import GB, GIB, acceptance, judged, of_two_nodes, timed
from chart_outline import outline, point_lines, values
from golden_page import assert_golden
from page_elements import elements

from hpccoll.judge.held import Acceptance
from hpccoll.render.acceptance_page import (
    MARKS,
    acceptance_chart,
    acceptance_page,
    write_acceptance,
)
from hpccoll.render.acceptance_text import first_line

FOUR_NODES = [
    judged(rate * GB, 320 * GB, 365 * GB, in_place=place, nodes=4, ranks=32)
    for rate, place in ((340, False), (345, True))
]


def test_the_page_of_two_shapes():
    found = acceptance(of_two_nodes() + FOUR_NODES)
    charts = [acceptance_chart([part], "two nodes") for part in found.parts]
    lines = [*elements(acceptance_page(found)).outline()]
    lines += [line for chart in charts for line in (*outline(chart), *point_lines(chart))]
    assert_golden("acceptance_page", lines)


def test_the_first_line_is_on_top_and_every_shape_has_a_chart():
    found = acceptance(of_two_nodes() + FOUR_NODES)
    page = elements(acceptance_page(found))
    assert page.one(class_="answers").words == first_line(found).replace("\N{NO-BREAK SPACE}", " ")
    assert len(page.all("figure")) == len(found.parts) == 2


def test_a_mark_has_the_shape_and_the_colour_of_its_verdict():
    marks = [
        each
        for each in values(acceptance_chart([acceptance()], "a"))
        if each["series"] == "measured"
    ]
    by_verdict = {each["verdict"]: each["fill"] for each in marks}
    assert by_verdict == {
        "pass": MARKS[Acceptance.PASS].fill,
        "fail": MARKS[Acceptance.FAIL].fill,
        "cannot tell": MARKS[Acceptance.CANNOT_TELL].fill,
    }
    assert (
        len({mark.shape for mark in MARKS.values()})
        == len({mark.fill for mark in MARKS.values()})
        == 3
    )


def test_what_is_expected_of_both_placements_is_drawn_once():
    rows = [judged(450 * GB, 445 * GB, 459 * GB, in_place=place) for place in (False, True)]
    (band,) = (each for each in values(acceptance_chart([acceptance(rows)], "a")) if "low" in each)
    assert (band["low"], band["high"], band["bytes"]) == (445 * GB, 459 * GB, GIB)


def test_expectations_of_several_origins_are_series_of_their_own():
    shown = acceptance([timed(1.0, 0.9, 1.1), timed(1.0, 0.9, 1.1, 8)])
    names = {each["series"] for each in values(acceptance_chart([shown], "a"))}
    assert names == {"measured", "expected: reference"}


@pytest.mark.parametrize(
    "rows", [FOUR_NODES[:1], [timed(1.0, 0.9, 1.1)], [judged(3 * GB, reason="nothing is known")]]
)
def test_one_row_is_enough_for_a_page(rows):
    assert len(elements(acceptance_page(acceptance(rows))).all("figure")) == 1


def test_text_of_results_is_escaped():
    found = acceptance([judged(3 * GB, reason="</title><script>")])
    assert "</title><script>" not in acceptance_page(found)


def test_a_picture_has_the_quantity_of_the_parts_that_fail_and_no_other(tmp_path):
    out = tmp_path / "accept.svg"
    write_acceptance(acceptance([timed(1.0, 0.9, 1.1), *of_two_nodes()]), out)
    assert ("busbw (GB/s)" in out.read_text(), "time per operation" in out.read_text()) == (
        True,
        False,
    )


@pytest.mark.parametrize("suffix", [".html", ".svg", ".png"])
def test_an_acceptance_is_written_in_the_format_of_the_suffix(tmp_path, suffix):
    out = tmp_path / f"accept{suffix}"
    write_acceptance(acceptance(of_two_nodes() + FOUR_NODES), out)
    begins = {".html": b"<!DOCTYPE html>", ".svg": b"<svg", ".png": b"\x89PNG"}[suffix]
    assert out.read_bytes().startswith(begins)
