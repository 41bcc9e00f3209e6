import re
import resource
from dataclasses import replace
from html import escape
from html.parser import HTMLParser
from importlib.metadata import version

import pytest
import vl_convert

from hpccoll.analysis.chart_groups import chart_groups
from hpccoll.analysis.recommendations import recommend
from hpccoll.render import page_frame, report_writer
from hpccoll.render.charts import FIGURES
from hpccoll.render.colours import group_colours
from hpccoll.render.definitions import DEFINITIONS
from hpccoll.render.output_directory import input_names
from hpccoll.render.page_frame import VEGA_SNIPPET, vega_script
from hpccoll.render.report_writer import build_report
from hpccoll.store.rows import Gap, Results
from hpccoll.store.scheduler_log import ScheduledJob

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
    index = build_report(results, tmp_path_factory.mktemp("report"), "Quick sweep")
    return index.parent


@pytest.fixture
def outline(tmp_path, monkeypatch):
    """The outline of the page of some results; pictures are not drawn."""
    monkeypatch.setattr(report_writer, "_save_chart", lambda _chart, _out: None)
    return lambda results, title="A sweep": Outline(build_report(results, tmp_path, title).read_text(encoding="utf-8"))


def test_every_chart_is_in_the_page_and_a_picture_file(report):
    absent = {"wire", "rails", "pairs-time", "pairs-busbw"}
    names = {f"all_reduce-{figure.name}" for figure in FIGURES if figure.name not in absent}
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


def test_the_page_has_what_was_measured_and_what_is_missing(report):
    words = Outline((report / "index.html").read_text(encoding="utf-8")).words
    assert "all_reduce on 2, 3 and 4 ranks" in words
    assert "8 B to 4 MiB" in words
    assert "242 of 244 cases, 1 failed, 1 not run; 1 left out of the plan." in words
    assert "rank 2 was killed" in words
    assert "the job reached its time limit" in words
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
        Results(rows=(), runs=(), planned=3, missing=(Gap(case="c", job="j", status="failed", reason=EVIL),)),
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


def test_text_of_results_is_escaped(outline, make_row, make_run, of_rows):
    plain = outline(of_rows(make_row(), make_row("native", seconds=2e-5)), "T").tags
    rows = make_row(EVIL, mapping=EVIL, executed=EVIL), make_row("native", seconds=2e-5, mapping=EVIL)
    run = make_run(machine=EVIL, path=EVIL, provenance={EVIL: {"deep": [EVIL]}})
    skipped = (Gap(case=EVIL, job=EVIL, status=EVIL, reason=EVIL),)
    page = outline(of_rows(*rows, runs=(run,), missing=skipped, skipped=skipped), EVIL)
    assert page.words.count(EVIL) >= 15
    assert [page.tags.count(tag) for tag in ("script", "b")] == [plain.count(tag) for tag in ("script", "b")]


def test_every_collective_has_its_section_after_the_overview(outline, make_row, of_rows):
    rows = (
        make_row(),
        make_row(collective="all_gather", op=None),
        make_row(collective="all_gather", op=None, dtype="int32"),
    )
    page = outline(of_rows(*rows))
    assert page.tags.count("section") == 3
    assert {"#all_reduce", "#all_gather"} <= set(page.references)


def test_a_partial_run_is_named(outline, make_row, make_run, of_rows):
    words = outline(of_rows(make_row(), runs=(make_run(status="partial"),))).words
    assert "Partial runs, which ended before their last case: run-1." in words


def gap(number, reason="the job ended before it: TIMEOUT", job="mpi.n4x1", status="not run"):
    return Gap(case=f"case{number:03}", job=job, status=status, reason=reason)


def rows_of(text, after):
    """The rows of the first table after some words."""
    return re.findall(r"<tr>.*?</tr>", re.search(r"<tbody>.*?</tbody>", text.partition(after)[2])[0])


def test_hundreds_of_missing_cases_are_a_line_for_each_reason(of_rows, make_row, tmp_path, monkeypatch):
    monkeypatch.setattr(report_writer, "_save_chart", lambda _chart, _out: None)
    missing = [*map(gap, range(300)), gap(300, "rank 2 was killed", status="failed"), gap(301, job="mpi.n2x1")]
    text = build_report(of_rows(make_row(), missing=missing), tmp_path, "T").read_text()
    lines = rows_of(text, "1 of 303 cases, 1 failed, 301 not run.")
    assert len(lines) == 3
    assert "case300" in lines[0]
    assert "case301" in lines[2]
    assert "<details><summary>300 cases</summary>" in lines[1]
    assert lines[1].count("<li>") == 300
    assert lines[1].count("TIMEOUT") == 1


