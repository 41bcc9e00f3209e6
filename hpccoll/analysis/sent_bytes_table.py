"""The table of the bytes that a node sent: measured by its ports, and counted from the schedule."""

from hpccoll.analysis.chart_groups import ChartGroup
from hpccoll.analysis.series_comparisons import best_placements
from hpccoll.analysis.series_points import SeriesPoint
from hpccoll.analysis.wire_bandwidth import aggregator_bytes, in_units_of_size, measured_to_counted, uncounted_reason
from hpccoll.cases.requested_algorithm import SWITCH_REQUESTS
from hpccoll.common.units import format_size
from hpccoll.evidence.port_bytes import PortBytes
from hpccoll.schedule.collective import NATIVE
from hpccoll.store.rows import Row


def sent_bytes_table(group: ChartGroup) -> tuple[list[str], list[list[str]]]:
    """Return headings and lines of the table: the bytes of each series at its largest size.

    If reduction by switches was requested, rows of the library have the bytes with and without switches instead.
    """
    compared = () if group.many_pairs else best_placements(group.points)
    points = [p for p in compared if in_units_of_size(p.row, p.row.worker_sent_measured) is not None]
    largest = dict[tuple[str, int], SeriesPoint]()
    for point in sorted(points, key=lambda p: (list(group.legend).index(p.series), p.row.ranks, p.row.bytes)):
        largest[point.series, point.row.ranks] = point
    has_aggregators = any(point.row.aggregators for point in largest.values())
    more = ["received: both", "by aggregators: both"] if has_aggregators else []
    head = ["sent by a node", "on", "size", "counted", "measured", *more, "measured / counted with headers"]
    by_switches = any(point.row.requested in SWITCH_REQUESTS for point in group.usable)
    lines = []
    for point in largest.values():
        row = point.row
        counted, measured = row.worker_sent_predicted, row.worker_sent_measured
        received = row.worker_received_predicted, row.worker_received_measured
        totals = (row.wire_bytes_predicted, counted), (row.wire_bytes_measured, measured)
        of_aggregators = tuple(aggregator_bytes(row, everyone, worker) for everyone, worker in totals)
        extra = [received, of_aggregators] if has_aggregators else []
        ratio = measured_to_counted(row, point.wire)
        lines.append([
            point.series, group.shape_label(row), format_size(row.requested_bytes),
            _in_sizes(row, counted) or (_by_switches(row) if by_switches else "") or uncounted_reason(row),
            _in_sizes(row, measured),
            *(", ".join(filter(None, (_in_sizes(row, nbytes) for nbytes in both))) for both in extra),
            "" if ratio is None else f"{ratio:.3f}",
        ])  # fmt: skip
    return head, lines


def _by_switches(row: Row) -> str:
    """Return the bytes that the library sends with and without reduction by switches; empty if unknown."""
    if row.algorithm != NATIVE or row.collective != "all_reduce":
        return ""
    return PortBytes(row.bytes, row.ranks, row.nodes, row.worker_sent_measured).expectation


def _in_sizes(row: Row, nbytes: float | None) -> str:
    value = in_units_of_size(row, nbytes)
    return "" if value is None else f"{value:.3f} S"
