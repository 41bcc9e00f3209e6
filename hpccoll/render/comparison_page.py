"""The page of a comparison: for each collective and shape a chart and the cases by verdict; what else changed."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

import altair as alt

from hpccoll.analysis.shift import Shift
from hpccoll.common.errors import UnusableError
from hpccoll.common.terminal import printable
from hpccoll.common.text import table_of
from hpccoll.common.units import format_count, format_factor, format_size
from hpccoll.judge.run_comparison import CaseComparison, Comparison
from hpccoll.render import chart_base
from hpccoll.render.chart_base import ChartRecord
from hpccoll.render.chart_layout import WIDTH
from hpccoll.render.colours import GREY, INK
from hpccoll.render.comparison_text import (
    SIDE_BY_SIDE_COLUMNS,
    VERDICT_STYLES,
    case_table,
    changed_facts,
    crossed_sentences,
    shift_interval_label,
    side_by_side_meanings,
    verdict_count,
    what_changed,
    what_matters,
)
from hpccoll.render.geometry_text import geometry_lines
from hpccoll.render.judgement_page import (
    JudgementPage,
    JudgementPart,
    JudgementTable,
    judgement_html,
)
from hpccoll.render.page_frame import write_page_or_picture

COLOURS = {
    style.name or str(verdict): style.colour
    for verdict, style in VERDICT_STYLES.items()
    if style.colour
}

FINE_TICKS = 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1, 1.05, 1.1, 1.2, 1.4, 1.7, 2
COARSE_TICKS = 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100
DECADES = tuple(10.0**exponent for exponent in range(-9, 10))
"""The labelled factors: fine ones up to twice the time, coarse ones up to 100 times, and powers of ten."""


def write_comparison(comparison: Comparison, out: Path, title: str) -> None:
    """Write the page of a comparison (html), or its chart alone (svg, png); ``title``: the two runs in words.

    Raises:
        UnusableError: if the chart has nothing to show.
        OSError: if the file cannot be written.
    """

    def chart() -> Mapping[str, object]:
        drawn = comparison_chart(comparison, title)
        if drawn is None:
            nothing = f"{out}: there is no chart, because no case has a time in several rounds of both runs"
            raise UnusableError("--out", nothing)
        return drawn

    write_page_or_picture(out, lambda: comparison_page(comparison, title), chart)


def comparison_page(comparison: Comparison, title: str) -> str:
    """Return the HTML of the page."""
    parts = []
    for number, (call, part) in enumerate(comparison.by_call.items(), 1):
        parts.append(_part_of_page(f"call-{number}", part_heading(*call), part))
    heading = "Side by side"
    answers: list[str] = []
    links: dict[str, str] = {}
    if parts:
        heading = "What changed"
        answers = list(_answers(comparison))
    if len(parts) > 1:
        links = {part.anchor: part.heading for part in parts}
    page = JudgementPage(
        title=f"Compared: {title}",
        heading=heading,
        lede=f"{title}.",
        answers=answers,
        judged=parts,
        links=links,
        figure="shifts",
        figure_title="Time of the new run over that of the old one",
        caption=CAPTION[comparison.unit],
    )
    head, rows = table_of(SIDE_BY_SIDE_COLUMNS, comparison.beside)
    sections = {
        "beside": (head, rows) if rows else None,
        "meanings": side_by_side_meanings(comparison.beside),
        "defects": crossed_sentences(comparison),
        "changes": changed_facts(comparison),
    }
    return judgement_html("comparison.html", page, sections)


def _answers(comparison: Comparison) -> Iterator[str]:
    """Yield what changed, what matters, and what disturbed the runs."""
    yield f"{what_changed(comparison)}."
    matters = what_matters(comparison)
    yield f"{matters[:1].upper()}{matters[1:]}."
    for which, load in zip(("old", "new"), comparison.loads, strict=True):
        if load:
            yield f"The {which} run was disturbed: {load}."
    yield from geometry_lines(comparison.geometries)


def _part_of_page(anchor: str, heading: str, comparison: Comparison) -> JudgementPart:
    """Return the part of the page on a collective and shape."""
    tables = []
    for verdict, style in VERDICT_STYLES.items():
        cases = comparison.of(verdict)
        if cases:
            head, rows = case_table(cases)
            tables.append(
                JudgementTable(
                    head, rows, verdict_count(verdict, comparison), style.meaning, style.folded
                )
            )
    chart = comparison_chart(comparison, heading)
    return JudgementPart(anchor, heading, what_changed(comparison), chart, tables)


CAPTION = {
    unit: "Each mark is a case: its time in the new run over that in the old one, with the 95 % interval from "
    f"{samples}. Changes within the grey band do not matter. The scale is that of the marks: wider intervals are cut."
    for unit, samples in (
        ("round", "the medians of the rounds of both runs"),
        ("run", "the times of the runs of the reference"),
    )
}
"""How to read the chart, by what a sample is."""


def comparison_chart(comparison: Comparison, title: str) -> Mapping[str, object] | None:
    """Return the chart: the shift of each case by size, in a panel for each collective and shape; None without one."""
    shifted = _shifted_cases(comparison)
    if not shifted:
        return None
    data = [_record(held, shift) for held, shift in shifted]
    algorithms = sorted(chart_base.distinct(data, "algorithm"))
    panels = chart_base.distinct(data, "panel")
    columns = min(2, len(panels))
    layers = _case_layers(comparison.tolerance, shifted, algorithms)
    panel = alt.layer(_tolerance_band(comparison.tolerance), *layers)
    panel = panel.properties(width=WIDTH // columns, height=260)
    titles = panels if columns > 1 else ()
    whole = chart_base.facet_chart(panel, data, titles, columns)
    lines = [what_changed(comparison), what_matters(comparison)]
    return chart_base.apply_theme(whole, printable(title), lines, [*COLOURS, *algorithms])


def _shifted_cases(comparison: Comparison) -> list[tuple[CaseComparison, Shift]]:
    """Return the cases with a shift, with it, of as many collectives and shapes as there is room for."""
    cases_of_parts = []
    for part in comparison.by_call.values():
        shifted = [(held, held.shift) for held in part.cases if held.shift]
        if shifted:
            cases_of_parts.append(shifted)
    return list(chain.from_iterable(cases_of_parts[: chart_base.MAX_PANELS]))


def _case_layers(
    tolerance: float, shifted: Sequence[tuple[CaseComparison, Shift]], algorithms: Sequence[str]
) -> list[alt.Chart]:
    """Return the layers of the intervals and of the points of cases."""
    sizes = {held.case.coordinates["requested_bytes"] for held, _ in shifted}
    x = _size_axis([format_size(nbytes) for nbytes in sorted(sizes)])
    y = _factor_axis(tolerance, [shift.factor for _, shift in shifted])
    base = alt.Chart().encode(x=x, xOffset=alt.XOffset("offset:N", sort=None))
    colours = alt.Color("verdict:N", scale=chart_base.scale_of(COLOURS), legend=alt.Legend())
    legend = alt.Legend(orient="bottom", symbolFillColor=INK, symbolStrokeColor=INK)
    shapes = alt.Shape("algorithm:N", scale=alt.Scale(domain=algorithms), legend=legend)
    rules = base.mark_rule(strokeWidth=1.5, clip=True)
    intervals = rules.encode(y=alt.Y("low:Q"), y2=alt.Y2("high:Q"), color=colours)
    fields = chart_base.tooltip("case", "verdict", "change", "interval")
    symbols = base.mark_point(size=45, filled=True, opacity=1)
    points = symbols.encode(y=y, color=colours, shape=shapes, tooltip=fields)
    return [intervals, points]


def _size_axis(sizes: Sequence[str]) -> alt.X:
    labels = alt.Axis(labelAngle=0, labelOverlap="greedy", labelSeparation=4, ticks=True)
    return alt.X("size:N", title=None, sort=list(sizes), axis=labels)


def _factor_axis(tolerance: float, factors: Sequence[float]) -> alt.Y:
    """Return the axis of factors; the farther it reaches, the coarser are the labelled ones."""
    least, most = _factor_domain(tolerance, factors)
    reach = max(most, 1 / least)
    ticks = DECADES
    if reach < max(FINE_TICKS):
        ticks = FINE_TICKS
    elif reach < max(COARSE_TICKS):
        ticks = COARSE_TICKS
    shown = [tick for tick in ticks if least < tick < most]
    axis = alt.Axis(labelExpr=chart_base.FACTOR_LABEL, values=shown)
    scale = alt.Scale(type="log", domain=[least, most], nice=False)
    return alt.Y("factor:Q", title="new time / old time", scale=scale, axis=axis)


def _tolerance_band(tolerance: float) -> alt.Chart:
    """Return the band of the changes that do not matter: one rectangle in each panel, not one for each case."""
    panels = alt.Chart().transform_aggregate(cases="count()", groupby=["panel"])
    rectangles = panels.mark_rect(opacity=0.3, color=GREY)
    low, high = alt.YDatum(1 / (1 + tolerance)), alt.Y2Datum(1 + tolerance)
    band: alt.Chart = rectangles.encode(y=low, y2=high)
    return band


def _factor_domain(tolerance: float, factors: Sequence[float]) -> tuple[float, float]:
    """Return the ends of the axis: all factors, at least twice the tolerance, and room for the marks."""
    room = (1 + 2 * tolerance) * 1.02
    least, most = min(1.0, *factors), max(1.0, *factors)
    return least / room, most * room


def _record(held: CaseComparison, shift: Shift) -> ChartRecord:
    coordinates = held.case.coordinates
    algorithm = coordinates["algorithm"]
    placement = coordinates["in_place"]
    size = format_size(coordinates["requested_bytes"])
    heading = part_heading(coordinates["collective"], coordinates["ranks"], coordinates["nodes"])
    verdict = VERDICT_STYLES[held.verdict].name or str(held.verdict)
    return {
        "panel": heading,
        "size": size,
        "algorithm": algorithm,
        "offset": f"{algorithm} {placement}",
        "verdict": verdict,
        "case": held.case.label,
        "factor": shift.factor,
        "low": shift.low,
        "high": shift.high,
        "change": format_factor(shift.factor),
        "interval": shift_interval_label(shift),
    }


def part_heading(collective: str, ranks: int, nodes: int) -> str:
    """Return a collective and its shape in words: ``all_reduce, 4 ranks on 1 node``."""
    return f"{collective}, {format_count(ranks, 'rank')} on {format_count(nodes, 'node')}"
