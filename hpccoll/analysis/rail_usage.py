"""Use of rails: the bytes of each port of a node, and the gain of further ports."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hpccoll.analysis.chart_groups import ChartGroup
from hpccoll.analysis.round_comparison import clearly_faster_anywhere, paired_rounds, time_ratio
from hpccoll.analysis.series_comparisons import best_placements
from hpccoll.analysis.series_points import SeriesPoint, median_seconds
from hpccoll.analysis.setting import Choice
from hpccoll.analysis.wire_bandwidth import UNUSED_PORT_SHARE, ports_used
from hpccoll.common.text import Finding, info
from hpccoll.common.units import format_size
from hpccoll.store.call_key import CallKey


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
    with_ports = [p for p in best_placements(group.points) if p.row.nodes > 1 and len(p.row.port_sent) > 1]
    largest = max((p.row.requested_bytes for p in with_ports), default=0)
    order = list(group.legend)
    points = [p for p in with_ports if p.row.requested_bytes == largest and not group.many_pairs]
    last = {(p.series, p.key.without("in_place")): p for p in points}
    return sorted(last.values(), key=lambda p: (p.row.ranks, order.index(p.series)))
