"""Rails: through which ports of a node the bytes went, and what a second one gains."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

import altair as alt

from hpccoll.report import axes
from hpccoll.report.calls import own_params
from hpccoll.report.colours import colour
from hpccoll.report.compare import best_placements
from hpccoll.report.groups import Group, Point
from hpccoll.report.panels import Chart, Datum, column, datum, facetted, tooltip
from hpccoll.report.rounds import ahead, apart, interval, paired, ratio, seconds
from hpccoll.report.wires import UNUSED, in_sizes, ports_used
from hpccoll.units import format_size


def rail_findings(group: Group) -> Iterator[tuple[str, str]]:
    """Say of every algorithm on the most ranks which ports it used at the largest size, and what more of them gain."""
    points = _largest(group)
    most = max((point.row.ranks for point in points), default=0)
    alike: dict[tuple[object, ...], list[Point]] = defaultdict(list)
    for point in points:
        row = point.row
        if row.ranks == most:
            same = point.machine, row.algorithm, row.transport, row.mapping, row.nodes
            alike[*same, tuple(sorted(own_params(row).items()))].append(point)
    clauses = [clause for points in alike.values() for clause in _clauses(group, points)]
    if clauses:
        row = next(iter(alike.values()))[0].row
        at = f" at {format_size(row.requested_bytes)}" if group.sized else ""
        yield "Rails", f"sent by a node on {group.place(row)}{at}: {'; '.join(clauses)}."


def _clauses(group: Group, points: Sequence[Point]) -> Iterator[str]:
    """Yield what each of ``points``, one algorithm in several environments, used; gains are over the fewest ports."""
    base = min(points, key=lambda point: (len(ports_used(point.row)), seconds(point)))
    for point in points:
        used = ports_used(point.row)
        parts = [f"{port} {part:.0%}" for port, part in used.items()]
        unused = [port for port in point.row.port_sent if port not in used]
        little = f", at most {100 * UNUSED:g} % on {', '.join(unused)}" if unused else ""
        more = _gain(point, base) if len(used) > len(ports_used(base.row)) else ""
        on = f" on {group.machine(point)}" if len(group.machines) > 1 else ""
        yield f"{point.series}{on} through {', '.join(parts)}{little}{more}"


def _gain(point: Point, base: Point) -> str:
    """Say how many times as fast as ``base`` it is, where one is clearly faster; an environment has its launches."""
    together = bool(paired(point, base))
    for one, other in ((point, base), (base, point)):
        if ahead(one, other) if together else apart(interval(one), interval(other)):
            launch = "" if together else " (another launch)"
            return f", {ratio(base, point):.2f}x as fast as {base.series}{launch}"
    return ""


def bytes_of_ports(group: Group) -> Chart | None:
    """Draw what each port carried at the largest size, stacked; None where nodes have one port."""
    data = [
        datum(group, point, sent) | {"port": port, "panel": _panel(group, point), "part": f"{part:.1%}"}
        for point in _largest(group)
        for port, nbytes in point.row.port_sent.items()
        if (sent := in_sizes(point.row, nbytes)) is not None
        for part in [nbytes / (sum(point.row.port_sent.values()) or 1)]
    ]
    return _stacked(group, data) if data else None


def _panel(group: Group, point: Point) -> str:
    return group.place(point.row) + (f", {group.machine(point)}" if len(group.machines) > 1 else "")


def _stacked(group: Group, data: Sequence[Datum]) -> Chart:
    ports = sorted(set(column(data, "port")))
    series = [name for name in group.colours if name in column(data, "series")]
    scale = alt.Scale(domain=ports, range=[colour(i) for i in range(len(ports))])
    bars = (
        alt.Chart()
        .mark_bar(stroke=axes.PAPER)
        .encode(
            x=alt.X("value:Q", title=axes.SENT, axis=alt.Axis(tickCount=5)),
            y=alt.Y("series:N", title=None, sort=series, axis=alt.Axis(labelLimit=260)),
            color=alt.Color("port:N", scale=scale, legend=alt.Legend(symbolType="square")),
            order=alt.Order("port:N"),
            tooltip=tooltip("series", "port", "part", "size", "at", "time", "machine"),
        )
    )
    panels = list(dict.fromkeys(column(data, "panel")))
    columns = min(2, len(panels))
    sized: Chart = alt.layer(bars).properties(width=axes.WIDTH // 2, height=30 * len(series))
    return facetted(sized, data, "panel", columns, panels)


def _largest(group: Group) -> list[Point]:
    """Return the points at the largest size whose nodes have several ports, by ranks and series, each measured last."""
    there = [p for p in best_placements(group.points) if p.row.nodes > 1 and len(p.row.port_sent) > 1]
    largest = max((p.row.requested_bytes for p in there), default=0)
    order = list(group.colours)
    points = [p for p in there if p.row.requested_bytes == largest and not group.many_pairs]
    last = {(p.machine, p.series, p.row.ranks, p.row.nodes): p for p in points}
    return sorted(last.values(), key=lambda p: (p.row.ranks, order.index(p.series)))
