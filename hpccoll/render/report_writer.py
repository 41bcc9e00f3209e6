"""The report: one HTML page that opens offline, from its template ``report.html``, and a picture file of each chart."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from hpccoll.analysis.chart_groups import ChartGroup, chart_groups, shared_words
from hpccoll.analysis.group_findings import group_findings
from hpccoll.analysis.library_evidence import library_facts
from hpccoll.analysis.mapping_comparison import mapping_table
from hpccoll.analysis.measurement_quality import noise_note
from hpccoll.analysis.recommendations import Recommendation, recommend
from hpccoll.analysis.sent_bytes import sent_bytes_table
from hpccoll.analysis.wire_bandwidth import HEADER_MODEL
from hpccoll.cases.algorithm_registry import COLLECTIVES
from hpccoll.common.terminal import printable
from hpccoll.common.text import join_words
from hpccoll.common.units import format_count
from hpccoll.render.answer_charts import ANSWER_FIGURES, ANSWER_SUFFIX, answered_group
from hpccoll.render.answer_lines import Answer
from hpccoll.render.answers import MAX_NAMED_SETTINGS, Answers, unanswered
from hpccoll.render.chart_base import write_picture
from hpccoll.render.chart_layout import AXIS_ROOM, WIDTH, fitted
from hpccoll.render.charts import FIGURES, OVERVIEW_FIGURES, overview_group
from hpccoll.render.choice_times_table import ChoiceTable, choice_tables
from hpccoll.render.comparison_text import other_programs
from hpccoll.render.definitions import (
    ANSWERS_IN_BRIEF,
    DEFINITIONS,
    OVERVIEW,
    STRENGTH_MEANINGS,
    describe_collective,
    heading_lines,
    heading_of,
)
from hpccoll.render.drawn_charts import MOST_PNGS, drawn_groups
from hpccoll.render.figure import Figure
from hpccoll.render.measured_summary import measured_heading, measured_summary
from hpccoll.render.output_directory import PAGE_NAME, input_names, inputs_text, recorded_inputs
from hpccoll.render.page_frame import render, vega_script, write_rendered
from hpccoll.render.pair_answers import pair_answers
from hpccoll.render.provenance_text import provenance_facts
from hpccoll.render.report_columns import rows_table
from hpccoll.render.report_findings import report_findings
from hpccoll.render.terminal_summary import case_counts
from hpccoll.render.unmeasured_text import not_measured
from hpccoll.render.workload_page import Table, workload_answers, workload_page
from hpccoll.store.durable_files import replacing_file
from hpccoll.store.rows import NOT_PLANNED, Gap, Results, Run


@dataclass(frozen=True, slots=True)
class Drawing:
    """A drawn specification; ``files`` is the relative path of its pictures without the suffix."""

    specification: Mapping[str, object]
    files: str
    endings: tuple[str, ...] = ("svg", "png")  # of its pictures

    @property
    def name(self) -> str:
        return self.files.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class ReportChart:
    """A chart of one group in the report, in two drawings, each on a scale of its own."""

    title: str
    caption: str
    group: ChartGroup
    figure: str  # the name of its figure
    # what was measured with a core for each rank, or everything; None if that is nothing
    shown: Drawing | None
    folded: Drawing | None = None  # what was measured with more ranks than cores
    summary: str = ""  # that in words

    @property
    def name(self) -> str:
        return f"{self.group.name}-{self.figure}"

    @property
    def tables(self) -> list[ChoiceTable]:
        """The tables of what the map shows; empty for any other chart."""
        if self.figure != "choice":
            return []
        return choice_tables(self.group)

    @property
    def drawings(self) -> tuple[Drawing, ...]:
        return tuple(filter(None, (self.shown, self.folded)))

    def without_png(self) -> "ReportChart":
        """Return the chart without PNG files."""
        shown = self.shown and replace(self.shown, endings=("svg",))
        folded = self.folded and replace(self.folded, endings=("svg",))
        return replace(self, shown=shown, folded=folded)


def build_report(
    results: Results,
    out: Path,
    title: str,
    paths: Sequence[Path] = (),
    recommendations: Sequence[Recommendation] | None = None,
) -> Path:
    """Write ``index.html`` and ``charts/NAME.svg`` and ``.png`` below ``out``; return the path of the page.

    It is written even if there are no results, each file atomically: if the disk is full, an
    earlier report stays readable. The page records the ``paths`` of its inputs, so that another
    report does not replace it unnoticed. The ``recommendations`` of the results may be there
    already.

    Raises:
        UnusableError: the page in ``out`` is not a report.
        OSError: a file cannot be written.
    """
    recorded_inputs(out)
    (out / "charts").mkdir(parents=True, exist_ok=True)
    if recommendations is None:
        recommendations = recommend(results)
    answers = Answers(recommendations)
    groups = chart_groups(results, recommendations, input_names(results, paths))
    drawn = drawn_groups(groups, answers)
    charts: list[ReportChart] = []
    for name in dict.fromkeys(group.collective for group in groups):
        answered = answered_group(groups, answers, name)
        if answered:
            charts += _group_charts(answered, ANSWER_FIGURES)
    if len({group.collective for group in groups}) > 1:
        charts += _group_charts(overview_group(groups, answers), OVERVIEW_FIGURES)
    for group in groups:
        if group.name in drawn:
            page = workload_page(group.collective)
            charts += _group_charts(group, page.figures if page else FIGURES)
    charts = _with_few_pngs(charts)
    for chart in charts:
        for drawing in chart.drawings:
            _save_drawing(drawing, out)
    index = out / PAGE_NAME
    with replacing_file(index) as unfinished:
        context = page_context(results, answers, groups, charts, title, inputs_text(paths, out))
        write_rendered(unfinished, "report.html", context)
    return index


def _group_charts(group: ChartGroup, figures: Iterable[Figure]) -> list[ReportChart]:
    charts = (_report_chart(group, figure) for figure in figures if group.drawn)
    return [chart for chart in charts if chart.drawings]


def _with_few_pngs(charts: Iterable[ReportChart]) -> list[ReportChart]:
    """Return the charts; only the first drawings are also PNG files."""
    kept = []
    drawings = 0
    for chart in charts:
        drawings += len(chart.drawings)
        kept.append(chart if drawings <= MOST_PNGS else chart.without_png())
    return kept


def _report_chart(group: ChartGroup, figure: Figure) -> ReportChart:
    name = f"charts/{group.name}-{figure.name}"
    shown = _drawing(figure, group.fitting, name)
    folded_group = figure.folded_part(group)
    folded = None
    if folded_group:
        folded = _drawing(figure, folded_group, f"{name}-oversubscribed")
    summary = f"{_oversubscribed_counts(group)}: more ranks than cores"
    if folded_group is group:
        summary = f"with {summary}"
    return ReportChart(
        title=figure.title_of(group),
        caption=figure.group_caption(group),
        group=group,
        figure=figure.name,
        shown=shown,
        folded=folded,
        summary=summary,
    )


def _oversubscribed_counts(group: ChartGroup) -> str:
    """Return the counts of ranks or nodes with more ranks than cores, in words: ``3 and 4 ranks``."""
    counts = list(map(str, group.oversubscribed_counts))
    return f"{join_words(counts)} {group.unit}"


def _drawing(figure: Figure, group: ChartGroup, files: str) -> Drawing | None:
    specification = figure.specification(group)
    if not specification:
        return None
    return Drawing(_printable(specification), files)


def _printable(value: Any) -> Any:
    """Return a specification with printable text only, because a picture is an XML file."""
    match value:
        case str():
            return printable(value)
        case Mapping():
            return {name: _printable(part) for name, part in value.items()}
        case list() | tuple():
            return [_printable(part) for part in value]
    return value


def _save_drawing(drawing: Drawing, out: Path) -> None:
    whole = fitted(drawing.specification, WIDTH + AXIS_ROOM)
    paths = [out / f"{drawing.files}.{ending}" for ending in drawing.endings]
    write_picture(whole, *paths)


def page_context(
    results: Results,
    answers: Answers,
    groups: Sequence[ChartGroup],
    charts: Sequence[ReportChart],
    title: str,
    inputs: str = "",
) -> dict[str, object]:
    """Return what the template shows: the answers, then charts and findings, then everything else.

    ``charts`` has the chart of each group, and the overview if there is more than one collective.
    ``title`` is the name of the results, and ``inputs`` what the page records of its inputs (see
    ``output_directory``).
    """
    collectives = {
        name: list(members) for name, members in groupby(groups, key=lambda group: group.collective)
    }
    several = len(collectives) > 1
    sections = []
    for name, members in collectives.items():
        sections.append(_section(results, answers, name, members, charts, several=several))
    unmeasured: list[str] = []
    if several:
        planned = {gap.case.partition(".")[0] for gap in results.missing}
        unmeasured = sorted((planned & COLLECTIVES.keys()) - collectives.keys())
    overview = [chart for chart in charts if chart.group.collective == OVERVIEW]
    script = vega_script() if charts else ""
    context = _head(results, groups) | _foot(results, groups, several=several)
    context["title"] = f"{measured_heading(groups)} - {title}"
    context["name"] = title
    context["inputs"] = inputs
    context["several"] = several
    context["collectives"] = [(name, heading_of(name)) for name in collectives]
    context["answers"] = answer_section(results, answers, list(collectives), unmeasured)
    context["overview"] = overview
    context["beside"] = _charts_beside_answers(charts)
    context["sections"] = sections
    context["vega"] = script
    return context


def _charts_beside_answers(charts: Iterable[ReportChart]) -> dict[str, list[ReportChart]]:
    """Return the charts beside the answers of each collective."""
    beside: dict[str, list[ReportChart]] = defaultdict(list)
    for chart in charts:
        if chart.group.name.endswith(ANSWER_SUFFIX):
            beside[chart.group.collective].append(chart)
    return beside


def _head(results: Results, groups: Sequence[ChartGroup]) -> dict[str, object]:
    """Return what the page says before its sections: what was measured, findings, and what is missing."""
    opening = []
    remarks = []
    for finding in report_findings(results):
        if finding.severity == "critical":
            opening.append(finding)
        else:
            remarks.append(finding)
    partial = [run.run_id for run in results.runs if run.status != "complete"]
    return {
        "heading": measured_heading(groups),
        "summary": measured_summary(groups),
        "opening": opening,
        "remarks": remarks,
        "counts": case_counts(results),
        "partial": partial,
        "missing": _by_reason(results.missing),
    }


def _foot(results: Results, groups: Sequence[ChartGroup], *, several: bool) -> dict[str, object]:
    """Return what the page says after its sections; if it has ``several`` collectives, each lists its own rows."""
    imported = other_programs(results)
    jobs = [
        (job.id, job.job, job.outcome, job.hosts, job.limit, job.log) for job in results.scheduled
    ]
    ends = []
    if not several:
        ends.append("rows")
    if imported:
        ends.append("other-programs")
    if results.skipped:
        ends.append("skipped")
    if jobs:
        ends.append("jobs")
    ends += ["provenance", "glossary"]
    return {
        "ends": ends,
        "table": rows_table([] if several else groups),
        "others": imported,
        "skipped": _by_reason(results.skipped),
        "jobs": jobs,
        "runs": [_provenance(run) for run in results.runs],
        "glossary": DEFINITIONS,
    }


def _section(
    results: Results,
    answers: Answers,
    name: str,
    groups: Sequence[ChartGroup],
    charts: Sequence[ReportChart],
    *,
    several: bool,
) -> dict[str, object]:
    missing = sum(gap.case.startswith(f"{name}.") for gap in results.missing)
    shared = shared_words(groups)
    settings = []
    for group in groups:
        words = group.distinguishing_setting(shared) if len(groups) > 1 else ""
        settings.append(_setting(group, words, charts))
    own_answers = ""
    own_rows: Sequence[ChartGroup] = []
    if several:
        own_answers = collective_answers(results, answers, name)
        own_rows = groups
    return {
        "name": name,
        "heading": heading_of(name),
        "description": describe_collective(name, groups),
        "groups": settings,
        "answers": own_answers,
        "missing": format_count(missing, "case") if missing else "",
        "rows": rows_table(own_rows),
    }


def _setting(group: ChartGroup, setting: str, charts: Sequence[ReportChart]) -> dict[str, object]:
    page = workload_page(group.collective)
    head: Sequence[str] = []
    choices: Sequence[object] = []
    if page:
        head, choices = page.choices(group)
    own_charts = [chart for chart in charts if chart.group is group]
    charted_settings = {chart.group.name for chart in charts if chart.group.collective != OVERVIEW}
    not_charted = ""
    if group.drawn and not own_charts and charted_settings:
        not_charted = NOT_CHARTED.format(settings=format_count(len(charted_settings), "setting"))
    has_map = any(chart.figure == "choice" for chart in own_charts)
    findings = None
    tables: list[tuple[Table, str]] | None = None
    if group.usable:
        findings = group_findings(group)
        tables = [(mapping_table(group), MAPPING_NOTE), (sent_bytes_table(group), HEADER_MODEL)]
        if page:
            tables += page.tables(group)
    return {
        "setting": setting,
        "lines": heading_lines(group),
        "head": head,
        "choices": choices,
        "charts": own_charts,
        "drawn": group.drawn,
        "not_charted": not_charted,
        "choice_tables": [] if has_map else choice_tables(group),
        "usable": group.usable,
        "findings": findings or [],
        "tables": tables,
    }


def answer_section(
    results: Results, answers: Answers, collectives: Sequence[str], unmeasured: Sequence[str] = ()
) -> str:
    """Return the answers of a page: of each collective, or all of a single one, and what was not measured.

    The ``collectives`` have a part of the page each; the ``unmeasured`` ones were planned, too.
    """
    several = len(collectives) > 1
    answers_of_workloads = workload_answers(results)
    answers_of_pairs = pair_answers(results)
    shown: list[Answer] = []
    folded: list[Answer] = []
    for name in (*collectives, *unmeasured):
        own_answers = list(answers_of_pairs.get(name, ()))
        if name in answers_of_workloads:
            own_answers += answers_of_workloads[name]
        else:
            first, further = answers.split(name)
            own_answers += first
            if not several:
                folded += further
        shown += own_answers or [unanswered(results, name)]
    context = _answers(results, shown, folded, [*collectives, *unmeasured])
    legend = {
        "brief": ANSWERS_IN_BRIEF,
        "counts": _counts(results),
        "strengths": STRENGTH_MEANINGS,
        "noise": noise_note(results),
    }
    return render(
        "answers.html", context | {"links": collectives if several else (), "legend": legend}
    )


def collective_answers(results: Results, answers: Answers, name: str) -> str:
    """Return all answers for the collective ``name``, on a page that has further ones."""
    shown, folded = answers.split(name)
    if not shown:
        return ""
    return render("answers.html", _answers(results, shown, folded, [name]))


def _answers(
    results: Results, shown: Sequence[Answer], folded: Sequence[Answer], names: Sequence[str]
) -> dict[str, object]:
    """Return what a page says: some answers, others in a fold, and what those of collectives ``names`` do not cover."""
    settings = list(dict.fromkeys(answer.where for answer in folded))
    named = settings[:MAX_NAMED_SETTINGS]
    if len(named) < len(settings):
        named.append("...")
    summary = f"{format_count(len(folded), 'more setting')}: {'; '.join(named)}"
    shared = {answer.where for answer in shown if answer.where}
    shared_setting = ""
    if len(shared) == 1 and len(shown) > 1:
        shared_setting = shared.pop()
    return {
        "on": shared_setting,
        "shown": shown,
        "folded": folded,
        "summary": summary,
        "not_measured": not_measured(results, names),
        "links": (),
        "legend": None,
    }


def _counts(results: Results) -> str:
    has_other_rows = any(not row.ours for row in results.rows)
    not_planned = sum(gap.status == NOT_PLANNED for gap in results.skipped)
    are_all_done = results.done == (results.planned, 0)
    if not are_all_done or len(results.skipped) > not_planned or has_other_rows:
        return case_counts(results)
    text = "The only case has a result"
    if results.planned > 1:
        text = f"All {results.planned} cases have a result"
    if not_planned:
        text += f"; {not_planned} more left out of the plan"
    return text


NOT_CHARTED = (
    "No charts of this setting: the page has those of {settings}, which come first by their answers and rows. Its rows "
    "are in the table, and a report of fewer files draws it."
)

MAPPING_NOTE = (
    "block: consecutive ranks are on one node, and consecutive nodes in one rack; cyclic: consecutive ranks are in "
    "different racks, or on different nodes of one rack. Between racks: bytes that all ranks send from rack to rack in "
    "one operation, counted from the schedule."
)


def _by_reason(missing: Iterable[Gap]) -> list[tuple[str, str, str, list[str]]]:
    """Return status, job, reason and cases of what has no result: a line for each reason, the causes first.

    Cases that were not run come last, because an earlier failure is the cause.
    """
    cases: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for gap in missing:
        cases[gap.status, gap.job, gap.reason].append(gap.case)
    lines = [(*key, alike) for key, alike in cases.items()]
    return sorted(lines, key=lambda line: (line[0] == "not run", -len(line[3])))


def _provenance(run: Run) -> tuple[str, dict[str, str]]:
    """Return the title of a run, and in words what it was measured with, by the name of the fact."""
    title = f"run {run.run_id}: job {run.job}, attempt {run.attempt}, {run.created}, {run.status}"
    facts: dict[str, object] = {
        "raw file": run.path,
        "machine": run.machine,
        "kind": run.kind,
        "created": run.created,
        "status": run.status,
    }
    facts |= library_facts(run)
    facts |= provenance_facts(run.provenance)
    words = {name: str(value) for name, value in facts.items()}
    return title, words
