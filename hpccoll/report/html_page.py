"""The report as one HTML page that opens offline: text, tables, and charts drawn in the browser."""

import json
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.metadata import version
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from zlib import crc32

import vl_convert

from hpccoll.report.chart_groups import ChartGroup
from hpccoll.report.charts import Figure
from hpccoll.report.collective_overview import OVERVIEW_NOTE, count_missing, overview_table
from hpccoll.report.critical_findings import opening_findings
from hpccoll.report.definitions import DEFINITIONS, describe_collective
from hpccoll.report.finding_templates import render_finding
from hpccoll.report.findings import group_findings, native_ratio_table
from hpccoll.report.html_tables import missing_table, plain_table, provenance_list, rows_table, slurm_jobs_table
from hpccoll.report.mapping_comparison import mapping_table
from hpccoll.report.report_finding import ReportFinding
from hpccoll.report.sent_bytes_table import sent_bytes_table
from hpccoll.report.terminal_summary import case_counts
from hpccoll.report.wire_bandwidth import HEADER_MODEL
from hpccoll.store.rows import Results
from hpccoll.terminal import printable
from hpccoll.units import format_count, format_size


@dataclass(frozen=True, slots=True)
class ReportChart:
    """A chart of one group in the report; ``files`` is the relative path of its pictures without the suffix."""

    figure: Figure
    group: ChartGroup
    specification: Mapping[str, object]
    files: str


def render_page(
    results: Results, groups: Sequence[ChartGroup], charts: Sequence[ReportChart], title: str, note: str = ""
) -> str:
    """Return the HTML of the page; ``note`` is an element of its head that programs read."""
    collectives = {name: list(members) for name, members in groupby(groups, key=lambda group: group.collective)}
    parts = [_head(title, note), _opening(results), _summary(results, collectives, title)]
    if len(collectives) > 1:
        parts.append(_overview(results, groups))
        parts += [_tab(results, name, members, charts) for name, members in collectives.items()]
    else:
        parts.append(_completeness(results))
        parts += [_section(name, _collective_parts(name, members, charts)) for name, members in collectives.items()]
        parts.append(_rows(groups))
    parts += [_definitions(), _skipped(results), _scheduled(results), _provenance(results)]
    written = printable("\n".join(filter(None, parts)))
    return f"{written}\n{_scripts(charts)}\n</body>\n</html>\n"


def _static(name: str) -> str:
    return files("hpccoll.report").joinpath("static", name).read_text(encoding="utf-8")


def _head(title: str, note: str) -> str:
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"{note}\n"
        f"<title>{escape(title)}</title>\n<style>\n{_static('page.css')}</style>\n</head>\n<body>"
    )


def _opening(results: Results) -> str:
    return "".join(map(_paragraph, opening_findings(results)))


def _paragraph(finding: ReportFinding) -> str:
    mark = 'class="critical" role="alert"' if finding.severity == "critical" else 'class="note"'
    _, sentence = render_finding(finding)
    return f"<p {mark}>{escape(sentence)}</p>"


def _summary(results: Results, collectives: Mapping[str, Sequence[ChartGroup]], title: str) -> str:
    groups = [group for members in collectives.values() for group in members]
    several = len(collectives) > 1
    picks = [OVERVIEW, *collectives] if several else [*collectives]
    links = "".join(f'<a href="#{escape(name)}">{escape(name)}</a>' for name in picks)
    links = f'<span class="picks">{links}</span>' if several else links
    shown = {"rows": not several, "skipped": results.skipped, "jobs": results.scheduled}
    parts = (part for part in ("rows", "definitions", "skipped", "jobs", "provenance") if shown.get(part, True))
    fixed = "".join(f'<a href="#{part}">{part}</a>' for part in parts)
    lede = _measured_summary(groups, several=several)
    return f'<header><h1>{escape(title)}</h1>\n<p class="lede">{escape(lede)}</p>\n<nav>{links}{fixed}</nav></header>'