def test_what_was_skipped_on_purpose_is_a_line_for_each_reason(of_rows, make_row, tmp_path, monkeypatch):
    monkeypatch.setattr(report_writer, "_save_chart", lambda _chart, _out: None)
    skipped = [gap(i, "8 nodes: partition work has 4 nodes", status="skipped") for i in range(40)]
    text = build_report(of_rows(make_row(), skipped=skipped), tmp_path, "T").read_text()
    (line,) = rows_of(text, "Skipped on purpose")
    assert "40 cases" in line
    assert "partition work has 4 nodes" in line
    assert '<a href="#skipped">' in text


def test_slurm_jobs_are_listed_with_their_states(outline, of_rows, make_row):
    ended = {"hosts": "n[1-4]", "limit": "00:01:00", "log": "/logs/17.log"}
    jobs = (
        ScheduledJob(job="mpi.n4x1", id="17", state="TIMEOUT", **ended),
        ScheduledJob(job="mpi.n2x1", id="18", state="CANCELLED", reason="an earlier sweep left it"),
        ScheduledJob(job="mpi.n8x1", id="19", state="REVOKED"),
    )
    page = outline(of_rows(make_row(), scheduled=jobs))
    assert "#jobs" in page.references
    assert "17mpi.n4x1it reached its time limit (TIMEOUT)n[1-4]00:01:00/logs/17.log" in page.words
    assert "it was cancelled (CANCELLED, an earlier sweep left it)" in page.words
    assert "(REVOKED)" in page.words
    assert "Slurm jobs" not in outline(of_rows(make_row())).words


def test_a_page_of_a_testbed_has_its_kind_and_the_rate_of_its_wires(outline, testbed_results):
    words = outline(testbed_results).words
    assert "all_reduce on 2, 4 and 8 nodes" in words
    assert "4 KiB to 4 MiB" in words
    assert "measured on a testbed, 100 Mbit/s on cluster bed" in words
    assert "ring reaches 95 % of the calibrated wire at 4 MiB on 8 nodes" in words
    assert "kind measured on a testbed, 100 Mbit/s" in words
    assert "each with 66 bytes of Ethernet, IPv4 and TCP headers" in words
    assert "bytes 262144, Bps 12780000; bytes 1048576, Bps 12500000" in words


def cells_of(text, series, size, nodes):
    heads = [re.sub(r"<.*?>", "", head) for head in re.findall(r'<th scope="col" tabindex="0">(.*?)</th>', text)]
    for line in re.findall(r'<tr class="ok">(.*?)</tr>', text):
        cells = dict(zip(heads, re.findall(r"<td.*?>(.*?)</td>", line), strict=True))
        if (cells["series"], cells["size"], cells["nodes"]) == (series, size, str(nodes)):
            return cells
    raise AssertionError(f"no row of {series}, {size}, {nodes}")


def test_the_table_has_the_share_of_the_wire_and_the_bytes_of_each_row(testbed_results, tmp_path, monkeypatch):
    monkeypatch.setattr(report_writer, "_save_chart", lambda _chart, _out: None)
    text = build_report(testbed_results, tmp_path, "T").read_text()
    ring = cells_of(text, "ring", "4 MiB", 8)
    assert ring["counted (B)"] == str(14 << 22)
    assert ring["sent / counted with headers"] == "1.000"
    assert ring["sent by a node (S)"] == "1.769"
    assert ring["of the wire"].endswith("%")
    assert cells_of(text, "ring", "64 KiB", 8)["of the wire"] == ""
    native = cells_of(text, "native", "4 MiB", 8)
    assert native["sent by a node (S)"] == "1.769"
    assert native["counted (B)"] == native["sent / counted with headers"] == ""


def test_auto_has_no_transport_of_its_own(make_node_row, make_bed_run, of_rows, tmp_path, monkeypatch):
    monkeypatch.setattr(report_writer, "_save_chart", lambda _chart, _out: None)
    rows = [replace(make_node_row(nodes=nodes), algorithm=name) for nodes in (2, 4) for name in ("ring", "auto")]
    text = build_report(of_rows(*rows, runs=(make_bed_run(),)), tmp_path, "T").read_text()
    assert [cells_of(text, name, "4 MiB", 4)["transport"] for name in ("ring", "auto")] == ["mpi", ""]


