"""The report as one HTML page that opens offline: text, tables, and charts drawn in the browser."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby

from hpccoll.analysis.answers import Answers
from hpccoll.analysis.chart_groups import ChartGroup
from hpccoll.analysis.critical_findings import opening_findings
from hpccoll.analysis.group_findings import group_findings
from hpccoll.analysis.mapping_comparison import mapping_table
from hpccoll.analysis.sent_bytes_table import sent_bytes_table
from hpccoll.analysis.wire_bandwidth import HEADER_MODEL
from hpccoll.cases.algorithm_registry import COLLECTIVES
from hpccoll.common.terminal import printable
from hpccoll.common.text import Finding
from hpccoll.common.units import format_count
from hpccoll.render.answer_section import MAX_LINES, answer_section, answer_table
from hpccoll.render.charts import OVERVIEW, Figure, heading_lines
from hpccoll.render.definitions import DEFINITIONS, describe_collective, heading_of
from hpccoll.render.html_tables import missing_table, plain_table, provenance_list, rows_table, slurm_jobs_table
from hpccoll.render.measured_summary import measured_heading, measured_summary
from hpccoll.render.other_programs import other_programs_section
from hpccoll.render.page_frame import chart_figure, page_head, page_scripts
from hpccoll.render.step_findings import step_findings, step_table
from hpccoll.render.terminal_summary import case_counts
from hpccoll.store.rows import Results


@dataclass(frozen=True, slots=True)
class ReportChart:
    """A chart of one group in the report; ``files`` is the relative path of its pictures without the suffix."""

    figure: Figure
    group: ChartGroup
    specification: Mapping[str, object]
    files: str


def render_page(
    results: Results,
    answers: Answers,
    groups: Sequence[ChartGroup],
    charts: Sequence[ReportChart],
    title: str,
    note: str = "",
) -> str:
    """Return the HTML of the page: the answers, then charts and findings, then everything else.

    Args:
        results: the results.
        answers: what to use, for each collective.
        groups: the groups of rows.
        charts: the charts of the groups, and the overview of several collectives.
        title: the name of the results.
        note: an element of the head that programs read.
    """
    collectives = {name: list(members) for name, members in groupby(groups, key=lambda group: group.collective)}
    several = len(collectives) > 1
    head = [page_head(f"{measured_heading(groups)} - {title}", note), _opening(results)]
    parts = [_summary(results, collectives, title)]
    if several:
        parts.append(_overview(results, answers, collectives, charts))
        parts += [_tab(results, answers, name, members, charts) for name, members in collectives.items()]
    else:
        parts += [answer_section(results, answers, [*collectives]), _completeness(results), _remarks(results)]
        parts += [_section(name, _collective_parts(name, members, charts)) for name, members in collectives.items()]
        parts.append(_rows(groups))
    others = other_programs_section(results)
    parts += [others, _skipped(results), _scheduled(results), _provenance(results), _glossary()]
    written = printable("\n".join(filter(None, head + parts)))
    scripts = page_scripts(with_charts=bool(charts or others), instead="; the same charts are files in charts/")
    return f"{written}\n{scripts}\n</body>\n</html>\n"


def _opening(results: Results) -> str:
    """Return the findings that may make results useless."""
    findings = (finding for finding in opening_findings(results) if finding.severity == "critical")
    return "".join(f'<p class="critical" role="alert">{escape(each.text)}</p>' for each in findings)


def _remarks(results: Results) -> str:
    """Return the other findings about all results."""
    findings = (finding for finding in opening_findings(results) if finding.severity != "critical")
    return "".join(f'<p class="note">{escape(each.text)}</p>' for each in findings)


def _summary(results: Results, collectives: Mapping[str, Sequence[ChartGroup]], title: str) -> str:
    groups = [group for members in collectives.values() for group in members]
    several = len(collectives) > 1
    picks = [OVERVIEW, *collectives] if several else [*collectives]
    links = "".join(f'<a href="#{escape(name)}">{escape(heading_of(name))}</a>' for name in picks)
    links = f'<span class="picks">{links}</span>' if several else links
    imported = any(row.imported for row in results.rows)
    shown = {"rows": not several, "other-programs": imported, "skipped": results.skipped, "jobs": results.scheduled}
    names = "rows", "other-programs", "skipped", "jobs", "provenance", "glossary"
    parts = (part for part in names if shown.get(part, True))
    fixed = "".join(f'<a href="#{part}">{part.replace("-", " ")}</a>' for part in parts)
    return (
        f'<header><h1>{escape(measured_heading(groups))}</h1>\n<p class="lede">{escape(measured_summary(groups))} '
        f"Name of the results: {escape(title)}.</p>\n<nav>{links}{fixed}</nav></header>"
    )


def _completeness(results: Results) -> str:
    """Return the partial runs and the missing cases; empty if the results are complete."""
    partial = [run.run_id for run in results.runs if run.status != "complete"]
    partly = (
        f"<p>Partial runs, which ended before their last case: {escape(', '.join(partial))}.</p>" if partial else ""
    )
    if not partly and not results.missing:
        return ""
    missing = missing_table(results.missing) if results.missing else ""
    return f'<div class="incomplete"><p>{escape(case_counts(results))}.</p>{partly}{missing}</div>'


def _section(name: str, parts: Iterable[str], *, tab: bool = False) -> str:
    marked = f'<section id="{escape(name)}"{" class=tab" if tab else ""}>\n<h2>{escape(heading_of(name))}</h2>'
    return "\n".join([marked, *parts, "</section>"])


def _overview(
    results: Results,
    answers: Answers,
    collectives: Mapping[str, Sequence[ChartGroup]],
    charts: Sequence[ReportChart],
) -> str:
    unmeasured = {gap.case.partition(".")[0] for gap in results.missing} & COLLECTIVES.keys() - collectives.keys()
    figures = [_figure(drawn) for drawn in charts if drawn.group.collective == OVERVIEW]
    answered = answer_section(results, answers, [*collectives], sorted(unmeasured))
    parts = [answered, *figures, _completeness(results), _remarks(results)]
    return "\n".join(['<section id="overview" class=tab>', *parts, "</section>"])


def _tab(
    results: Results,
    answers: Answers,
    collective: str,
    groups: Sequence[ChartGroup],
    charts: Sequence[ReportChart],
) -> str:
    """Return the tab of one of several collectives, with its own rows and its number of missing cases."""
    parts = [answer_table(answers, collective), *_collective_parts(collective, groups, charts)]
    if count := sum(gap.case.startswith(f"{collective}.") for gap in results.missing):
        link = f'<a href="#{OVERVIEW}">the overview</a>'
        parts.insert(0, f'<div class="incomplete"><p>{format_count(count, "case")} missing: see {link}.</p></div>')
    return _section(collective, [*parts, "<h3>Rows</h3>", SORT_NOTE, rows_table(groups)], tab=True)


def _collective_parts(collective: str, groups: Sequence[ChartGroup], charts: Sequence[ReportChart]) -> list[str]:
    """Return the description of a collective, and the charts, findings and tables of each of its settings."""
    description = describe_collective(collective, groups)
    parts = [f'<p class="about">{escape(description)}</p>'] if description else []
    for group in groups:
        if len(groups) > 1:
            parts.append(f'<h3 class="setting">{escape(group.distinguishing_setting(groups))}</h3>')
        parts.append(f'<p class="note">{"<br>".join(map(escape, heading_lines(group)))}</p>')
        head, lines = step_table(group) if group.of_steps else ([], [])
        if lines:
            parts.append(plain_table(head, lines, tall=len(lines) > MAX_LINES))
        parts += [_figure(drawn) for drawn in charts if drawn.group is group]
        parts.append(_findings(group))
    return parts


def _findings(group: ChartGroup) -> str:
    if not group.drawn:
        return "<p>No usable result: nothing is drawn.</p>"
    if not group.usable:
        return ""
    items = "".join(map(_finding, step_findings(group) if group.of_steps else group_findings(group)))
    head, body = mapping_table(group)
    placed = plain_table(head, body) + f'<p class="note">{escape(MAPPING_NOTE)}</p>' if body else ""
    head, body = sent_bytes_table(group)
    sent = plain_table(head, body) + f'<p class="note">{HEADER_MODEL}</p>' if body else ""
    return f'<h3>Findings</h3><ul class="findings">{items}</ul>{placed}{sent}'


def _finding(finding: Finding) -> str:
    """Return a finding as an item of a list, with its explanation folded."""
    statement = f"<b>{escape(finding.title)}:</b> {escape(finding.text)}"
    if finding.remedy:
        statement = f"<details><summary>{statement}</summary>{escape(finding.remedy)}</details>"
    return f'<li class="{finding.severity}">{statement}</li>'


MAPPING_NOTE = (
    "block: consecutive ranks are on one node, and consecutive nodes in one rack; cyclic: consecutive ranks are in "
    "different racks, or on different nodes of one rack. Between racks: bytes that all ranks send from rack to rack in "
    "one operation, counted from the schedule."
)


def _figure(drawn: ReportChart) -> str:
    identity = drawn.files.rpartition("/")[2]
    links = " ".join(f'<a href="{escape(drawn.files)}.{ending}">{ending.upper()}</a>' for ending in ("svg", "png"))
    title, caption = drawn.figure.title_of(drawn.group), drawn.figure.group_caption(drawn.group)
    return chart_figure(identity, title, drawn.specification, caption, links)


SORT_NOTE = '<p class="note">A click on a heading sorts.</p>'


def _rows(groups: Sequence[ChartGroup]) -> str:
    table = rows_table(groups) if groups else "<p>There are no rows.</p>"
    return f'<h2 id="rows">Rows</h2>{SORT_NOTE}{table}'


def _glossary() -> str:
    listed = "".join(f"<dt>{escape(word)}</dt><dd>{escape(meaning)}</dd>" for word, meaning in DEFINITIONS.items())
    return f'<h2 id="glossary">Glossary</h2><details><summary>What the words mean</summary><dl>{listed}</dl></details>'


def _skipped(results: Results) -> str:
    if not results.skipped:
        return ""
    return f'<h2 id="skipped">Skipped on purpose</h2>{missing_table(results.skipped)}'


def _scheduled(results: Results) -> str:
    return f'<h2 id="jobs">Slurm jobs</h2>{slurm_jobs_table(results.scheduled)}' if results.scheduled else ""


def _provenance(results: Results) -> str:
    runs = "".join(provenance_list(run) for run in results.runs) or "<p>No run left a file.</p>"
    return f'<h2 id="provenance">Provenance</h2>{runs}'
