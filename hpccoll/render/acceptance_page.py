"""The page of an acceptance: the verdict, the curves within their expected bands, causes, and what is missing."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import altair as alt

from hpccoll.common.terminal import printable
from hpccoll.common.units import format_size
from hpccoll.evidence.defects import defect_sentences
from hpccoll.judge.acceptance import Judged
from hpccoll.judge.acceptance_summary import AcceptanceSummary
from hpccoll.judge.held import PHYSICS, TIME, Acceptance, Expected
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
from hpccoll.render.geometry_text import geometry_lines
from hpccoll.render.judgement_page import (
    JudgementPage,
    JudgementPart,
    JudgementTable,
    judgement_html,
)
from hpccoll.render.page_frame import write_page_or_picture


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
    write_page_or_picture(
        out, lambda: acceptance_page(acceptance), lambda: _first_chart(acceptance)
    )


def _first_chart(acceptance: AcceptanceSummary) -> Mapping[str, object]:
    """Return the chart of the parts with the first quantity: times and bandwidths have no common axis."""
    quantity = acceptance.parts[0].judged[0].quantity
    parts = [part for part in acceptance.parts if part.judged[0].quantity == quantity]
    title = f"Held against {acceptance.against}"
    return acceptance_chart(parts[: chart_base.MAX_PANELS], title, first_line(acceptance))


def acceptance_page(acceptance: AcceptanceSummary) -> str:
    """Return the HTML of the page."""
    title = f"Held against {acceptance.against}"
    parts = [
        _part_of_page(f"part-{number}", part) for number, part in enumerate(acceptance.parts, 1)
    ]
    sections = {
        "causes": acceptance.causes,
        "defects": defect_sentences(acceptance.defects, "This "),
        "missing": list(reason_lines(acceptance)),
        "origins": list(origin_lines(acceptance)),
    }
    links = {part.anchor: part.heading for part in parts}
    links |= {anchor: text for anchor, text in SECTION_LINKS.items() if sections[anchor]}
    if sections["causes"]:
        links = {"causes": links["causes"]} | links  # they stand above the parts
    page = JudgementPage(
        title=title,
        heading=title,
        answers=[first_line(acceptance), *geometry_lines(acceptance.geometries)],
        judged=parts,
        links=links,
        figure="curve",
        figure_title="Measured and expected",
        caption=CAPTION,
    )
    return judgement_html("acceptance.html", page, sections)


SECTION_LINKS = {
    "causes": "causes",
    "defects": "known defects",
    "missing": "what is missing",
    "origins": "expectations",
}
"""The sections beside the parts, with the texts of the links to them."""


def _part_of_page(anchor: str, part: AcceptanceSummary) -> JudgementPart:
    heading = part_title(part)
    head, rows = verdict_table(part)
    tables = [JudgementTable(head, rows)] if rows else []
    return JudgementPart(
        anchor, heading, first_line(part), acceptance_chart([part], heading), tables
    )


def acceptance_chart(
    parts: Sequence[AcceptanceSummary], title: str, *lines: str
) -> Mapping[str, object]:
    """Return the chart of parts, a panel each: measured rows by size, with their expected bands and bounds."""
    data: list[ChartRecord] = []
    sizes: list[int] = []
    for part in parts:
        data += _records(part)
        sizes += [judged.row.bytes for judged in part.judged]
    colours = _series_colours(chart_base.distinct(data, "series"))
    shapes = _verdict_shapes(data)
    panels = chart_base.distinct(data, "panel")
    is_time = parts[0].judged[0].quantity == TIME
    bounds = guide_lines(data, above=not is_time)
    ends = _expected_ends(data)

    def value_axis(values: Iterable[float]) -> alt.Y:
        shown = [*values, *ends]
        if is_time:
            return chart_base.time_axis(shown)
        return chart_base.linear_rate_axis(shown)

    def layers_below(base: alt.Chart) -> list[alt.Chart]:
        layers = [_ranges(base)]
        if bounds:
            layers += bounds(base)
        return layers

    chart: Chart = chart_base.curves(
        data,
        chart_base.size_axis(sizes),
        value_axis,
        colours,
        ("series", "size", "verdict", "measured", "normal"),
        titles=panels if len(panels) > 1 else (),
        columns=min(2, len(panels)),
        symbol="stroke",
        mark_size=120,
        pick=False,
        shape=_shape(shapes),
        below=layers_below,
    )
    return chart_base.apply_theme(
        chart, printable(title), list(map(printable, lines)), [*colours, *shapes]
    )


def _series_colours(names: Iterable[str]) -> dict[str, str]:
    """Return the colour of each series: what is expected is grey."""
    measured: list[str] = []
    expected: list[str] = []
    for name in names:
        if name.startswith(EXPECTED):
            expected.append(name)
        else:
            measured.append(name)
    return dict.fromkeys(expected, MUTED) | numbered_colours(measured)


def _verdict_shapes(data: Sequence[ChartRecord]) -> dict[str, str]:
    """Return the shape of the mark of each verdict that occurs, and of what is expected."""
    shapes = {VERDICT_WORDS[verdict]: mark.shape for verdict, mark in MARKS.items()}
    shapes[EXPECTED] = "stroke"
    return chart_base.present(shapes, data, "verdict")


def _shape(shapes: Mapping[str, str]) -> alt.Shape:
    """Return the encoding of verdicts by shapes; the legend does not show what is expected."""
    shown = [name for name in shapes if name != EXPECTED]
    legend = alt.Legend(
        orient="bottom", symbolFillColor=PAPER, symbolStrokeColor=MUTED, values=shown
    )
    return alt.Shape("verdict:N", scale=chart_base.scale_of(shapes), legend=legend)


def _expected_ends(data: Iterable[ChartRecord]) -> list[float]:
    """Return the low and high ends of all expected ranges."""
    ends = []
    for record in data:
        for end in (record.get("low"), record.get("high")):
            if isinstance(end, float):
                ends.append(end)
    return ends


def _ranges(base: alt.Chart) -> alt.Chart:
    """Return a bar at each size, from the low to the high end of what is expected; a series may have one size only."""
    rules = base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=7, clip=True)
    low, high = alt.Y("low:Q"), alt.Y2("high:Q")
    bars: alt.Chart = rules.encode(y=low, y2=high, opacity=alt.OpacityValue(0.35))
    return bars


def _records(part: AcceptanceSummary) -> list[ChartRecord]:
    labels = labels_of(part)
    first_row = part.judged[0].row
    panel = f"{first_row.collective} {place_words(first_row)}"
    measured: list[ChartRecord] = []
    # rows of a size with the same expectation share a record
    expected: dict[tuple[object, ...], ChartRecord] = {}
    for judged in part.judged:
        nbytes = judged.row.bytes
        place: ChartRecord = {
            "panel": panel,
            "bytes": nbytes,
            "size": format_size(nbytes),
            "machine": "",
        }
        name = " ".join(str(label(judged)) for _, label in labels)
        measured.append(place | {"series": name or "measured"} | _measured_fields(judged))
        if judged.expected and judged.expected.origin != PHYSICS:
            value_range = judged.expected
            key = nbytes, value_range.low, value_range.value, value_range.high, value_range.origin
            expected[key] = place | _expected_fields(judged, value_range)
    return [*expected.values(), *measured]


def _expected_fields(judged: Judged, value_range: Expected) -> ChartRecord:
    return {
        "series": f"{EXPECTED}: {value_range.origin}",
        "verdict": EXPECTED,
        "value": value_range.value,
        "low": value_range.low,
        "high": value_range.high,
        "line": chart_base.MODELLED,
        "normal": range_words(judged),
    }


def _measured_fields(judged: Judged) -> ChartRecord:
    record: ChartRecord = {
        "value": judged.measured,
        "verdict": VERDICT_WORDS[judged.acceptance],
        "fill": MARKS[judged.acceptance].fill,
        "measured": figure(judged, judged.measured),
        "normal": range_words(judged) or judged.reason,
    }
    if judged.quantity != TIME and judged.expected and judged.expected.wire_Bps:
        record["limit"] = judged.expected.wire_Bps
        record["limit_name"] = WIRES
    return record