def test_rows_of_one_machine_have_no_columns_of_wires(report):
    text = (report / "index.html").read_text(encoding="utf-8")
    heads = {re.sub(r"<.*?>", "", head) for head in re.findall(r'<th scope="col" tabindex="0">(.*?)</th>', text)}
    assert "busbw (GB/s)" in heads
    assert heads.isdisjoint({"of the wire", "sent (B)", "counted (B)"})
    assert "of the calibrated wire" not in text


def test_the_answer_comes_before_the_charts_of_which_the_map_is_the_first(report):
    text = (report / "index.html").read_text(encoding="utf-8")
    parts = ("<h1>", '<p class="lede">', '<ul class="sentences">', '<table class="answer">', '<p class="noise">',
             '<figure id="all_reduce-choice">', '<figure id="all_reduce-speedup">', '<ul class="findings">',
             '<h2 id="rows">', '<h2 id="provenance">', '<h2 id="glossary">')  # fmt: skip
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    assert re.search(r'<figure id="(.*?)"', text)[1] == "all_reduce-choice"


def test_the_glossary_and_explanations_are_folded(report):
    text = (report / "index.html").read_text(encoding="utf-8")
    assert re.search(r'<h2 id="glossary">\w+</h2><details><summary>.*?</summary><dl>', text)
    open_parts = re.sub(r"<details.*?</details>", "", text, flags=re.DOTALL)
    assert "An interval bounds the median within its launch" in text
    assert "An interval bounds the median within its launch" not in open_parts
    assert re.search(r'<li class="info">(<details><summary>)?<b>Highest busbw', text)


def test_warnings_are_the_first_findings(report):
    text = (report / "index.html").read_text(encoding="utf-8")
    severities = re.findall(r'<li class="(warning|info)">', text)
    assert severities == sorted(severities, reverse=True)
    assert set(severities) == {"info", "warning"}


def test_headings_with_a_definition_have_it_as_tooltip(report):
    text = (report / "index.html").read_text(encoding="utf-8")
    heads = [(re.sub(r"<.*?>", "", head), head) for head in re.findall(r"<th [^>]*>(.*?)</th>", text)]
    assert {"speed-up over native", "how sure", "size", "busbw (GB/s)", "status"} <= {heading for heading, _ in heads}
    for heading, markup in heads:
        meaning = DEFINITIONS.get(heading.partition(" (")[0])
        assert meaning is None or f'title="{escape(meaning)}"' in markup


def test_inputs_with_the_same_cases_have_series_of_their_own(make_row, make_run, of_rows, tmp_path):
    runs = [make_run(run_id=name, path=str(tmp_path / name / "raw" / "local.h5")) for name in ("old", "new")]
    rows = [
        make_row(algorithm, run_id=run.run_id, nbytes=n, seconds=seconds)
        for run in runs
        for algorithm, seconds in (("ring", 1e-5), ("native", 2e-5))
        for n in (8, 64)
    ]
    paths = [tmp_path / run.run_id for run in runs]
    results = of_rows(*rows, runs=runs)
    (group,) = chart_groups(results, recommend(results), input_names(results, paths))
    names = {"ring (old)", "ring (new)", "native (old)", "native (new)"}
    assert {point.series for point in group.points} == names
    assert len({group_colours(group.legend)[name] for name in names}) == len(names)
    (time,) = (figure for figure in FIGURES if figure.name == "time")
    layers = time.specification(group)["spec"]["layer"]
    (domain,) = {
        tuple(layer["encoding"]["color"]["scale"]["domain"]) for layer in layers if "color" in layer["encoding"]
    }
    assert set(domain) == names
    page = build_report(results, tmp_path / "report", "T", paths).read_text(encoding="utf-8")
    assert all(f"<td>{name}</td>" in page for name in names)


