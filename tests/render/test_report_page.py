"""The page of a report: what is on it and in which order, for one collective and for several."""

from dataclasses import replace
from importlib.metadata import version

import pytest
import vl_convert
from chart_outline import values
from golden_page import assert_golden
from page_elements import elements

from hpccoll.analysis.chart_groups import chart_groups
from hpccoll.analysis.recommendations import recommend
from hpccoll.render import report_writer
from hpccoll.render.answers import Answers
from hpccoll.render.charts import FIGURES, OVERVIEW_FIGURES, overview_group
from hpccoll.render.colours import group_colours
from hpccoll.render.definitions import DEFINITIONS
from hpccoll.render.output_directory import input_names
from hpccoll.render.page_frame import VEGA_SNIPPET, vega_script
from hpccoll.render.report_writer import build_report
from hpccoll.store.rows import Gap, Results
from hpccoll.store.scheduler_log import ScheduledJob

EVIL = "</script><script>alert('x')</script> & \"quoted\" <b>"
BY_NAME = {figure.name: figure for figure in FIGURES}


@pytest.fixture(scope="module")
def make_page(tmp_path_factory):
    """The elements of the page of some results; pictures are not drawn."""

    def make(results, title="A sweep"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(report_writer, "_save_drawing", lambda _chart, _out: None)
            return elements(
                build_report(results, tmp_path_factory.mktemp("r"), title).read_text(
                    encoding="utf-8"
                )
            )

    return make


@pytest.fixture(scope="session")
def report(results, tmp_path_factory):
    """The folder of the report of the sweep."""
    return build_report(results, tmp_path_factory.mktemp("report"), "Quick sweep").parent


@pytest.fixture(scope="module")
def page(report):
    return elements((report / "index.html").read_text(encoding="utf-8"))


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
    missing = (
        Gap(
            case="all_gather.ring.mpi.cpu.float32.8B.out",
            job="local",
            status="failed",
            reason="it stopped",
        ),
    )
    return of_rows(*rows, missing=missing)


def test_every_chart_is_in_the_page_and_a_picture_file_and_nothing_else_is_loaded(report, page):
    absent = {"choice", "wire", "rails", "pairs-time", "pairs-busbw"}
    names = [f"all_reduce-{figure.name}" for figure in FIGURES if figure.name not in absent]
    beside_answers = "all_reduce-answer-busbw"
    drawn = {
        name for name in names if BY_NAME[name.removeprefix("all_reduce-")].over_ranks is False
    }
    drawn |= {f"{name}-oversubscribed" for name in names}
    drawn.add(beside_answers)
    files = {f"{name}.{ending}" for name in drawn for ending in ("svg", "png")}
    assert {path.name for path in (report / "charts").iterdir()} == files
    assert [figure.attributes["id"] for figure in page.all("figure")] == [beside_answers, *names]
    assert (report / "charts" / "all_reduce-time.png").read_bytes().startswith(b"\x89PNG")
    references = [each.attributes.get(name) for each in page.all() for name in ("src", "href")]
    assert all(ref.startswith("#") or (report / ref).is_file() for ref in filter(None, references))
    assert not page.all("link")
    assert (report / "index.html").stat().st_size < 1_500_000
    heads = {each.text: each for each in page.all("th")}
    assert heads["size"].one("abbr").attributes["title"] == DEFINITIONS["size"]
    assert len(page.all("tr", class_="ok")) == len(rows_of(page))
    # sorted by its number
    assert {each.text for each in page.all("td", **{"data-key": "4194304"})} == {"4 MiB"}
    scripts = ["".join(map(str, each.inside)) for each in page.all("script")]
    begins = ('addEventListener("hashchange", choose)', "window.vegaEmbed=", "await seen()")
    order = [next(i for i, script in enumerate(scripts) if text in script) for text in begins]
    assert order == sorted(order)  # the hash picks a tab before anything is drawn


def gaps(
    count, reason, job="mpi.n4x1", status="not run", name="scatter.direct.mpi.cpu.float32.8B.out"
):
    return [Gap(case=f"{name}{i}", job=job, status=status, reason=reason) for i in range(count)]


def test_what_a_reader_sees_of_a_page_is_the_golden_page(
    make_page, several, testbed_results, make_row, make_run, make_node_row
):
    late, ended = (
        "the job ended before it: TIMEOUT",
        {"hosts": "n[1-4]", "limit": "00:01:00", "log": "/logs/17.log"},
    )
    full = replace(
        several,
        runs=(make_run(status="partial"),),
        rows=(*several.rows, make_row(collective="reduce", op=None, status="wrong", wrong=1)),
        missing=(
            *several.missing,
            *gaps(3, late),
            *gaps(1, late, "mpi.n2x1"),
            *gaps(1, "killed", status="failed"),
        ),
        skipped=tuple(gaps(2, "8 nodes: partition work has 4 nodes", status="skipped")),
        scheduled=(
            ScheduledJob(job="mpi.n4x1", id="17", state="TIMEOUT", **ended),
            ScheduledJob(
                job="mpi.n2x1", id="18", state="CANCELLED", reason="an earlier sweep left it"
            ),
        ),
    )
    auto = replace(make_node_row(nodes=8, run_id="run-8"), algorithm="auto")
    bed = make_page(replace(testbed_results, rows=(auto, *testbed_results.rows))).outline()
    assert_golden(
        "report_page",
        (*make_page(full).outline(), *(line for line in bed if line.startswith("tr: "))),
    )


def rows_of(page):
    """Return the rows of the tables of rows, cells by heading."""
    tables = page.all("table", class_="sortable")
    return [
        dict(zip([head.text for head in table.all("th")], cells, strict=True))
        for table in tables
        for cells in table.table()
    ]


NOTHING = dict.fromkeys(
    ("median_s", "p99_s", "ci_low_s", "ci_high_s", "algbw_Bps", "busbw_Bps", "wrong")
)


def test_a_page_is_built_without_any_result(make_page, make_row):
    gap = Gap(case="c", job="j", status="failed", reason=EVIL)
    failed = make_row(reason="the node went away", status="failed", **NOTHING)
    for rows, missing, words in (
        ((), (), "no usable"),
        ((), (gap,), "no usable"),
        ((failed,), (), failed.reason),
    ):
        page = make_page(Results(rows=rows, runs=(), planned=3, missing=missing))
        assert (page.all("figure"), words in page.text) == ([], True)


def test_text_of_results_is_escaped_and_printable(make_page, make_row, make_run, of_rows, tmp_path):
    plain = make_page(of_rows(make_row(), make_row("native", seconds=2e-5)), "T")
    rows = (
        make_row(EVIL, mapping=EVIL, executed=EVIL),
        make_row("native", seconds=2e-5, mapping=EVIL),
    )
    run = make_run(machine=EVIL, path=EVIL, provenance={EVIL: {"deep": [EVIL]}})
    skipped = (Gap(case=EVIL, job=EVIL, status=EVIL, reason=EVIL),)
    page = make_page(of_rows(*rows, runs=(run,), missing=skipped, skipped=skipped), EVIL)
    assert page.text.count(EVIL) >= 15
    assert [len(page.all(tag)) for tag in ("script", "b")] == [
        len(plain.all(tag)) for tag in ("script", "b")
    ]
    for name in ("\x1b]0;x\x07", "\udcff"):  # a picture is an XML file
        rows = [
            make_row(nbytes=n, variant=variant) for n in (1024, 4096) for variant in (name, "other")
        ]
        assert ascii(name)[1:-1] in build_report(of_rows(*rows), tmp_path, name).read_text()
        assert all(
            ascii(name)[1:-1] in picture.read_text() for picture in tmp_path.rglob("*-time.svg")
        )


@pytest.mark.parametrize("other", [{"dtype": "int32"}, {"executor": "python"}])
def test_the_overview_shows_the_foremost_setting_in_one_placement_by_one_executor(
    several, make_row, valid, other
):
    others = [
        make_row(name, nbytes=n, seconds=1e-8 * n, **other)
        for name in ("ring", "native")
        for n in (8, 1024)
    ]
    compiled = tuple(replace(row, executor="compiled") for row in several.rows)
    results = replace(several, rows=(*compiled, *others))
    recommendations = recommend(results)
    group = overview_group(chart_groups(results, recommendations), Answers(recommendations))
    cells = values(valid(OVERVIEW_FIGURES[0].specification(group)))
    assert len({(cell["panel"], cell["series"], cell["bytes"]) for cell in cells}) == len(cells)
    assert {(cell["series"], cell["ranks"], cell["place"]) for cell in cells} == {
        ("ring", 2, "out of place")
    }


def of_inputs(make_row, make_run, of_rows, tmp_path, names, sizes=((8, 64), (8, 64))):
    """Return results of several inputs, and their directories."""
    runs = [make_run(run_id=name, path=str(tmp_path / name / "raw" / "local.h5")) for name in names]
    rows = [
        make_row(algorithm, run_id=run.run_id, nbytes=n, seconds=seconds)
        for run, several in zip(runs, sizes, strict=True)
        for algorithm, seconds in (("ring", 1e-5), ("native", 2e-5))
        for n in several
    ]
    return of_rows(*rows, runs=runs), [tmp_path / name for name in names]


def test_inputs_with_the_same_cases_have_series_of_their_own(make_row, make_run, of_rows, tmp_path):
    results, paths = of_inputs(make_row, make_run, of_rows, tmp_path, ("old", "new"))
    assert input_names(results, paths) == {"old": "old", "new": "new"}
    assert input_names(results, [tmp_path]) == {}
    (group,) = chart_groups(results, recommend(results), input_names(results, paths))
    names = {"ring (old)", "ring (new)", "native (old)", "native (new)"}
    assert {point.series for point in group.points} == names
    assert len({group_colours(group.legend)[name] for name in names}) == len(names)
    page = elements(
        build_report(results, tmp_path / "report", "T", paths).read_text(encoding="utf-8")
    )
    assert {row["series"] for row in rows_of(page)} == names
    apart, paths = of_inputs(make_row, make_run, of_rows, tmp_path, ("old", "new"), ((8,), (64,)))
    assert input_names(apart, paths) == {}  # they share no case
    alike, paths = of_inputs(make_row, make_run, of_rows, tmp_path, ("a/quick", "b/quick"))
    assert list(input_names(alike, paths).values()) == list(map(str, paths))


def test_vega_is_bundled_once_if_there_is_a_cache_and_else_each_time(tmp_path, monkeypatch):
    requested, bundled = [], vl_convert.javascript_bundle(VEGA_SNIPPET)
    monkeypatch.setattr(
        vl_convert, "javascript_bundle", lambda snippet: requested.append(snippet) or bundled
    )
    for place, times in ((str(tmp_path), 1), ("/proc/nowhere", 2), ("/dev/null", 2)):
        monkeypatch.setenv("XDG_CACHE_HOME", place)
        requested.clear()
        first, second = vega_script.__wrapped__(), vega_script.__wrapped__()
        assert (first == second, "</script" in first, requested) == (
            True,
            False,
            [VEGA_SNIPPET] * times,
        )
    (kept,) = (tmp_path / "hpccoll").iterdir()
    # the file of another version is next to it
    assert kept.match(f"vega-{version('vl-convert-python')}-*.js")
