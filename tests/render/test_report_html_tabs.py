"""A page of several collectives: an overview, and a tab for each."""

import re
from dataclasses import replace

import pytest
import raw_examples

from hpccoll.analysis.answers import Answers
from hpccoll.analysis.chart_groups import chart_groups
from hpccoll.analysis.recommendations import recommend
from hpccoll.analysis.series_comparisons import speedups
from hpccoll.cases.case import Effort
from hpccoll.render import report_writer
from hpccoll.render.charts import FIGURES, OVERVIEW_FIGURES, overview_group
from hpccoll.render.definitions import describe_collective
from hpccoll.render.report_writer import build_report
from hpccoll.store.load_results import read_results
from hpccoll.store.rows import Gap

BY_NAME = {figure.name: figure for figure in FIGURES}


@pytest.fixture(scope="module")
def several(make_row, of_rows):
    """Three collectives, of which one has a gap and one has neither size nor bandwidth."""
    rows = [
        make_row(name, ranks, nbytes, seconds=seconds * nbytes * 1e-8)
        for name, seconds in (("ring", 1), ("native", 2))
        for ranks in (2, 4)
        for nbytes in (8, 1024)
    ]
    rows += [
        make_row("bruck", collective="all_gather", op=None),
        make_row("bad", collective="all_gather", op=None, status="wrong", wrong=1),
    ]
    none = {"collective": "barrier", "algbw_Bps": None, "busbw_Bps": None}
    rows += [
        make_row(name, p, 8, seconds=s, **none)
        for name, s in (("dissemination", 1e-5), ("native", 2e-5))
        for p in (2, 4)
    ]
    missing = (Gap(case="all_gather.ring.mpi.cpu.float32.8B.out", job="local", status="failed", reason="it stopped"),)
    return of_rows(*rows, missing=missing)


@pytest.fixture
def text(tmp_path, monkeypatch, several, page_of_several):
    """The page of some results; pictures are not drawn."""
    monkeypatch.setattr(report_writer, "_save_chart", lambda _chart, _out: None)

    def text(results):
        if results is several:
            return page_of_several
        return build_report(results, tmp_path, "A sweep").read_text(encoding="utf-8")

    return text


@pytest.fixture(scope="module")
def page_of_several(several, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report_writer, "_save_chart", lambda _chart, _out: None)
        return build_report(several, tmp_path_factory.mktemp("several"), "A sweep").read_text(encoding="utf-8")


def test_each_collective_is_a_tab_after_the_overview_in_the_order_of_their_table(text, several):
    page = text(several)
    tabs = ["overview", "all_reduce", "all_gather", "barrier"]
    assert re.findall(r'<section id="(\w+)" class=tab>', page) == tabs
    picks = re.search(r'<span class="picks">(.*?)</span>', page)[1]
    assert re.findall(r'href="#(\w+)"', picks) == tabs


def test_a_tab_has_its_number_of_missing_cases_and_its_own_rows(text, several):
    sections = re.split(r"<section ", text(several))
    assert [section.count('1 case missing: see <a href="#overview">') for section in sections] == [0, 0, 0, 1, 0]
    assert [section.count('class="sortable"') for section in sections] == [0, 0, 1, 1, 1]
    assert "collective all_reduce" in sections[2]


def sentences(page):
    """Return each sentence of the first screen, and the part of the page that it links to."""
    items = re.findall(r"<li>(.*?)</li>", re.search(r'<ul class="sentences">(.*?)</ul>', page)[1])
    return {re.sub(r"<.*?>", "", item): re.findall(r'href="#(\w+)"', item) for item in items}


def test_the_overview_has_a_sentence_for_each_collective_that_links_to_it(text, several):
    found = sentences(text(several))
    assert [sentence.split()[0] for sentence in found] == ["all_reduce", "all_gather", "barrier"]
    assert list(found.values()) == [["all_reduce"], ["all_gather"], ["barrier"]]


def test_a_collective_without_usable_rows_has_a_sentence_and_a_tab(text, make_row, of_rows):
    rows = make_row(), make_row(collective="all_gather", op=None, status="wrong", wrong=1)
    page = text(of_rows(*rows))
    assert sentences(page)["all_gather: no result is complete and correct."] == ["all_gather"]
    assert '<section id="all_gather" class=tab>' in page


def test_a_collective_that_was_not_measured_has_a_sentence_without_a_link(text, make_row, of_rows):
    rows = make_row(), make_row(collective="all_gather", op=None)
    missing = (Gap(case="scatter.direct.mpi.cpu.float32.8B.out", job="local", status="not run", reason="late"),)
    page = text(of_rows(*rows, missing=missing))
    assert sentences(page)["scatter: nothing was measured."] == []
    assert "#scatter" not in page


