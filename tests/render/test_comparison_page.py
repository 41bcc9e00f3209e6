"""The page of a comparison: the chart of shifts, a table for each verdict, what else changed."""

from dataclasses import replace

import pytest
from chart_outline import layers, values
from compared_runs import SIZES, results
from row_examples import make_row

from hpccoll.analysis.run_comparison import REGRESSION, UNCHANGED, compare
from hpccoll.common.errors import UnusableError
from hpccoll.render.comparison_page import comparison_chart, comparison_page, write_comparison


@pytest.fixture(scope="module")
def compared():
    old = results(noise=0.001)
    new = results({1024: 1.2, 2048: None}, seed=2, noise=0.001, provenance={"kernel": "Linux <new>"})
    return compare(old, new)


def test_the_chart_has_the_shift_and_the_verdict_of_every_case_with_a_time_in_both_runs(compared):
    found = {each["size"]: each for each in values(comparison_chart(compared, "a and b"))}
    shifted = found.pop("1 KiB")
    assert (shifted["verdict"], shifted["low"] < 1.2 < shifted["high"]) == (REGRESSION, True)
    assert [each["verdict"] for each in found.values()] == [UNCHANGED] * (len(SIZES) - 2)


def test_text_of_results_is_escaped(compared):
    page = comparison_page(compared, "</title><script>", comparison_chart(compared, "</title><script>"))
    assert "</title><script>" not in page
    assert "Linux <new>" not in page


def test_without_a_shift_there_is_no_chart_but_a_page(tmp_path):
    old = results(rounds=1)
    compared = compare(old, results(rounds=1, seed=2))
    assert comparison_chart(compared, "a and b") is None
    assert "undecided" in comparison_page(compared, "a and b", None)
    with pytest.raises(UnusableError, match="no chart"):
        write_comparison(compared, tmp_path / "a.png", "a and b")


@pytest.mark.parametrize("suffix", [".html", ".svg", ".png"])
def test_it_is_written_in_the_format_of_the_suffix(compared, tmp_path, suffix):
    out = tmp_path / f"changes{suffix}"
    write_comparison(compared, out, "a and b")
    begins = {".html": b"<!DOCTYPE html>", ".svg": b"<svg", ".png": b"\x89PNG"}[suffix]
    assert out.read_bytes().startswith(begins)


@pytest.mark.parametrize("slower", [1.3, 30, 20_000])
def test_an_axis_has_labels_up_to_the_largest_change(slower):
    chart = comparison_chart(compare(results(), results({1024: slower}, seed=2)), "a and b")
    labelled = layers(chart)[2]["encoding"]["y"]["axis"]["values"]
    assert (slower / 10 < labelled[-1], labelled[0] < 10 / slower) == (True, True)


def test_more_panels_than_fit_are_left_to_the_tables():
    row = make_row(nbytes=1024, seconds=1e-6, round_medians_s=(1e-6, 1.01e-6, 1e-6))
    run = replace(results(), rows=tuple(replace(row, ranks=ranks) for ranks in range(2, 14)))
    compared = compare(run, run)
    panels = {each["panel"] for each in values(comparison_chart(compared, "a and b"))}
    assert (len(panels), len(compared.cases)) == (8, 12)
