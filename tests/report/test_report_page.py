import re
from html.parser import HTMLParser

import pytest

from hpccoll.report import build as build_module
from hpccoll.report.build import build
from hpccoll.report.charts import FIGURES
from hpccoll.store.rows import Missing, Results

EVIL = "</script><script>alert('x')</script> & \"quoted\" <b>"


class Outline(HTMLParser):
    """The elements of a page, what it refers to, and its words outside scripts and styles."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.references, self.words, self.inside = [], [], "", ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.inside = tag
        self.tags.append(tag)
        self.references += [value for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data):
        self.words += data if self.inside not in ("script", "style") else ""

    def handle_endtag(self, tag):
        self.inside = "" if tag in ("script", "style") else self.inside


@pytest.fixture(scope="session")
def report(results, tmp_path_factory):
    """The folder of the report of the sweep."""
    index = build(results, tmp_path_factory.mktemp("report"), "Quick sweep")
    return index.parent


@pytest.fixture
def outline(tmp_path, monkeypatch):
    """The outline of the page of some results; pictures are not drawn."""
    monkeypatch.setattr(build_module, "_save", lambda _chart, _out: None)
    return lambda results, title="A sweep": Outline(build(results, tmp_path, title).read_text(encoding="utf-8"))


def test_every_chart_is_in_the_page_and_beside_it(report):
    names = {f"all_reduce-{figure.name}" for figure in FIGURES}
    assert {path.name for path in (report / "charts").iterdir()} == {
        f"{n}.{end}" for n in names for end in ("svg", "png")
    }
    text = (report / "index.html").read_text(encoding="utf-8")
    assert all(text.count(f'<figure id="{name}">') == 1 for name in names)
    assert (report / "charts" / "all_reduce-time.png").read_bytes().startswith(b"\x89PNG")


def test_the_page_opens_offline(report):
    index = report / "index.html"
    page = Outline(index.read_text(encoding="utf-8"))
    assert "link" not in page.tags
    assert all(ref.startswith("#") or (report / ref).is_file() for ref in page.references)
    assert index.stat().st_size < 1_500_000
    assert index.read_text(encoding="utf-8").count("window.vegaEmbed=") == 1


def test_the_page_says_what_was_measured_and_what_is_missing(report):
    words = Outline((report / "index.html").read_text(encoding="utf-8")).words
    assert (
        "all_reduce: native, recursive_doubling, ring, null (floor); 2, 3, 4 ranks; 8 B to 4 MiB; measured on" in words
    )
    assert (
        "242 of 244 cases; 2 missing: 1 failed (rank 2 was killed); 1 not run (the job reached its time limit)" in words
    )
    assert "needs a power of two" in words
    assert "mpi.library" in words
    assert "2(n-1)/n" in words


def test_every_row_is_in_the_table(report, results):
    text = (report / "index.html").read_text(encoding="utf-8")
    assert text.count('<tr class="ok">') == len(results.rows)
    assert "The same in all rows: collective all_reduce" in text
    assert re.search(r'data-key="4194304">4 MiB<', text)


@pytest.mark.parametrize(
    "results_without_rows",
    [
        Results(rows=(), runs=(), planned=0),
        Results(rows=(), runs=(), planned=3, missing=(Missing(case="c", job="j", status="failed", reason=EVIL),)),
    ],
)
def test_a_page_is_built_without_any_row(outline, results_without_rows):
    page = outline(results_without_rows)
    assert "There is no usable result: nothing can be drawn or compared." in page.words


def test_a_page_is_built_where_every_row_failed(outline, make_row, of_rows):
    absent = dict.fromkeys(("median_s", "p99_s", "ci_low_s", "ci_high_s", "algbw_Bps", "busbw_Bps", "wrong"))
    page = outline(of_rows(make_row(status="failed", reason="the node went away", **absent)))
    assert "No usable result: nothing is drawn." in page.words
    assert "the node went away" in page.words
    assert "figure" not in page.tags


def test_text_from_outside_is_shown_and_not_run(outline, make_row, make_run, of_rows):
    plain = outline(of_rows(make_row(), make_row("native", seconds=2e-5)), "T").tags
    rows = make_row(EVIL, mapping=EVIL, executed=EVIL), make_row("native", seconds=2e-5, mapping=EVIL)
    run = make_run(machine=EVIL, path=EVIL, provenance={EVIL: {"deep": [EVIL]}})
    skipped = (Missing(case=EVIL, job=EVIL, status=EVIL, reason=EVIL),)
    page = outline(of_rows(*rows, runs=(run,), missing=skipped, skipped=skipped), EVIL)
    assert page.words.count(EVIL) >= 15
    assert [page.tags.count(tag) for tag in ("script", "b")] == [plain.count(tag) for tag in ("script", "b")]


def test_every_collective_has_its_section(outline, make_row, of_rows):
    rows = (
        make_row(),
        make_row(collective="all_gather", op=None),
        make_row(collective="all_gather", op=None, dtype="int32"),
    )
    page = outline(of_rows(*rows))
    assert page.tags.count("section") == 2
    assert {"#all_reduce", "#all_gather"} <= set(page.references)


def test_a_partial_run_is_said_to_be_partial(outline, make_row, make_run, of_rows):
    words = outline(of_rows(make_row(), runs=(make_run(status="partial"),))).words
    assert "Partial runs, which ended before their last case: run-1." in words
