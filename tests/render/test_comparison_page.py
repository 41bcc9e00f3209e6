"""The page of a comparison: the chart of shifts, a table for each verdict, what else changed."""

from dataclasses import replace

import pytest
from chart_outline import layers, values
from compared_runs import SIZES, results
from row_examples import make_row

from hpccoll.analysis.shift import Shift
from hpccoll.common.errors import UnusableError
from hpccoll.common.units import format_factor
from hpccoll.judge.held import HeldVerdict
from hpccoll.judge.run_comparison import compare
from hpccoll.render.comparison_page import comparison_chart, comparison_page, write_comparison
from hpccoll.render.comparison_text import shift_interval_label


@pytest.fixture(scope="module")
def compared():
    old = results(noise=0.001)
    new = results(
        {1024: 1.2, 2048: None}, seed=2, noise=0.001, provenance={"kernel": "Linux <new>"}
    )
    return compare(old, new)


def test_the_chart_has_the_shift_and_the_verdict_of_every_case_with_a_time_in_both_runs(compared):
    found = {each["size"]: each for each in values(comparison_chart(compared, "a and b"))}
    shifted = found.pop("1 KiB")
    assert (shifted["verdict"], shifted["low"] < 1.2 < shifted["high"]) == (
        HeldVerdict.SLOWER,
        True,
    )
    assert [each["verdict"] for each in found.values()] == [HeldVerdict.AS_EXPECTED] * (
        len(SIZES) - 2
    )


def test_text_of_results_is_escaped(compared):
    page = comparison_page(compared, "</title><script>")
    assert "</title><script>" not in page
    assert "Linux <new>" not in page


def test_without_a_shift_there_is_no_chart_but_a_page(tmp_path):
    old = results(rounds=1)
    compared = compare(old, results(rounds=1, seed=2))
    assert comparison_chart(compared, "a and b") is None
    page = comparison_page(compared, "a and b")
    assert (page.count("<figure "), "8 too noisy to tell" in page) == (0, True)
    with pytest.raises(UnusableError, match="no chart"):
        write_comparison(compared, tmp_path / "a.png", "a and b")


@pytest.mark.parametrize("suffix", [".html", ".svg", ".png"])
def test_it_is_written_in_the_format_of_the_suffix(compared, tmp_path, suffix):
    out = tmp_path / f"changes{suffix}"
    write_comparison(compared, out, "a and b")
    begins = {".html": b"<!DOCTYPE html>", ".svg": b"<svg", ".png": b"\x89PNG"}[suffix]
    assert out.read_bytes().startswith(begins)


@pytest.mark.parametrize("slower", [1.3, 30, 20_000])
def test_an_axis_ends_where_its_marks_do_and_has_labels_up_to_there(slower):
    compared = compare(results(), results({1024: slower}, seed=2))
    y = layers(comparison_chart(compared, "a and b"))[2]["encoding"]["y"]
    factors, (least, most) = compared.factors(*HeldVerdict), y["scale"]["domain"]
    assert (factors[0] / 1.5 < least < factors[0], factors[-1] < most < 1.5 * factors[-1]) == (
        True,
        True,
    )
    assert slower / 10 < y["axis"]["values"][-1] < most


def test_a_picture_has_as_many_panels_as_fit_and_the_page_a_heading_and_a_chart_for_each():
    row = make_row(nbytes=1024, seconds=1e-6, round_medians_s=(1e-6, 1.01e-6, 1e-6))
    run = replace(results(), rows=tuple(replace(row, ranks=ranks) for ranks in range(2, 14)))
    compared = compare(run, run)
    panels = {each["panel"] for each in values(comparison_chart(compared, "a and b"))}
    page = comparison_page(compared, "a and b")
    assert (len(panels), page.count('<h2 id="call-'), page.count("<figure ")) == (8, 12, 12)


@pytest.mark.parametrize(
    ("shift", "words"),
    [
        ((1.121, 1.083, 1.162), ("1.12x", "1.08x to 1.16x")),
        ((0.25, 0.0004, 0.499), ("0.25x", "0.0004x to 0.50x")),
        ((9.996, 1.9, 8425), ("10x", "1.90x to 8,425x")),
    ],
)
def test_every_change_is_the_new_time_over_the_old_one(shift, words):
    shift = Shift(*shift, p_value=0.5, deviation=0.1, freedom=4)
    assert (format_factor(shift.factor), shift_interval_label(shift)) == words