def test_a_tab_begins_with_its_table_of_choices(text, several):
    for section in re.split(r"<section ", text(several))[2:]:
        before = section.partition('<p class="about">')[0]
        assert '<table class="answer">' in before


def test_an_emulation_is_labelled_as_software(text, make_row, of_rows):
    rows = [
        make_row("sharp_emulated", ranks=4, seconds=1e-6, aggregators=1),
        make_row("native", ranks=4, aggregators=1),
    ]
    page = text(of_rows(*rows, make_row(collective="all_gather", op=None)))
    assert "sharp_emulated: software, switches played by ranks, with 1 aggregator" in page
    assert not re.search(r"\bsharp\b", page.partition("<script")[0], re.IGNORECASE)


@pytest.fixture
def overview():
    """The specification of the overview of some results; None without one."""

    def make(results):
        recommendations = recommend(results)
        group = overview_group(chart_groups(results, recommendations), Answers(recommendations))
        return OVERVIEW_FIGURES[0].specification(group)

    return make


def cells_of(chart):
    (dataset,) = chart["datasets"].values()
    return dataset


def test_the_overview_has_a_panel_for_each_collective_with_native_and_sizes(overview, several, make_row, valid):
    more = [
        make_row(name, nbytes=n, collective="broadcast", op=None, seconds=s)
        for name, s in (("chain", 1e-5), ("native", 3e-5))
        for n in (8, 64)
    ]
    chart = valid(overview(replace(several, rows=(*several.rows, *more))))
    assert chart["facet"]["sort"] == ["all_reduce", "broadcast"]
    assert {(cell["panel"], cell["series"], cell["speedup"]) for cell in cells_of(chart)} == {
        ("all_reduce", "ring", "2.00"), ("broadcast", "chain", "3.00"),
    }  # fmt: skip


def test_the_overview_shows_the_foremost_setting_in_one_placement(overview, several):
    assert {(cell["ranks"], cell["place"]) for cell in cells_of(overview(several))} == {(2, "out of place")}


def test_the_overview_has_one_line_for_each_series_of_a_panel(overview, several, make_row):
    of_other_types = [
        make_row(name, nbytes=nbytes, dtype="int32", seconds=1e-8 * nbytes)
        for name in ("ring", "native")
        for nbytes in (8, 1024)
    ]
    cells = cells_of(overview(replace(several, rows=(*several.rows, *of_other_types))))
    points = [(cell["panel"], cell["series"], cell["bytes"]) for cell in cells]
    assert len(points) == len(set(points))


def test_the_overview_shows_one_executor(overview, several, make_row):
    by_python = [make_row(name, executor="python", seconds=1e-5) for name in ("ring", "native")]
    compiled = tuple(replace(row, executor="compiled") for row in several.rows)
    assert {cell["series"] for cell in cells_of(overview(replace(several, rows=(*compiled, *by_python))))} == {"ring"}


def test_without_native_there_is_no_overview(overview, make_row, of_rows, text):
    results = of_rows(make_row(), make_row(collective="all_gather", op=None))
    assert overview(results) is None
    assert "overview-overview" not in text(results)


def test_one_collective_has_no_tabs(text, results):
    page = text(results)
    assert "class=tab" not in page
    assert 'href="#overview"' not in page
    assert '<h2 id="rows">' in page


def test_the_hash_picks_a_tab_before_anything_is_drawn(text, several):
    page = text(several)
    chooses, vega, draws = (
        page.index('addEventListener("hashchange", choose)'),
        page.index("vegaEmbed"),
        page.rindex("await seen()"),
    )
    assert chooses < vega < draws
    script = page[page.rindex("<script>", 0, chooses) : chooses]
    assert "location.hash" in script
    assert 'closest(".tab")' in script
    assert 'setAttribute("aria-current", "page")' in script


def test_without_a_script_and_on_paper_all_tabs_are_there(text, several):
    style = re.search(r"<style>(.*?)</style>", text(several), re.DOTALL)[1]
    assert re.search(r"@media screen \{\s*\.tabbed \.tab:not\(\.shown\) \{ display: none; \}", style)
    assert len(re.findall(r"\.tab\b[^{}]*\{[^}]*display: none", style)) == 1
    assert '<html lang="en">' in text(several)  # a script adds tabbed


