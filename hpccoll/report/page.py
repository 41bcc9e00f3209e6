"""The report as one HTML page that opens offline: words, tables, and the charts drawn in the browser."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from itertools import groupby

from hpccoll.report.about import DEFINITIONS, about
from hpccoll.report.alarms import alarms, made_good
from hpccoll.report.charts import Figure
from hpccoll.report.findings import findings, ratio_table
from hpccoll.report.groups import Group
from hpccoll.report.lines import counts
from hpccoll.report.mappings import mapping_table
from hpccoll.report.naming import counted
from hpccoll.report.overview import NOTE, missing_of, overview
from hpccoll.report.sent import wire_table
from hpccoll.report.tables import missing_table, plain_table, provenance, rows_table, scheduled_table
from hpccoll.report.vega import vega
from hpccoll.report.wires import HEADER_MODEL
from hpccoll.store.rows import Results
from hpccoll.terminal import printable
from hpccoll.units import format_size


@dataclass(frozen=True, slots=True)
class Drawn:
    """A chart of one group as it stands in the report: ``files`` is the path of its pictures without the ending."""

    figure: Figure
    group: Group
    specification: Mapping[str, object]
    files: str


def page(results: Results, groups: Sequence[Group], charts: Sequence[Drawn], title: str, note: str = "") -> str:
    """Return the whole page, with a ``note`` for programs in its head."""
    collectives = {name: list(members) for name, members in groupby(groups, key=lambda group: group.collective)}
    parts = [_head(title, note), _alarms(results), _summary(results, collectives, title)]
    if len(collectives) > 1:
        parts.append(_overview(results, groups))
        parts += [_tab(results, name, members, charts) for name, members in collectives.items()]
    else:
        parts.append(_completeness(results))
        parts += [_section(name, _parts(name, members, charts)) for name, members in collectives.items()]
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


def _alarms(results: Results) -> str:
    red = (f'<p class="alarm" role="alert">{escape(said)}</p>' for said in alarms(results))
    return "".join((*red, *(f'<p class="note">{escape(said)}</p>' for said in made_good(results))))


def _summary(results: Results, collectives: Mapping[str, Sequence[Group]], title: str) -> str:
    groups = [group for members in collectives.values() for group in members]
    several = len(collectives) > 1
    picks = [OVERVIEW, *collectives] if several else [*collectives]
    links = "".join(f'<a href="#{escape(name)}">{escape(name)}</a>' for name in picks)
    links = f'<span class="picks">{links}</span>' if several else links
    there = {"rows": not several, "skipped": results.skipped, "jobs": results.scheduled}
    parts = (part for part in ("rows", "definitions", "skipped", "jobs", "provenance") if there.get(part, True))
    fixed = "".join(f'<a href="#{part}">{part}</a>' for part in parts)
    lede = _lede(groups, several=several)
    return f'<header><h1>{escape(title)}</h1>\n<p class="lede">{escape(lede)}</p>\n<nav>{links}{fixed}</nav></header>'


def _lede(groups: Sequence[Group], *, several: bool) -> str:
    """Return what was measured where, in a sentence."""
    points = [point for group in groups for point in group.usable]
    if not points:
        return "There is no usable result: nothing can be drawn or compared."
    rows = [point.row for point in points]
    drawn = {point.series for point in points}
    series = ", ".join(name for name in groups[0].colours if name in drawn)
    what = f"{len({row.collective for row in rows})} collectives" if several else f"{rows[0].collective}: {series}"
    ranks, nodes = f"{_numbers(row.ranks for row in rows)} ranks", f"{_numbers(row.nodes for row in rows)} nodes"
    if any(row.nodes > 1 for row in rows):
        one_each = all(row.ranks == row.nodes for row in rows)
        ranks = f"{nodes} with 1 rank each" if one_each else f"{ranks} on {nodes}"
    ends = sorted(point.row.requested_bytes for group in groups if group.sized for point in group.usable)
    sizes = " to ".join(format_size(nbytes) for nbytes in dict.fromkeys((*ends[:1], *ends[-1:])))
    kinds = " and ".join(sorted({point.kind for point in points}))
    where = "; ".join(dict.fromkeys(point.machine for point in points))
    return f"{'; '.join(filter(None, (what, ranks, sizes)))}; {kinds} on {where}."


def _numbers(values: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(set(values))))


def _completeness(results: Results) -> str:
    done = escape(counts(results))
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


def _overview(results: Results, groups: Sequence[Group]) -> str:
    note = f'<p class="note">{escape(NOTE)}</p>'
    table = f'<div class="overview">{overview(results, groups)}</div>'
    return _section(OVERVIEW, [_completeness(results), table, note], tab=True)


def _tab(results: Results, collective: str, groups: Sequence[Group], charts: Sequence[Drawn]) -> str:
    """Return one of several collectives, with its own rows, and how many are missing."""
    parts = _parts(collective, groups, charts)
    if count := missing_of(results, collective):
        link = f'<a href="#{OVERVIEW}">the overview</a>'
        parts.insert(0, f'<div class="incomplete"><p>{counted(count, "case")} missing: see {link}.</p></div>')
    return _section(collective, [*parts, "<h3>Rows</h3>", SORTS, rows_table(groups)], tab=True)


def _parts(collective: str, groups: Sequence[Group], charts: Sequence[Drawn]) -> list[str]:
    """Return what the section of a collective says and draws of each of its settings."""
    words = about(collective, groups)
    parts = [f'<p class="about">{escape(words)}</p>'] if words else []
    for group in groups:
        if len(groups) > 1:
            parts.append(f'<h3 class="setting">{escape(group.words_beside(groups))}</h3>')
        parts.append(f'<p class="note">{escape("; ".join((group.kind, group.setting, *group.software)))}</p>')
        parts.append(_findings(group))
        parts += [_figure(drawn) for drawn in charts if drawn.group is group]
    return parts


def _findings(group: Group) -> str:
    if not group.usable:
        return "<p>No usable result: nothing is drawn.</p>"
    items = "".join(f"<li><b>{escape(found.about)}:</b> {escape(found.says)}</li>" for found in findings(group))
    head, body = ratio_table(group)
    ratios = plain_table(head, body) + f'<p class="note">{OVER_NATIVE}</p>' if body else ""
    head, body = mapping_table(group)
    placed = plain_table(head, body) + f'<p class="note">{escape(PLACED)}</p>' if body else ""
    head, body = wire_table(group)
    sent = plain_table(head, body) + f'<p class="note">{HEADER_MODEL}</p>' if body else ""
    return f'<ul class="findings">{items}</ul>{ratios}{placed}{sent}'


OVER_NATIVE = "A time of 0.80x is faster than native, one of 2x is slower."
PLACED = (
    "block: ranks of a node follow one another, and so do the nodes of a rack; cyclic: neighbours are in different "
    "racks, or on different nodes of one. Between racks: what all ranks send there in one operation, as counted."
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
        f"<figcaption>{escape(drawn.figure.caption_of(drawn.group))} {links}</figcaption>\n"
        f'<script type="application/json" id="{identity}-spec">{text}</script></figure>'
    )


SORTS = '<p class="note">A click on a heading sorts.</p>'


def _rows(groups: Sequence[Group]) -> str:
    table = rows_table(groups) if groups else "<p>There are no rows.</p>"
    return f'<h2 id="rows">Rows</h2>{SORTS}{table}'


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
    """What chooses a tab, so that no other is seen; Vega once, where there are charts; then what draws."""
    drawing = f'<script type="module">{vega()}</script>\n' if charts else ""
    needed = "<noscript><p>The charts need JavaScript; the same charts are files in charts/.</p></noscript>\n"
    tabs = f"<script>\n{{\n{_static('tabs.js')}}}\n</script>\n"
    return f'{needed}{tabs}{drawing}<script type="module">\n{_static("page.js")}</script>'
