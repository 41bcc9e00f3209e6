"""The page of an acceptance: the verdict, the curves within their expected bands, causes, and what is missing."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import altair as alt

from hpccoll.common.terminal import printable
from hpccoll.common.units import format_size
from hpccoll.judge.acceptance import TIME, Acceptance, Judged
from hpccoll.judge.acceptance_summary import AcceptanceSummary
from hpccoll.render import chart_base
from hpccoll.render.acceptance_text import (
    VERDICT_WORDS,
    figure,
    first_line,
    labels_of,
    origin_lines,
    part_title,
    place_words,
    range_words,
    reason_lines,
    verdict_table,
)
from hpccoll.render.chart_base import Chart, ChartRecord
from hpccoll.render.chart_panels import guide_lines
from hpccoll.render.colours import MUTED, PAPER, numbered_colours
from hpccoll.render.page_frame import render, vega_script
from hpccoll.store.durable_files import replacing_file


class VerdictMark(NamedTuple):
    """How a verdict is drawn."""

    shape: str
    fill: str


MARKS = {
    Acceptance.PASS: VerdictMark("circle", "#2f9467"),
    Acceptance.FAIL: VerdictMark("triangle-down", "#c8443f"),
    Acceptance.CANNOT_TELL: VerdictMark("diamond", PAPER),
}
"""The shape and the colour of each verdict: either says it alone."""

EXPECTED, WIRES = "expected", "bound of the wires"

CAPTION = (
    "A mark is a measurement: a green circle passes, a red triangle fails, of a hollow diamond it cannot be told. The "
    "dotted line is what is expected; bars and the band around it reach from the low to the high end. A dashed grey "
    "line, if any, is the bound of the wires. The axis of sizes is logarithmic, that of times, too."
)


def write_acceptance(acceptance: AcceptanceSummary, out: Path) -> None:
    """Write the page of an acceptance (html), or the chart of the first quantity alone (svg, png).

    Raises:
        OSError: if it cannot be written.
    """
    if out.suffix == ".html":
        with replacing_file(out.resolve()) as unfinished:
            unfinished.write_text(acceptance_page(acceptance), encoding="utf-8")
        return
    quantity = acceptance.parts[0].judged[0].quantity  # times and bandwidths have no common axis
    parts = [part for part in acceptance.parts if part.judged[0].quantity == quantity][: chart_base.MAX_PANELS]
    chart_base.write_picture(acceptance_chart(parts, f"Held against {acceptance.against}", first_line(acceptance)), out)


def acceptance_page(acceptance: AcceptanceSummary) -> str:
    """Return the HTML of the page."""
    parts = [
        {
            "id": f"part-{number}", "heading": heading, "verdict": first_line(part), "table": verdict_table(part),
            "chart": acceptance_chart([part], heading),
        }
        for number, part in enumerate(acceptance.parts, 1)
        for heading in [part_title(part)]
    ]  # fmt: skip
    context = {
        "title": f"Held against {acceptance.against}", "first_line": first_line(acceptance), "parts_of_page": parts,
        "causes": acceptance.causes, "reasons": [*reason_lines(acceptance)], "origins": [*origin_lines(acceptance)],
        "caption": CAPTION, "vega": vega_script(),
    }  # fmt: skip
    return render("acceptance.html", context)


def acceptance_chart(parts: Sequence[AcceptanceSummary], title: str, *lines: str) -> Mapping[str, object]:
    """Return the chart of parts, a panel each: measured rows by size, with their expected bands and bounds."""
    data = [record for part in parts for record in _records(part)]
    names = chart_base.distinct(data, "series")
    colours = numbered_colours(name for name in names if not name.startswith(EXPECTED))
    colours = {name: MUTED for name in names if name not in colours} | colours
    shapes = {VERDICT_WORDS[verdict]: mark.shape for verdict, mark in MARKS.items()} | {EXPECTED: "stroke"}
    shapes = chart_base.present(shapes, data, "verdict")
    shown = [name for name in shapes if name != EXPECTED]
    legend = alt.Legend(orient="bottom", symbolFillColor=PAPER, symbolStrokeColor=MUTED, values=shown)
    of_time = parts[0].judged[0].quantity == TIME
    axis = chart_base.time_axis if of_time else chart_base.linear_rate_axis
    ends = [end for each in data for name in ("low", "high") if isinstance(end := each.get(name), float)]
    panels, bounds = chart_base.distinct(data, "panel"), guide_lines(data, above=not of_time)
    chart: Chart = chart_base.curves(
        data, chart_base.size_axis(each.row.bytes for part in parts for each in part.judged),
        lambda values: axis([*values, *ends]), colours,
        ("series", "size", "verdict", "measured", "normal"), titles=panels if len(panels) > 1 else (),
        columns=min(2, len(panels)), symbol="stroke", mark_size=120, pick=False,
        shape=alt.Shape("verdict:N", scale=chart_base.scale_of(shapes), legend=legend),
        below=lambda base: [_ranges(base), *(bounds(base) if bounds else ())],
    )  # fmt: skip
    return chart_base.apply_theme(chart, printable(title), [*map(printable, lines)], [*colours, *shapes])


def _ranges(base: alt.Chart) -> alt.Chart:
    """Return a bar from the low to the high end of what is expected at each size, of which there may be one only."""
    bars: alt.Chart = (
        base.transform_filter("isValid(datum.low)")
        .mark_rule(strokeWidth=7, clip=True)
        .encode(y=alt.Y("low:Q"), y2=alt.Y2("high:Q"), opacity=alt.OpacityValue(0.35))
    )
    return bars


def _records(part: AcceptanceSummary) -> list[ChartRecord]:
    labels, row = labels_of(part), part.judged[0].row
    panel = f"{row.collective} {place_words(row)}"
    measured: list[ChartRecord] = []
    expected: dict[tuple[object, ...], ChartRecord] = {}  # once for all rows of a size of which the same is expected
    for each in part.judged:
        name = " ".join(str(label(each)) for _, label in labels)
        at = {"panel": panel, "bytes": each.row.bytes, "size": format_size(each.row.bytes), "machine": ""}
        measured.append(at | {"series": name or "measured"} | _measured_fields(each))
        if found := each.expected:
            key = each.row.bytes, found.low, found.value, found.high, found.origin
            expected[key] = at | {
                "series": f"{EXPECTED}: {found.origin}", "verdict": EXPECTED, "value": found.value, "low": found.low,
                "high": found.high, "line": chart_base.MODELLED, "normal": range_words(each),
            }  # fmt: skip
    return [*expected.values(), *measured]


def _measured_fields(judged: Judged) -> ChartRecord:
    wire = judged.expected and judged.expected.wire_Bps
    return {
        "value": judged.measured, "verdict": VERDICT_WORDS[judged.verdict], "fill": MARKS[judged.verdict].fill,
        "measured": figure(judged, judged.measured), "normal": range_words(judged) or judged.reason,
        **({"limit": wire, "limit_name": WIRES} if wire and judged.quantity != TIME else {}),
    }  # fmt: skip
