"""What a node sent, beside what we count for the schedule."""

from hpccoll.evidence.port_bytes import PortBytes
from hpccoll.evidence.requested import SWITCH_REQUESTS
from hpccoll.report.chart_groups import ChartGroup, SeriesPoint
from hpccoll.report.comparisons import best_placements
from hpccoll.report.wire_bandwidth import aggregator_bytes, in_units_of_size, measured_to_counted, uncounted_reason
from hpccoll.schedule.collective import NATIVE
from hpccoll.store.rows import Row
from hpccoll.units import format_size


def sent_bytes_table(group: ChartGroup) -> tuple[list[str], list[list[str]]]:
    """Return header and body of a table: what was sent at the largest size, beside what we count for the schedule.

    Where switches were asked to reduce, the library's own stands beside what it sends with them and without.
    """
    compared = () if group.many_pairs else best_placements(group.points)
    points = [p for p in compared if in_units_of_size(p.row, p.row.worker_sent_measured) is not None]
    largest: dict[tuple[str, int], SeriesPoint] = {}
    for point in sorted(points, key=lambda p: (list(group.colours).index(p.series), p.row.ranks, p.row.bytes)):
        largest[point.series, point.row.ranks] = point
    beside = any(point.row.aggregators for point in largest.values())
    extra = ["received: both", "by aggregators: both"] if beside else []
    head = ["sent by a node", "on", "size", "counted", "measured", *extra, "measured / counted with headers"]
    asked = any(point.row.requested in SWITCH_REQUESTS for point in group.usable)
    return head, [_table_line(group, point, beside=beside, asked=asked) for point in largest.values()]


def _table_line(group: ChartGroup, point: SeriesPoint, *, beside: bool, asked: bool) -> list[str]:
    """Return the cells of a series.

    Args:
        group: that it is of.
        point: that stands for it.
        beside: whether there are aggregators: what workers receive and what those send have cells of their own.
        asked: whether switches were asked to reduce.
    """
    row = point.row
    counted, measured = row.worker_sent_predicted, row.worker_sent_measured
    extra = [
        (row.worker_received_predicted, row.worker_received_measured),
        (
            aggregator_bytes(row, row.wire_bytes_predicted, counted),
            aggregator_bytes(row, row.wire_bytes_measured, measured),
        ),
    ]
    ratio = measured_to_counted(row, point.wire)
    return [
        point.series,
        group.place_label(row),
        format_size(row.requested_bytes),
        _in_sizes(row, counted) or (_by_switches(row) if asked else "") or uncounted_reason(row),
        _in_sizes(row, measured),
        *(", ".join(filter(None, (_in_sizes(row, nbytes) for nbytes in both))) for both in extra if beside),
        "" if ratio is None else f"{ratio:.3f}",
    ]


def _by_switches(row: Row) -> str:
    """Return what the library sends with switches that reduce and without; nothing where that is not known."""
    if row.algorithm != NATIVE or row.collective != "all_reduce":
        return ""
    return PortBytes(row.bytes, row.ranks, row.nodes, row.worker_sent_measured).expectation


def _in_sizes(row: Row, nbytes: float | None) -> str:
    value = in_units_of_size(row, nbytes)
    return "" if value is None else f"{value:.3f} S"
