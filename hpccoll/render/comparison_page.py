"""The page of a comparison: one chart of all shifts, the cases by verdict, and what else changed."""

from collections.abc import Mapping
from pathlib import Path

import altair as alt

from hpccoll.analysis.run_comparison import CaseComparison, Comparison
from hpccoll.analysis.shift import Shift
from hpccoll.common.errors import UnusableError
from hpccoll.common.terminal import printable
from hpccoll.common.text import table_of
from hpccoll.common.units import format_count, format_size
from hpccoll.render import chart_base
from hpccoll.render.chart_base import ChartRecord
from hpccoll.render.colours import GREY, INK
from hpccoll.render.comparison_tables import (
    SIDE_BY_SIDE_COLUMNS,
    VERDICT_STYLES,
    case_table,
    change_label,
    shift_interval_label,
    side_by_side_meanings,
    summary,
    verdict_count,
)
from hpccoll.render.page_frame import render, vega_script
from hpccoll.store.durable_files import replacing_file

COLOURS = {verdict: style.colour for verdict, style in VERDICT_STYLES.items() if style.colour}

FINE_TICKS = 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1, 1.05, 1.1, 1.2, 1.4, 1.7, 2
COARSE_TICKS = 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100
DECADES = tuple(10.0**exponent for exponent in range(-9, 10))
"""The labelled factors: fine ones up to twice the time, coarse ones up to 100 times, and powers of ten."""

MAX_SIZE_LABELS = 7
"""The most sizes that fit below a panel."""

MAX_PANELS = 8
"""The most panels; the cases of further collectives and shapes are in the tables only."""


def write_comparison(comparison: Comparison, out: Path, title: str) -> None:
    """Write the page of a comparison (html), or its chart alone (svg, png); ``title``: the two runs in words.

    Raises:
        UnusableError: if the chart has nothing to show.
        OSError: if the file cannot be written.
    """
    chart = comparison_chart(comparison, title)
    if out.suffix == ".html":
        with replacing_file(out.resolve()) as unfinished:
            unfinished.write_text(comparison_page(comparison, title, chart), encoding="utf-8")
        return
    if chart is None:
        raise UnusableError(
            "--out", f"{out}: there is no chart, because no case has a time in several rounds of both runs"
        )
    chart_base.write_picture(chart, out)


def comparison_page(comparison: Comparison, title: str, chart: Mapping[str, object] | None) -> str:
    """Return the HTML of the page."""
    context = {
        "title": f"Compared: {title}",
        "runs": title,
        "cases": comparison.cases,
        "summary": summary(comparison) if comparison.cases else "",
        "loads": list(zip(("old", "new"), comparison.loads, strict=True)),
        "chart": chart,
        "caption": CAPTION[comparison.unit],
        "verdicts": [
            (verdict_count(verdict, comparison), style.meaning, style.folded, case_table(cases))
            for verdict, style in VERDICT_STYLES.items()
            if (cases := comparison.of(verdict))
        ],
        "beside": table_of(SIDE_BY_SIDE_COLUMNS, comparison.beside) if comparison.beside else None,
        "meanings": side_by_side_meanings(comparison.beside),
        "changes": [(name, *values) for name, values in comparison.changes.items()],
        "vega": vega_script() if chart else "",
    }
    return render("comparison.html", context)


CAPTION = {
    unit: f"Each mark is a case: by how much its time changed, with the 95 % interval from {samples}. Shifts within "
    "the grey band are smaller than the tolerance."
    for unit, samples in (
        ("round", "the medians of the rounds of both runs"), ("run", "the times of the runs of the reference"),
    )
}  # fmt: skip
"""How to read the chart, by what a sample is."""


def comparison_chart(comparison: Comparison, title: str) -> Mapping[str, object] | None:
    """Return the chart: the shift of each case by size, in a panel for each collective and shape; None without one."""
    cases = [case for case in comparison.cases if case.shift]
    panels = list(dict.fromkeys(map(_panel, sorted(cases, key=lambda case: str(_panel(case))))))[:MAX_PANELS]
    data = [_record(case, case.shift) for case in cases if case.shift and _panel(case) in panels]
    if not data:
        return None
    sizes = [format_size(n) for n in sorted({case.coordinates["requested_bytes"] for case in cases})]
    algorithms = sorted({str(each["algorithm"]) for each in data})
    ends = [end for case in cases if case.shift for end in (case.shift.low, case.shift.high)]
    most = max(*ends, 1 / min(ends), 1 + 2 * comparison.tolerance) * 1.02
    labelled = sizes[:: -(-len(sizes) // MAX_SIZE_LABELS)]
    x = alt.X("size:N", title=None, sort=sizes, axis=alt.Axis(labelAngle=0, values=labelled))
    ticks = next(each for each in (FINE_TICKS, COARSE_TICKS, DECADES) if most < max(each) or each is DECADES)
    axis = alt.Axis(format=".3~g", values=[tick for tick in ticks if 1 / most < tick < most])
    scale = alt.Scale(type="log", domain=[1 / most, most], nice=False)
    y = alt.Y("factor:Q", title="new time / old time", scale=scale, axis=axis)
    colours = alt.Color("verdict:N", scale=chart_base.scale_of(COLOURS), legend=alt.Legend())
    legend = alt.Legend(columns=5, symbolFillColor=INK, symbolStrokeColor=INK)
    shapes = alt.Shape("algorithm:N", scale=alt.Scale(domain=algorithms), legend=legend)
    base = alt.Chart().encode(x=x, xOffset=alt.XOffset("offset:N", sort=None))
    band = (
        alt.Chart()
        .transform_aggregate(cases="count()", groupby=["panel"])  # one rectangle, not one for each case
        .mark_rect(opacity=0.3, color=GREY)
        .encode(y=alt.YDatum(1 / (1 + comparison.tolerance)), y2=alt.Y2Datum(1 + comparison.tolerance))
    )
    intervals = base.mark_rule(strokeWidth=1.5).encode(y=alt.Y("low:Q"), y2=alt.Y2("high:Q"), color=colours)
    points = base.mark_point(size=45, filled=True, opacity=1).encode(
        y=y, color=colours, shape=shapes, tooltip=chart_base.tooltip("case", "verdict", "change", "interval")
    )
    columns = min(2, len(panels))
    one = alt.layer(band, intervals, points).properties(width=chart_base.WIDTH // columns, height=260)
    whole = chart_base.facet_chart(one, data, panels if columns > 1 else (), columns)
    return chart_base.apply_theme(whole, printable(title), [summary(comparison)], [*COLOURS, *algorithms])


def _record(case: CaseComparison, shift: Shift) -> ChartRecord:
    where = case.coordinates
    return {
        "panel": _panel(case), "size": format_size(where["requested_bytes"]), "algorithm": where["algorithm"],
        "offset": f"{where['algorithm']} {where['in_place']}", "verdict": case.verdict, "case": case.label,
        "factor": shift.factor, "low": shift.low, "high": shift.high, "change": change_label(shift.factor),
        "interval": shift_interval_label(shift),
    }  # fmt: skip


def _panel(case: CaseComparison) -> str:
    where = case.coordinates
    return f"{where['collective']}, {where['ranks']} ranks on {format_count(where['nodes'], 'node')}"
