"""Bytes that a node sends: by port, with the gain of further ports; and measured next to counted ones."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hpccoll.analysis.chart_groups import ChartGroup
from hpccoll.analysis.round_comparison import clearly_faster_anywhere, paired_rounds, time_ratio
from hpccoll.analysis.series_points import SeriesPoint, median_seconds
from hpccoll.analysis.setting import Choice
from hpccoll.analysis.wire_bandwidth import (
    UNUSED_PORT_SHARE,
    aggregator_bytes,
    in_units_of_size,
    measured_to_counted,
    ports_used,
    uncounted_reason,
)
from hpccoll.cases.library_request import SWITCH_REQUESTS
from hpccoll.common.text import Finding, info
from hpccoll.common.units import format_size
from hpccoll.evidence.port_bytes import PortBytes
from hpccoll.schedule.collective import NATIVE
from hpccoll.store.call_key import CallKey
from hpccoll.store.rows import Row


def rail_findings(group: ChartGroup) -> Iterator[Finding]:
    """Yield the ports that each algorithm used at the largest size on the most ranks, and the gain of further ports."""
    points = largest_points(group)
    most = max((point.row.ranks for point in points), default=0)
    by_algorithm = defaultdict[tuple[Choice, CallKey], list[SeriesPoint]](list)
    for point in points:
        if point.row.ranks == most:
            by_algorithm[Choice.of(point.row), point.key.without("variant", "in_place")].append(point)
    if by_algorithm:
        row = next(iter(by_algorithm.values()))[0].row
        nbytes = row.requested_bytes if group.has_size else None
        at = "" if nbytes is None else f" at {format_size(nbytes)}"
        series = tuple(usage for points in by_algorithm.values() for usage in _port_usage(group, points))
        text = f"sent by a node on {group.shape_label(row)}{at}: {'; '.join(map(_usage_text, series))}."
        yield info("rails", text, title="Rails", shape=group.shape_label(row), nbytes=nbytes, series=series)


def _usage_text(usage: Mapping[str, Any]) -> str:
    machine = f" on {usage['machine']}" if usage["machine"] else ""
    ports = ", ".join(f"{port} {part:.0%}" for port, part in usage["ports"].items())
    unused = f", at most {100 * UNUSED_PORT_SHARE:g} % on {', '.join(usage['unused'])}" if usage["unused"] else ""
    launch = " (another launch)" if usage["other_launch"] else ""
    gain = f", {usage['gain']:.2f}x as fast as {usage['base']}{launch}" if usage["gain"] else ""
    return f"{usage['name']}{machine} through {ports}{unused}{gain}"


def _port_usage(group: ChartGroup, points: Sequence[SeriesPoint]) -> Iterator[dict[str, Any]]:
    """Yield the ports of each point of one algorithm in several environments; gains are over the fewest ports."""
    base = min(points, key=lambda point: (len(ports_used(point.row)), median_seconds(point)))
    for point in points:
        used = ports_used(point.row)
        yield {
            "name": point.series,
            "machine": group.machine_label(point) if len(group.machines) > 1 else "",
            "ports": used,
            "unused": tuple(port for port in point.row.port_sent if port not in used),
            "base": base.series,
            "gain": _gain(point, base) if len(used) > len(ports_used(base.row)) else None,
            "other_launch": not paired_rounds(point.row, base.row),
        }


def _gain(point: SeriesPoint, base: SeriesPoint) -> float | None:
    """Return how many times as fast as ``base`` the point is; None if neither is clearly faster."""
    rows = point.row, base.row
    clear = clearly_faster_anywhere(*rows) or clearly_faster_anywhere(*rows[::-1])
    return time_ratio(base.row, point.row) if clear else None


def largest_points(group: ChartGroup) -> list[SeriesPoint]:
    """Return the last measured points at the largest size whose nodes have several ports, by ranks and series."""
    if group.many_pairs:
        return []
    points = group.best_placements
    with_ports = [point for point in points if point.row.nodes > 1 and len(point.row.port_sent) > 1]
    largest = max((point.row.requested_bytes for point in with_ports), default=0)
    last: dict[tuple[str, CallKey], SeriesPoint] = {}
    for point in with_ports:
        if point.row.requested_bytes == largest:
            last[point.series, point.key.without("in_place")] = point
    order = list(group.legend)
    return sorted(last.values(), key=lambda point: (point.row.ranks, order.index(point.series)))


def sent_bytes_table(group: ChartGroup) -> tuple[list[str], list[list[str]]]:
    """Return headings and lines of the table: the bytes of each series at its largest size.

    If reduction by switches was requested, rows of the library have the bytes with and without switches instead.
    """
    compared = () if group.many_pairs else group.best_placements
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
