"""Mappings side by side: what it costs that ranks are numbered badly, and what crosses between racks for it."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from hpccoll.report.compare import best_placements, spread
from hpccoll.report.groups import Group, Point
from hpccoll.report.rounds import ahead, ratio, seconds

SIZES = 4
"""The most sizes that have a column."""


def mapping_table(group: Group) -> tuple[list[str], list[list[str]]]:
    """Return header and body of a table: the time of each series over the fastest's of its run; bytes between racks.

    A line for each series on each number of ranks, the fastest at the largest size first; the body is empty where no
    run numbered its ranks in several ways.
    """
    by_work = _works(group)
    sizes = spread(sorted({point.row.requested_bytes for points in by_work for point in points}), SIZES)
    racks = any(point.row.rack_bytes_predicted is not None for points in by_work for point in points)
    head = ["time over the fastest's", "on", *map(group.size, sizes), *(["between racks"] * racks)]
    body = [line for points in by_work for line in _lines(group, points, sizes)]
    return head, [line[: len(head)] for line in body]


def _works(group: Group) -> list[list[Point]]:
    """Return the points of each run and number of ranks, where several mappings are among them."""
    by_work: dict[tuple[str, int, int], list[Point]] = defaultdict(list)
    for point in best_placements(group.points) if group.several_mappings else ():
        by_work[point.row.run_id, point.row.ranks, point.row.nodes].append(point)
    return [points for points in by_work.values() if len({point.row.mapping for point in points}) > 1]


def _lines(group: Group, points: Sequence[Point], sizes: Sequence[int]) -> Iterator[list[str]]:
    """Yield the lines of what did the same work at several sizes, in the order of the largest size."""
    at = {(point.series, point.row.requested_bytes): point for point in points}
    fastest = {nbytes: min((p for (_, size), p in at.items() if size == nbytes), key=seconds) for _, nbytes in at}
    largest = {point.series: point for point in sorted(points, key=lambda point: point.row.requested_bytes)}
    for point in sorted(largest.values(), key=lambda point: (-point.row.requested_bytes, seconds(point))):
        crossed = point.row.rack_bytes_predicted
        yield [
            point.series,
            _place(group, point),
            *(f"{ratio(at[point.series, n], fastest[n]):.2f}x" if (point.series, n) in at else "" for n in sizes),
            "its schedule is not known" if crossed is None else f"{crossed / point.row.bytes:.3f} S",
        ]


def _place(group: Group, point: Point) -> str:
    return group.place(point.row) + (f", {group.machine(point)}" if len(group.machines) > 1 else "")


def mapping_findings(group: Group) -> Iterator[tuple[str, str]]:
    """Yield what the worst mapping costs each algorithm at the largest size of each run: a title and a sentence."""
    for points in _works(group):
        most = max(point.row.requested_bytes for point in points)
        by_name: dict[str, list[Point]] = defaultdict(list)
        for point in points:
            if point.row.requested_bytes == most:
                by_name[point.series.removesuffix(f" {point.row.mapping}")].append(point)
        clauses = [_cost(name, found) for name, found in by_name.items() if len(found) > 1]
        at = ", ".join(filter(None, (group.size(most), _place(group, points[0]))))
        yield f"Mapping, {at}", "; ".join(clauses) + "."


def _cost(name: str, found: Sequence[Point]) -> str:
    best, worst = min(found, key=seconds), max(found, key=seconds)
    if not ahead(best, worst):
        return f"{name} takes as long either way"
    says = f"{name} takes {ratio(worst, best):.2f} times as long {worst.row.mapping} as {best.row.mapping}"
    near, far = (point.row.rack_bytes_predicted for point in (best, worst))
    if near is None or far is None or near == far:
        return says
    return f"{says}, and sends {far / worst.row.bytes:.3g} S between racks instead of {near / best.row.bytes:.3g} S"
