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
    if not points:
        return
    most = max(point.row.ranks for point in points)
    by_algorithm = defaultdict[tuple[Choice, CallKey], list[SeriesPoint]](list)
    for point in points:
        if point.row.ranks == most:
            by_algorithm[Choice.of(point.row), point.key.without("variant", "in_place")].append(
                point
            )
    usages: list[dict[str, Any]] = []
    for points_of_algorithm in by_algorithm.values():
        usages += _port_usage(group, points_of_algorithm)
    row = next(iter(by_algorithm.values()))[0].row
    shape = group.shape_label(row)
    where = shape
    nbytes = None
    if group.has_size:
        nbytes = row.requested_bytes
        where = f"{shape} at {format_size(nbytes)}"
    text = f"sent by a node on {where}: {'; '.join(map(_usage_text, usages))}."
    yield info("rails", text, title="Rails", shape=shape, nbytes=nbytes, series=tuple(usages))


def _usage_text(usage: Mapping[str, Any]) -> str:
    text = usage["name"]
    if usage["machine"]:
        text += f" on {usage['machine']}"
    ports = ", ".join(f"{port} {part:.0%}" for port, part in usage["ports"].items())
    text += f" through {ports}"
    if usage["unused"]:
        text += f", at most {100 * UNUSED_PORT_SHARE:g} % on {', '.join(usage['unused'])}"
    if usage["gain"]:
        launch = " (another launch)" if usage["other_launch"] else ""
        text += f", {usage['gain']:.2f}x as fast as {usage['base']}{launch}"
    return str(text)


def _port_usage(group: ChartGroup, points: Sequence[SeriesPoint]) -> Iterator[dict[str, Any]]:
    """Yield the ports of each point of one algorithm in several environments; gains are over the fewest ports."""
    base = min(points, key=lambda point: (len(ports_used(point.row)), median_seconds(point)))
    fewest_ports = len(ports_used(base.row))
    for point in points:
        used = ports_used(point.row)
        machine = group.machine_label(point) if len(group.machines) > 1 else ""
        gain = _gain(point, base) if len(used) > fewest_ports else None
        yield {
            "name": point.series,
            "machine": machine,
            "ports": used,
            "unused": tuple(port for port in point.row.port_sent if port not in used),
            "base": base.series,
            "gain": gain,
            "other_launch": not paired_rounds(point.row, base.row),
        }


def _gain(point: SeriesPoint, base: SeriesPoint) -> float | None:
    """Return how many times as fast as ``base`` the point is; None if neither is clearly faster."""
    is_faster = clearly_faster_anywhere(point.row, base.row)
    if is_faster or clearly_faster_anywhere(base.row, point.row):
        return time_ratio(base.row, point.row)
    return None


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

    If reduction by switches was requested, rows of the library have the bytes with and without
    switches instead.
    """
    points = _points_at_largest_sizes(group)
    has_aggregators = any(point.row.aggregators for point in points)
    head = ["sent by a node", "on", "size", "counted", "measured"]
    if has_aggregators:
        head += ["received: both", "by aggregators: both"]
    head.append("measured / counted with headers")
    by_switches = any(point.row.requested in SWITCH_REQUESTS for point in group.usable)
    lines = []
    for point in points:
        row = point.row
        counted = _in_sizes(row, row.worker_sent_predicted)
        if not counted and by_switches:
            counted = _by_switches(row)
        measured = _in_sizes(row, row.worker_sent_measured)
        line = [point.series, group.shape_label(row), format_size(row.requested_bytes)]
        line += [counted or uncounted_reason(row), measured]
        if has_aggregators:
            line += _aggregator_cells(row)
        ratio = measured_to_counted(row, point.wire)
        line.append("" if ratio is None else f"{ratio:.3f}")
        lines.append(line)
    return head, lines


def _points_at_largest_sizes(group: ChartGroup) -> list[SeriesPoint]:
    """Return the point with measured bytes at the largest size of each series and number of ranks."""
    if group.many_pairs:
        return []
    places = {series: place for place, series in enumerate(group.legend)}

    def order(point: SeriesPoint) -> tuple[int, int, int]:
        return places[point.series], point.row.ranks, point.row.bytes

    points = group.best_placements
    measured = [
        point
        for point in points
        if in_units_of_size(point.row, point.row.worker_sent_measured) is not None
    ]
    largest: dict[tuple[str, int], SeriesPoint] = {}
    for point in sorted(measured, key=order):
        largest[point.series, point.row.ranks] = point
    return list(largest.values())


def _aggregator_cells(row: Row) -> tuple[str, str]:
    """Return what a worker received, and what aggregators sent: counted and measured, in units of S."""
    counted = aggregator_bytes(row, row.wire_bytes_predicted, row.worker_sent_predicted)
    measured = aggregator_bytes(row, row.wire_bytes_measured, row.worker_sent_measured)
    received = _both_in_sizes(row, row.worker_received_predicted, row.worker_received_measured)
    return received, _both_in_sizes(row, counted, measured)


def _both_in_sizes(row: Row, counted: float | None, measured: float | None) -> str:
    sizes = _in_sizes(row, counted), _in_sizes(row, measured)
    return ", ".join(filter(None, sizes))


def _by_switches(row: Row) -> str:
    """Return the bytes that the library sends with and without reduction by switches; empty if unknown."""
    if row.algorithm != NATIVE or row.collective != "all_reduce":
        return ""
    return PortBytes(row.bytes, row.ranks, row.nodes, row.worker_sent_measured).expectation


def _in_sizes(row: Row, nbytes: float | None) -> str:
    value = in_units_of_size(row, nbytes)
    return "" if value is None else f"{value:.3f} S"