def test_hidden_charts_are_drawn_after_visible_ones(text, several):
    page = text(several)
    assert 'addEventListener("tab", seen)' in page
    assert '!chart.closest(".tab:not(.shown)")' in page
    assert page.rindex("await seen();") < page.rindex("await rest();")


def test_a_root_that_is_always_rank_0_is_described_once(text, make_row, of_rows):
    rows = [make_row(collective="broadcast", op=None, nbytes=n) for n in (8, 64)]
    assert describe_collective("broadcast", chart_groups(of_rows(*rows))).count("The root is rank 0.") == 1
    assert "root 0" not in text(of_rows(*rows))
    other = chart_groups(of_rows(*rows, make_row(collective="broadcast", root=1)))
    assert "The root is rank 0." not in describe_collective("broadcast", other)


def test_a_barrier_has_a_time_over_ranks_and_nothing_over_sizes(several):
    groups = chart_groups(several, recommend(several))
    (group,) = (group for group in groups if group.collective == "barrier")
    charts = {name for name, figure in BY_NAME.items() if figure.specification(group)}
    assert charts == {"choice", "scaling"}
    assert BY_NAME["choice"].heading(group)[0] == "barrier: the choice by ranks, and its lead over the next best"
    assert "8 B" not in str(BY_NAME["scaling"].specification(group))
    cells = cells_of(BY_NAME["choice"].specification(group))
    assert {(cell["at"], cell["series"], cell["lead"]) for cell in cells} == {
        (2, "dissemination", "2.00x"), (4, "dissemination", "2.00x"),
    }  # fmt: skip


def test_a_series_with_one_placement_is_in_the_panels_of_both(make_row, of_rows):
    shape = {"collective": "broadcast", "op": None}
    rows = make_row(**shape), make_row(**shape, in_place=True), make_row("native", **shape, in_place=True)
    (group,) = chart_groups(of_rows(*rows))
    (data,) = BY_NAME["time"].specification(group)["datasets"].values()
    native = [d["panel"] for d in data if d["series"] == "native"]
    assert native == ["2 ranks, out of place", "2 ranks, in place"]
    (only,) = chart_groups(of_rows(make_row("pairwise", collective="all_to_all_v", op=None)))
    assert BY_NAME["time"].specification(only)["facet"]["sort"] == ["2 ranks"]


def test_many_lines_have_a_legend_that_fits_and_a_second_cue(make_row, of_rows):
    rows = [make_row(f"algorithm_number_{i}", nbytes=n) for i in range(11) for n in (8, 64)]
    (group,) = chart_groups(of_rows(*rows))
    specification = BY_NAME["time"].specification(group)
    label = specification["usermeta"]["label"]
    assert specification["config"]["legend"]["columns"] * label <= 780
    (shapes,) = [
        layer["encoding"]["shape"]["scale"]["range"]
        for layer in specification["spec"]["layer"]
        if "shape" in layer["encoding"]
    ]
    assert len(set(shapes)) == 8


def test_a_page_of_a_barrier_alone_names_no_size(text, several):
    rows = tuple(row for row in several.rows if row.collective == "barrier")
    page = text(replace(several, rows=rows, missing=()))
    assert "<h1>barrier on 2 and 4 ranks</h1>" in page
    assert not re.search(r"\b8 B\b", page.partition("<script")[0])


@pytest.mark.mpi
def test_the_speedups_of_the_overview_are_those_of_each_collective_alone(mpiexec, tmp_path):
    """One launch measures both: launches are never compared, which would hide a comparison across collectives."""
    cases = [
        raw_examples.case(nbytes, collective=collective, algorithm=algorithm, in_place=in_place)
        for collective in ("all_reduce", "reduce_scatter")
        for algorithm in ("ring", "native")
        for in_place in (False, True)
        for nbytes in (1024, 65536)
    ]
    effort = Effort(warmup=1, min_iterations=6, max_iterations=6)
    (tmp_path / "job.json").write_text(raw_examples.job(*cases, effort=effort).to_json())
    ran = mpiexec(2, "-m", "hpccoll", "run", "--job", tmp_path / "job.json", "--out", tmp_path / "F.h5")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    results = read_results([tmp_path / "F.h5"])
    recommendations = recommend(results)
    groups = chart_groups(results, recommendations)
    overview = {
        each.point.row.case_id: each.value for each in speedups(overview_group(groups, Answers(recommendations)).points)
    }
    alone = {each.point.row.case_id: each.value for group in groups for each in speedups(group.points)}
    assert {row.collective for row in results.rows if row.case_id in overview} == {"all_reduce", "reduce_scatter"}
    assert overview == {case: alone[case] for case in overview}
