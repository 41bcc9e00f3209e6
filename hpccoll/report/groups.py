"""Which rows may share a chart, and what a line in it is called and coloured.

Rows share a chart when they are of one collective and agree in every coordinate that is neither an axis nor the name
of a line. What tells two lines of one algorithm apart (transport, parameters) is in their names only where it differs.
"""

import colorsys
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from hpccoll.report.wires import Wire
from hpccoll.store.rows import Results, Row, Run

NATIVE = "native"
INK = "#1f2937"
FLOOR_GREY = "#9ca3af"
PALETTE = ("#2b7bba", "#d9662b", "#2f9467", "#b04a96", "#a9811a", "#7a5cc4", "#c8443f", "#2b97a5", "#8a6146", "#6d8b1f")
"""Readable on white and on near-black, and under white text."""

_SETTING: Mapping[str, Callable[[object], str]] = {
    "dtype": str,
    "op": str,
    "device": lambda device: f"{device} memory",
    "root": lambda root: f"root {root}",
    "mapping": lambda mapping: f"mapping {mapping}",
    "timing": lambda rule: f"timing rule {rule}",
}
_DETAILS: Mapping[str, Callable[[Row], str]] = {
    "transport": lambda row: row.transport,
    "variant": lambda row: row.variant or "",
    "aggregators": lambda row: f"{row.aggregators} aggregators" if row.aggregators else "",
    "params": lambda row: " ".join(f"{name}={value}" for name, value in sorted(row.params.items())),
}


@dataclass(frozen=True, slots=True)
class Point:
    """A row, the name of its line, and what its run says of the machine, its hosts and its wires."""

    row: Row
    series: str
    machine: str
    hosts: frozenset[str]
    wire: Wire

    @property
    def kind(self) -> str:
        """What the result is, with the rate of the wires where they are a testbed's."""
        return ", ".join(filter(None, (self.row.kind, self.wire.words)))


@dataclass(frozen=True, slots=True)
class Group:
    """The rows that may share a chart.

    Args:
        name: unique among the groups, fit for a file name.
        setting: in words, what all its rows share beside collective and kind.
        points: in the order of their runs' creation.
        colours: of every series of the report, so that a colour means the same in all charts.
    """

    name: str
    collective: str
    kind: str
    setting: str
    points: tuple[Point, ...]
    colours: Mapping[str, str]

    @property
    def usable(self) -> tuple[Point, ...]:
        """The points that may be drawn and compared."""
        return tuple(point for point in self.points if usable(point.row))

    @property
    def machines(self) -> tuple[str, ...]:
        """The machines, in order of first use."""
        return tuple(dict.fromkeys(point.machine for point in self.points))

    def machine(self, point: Point) -> str:
        """The short name of the machine of ``point``: ``machine 1``."""
        return f"machine {self.machines.index(point.machine) + 1}"

    @property
    def each(self) -> int | None:
        """The ranks of each node, where curves run over nodes; None where they run over ranks."""
        rows = [point.row for point in self.usable]
        each = {row.ranks_per_node for row in rows}
        return each.pop() if len(each) == 1 and any(row.nodes > 1 for row in rows) else None

    @property
    def unit(self) -> str:
        """What curves run over, and a field of a row: ``nodes``, or ``ranks``."""
        return "ranks" if self.each is None else "nodes"

    @property
    def unit_words(self) -> str:
        """The same as the title of an axis: ``nodes (1 rank each)``."""
        return "ranks" if self.each is None else f"nodes ({counted(self.each, 'rank')} each)"

    def count(self, row: Row) -> int:
        """Return where ``row`` is on such a curve."""
        return row.ranks if self.each is None else row.nodes

    def place(self, row: Row) -> str:
        """Return the same in words: ``4 nodes``, ``4 ranks``, ``6 ranks on 4 nodes``."""
        if self.each is not None:
            return counted(row.nodes, "node")
        return counted(row.ranks, "rank") + (f" on {row.nodes} nodes" if row.nodes > 1 else "")


def counted(count: object, word: str) -> str:
    """Return ``count`` of something in words: ``1 rank``, ``2 ranks``."""
    return f"{count} {word}{'' if count == 1 else 's'}"


def usable(row: Row) -> bool:
    """Return whether ``row`` is a result: it ended, its answer was right, and there is a time and a size to plot."""
    return row.status == "ok" and not row.wrong and bool(row.median_s) and row.bytes > 0