def test_inputs_that_share_no_case_or_a_single_input_are_not_named(make_row, make_run, of_rows, tmp_path):
    runs = [make_run(run_id=name, path=str(tmp_path / name / "raw" / "local.h5")) for name in ("old", "new")]
    paths = [tmp_path / run.run_id for run in runs]
    same = of_rows(*(make_row(run_id=run.run_id) for run in runs), runs=runs)
    assert input_names(same, paths) == {"old": "old", "new": "new"}
    assert input_names(same, [tmp_path]) == {}
    other = of_rows(make_row(run_id="old"), make_row(run_id="new", nbytes=64), runs=runs)
    assert input_names(other, paths) == {}


def test_inputs_of_one_name_are_named_by_their_paths(make_row, make_run, of_rows, tmp_path):
    paths = [tmp_path / where / "quick" for where in ("a", "b")]
    runs = [make_run(run_id=str(i), path=str(path / "raw" / "local.h5")) for i, path in enumerate(paths)]
    results = of_rows(*(make_row(run_id=run.run_id) for run in runs), runs=runs)
    assert list(input_names(results, paths).values()) == list(map(str, paths))


def test_a_page_of_an_unknown_run_is_built(outline, make_row, of_rows):
    page = outline(of_rows(make_row(), make_row("native", seconds=2e-5), runs=()))
    assert "figure" in page.tags


@pytest.fixture
def small_files():
    """Have no file become larger than some bytes, from when it is called on: the disk is full, as root sees it, too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda nbytes: resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def few(make_row, of_rows):
    """Results of three sizes, which are drawn soon."""
    return of_rows(*(make_row(name, nbytes=n) for name in ("ring", "native") for n in (1024, 4096, 16384)))


@pytest.mark.parametrize("share", [0.0, 0.001, 0.999])
def test_a_report_that_finds_a_full_disk_leaves_the_earlier_one_as_it_was(few, tmp_path, small_files, share):
    index = build_report(few, tmp_path, "the first")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    small_files(int(share * index.stat().st_size))
    with pytest.raises(OSError, match="File too large"):
        build_report(few, tmp_path, "the next")
    now = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert now.keys() == before.keys()
    assert b"the first" in now[index]
    assert all(now[path][-7:] == before[path][-7:] for path in now)  # each has its end


@pytest.mark.parametrize("name", ["\x1b]0;x\x07", "\udcff"])
def test_a_name_with_unprintable_characters_is_drawn_escaped(make_row, of_rows, tmp_path, name):
    rows = [make_row(nbytes=n, variant=variant) for n in (1024, 4096, 16384) for variant in (name, "other")]
    page = build_report(of_rows(*rows), tmp_path, name).read_text()
    shown = ascii(name)[1:-1]
    assert shown in page
    assert [picture for picture in tmp_path.rglob("*.svg") if shown in picture.read_text()]
    assert len([*tmp_path.rglob("*.png")]) == len([*tmp_path.rglob("*.svg")])


def test_written_files_have_the_usual_permissions(few, tmp_path):
    (tmp_path / "other").touch()
    written = {path.stat().st_mode for path in build_report(few, tmp_path / "r", "x").parent.rglob("*.*")}
    assert written == {(tmp_path / "other").stat().st_mode}


@pytest.fixture(scope="module")
def bundled():
    return vl_convert.javascript_bundle(VEGA_SNIPPET)


@pytest.fixture
def bundles(bundled, monkeypatch):
    """The snippets that were bundled since the test began."""
    requested = []
    monkeypatch.setattr(vl_convert, "javascript_bundle", lambda snippet: requested.append(snippet) or bundled)
    return requested


def test_vega_is_bundled_once_and_cached(bundles, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    first, second = vega_script.__wrapped__(), vega_script.__wrapped__()
    assert first == second
    assert len(first) > 500_000
    assert not re.search("</script", first)
    assert bundles == [VEGA_SNIPPET]
    (kept,) = (tmp_path / "caches" / "hpccoll").iterdir()
    monkeypatch.setattr(page_frame, "VEGA_SNIPPET", "another")
    vega_script.__wrapped__()
    assert {kept} < {
        *kept.parent.glob(f"vega-{version('vl-convert-python')}-*.js")
    }  # the file of another version is next to it
    assert bundles == [VEGA_SNIPPET, "another"]


@pytest.mark.parametrize("place", ["/proc/nowhere", "/dev/null"])
def test_without_a_cache_vega_is_bundled_each_time(bundles, place, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", place)
    assert vega_script.__wrapped__() == vega_script.__wrapped__()
    assert bundles == [VEGA_SNIPPET] * 2
