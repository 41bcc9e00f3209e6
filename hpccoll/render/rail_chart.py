"""The chart of the bytes of each port of a node."""

from collections.abc import Sequence

import altair as alt

from hpccoll.analysis.chart_groups import ChartGroup
from hpccoll.analysis.rail_usage import largest_points
from hpccoll.analysis.series_points import SeriesPoint
from hpccoll.analysis.wire_bandwidth import in_units_of_size
from hpccoll.render.chart_base import SENT_TITLE, WIDTH, Chart, ChartRecord, colour, distinct, facet_chart, tooltip
from hpccoll.render.chart_panels import chart_record
from hpccoll.render.colours import PAPER, numbered_colours


def port_bytes_chart(group: ChartGroup) -> Chart | None:
    """Return a stacked chart of the bytes of each port at the largest size; None if nodes have one port."""
    data = [
        chart_record(group, point, sent) | {"port": port, "panel": _panel_title(group, point), "part": f"{share:.1%}"}
        for point in largest_points(group)
        for port, nbytes in point.row.port_sent.items()
        if (sent := in_units_of_size(point.row, nbytes)) is not None
        for share in [nbytes / (sum(point.row.port_sent.values()) or 1)]
    ]
    return _stacked(group, data) if data else None


def _panel_title(group: ChartGroup, point: SeriesPoint) -> str:
    return group.shape_label(point.row) + (f", {group.machine_label(point)}" if len(group.machines) > 1 else "")


def _stacked(group: ChartGroup, data: Sequence[ChartRecord]) -> Chart:
    ports, present = sorted(distinct(data, "port")), distinct(data, "series")
    series = [name for name in group.marks if name in present]
    bars = (
        alt.Chart()
        .mark_bar(stroke=PAPER)
        .encode(
            x=alt.X("value:Q", title=SENT_TITLE, axis=alt.Axis(tickCount=5)),
            y=alt.Y("series:N", title=None, sort=series, axis=alt.Axis(labelLimit=260)),
            color=colour("port", numbered_colours(ports), "square"),
            order=alt.Order("port:N"),
            tooltip=tooltip("series", "port", "part", "size", "at", "time", "machine"),
        )
    )
    sized: Chart = alt.layer(bars).properties(width=WIDTH // 2, height=30 * len(series))
    panels = distinct(data, "panel")
    return facet_chart(sized, data, panels, min(2, len(panels)))