def groups(results: Results) -> tuple[Group, ...]:
    """Return the rows of ``results`` by collective and setting, in order of name."""
    points = _points(results)
    keys = _keys(points)
    members: dict[tuple[str, ...], list[Point]] = defaultdict(list)
    for key, point in zip(keys, points, strict=True):
        members[key].append(point)
    names, colours = _names(sorted(members)), series_colours(points)
    return tuple(
        Group(names[key], key[0], key[-1], ", ".join(filter(None, key[1:-1])), tuple(group), colours)
        for key, group in sorted(members.items())
    )


def series_colours(points: Iterable[Point]) -> dict[str, str]:
    """Return the colour of every series: ink for the library's own, grey for the floor, else the palette in order."""
    kinds = {point.series: point.row for point in points}
    floors = {name: FLOOR_GREY for name in sorted(kinds) if kinds[name].floor}
    native = {name: INK for name in sorted(kinds) if kinds[name].algorithm == NATIVE}
    native = dict(list(native.items())[:1])
    others = [name for name in sorted(kinds) if name not in floors and name not in native]
    return native | {name: _colour(i) for i, name in enumerate(others)} | floors


def _colour(i: int) -> str:
    if i < len(PALETTE):
        return PALETTE[i]
    red, green, blue = colorsys.hls_to_rgb(i * 0.618 % 1, 0.45, 0.5)  # the golden ratio never comes back to a hue
    return f"#{round(255 * red):02x}{round(255 * green):02x}{round(255 * blue):02x}"


def _points(results: Results) -> list[Point]:
    runs = {run.run_id: run for run in results.runs}
    created = {run_id: run.created for run_id, run in runs.items()}
    rows = sorted(results.rows, key=lambda row: created.get(row.run_id, ""))
    name = _namer(rows)
    return [_point(row, name(row), runs.get(row.run_id)) for row in rows]


def _point(row: Row, series: str, run: Run | None) -> Point:
    if run is None:
        return Point(row, series, "unknown machine", frozenset(), Wire())
    hosts = run.provenance.get("hosts")
    return Point(row, series, run.machine, frozenset(hosts if isinstance(hosts, list | tuple) else ()), Wire.of(run))


def _namer(rows: Iterable[Row]) -> Callable[[Row], str]:
    seen: dict[tuple[str, str], set[str]] = defaultdict(set)
    for row in rows:
        for field, words in _DETAILS.items():
            seen[row.algorithm, field].add(words(row))

    def name(row: Row) -> str:
        details = (words(row) for field, words in _DETAILS.items() if len(seen[row.algorithm, field]) > 1)
        return " ".join(filter(None, (row.algorithm, *details))) + (" (floor)" if row.floor else "")

    return name


def _keys(points: Sequence[Point]) -> list[tuple[str, ...]]:
    """One key for each point: collective, words of the setting, ranks per node where ranks do not say it, kind."""
    shapes: dict[str, set[tuple[int, int, int | None]]] = defaultdict(set)
    for row in (point.row for point in points):
        shapes[row.collective].add((row.ranks, row.nodes, row.ranks_per_node))
    said = {collective for collective, found in shapes.items() if _spread_out(found)}

    def key(point: Point) -> tuple[str, ...]:
        row = point.row
        values = {field: getattr(row, field) for field in _SETTING}
        words = [_SETTING[field](value) if value is not None else "" for field, value in values.items()]
        shape = f"{counted(row.ranks_per_node or 'unequal', 'rank')} per node" if row.collective in said else ""
        return (row.collective, *words, shape, point.kind)

    return [key(point) for point in points]


def _spread_out(shapes: Collection[tuple[int, int, int | None]]) -> bool:
    """Return whether the ranks of each node have to be said: the same ranks are on few nodes and many, or all alike."""
    same_everywhere = len({each for _, _, each in shapes}) == 1 and any(nodes > 1 for _, nodes, _ in shapes)
    return same_everywhere or len({ranks for ranks, _, _ in shapes}) < len(shapes)


def _names(keys: Sequence[tuple[str, ...]]) -> dict[tuple[str, ...], str]:
    """A file name for each key: the collective, and the words in which its groups differ."""
    names: dict[tuple[str, ...], str] = {}
    taken: Counter[str] = Counter()
    for key in keys:
        siblings = [other for other in keys if other[0] == key[0]]
        differing = (word for i, word in enumerate(key[1:], 1) if len({other[i] for other in siblings}) > 1)
        name = "-".join(re.sub(r"[^A-Za-z0-9_.]+", "_", word) for word in (key[0], *filter(None, differing)))
        taken[name] += 1
        names[key] = name if taken[name] == 1 else f"{name}-{taken[name]}"
    return names