def _measured_summary(groups: Sequence[ChartGroup], *, several: bool) -> str:
    """Return one sentence: collectives or series, ranks, sizes, kinds and machines."""
    points = [point for group in groups for point in group.usable]
    if not points:
        return "There is no usable result: nothing can be drawn or compared."
    rows = [point.row for point in points]
    drawn = {point.series for point in points}
    series = ", ".join(name for name in groups[0].colours if name in drawn)
    content = f"{len({row.collective for row in rows})} collectives" if several else f"{rows[0].collective}: {series}"
    ranks, nodes = f"{_numbers(row.ranks for row in rows)} ranks", f"{_numbers(row.nodes for row in rows)} nodes"
    if any(row.nodes > 1 for row in rows):
        one_each = all(row.ranks == row.nodes for row in rows)
        ranks = f"{nodes} with 1 rank each" if one_each else f"{ranks} on {nodes}"
    ends = sorted(point.row.requested_bytes for group in groups if group.has_size for point in group.usable)
    sizes = " to ".join(format_size(nbytes) for nbytes in dict.fromkeys((*ends[:1], *ends[-1:])))
    kinds = " and ".join(sorted({point.kind for point in points}))
    where = "; ".join(dict.fromkeys(point.machine for point in points))
    return f"{'; '.join(filter(None, (content, ranks, sizes)))}; {kinds} on {where}."


def _numbers(values: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(set(values))))


def _completeness(results: Results) -> str:
    done = escape(case_counts(results))
    partial = [run.run_id for run in results.runs if run.status != "complete"]
    partly = (
        f"<p>Partial runs, which ended before their last case: {escape(', '.join(partial))}.</p>" if partial else ""
    )
    if not results.missing:
        return (
            f"<p>Complete: {done}.</p>{partly}"
            if not partial
            else f'<div class="incomplete"><p>{done}.</p>{partly}</div>'
        )
    return f'<div class="incomplete"><p>{done}.</p>{partly}{missing_table(results.missing)}</div>'


OVERVIEW = "overview"


def _section(name: str, parts: Iterable[str], *, tab: bool = False) -> str:
    marked = f'<section id="{escape(name)}"{" class=tab" if tab else ""}>\n<h2>{escape(name)}</h2>'
    return "\n".join([marked, *parts, "</section>"])


def _overview(results: Results, groups: Sequence[ChartGroup]) -> str:
    note = f'<p class="note">{escape(OVERVIEW_NOTE)}</p>'
    table = f'<div class="overview">{overview_table(results, groups)}</div>'
    return _section(OVERVIEW, [_completeness(results), table, note], tab=True)


def _tab(results: Results, collective: str, groups: Sequence[ChartGroup], charts: Sequence[ReportChart]) -> str:
    """Return the tab of one of several collectives, with its own rows and its number of missing cases."""
    parts = _collective_parts(collective, groups, charts)
    if count := count_missing(results, collective):
        link = f'<a href="#{OVERVIEW}">the overview</a>'
        parts.insert(0, f'<div class="incomplete"><p>{format_count(count, "case")} missing: see {link}.</p></div>')
    return _section(collective, [*parts, "<h3>Rows</h3>", SORT_NOTE, rows_table(groups)], tab=True)


def _collective_parts(collective: str, groups: Sequence[ChartGroup], charts: Sequence[ReportChart]) -> list[str]:
    """Return the description of a collective, and the findings, tables and charts of each of its settings."""
    description = describe_collective(collective, groups)
    parts = [f'<p class="about">{escape(description)}</p>'] if description else []
    for group in groups:
        if len(groups) > 1:
            parts.append(f'<h3 class="setting">{escape(group.distinguishing_setting(groups))}</h3>')
        parts.append(f'<p class="note">{escape("; ".join((group.kind, group.setting, *group.emulations)))}</p>')
        parts.append(_findings(group))
        parts += [_figure(drawn) for drawn in charts if drawn.group is group]
    return parts


def _findings(group: ChartGroup) -> str:
    if not group.usable:
        return "<p>No usable result: nothing is drawn.</p>"
    rendered = map(render_finding, group_findings(group))
    items = "".join(f"<li><b>{escape(title)}:</b> {escape(sentence)}</li>" for title, sentence in rendered)
    head, body = native_ratio_table(group)
    ratios = plain_table(head, body) + f'<p class="note">{NATIVE_RATIO_NOTE}</p>' if body else ""
    head, body = mapping_table(group)
    placed = plain_table(head, body) + f'<p class="note">{escape(MAPPING_NOTE)}</p>' if body else ""
    head, body = sent_bytes_table(group)
    sent = plain_table(head, body) + f'<p class="note">{HEADER_MODEL}</p>' if body else ""
    return f'<ul class="findings">{items}</ul>{ratios}{placed}{sent}'


