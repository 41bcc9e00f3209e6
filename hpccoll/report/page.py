"""The report as one HTML page that opens offline: words, tables, and the charts drawn in the browser."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files
from itertools import groupby

import vl_convert

from hpccoll.report.charts import Figure
from hpccoll.report.findings import findings, ratio_table, wire_table
from hpccoll.report.groups import Group
from hpccoll.report.tables import missing_table, plain_table, provenance, rows_table, scheduled_table
from hpccoll.report.wires import HEADER_MODEL
from hpccoll.store.rows import Results
from hpccoll.units import format_size


@dataclass(frozen=True, slots=True)
class Drawn:
    """A chart of one group as it stands in the report: ``files`` is the path of its pictures without the ending."""

    figure: Figure
    group: Group
    specification: Mapping[str, object]
    files: str


def page(results: Results, groups: Sequence[Group], charts: Sequence[Drawn], title: str) -> str:
    """Return the whole page."""
    parts = [_head(title), _summary(results, groups, title), _completeness(results)]
    for collective, members in groupby(groups, key=lambda group: group.collective):
        parts.append(_section(collective, list(members), charts))
    parts += [_rows(groups), _definitions(), _skipped(results), _scheduled(results), _provenance(results)]
    parts.append(_scripts(charts))
    return "\n".join(filter(None, parts)) + "\n</body>\n</html>\n"


def _static(name: str) -> str:
    return files("hpccoll.report").joinpath("static", name).read_text(encoding="utf-8")


def _head(title: str) -> str:
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{_static('page.css')}</style>\n</head>\n<body>"
    )


def _summary(results: Results, groups: Sequence[Group], title: str) -> str:
    points = [point for group in groups for point in group.usable]
    collectives = dict.fromkeys(group.collective for group in groups)
    links = "".join(f'<a href="#{escape(name)}">{escape(name)}</a>' for name in collectives)
    there = {"skipped": results.skipped, "jobs": results.scheduled}
    parts = (part for part in ("rows", "definitions", "skipped", "jobs", "provenance") if there.get(part, True))
    fixed = "".join(f'<a href="#{part}">{part}</a>' for part in parts)
    lede = "There is no usable result: nothing can be drawn or compared."
    if points:
        rows = [point.row for point in points]
        series = ", ".join(name for name in groups[0].colours if name in {point.series for point in points})
        ranks, nodes = f"{_numbers(row.ranks for row in rows)} ranks", f"{_numbers(row.nodes for row in rows)} nodes"
        if any(row.nodes > 1 for row in rows):
            one_each = all(row.ranks == row.nodes for row in rows)
            ranks = f"{nodes} with 1 rank each" if one_each else f"{ranks} on {nodes}"
        ends = sorted(row.requested_bytes for row in rows)
        sizes = " to ".join(format_size(nbytes) for nbytes in dict.fromkeys((ends[0], ends[-1])))
        kinds = " and ".join(sorted({point.kind for point in points}))
        where = "; ".join(dict.fromkeys(point.machine for point in points))
        lede = f"{', '.join(collectives)}: {series}; {ranks}; {sizes}; {kinds} on {where}."
    return f'<header><h1>{escape(title)}</h1>\n<p class="lede">{escape(lede)}</p>\n<nav>{links}{fixed}</nav></header>'


def _numbers(values: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(set(values))))


def _completeness(results: Results) -> str:
    done = f"{results.planned - len(results.missing)} of {results.planned} cases"
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
    why = ", ".join(f"{count} {status}" for status, count in Counter(gap.status for gap in results.missing).items())
    line = f"{done}; {len(results.missing)} missing: {why}."
    return f'<div class="incomplete"><p>{escape(line)}</p>{partly}{missing_table(results.missing)}</div>'


def _section(collective: str, groups: Sequence[Group], charts: Sequence[Drawn]) -> str:
    parts = [f'<section id="{escape(collective)}">\n<h2>{escape(collective)}</h2>']
    for group in groups:
        parts.append(f'<p class="note">{escape(f"{group.kind}; {group.setting}")}</p>')
        parts.append(_findings(group))
        parts += [_figure(drawn) for drawn in charts if drawn.group is group]
    return "\n".join([*parts, "</section>"])


def _findings(group: Group) -> str:
    if not group.usable:
        return "<p>No usable result: nothing is drawn.</p>"
    items = "".join(f"<li><b>{escape(found.about)}:</b> {escape(found.says)}</li>" for found in findings(group))
    head, body = ratio_table(group)
    ratios = (plain_table(head, body) if body else "") + f'<p class="note">{AHEAD}</p>'
    head, body = wire_table(group)
    sent = plain_table(head, body) + f'<p class="note">{HEADER_MODEL}</p>' if body else ""
    return f'<ul class="findings">{items}</ul>{ratios}{sent}'


AHEAD = (
    "1.20x ahead: the runner-up takes 1.20 times as long. A time of 0.80x is faster than native, one of 2x is slower."
)


def _figure(drawn: Drawn) -> str:
    title, lines = drawn.figure.heading(drawn.group)
    identity = escape(drawn.files.rpartition("/")[2])
    links = " ".join(f'<a href="{escape(drawn.files)}.{ending}">{ending.upper()}</a>' for ending in ("svg", "png"))
    spec = {name: value for name, value in drawn.specification.items() if name != "title"}  # the page's own words
    text = json.dumps(spec, separators=(",", ":")).replace("<", "\\u003c")
    return (
        f'<figure id="{identity}"><h3>{escape(title)}</h3><p class="under">{"<br>".join(map(escape, lines))}</p>\n'
        f'<div class="chart" data-spec="{identity}-spec" role="img" aria-label="{escape(title)}"></div>\n'
        f"<figcaption>{escape(drawn.figure.caption)} {links}</figcaption>\n"
        f'<script type="application/json" id="{identity}-spec">{text}</script></figure>'
    )


def _rows(groups: Sequence[Group]) -> str:
    table = rows_table(groups) if groups else "<p>There are no rows.</p>"
    return f'<h2 id="rows">Rows</h2><p class="note">A click on a heading sorts.</p>{table}'


DEFINITIONS = {
    "size": "S, the bytes of the collective as nccl-tests count them; KiB, MiB and GiB are powers of 1024.",
    "algbw": "S / t, in GB/s of 1e9 bytes per second, or in MB/s of 1e6.",
    "busbw": "algbw times a factor of the n ranks, comparable with nccl-tests: 2(n-1)/n for all-reduce; (n-1)/n for "
    "reduce-scatter, all-gather, all-to-all, gather and scatter; 1 for others; a barrier has none.",
    "timing": "How one operation's time follows from the clocks of its ranks: max is the longest duration over the "
    "ranks; span is the latest end minus the earliest start. Never an average over ranks.",
    "median, interval": "Over the timed iterations; the interval holds the median with 95 % confidence.",
    "native": "The library's own collective at its default settings: the faster of its in-place and out-of-place call "
    "in the same run, and so of the same variant.",
    "variant": "An environment that the sweep file names. Each is a job of its own, and compared within itself.",
    "of the wire": "busbw over what a wire between two nodes was calibrated to carry: on a testbed whose wires were "
    "calibrated within 2 % of what TCP carries of their rate, with one rank on each node, from the size on from which "
    "the calibration comes to it; less may pass faster, as a burst. Of nothing else is there a per cent.",
    "counted, sent": "Bytes of one operation that all nodes send to each other: counted from the schedule that we ran; "
    "sent, as the counters of their ports saw it, with headers. " + HEADER_MODEL,
    "floor": "An empty schedule: what the harness itself costs. It is in no map, efficiency or ratio.",
    "oversubscribed": "More ranks than cores: the ranks wait for each other's time slices.",
    "status": "Only ok rows are drawn or compared. wrong: the buffer that was timed held wrong elements; failed, "
    "skipped and partial rows say why.",
    "executed": "The algorithm that ran, as far as there is evidence; else unknown.",
    "kind": "measured; measured on a testbed (real Slurm and MPI, metered virtual wires, whose rate it says; the "
    "nodes share the CPUs of one machine); measured on a shared GPU; "
    "simulated; modelled.",
}  # fmt: skip


def _definitions() -> str:
    listed = "".join(f"<dt>{escape(word)}</dt><dd>{escape(meaning)}</dd>" for word, meaning in DEFINITIONS.items())
    return f'<h2 id="definitions">Definitions</h2><dl>{listed}</dl>'


def _skipped(results: Results) -> str:
    if not results.skipped:
        return ""
    return f'<h2 id="skipped">Skipped on purpose</h2>{missing_table(results.skipped)}'


def _scheduled(results: Results) -> str:
    return f'<h2 id="jobs">Slurm jobs</h2>{scheduled_table(results.scheduled)}' if results.scheduled else ""


def _provenance(results: Results) -> str:
    runs = "".join(provenance(run) for run in results.runs) or "<p>No run left a file.</p>"
    return f'<h2 id="provenance">Provenance</h2>{runs}'


def _scripts(charts: Sequence[Drawn]) -> str:
    """Vega once, where there are charts, then the page's own."""
    vega = f'<script type="module">{_vega()}</script>\n' if charts else ""
    needed = "<noscript><p>The charts need JavaScript; the same charts are files in charts/.</p></noscript>\n"
    return f'{needed}{vega}<script type="module">\n{_static("page.js")}</script>'


@cache
def _vega() -> str:
    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;").replace("</script", "<\\/script")