NATIVE_RATIO_NOTE = "A time of 0.80x is faster than native, one of 2x is slower."
MAPPING_NOTE = (
    "block: consecutive ranks are on one node, and consecutive nodes in one rack; cyclic: consecutive ranks are in "
    "different racks, or on different nodes of one rack. Between racks: bytes that all ranks send from rack to rack in "
    "one operation, counted from the schedule."
)


def _figure(drawn: ReportChart) -> str:
    title, lines = drawn.figure.heading(drawn.group)
    identity = escape(drawn.files.rpartition("/")[2])
    links = " ".join(f'<a href="{escape(drawn.files)}.{ending}">{ending.upper()}</a>' for ending in ("svg", "png"))
    spec = {name: value for name, value in drawn.specification.items() if name != "title"}  # the page has its own title
    text = json.dumps(spec, separators=(",", ":")).replace("<", "\\u003c")
    return (
        f'<figure id="{identity}"><h3>{escape(title)}</h3><p class="under">{"<br>".join(map(escape, lines))}</p>\n'
        f'<div class="chart" data-spec="{identity}-spec" role="img" aria-label="{escape(title)}"></div>\n'
        f"<figcaption>{escape(drawn.figure.group_caption(drawn.group))} {links}</figcaption>\n"
        f'<script type="application/json" id="{identity}-spec">{text}</script></figure>'
    )


SORT_NOTE = '<p class="note">A click on a heading sorts.</p>'


def _rows(groups: Sequence[ChartGroup]) -> str:
    table = rows_table(groups) if groups else "<p>There are no rows.</p>"
    return f'<h2 id="rows">Rows</h2>{SORT_NOTE}{table}'


def _definitions() -> str:
    listed = "".join(f"<dt>{escape(word)}</dt><dd>{escape(meaning)}</dd>" for word, meaning in DEFINITIONS.items())
    return f'<h2 id="definitions">Definitions</h2><dl>{listed}</dl>'


def _skipped(results: Results) -> str:
    if not results.skipped:
        return ""
    return f'<h2 id="skipped">Skipped on purpose</h2>{missing_table(results.skipped)}'


def _scheduled(results: Results) -> str:
    return f'<h2 id="jobs">Slurm jobs</h2>{slurm_jobs_table(results.scheduled)}' if results.scheduled else ""


def _provenance(results: Results) -> str:
    runs = "".join(provenance_list(run) for run in results.runs) or "<p>No run left a file.</p>"
    return f'<h2 id="provenance">Provenance</h2>{runs}'


def _scripts(charts: Sequence[ReportChart]) -> str:
    """Return the scripts: the choice of the tab, Vega if there are charts, and the drawing of charts."""
    drawing = f'<script type="module">{vega_script()}</script>\n' if charts else ""
    needed = "<noscript><p>The charts need JavaScript; the same charts are files in charts/.</p></noscript>\n"
    tabs = f"<script>\n{{\n{_static('tabs.js')}}}\n</script>\n"
    return f'{needed}{tabs}{drawing}<script type="module">\n{_static("page.js")}</script>'


VEGA_SNIPPET = "window.vegaEmbed = vegaEmbed;"


@cache
def vega_script() -> str:
    """Return Vega and Vega-Embed as text for a ``script`` element.

    Bundling takes vl-convert longer than the rest of a report, and always has the same result: the text is cached in
    ``$XDG_CACHE_HOME/hpccoll``, by default ``~/.cache/hpccoll``.
    """
    script = None
    with suppress(OSError, RuntimeError):  # no writable cache directory: the script is bundled for each report
        directory = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "hpccoll")
        path = directory / f"vega-{version('vl-convert-python')}-{crc32(VEGA_SNIPPET.encode()):08x}.js"
        if path.exists():
            return path.read_text(encoding="utf-8")
        script = _bundle_vega()
        directory.mkdir(parents=True, exist_ok=True)
        _write_atomically(script, path)
    return script or _bundle_vega()


def _bundle_vega() -> str:
    return vl_convert.javascript_bundle(VEGA_SNIPPET).replace("</script", "<\\/script")


def _write_atomically(text: str, path: Path) -> None:
    """Write a file atomically."""
    with tempfile.TemporaryDirectory(dir=path.parent) as directory:
        written = Path(directory, path.name)
        written.write_text(text, encoding="utf-8")
        written.replace(path)
