"""Groups of rows that may share a chart, with the names of their series and the entries of their legends.

Rows share a chart if they have the same collective and agree in every coordinate that is neither an axis nor part of
the name of a series. Series are named after transport, parameters and so on only if these differ.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from hpccoll.analysis.row_labels import fell_back, has_size, placement_label
from hpccoll.analysis.series_names import group_file_names, setting_keys
from hpccoll.analysis.series_points import SeriesPoint, best_placements, median_seconds, mixed_hosts, series_points
from hpccoll.analysis.setting import Choice
from hpccoll.cases.algorithm_registry import COLLECTIVES, emulations, is_workload
from hpccoll.cases.case import SINGLE
from hpccoll.common.units import format_count, format_size
from hpccoll.schedule.collective import NATIVE
from hpccoll.store.call_key import CallKey, rank_pair
from hpccoll.store.rows import Results, Row, RowKey

if TYPE_CHECKING:
    from hpccoll.analysis.recommendations import Recommendation


FAMILIES = (
    ("recursive_doubling", "recursive_halving", "dissemination"),
    ("ring", "bidirectional_ring", "nccl_ring", "chain"),
    ("rabenseifner",), ("direct", "pairwise", "exchange"), ("bruck",),
    ("double_binary_tree", "nccl_tree"), ("binomial_tree", "binomial"), ("hierarchical",), ("sharp_emulated",),
    ("swing",), ("torus",),
    ("star", "ping_pong", "train"), ("reduce_scatter_all_gather", "scatter_all_gather"),
)  # fmt: skip
"""Families of algorithms, which have a hue each in all charts; any other algorithm is a family of its own."""

MEMBERS = {name: (number, member) for number, names in enumerate(FAMILIES) for member, name in enumerate(names)}
MOST_MEMBERS = max(map(len, FAMILIES))

MOST_SERIES = 40
"""The most series in a chart of curves: more would cover each other and crowd the legend."""


@dataclass(frozen=True, slots=True)
class LegendEntry:
    """What distinguishes a series in all charts of a report."""

    number: int = -1  # that of its family from 0; -1 of the library's own, and of floors
    member: int = 0  # its number in the family: other algorithms of it, other transports and parameters
    is_floor: bool = False  # whether it is a floor
    is_predicted: bool = False  # whether it was predicted: it has the number of the series that it predicts
    is_pale: bool = False  # whether it is in the background of a chart of many series


@dataclass(frozen=True)  # no slots: every point asks for what is cached
class ChartGroup:
    """Rows that may share a chart."""

    name: str  # a unique name that is valid in a file name
    collective: str  # the collective of all rows
    kind: str  # the kind of all rows, such as ``measured``
    setting: str  # the other coordinates that all rows share, in words
    points: tuple[SeriesPoint, ...]  # the measured rows, in the order in which their runs were created
    # the entry of every series of the report, the same in all charts, in the order of legends
    legend: Mapping[str, LegendEntry]
    recommendations: tuple["Recommendation", ...] = ()  # what to use, in each setting of these rows
    series_of_row: Mapping[RowKey, str] = field(default_factory=dict)  # the series of every row of the report
    # the rows of other programs, which charts of times draw solid, and predicted ones, which they draw dashed; nothing
    # else takes them
    imports: tuple[SeriesPoint, ...] = ()
    predictions: tuple[SeriesPoint, ...] = ()
    whole: "ChartGroup | None" = None  # the group that this is a part of, whose names of shapes and machines hold

    @cached_property
    def fitting(self) -> "ChartGroup":
        """The part in which ranks had cores of their own, which sets the scale of charts; everything if none had."""
        return self._part(crowded=False) if self.crowded else self

    @cached_property
    def crowded(self) -> "ChartGroup | None":
        """The part with more ranks than cores, which charts fold; None if it is everything, or nothing."""
        kinds = {point.row.oversubscribed for point in self.usable}
        return self._part(crowded=True) if kinds >= {True, False} else None

    def _part(self, *, crowded: bool) -> "ChartGroup":
        own_shapes: set[str] = set()
        other_shapes: set[str] = set()
        for point in self.usable:
            shapes = own_shapes if point.row.oversubscribed == crowded else other_shapes
            shapes.add(self.shape_label(point.row))

        def belongs_here(point: SeriesPoint) -> bool:
            """Return whether a point of another kind is on a shape that was measured in this part, or in neither."""
            shape = self.shape_label(point.row)
            return shape in own_shapes or (not crowded and shape not in other_shapes)

        return replace(
            self,
            points=tuple(point for point in self.points if point.row.oversubscribed == crowded),
            imports=tuple(filter(belongs_here, self.imports)),
            predictions=tuple(filter(belongs_here, self.predictions)),
            recommendations=tuple(
                advice for advice in self.recommendations if advice.measured.oversubscribed == crowded
            ),
            whole=self,
        )

    @cached_property
    def of_few_series(self) -> "ChartGroup":
        """The part whose curves a chart draws; the group itself if it has at most MOST_SERIES series.

        Its legend begins with what is not pale.
        """
        tones = (self.whole or self).series_tones
        if not tones:
            return self

        def of_kept(points: Iterable[SeriesPoint]) -> tuple[SeriesPoint, ...]:
            return tuple(point for point in points if point.measured_series in tones)

        predictions = of_kept(self.predictions)
        legend = {name: replace(self.legend[name], is_pale=is_pale) for name, is_pale in tones.items()}
        for point in predictions:
            legend[point.series] = replace(self.legend[point.series], is_pale=tones[point.measured_series])
        return replace(
            self, points=of_kept(self.points), imports=of_kept(self.imports), predictions=predictions,
            legend=legend | {name: entry for name, entry in self.legend.items() if name not in legend},
            whole=self.whole or self,
        )  # fmt: skip

    @cached_property
    def series(self) -> frozenset[str]:
        """The series of its curves, predictions under the name of what they predict."""
        return frozenset(point.measured_series for point in self.drawn)

    @cached_property
    def series_tones(self) -> Mapping[str, bool]:
        """The series to draw of more than MOST_SERIES, and whether each is pale; empty if all can be drawn.

        What is recommended comes first, then the library's own and floors. The others are pale, the series that come
        closest to the fastest one at any size before those that stay behind.
        """
        if len(self.series) <= MOST_SERIES:
            return {}
        advised = list[str]()
        for recommendation in self.recommendations:
            choices = dict.fromkeys(verdict.choice for verdict in recommendation.verdicts.values())
            advised += [self.series_of(choice, recommendation) for choice in choices]
        own = [name for name, entry in self.legend.items() if entry.number < 0]
        first = [name for name in dict.fromkeys([*advised, *own]) if name in self.series]
        timed = [point for point in self.drawn if not point.row.predicted] or self.drawn
        distance = _distance_to_fastest(timed)
        others = sorted(self.series.difference(first), key=lambda name: (distance.get(name, inf), name))
        return dict.fromkeys(first, False) | dict.fromkeys(others[: max(0, MOST_SERIES - len(first))], True)

    def series_of(self, choice: Choice, recommendation: "Recommendation") -> str:
        """Return the name of the series of a choice in a setting.

        The choice may have been measured with another element type or root, whose rows are of another group.
        """
        return next(self.series_of_row[key] for key, each in recommendation.measured.rows.items() if each == choice)

    def distinguishing_setting(self, shared: Collection[str]) -> str:
        """Return the parts of the setting but those ``shared`` by all groups (see ``shared_words``)."""
        return ", ".join(word for word in self.setting_words if word not in shared) or "others"

    @property
    def setting_words(self) -> tuple[str, ...]:
        """The parts of the setting, and the kind of the rows."""
        return (*self.setting.split(", "), self.kind)

    @property
    def of_steps(self) -> bool:
        return is_workload(self.collective)

    @property
    def has_size(self) -> bool:
        return has_size(self.collective)

    def size_label(self, nbytes: int) -> str:
        """Return a size with its unit; empty if the collective has none."""
        return format_size(nbytes) if self.has_size else ""

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """The measured pairs of ranks, if messages go between two ranks."""
        pairs = {rank_pair(point.row) for point in self.usable}
        return tuple(sorted(filter(None, pairs)))

    @cached_property
    def many_pairs(self) -> bool:
        """Whether a line stands for several pairs of ranks."""
        if self.whole:
            return self.whole.many_pairs
        keys = {p.key.only("ranks", "nodes", "pair") for p in self.usable if rank_pair(p.row)}
        return len({key.without("pair") for key in keys}) < len(keys)

    @property
    def emulations(self) -> tuple[str, ...]:
        """The algorithms that emulate hardware in software, with their number of aggregators."""
        labels = []
        for name, emulation in emulations().items():
            counts = {self.shape_label(p.row): p.row.aggregators for p in self.usable if p.row.algorithm == name}
            where = {shape: f" ({shape})" if len(set(counts.values())) > 1 else "" for shape in counts}
            numbers = {f"{format_count(count, 'aggregator')}{where[shape]}": None for shape, count in counts.items()}
            labels += [f"{name}: {emulation.label}, with {', '.join(numbers)}"] if numbers else []
        return tuple(labels)

    @cached_property
    def usable(self) -> tuple[SeriesPoint, ...]:
        """The points that may be drawn and compared."""
        return tuple(point for point in self.points if point.row.usable)

    @cached_property
    def drawn(self) -> tuple[SeriesPoint, ...]:
        """The points that axes have to include: usable ones, those of other programs, and predictions."""
        return (*self.usable, *(point for point in (*self.imports, *self.predictions) if point.row.usable))

    @cached_property
    def best_placements(self) -> tuple[SeriesPoint, ...]:
        """The faster of in place and out of place: see ``series_points.best_placements``."""
        return best_placements(self.points)

    @cached_property
    def mixed_hosts(self) -> tuple[tuple[str, frozenset[str]], ...]:
        """The launches on different hosts that a curve joins: see ``series_points.mixed_hosts``."""
        return mixed_hosts(self.points)

    @property
    def modelled(self) -> bool:
        return any(point.expected_s for point in self.usable)

    @property
    def several_executors(self) -> bool:
        return len({point.row.executor for point in self.usable}) > 1

    @cached_property
    def machines(self) -> tuple[str, ...]:
        """The machines, in order of first use."""
        if self.whole:
            return self.whole.machines
        return tuple(dict.fromkeys(point.machine for point in self.points))

    @cached_property
    def machine_of_run(self) -> dict[str, str]:
        """The machine of each run, by run_id."""
        return {point.row.run_id: point.machine for point in self.points}

    def machine_label(self, point: SeriesPoint) -> str:
        """Return the short name of the machine of ``point``: ``machine 1``."""
        if not point.row.ours:
            return f"{'prediction' if point.row.predicted else point.row.source}: {point.machine}"
        return f"machine {self.machines.index(point.machine) + 1}"

    def shape_and_machine(self, point: SeriesPoint) -> str:
        """Return its position in words, with its machine if there are several: ``4 nodes, machine 1``."""
        return self.shape_label(point.row) + (f", {self.machine_label(point)}" if len(self.machines) > 1 else "")

    @cached_property
    def ranks_per_node(self) -> int | None:
        """The ranks of each node if curves run over nodes; None if they run over ranks."""
        rows = [point.row for point in (self.whole or self).drawn]
        each = {row.ranks_per_node for row in rows}
        return each.pop() if len(each) == 1 and any(row.nodes > 1 for row in rows) else None

    @property
    def unit(self) -> str:
        """The field of a row that curves run over: ``nodes`` or ``ranks``."""
        return "ranks" if self.ranks_per_node is None else "nodes"

    @property
    def unit_title(self) -> str:
        """The title of that axis: ``nodes (1 rank each)``."""
        return "ranks" if self.ranks_per_node is None else f"nodes ({format_count(self.ranks_per_node, 'rank')} each)"

    def axis_value(self, row: Row) -> int:
        """Return the nodes or ranks of ``row``: its position on a curve."""
        return row.ranks if self.ranks_per_node is None else row.nodes

    @property
    def oversubscribed_counts(self) -> list[int]:
        """The positions on a curve at which there were more ranks than cores."""
        return sorted({self.axis_value(point.row) for point in self.usable if point.row.oversubscribed})

    def coordinates(self, point: SeriesPoint) -> dict[str, Any]:
        """Return the values by which findings identify a point: series, shape, nbytes, pair and placement."""
        return {
            "series": point.series,
            "shape": self.shape_label(point.row),
            "nbytes": point.row.requested_bytes if self.has_size else None,
            "pair": point.pair_label,
            "placement": placement_label(point.row),
        }

    def place(self, point: SeriesPoint) -> str:
        """Return the coordinates of a point besides its series: ``2 ranks at 1 KiB, in place``."""
        size = f" at {self.size_label(point.row.requested_bytes)}" if self.has_size else ""
        words = self.shape_label(point.row) + size, point.pair_label, placement_label(point.row)
        return ", ".join(filter(None, words))

    def shape_label(self, row: Row) -> str:
        """Return that position in words: ``4 nodes``, ``4 ranks``, ``6 ranks on 4 nodes``."""
        if self.ranks_per_node is not None:
            return format_count(row.nodes, "node")
        return format_count(row.ranks, "rank") + (f" on {row.nodes} nodes" if row.nodes > 1 else "")


def _distance_to_fastest(points: Iterable[SeriesPoint]) -> dict[str, float]:
    """Return how many times as long as the fastest series each one takes, where that is least."""
    seconds: dict[CallKey, dict[str, float]] = defaultdict(dict)
    for point in points:
        name = point.measured_series
        if not point.row.floor:
            times = seconds[point.key.only("machine", "nodes", "ranks", "requested_bytes", "in_place")]
            times[name] = min(times.get(name, inf), median_seconds(point))
    distance: dict[str, float] = {}
    for times in seconds.values():
        fastest = min(times.values())
        for name, time in times.items():
            distance[name] = min(distance.get(name, inf), time / fastest)
    return distance


def shared_words(groups: Iterable[ChartGroup]) -> set[str]:
    """Return the parts of the settings of groups, at least one, that all of them have."""
    return set.intersection(*(set(group.setting_words) for group in groups))


def chart_groups(
    results: Results, recommendations: Sequence["Recommendation"] = (), inputs: Mapping[str, str] = MappingProxyType({})
) -> tuple[ChartGroup, ...]:
    """Return the groups of ``results``: collectives in the order of their table, settings by their number of rows.

    Settings with other timings than of single operations follow. ``inputs`` has the name of the input of each run, by
    run_id; it follows the names of series.
    """
    points = series_points(results, inputs)
    series_of_row = {point.row.key: point.series for point in points}
    rows_of_points = [point.row for point in points]
    settings, calls = setting_keys(rows_of_points), setting_keys(rows_of_points, loosely=True)
    members: dict[tuple[str, ...], _Members] = {}
    of_calls: dict[tuple[str, ...], dict[tuple[str, ...], _Members]] = defaultdict(dict)
    placed = sorted(zip(points, settings, calls, strict=True), key=lambda each: each[0].row.precedence)
    for point, setting, call in placed:
        kind = "predicted" if point.row.predicted else point.kind
        own = *(call if point.row.imported else setting), kind
        for key in _groups_joined(point, of_calls[call]) or [own]:
            if key not in members:
                members[key] = of_calls[call][key] = _Members()
            members[key].add(point)
    order = {name: i for i, name in enumerate(COLLECTIVES)}
    ordered = sorted(
        members,
        key=lambda key: (
            order.get(key[0], len(order)), key[0], members[key].first.row.precedence,
            members[key].first.row.timing != SINGLE, -len(members[key]), key,
        ),
    )  # fmt: skip
    names = group_file_names(ordered)
    answers = {
        series_of_row[key]
        for each in recommendations
        for key, choice in each.measured.rows.items()
        if choice in each.named
    }
    legend = _legend_entries(points, answers)
    of_group = _recommendations_of_groups(recommendations, members)
    groups = []
    for key in ordered:
        words = ", ".join(filter(None, key[1:-1]))
        measured, imports, predicted = map(tuple, members[key].of_kinds)
        groups.append(
            ChartGroup(
                names[key], key[0], key[-1], words, measured, legend, tuple(of_group[key]), series_of_row, imports,
                predicted,
            )
        )  # fmt: skip
    return tuple(groups)


def _recommendations_of_groups(
    recommendations: Iterable["Recommendation"], members: Mapping[tuple[str, ...], "_Members"]
) -> Mapping[tuple[str, ...], list["Recommendation"]]:
    """Return the recommendations for the measured rows of each group, by its key."""
    group_of = {point.row.key: key for key, group in members.items() for point in group.of_kinds[0]}
    of_group: dict[tuple[str, ...], list[Recommendation]] = defaultdict(list)
    for recommendation in recommendations:
        joined = {group_of[row]: None for row in recommendation.measured.rows if row in group_of}
        for key in joined:
            of_group[key].append(recommendation)
    return of_group


@dataclass(slots=True)
class _Facts:
    """What points of one kind in a group have, each once."""

    ranks_per_node: set[int | None] = field(default_factory=set)
    loops: set[CallKey] = field(default_factory=set)  # types of elements with timings
    machines: set[str] = field(default_factory=set)

    def add(self, point: SeriesPoint) -> None:
        self.ranks_per_node.add(point.row.ranks_per_node)
        self.loops.add(point.key.only("dtype", "timing"))
        self.machines.add(point.machine)

    def likeness(self, row: Row) -> tuple[bool, bool]:
        """Return whether the elements and the timing of the point closest to a row are alike."""
        return max((key.dtype == row.dtype, key.timing == row.timing) for key in self.loops)


@dataclass(frozen=True, slots=True)
class _Members:
    """The points of a group, by precedence: measured, imported and predicted ones."""

    of_kinds: tuple[list[SeriesPoint], ...] = field(default_factory=lambda: ([], [], []))
    facts: tuple[_Facts, ...] = field(default_factory=lambda: (_Facts(), _Facts(), _Facts()))

    def add(self, point: SeriesPoint) -> None:
        self.of_kinds[point.row.precedence].append(point)
        self.facts[point.row.precedence].add(point)

    def __len__(self) -> int:
        return sum(map(len, self.of_kinds))

    @property
    def first(self) -> SeriesPoint:
        return next(chain.from_iterable(self.of_kinds))


def _groups_joined(point: SeriesPoint, of_call: Mapping[tuple[str, ...], _Members]) -> list[tuple[str, ...]]:
    """Return the keys of the groups that a point joins whose rows are of other kinds; none for a measured one.

    These are groups ``of_call``, its own call, that have as many ranks on a node, those of measured rows before those
    of imported ones: the ones whose elements and timing are alike, if there are any. A prediction joins those of the
    machine that it was fitted to; any other point, and one that was fitted to none of them, the first.
    """
    row = point.row
    others: dict[tuple[str, ...], _Facts] = {}
    for kind in range(row.precedence):
        facts_of = {key: group.facts[kind] for key, group in of_call.items()}
        others = {key: facts for key, facts in facts_of.items() if row.ranks_per_node in facts.ranks_per_node}
        if others:
            break
    likeness = {key: facts.likeness(row) for key, facts in others.items()}
    best = max(likeness.values(), default=None)
    closest = [key for key in others if likeness[key] == best]
    fitted = [key for key in closest if point.fitted_to in others[key].machines]
    return fitted or closest[:1]


def _legend_entries(points: Iterable[SeriesPoint], answers: Collection[str]) -> dict[str, LegendEntry]:
    """Return the entry of every series, in the order of legends.

    Series of different collectives may share a number, because the palette is limited; ``answers`` are those that share
    the charts of all collectives.
    """
    points = sorted(points, key=lambda point: -point.row.precedence)  # the rows of measured series count
    rows = {point.colour_of or point.series: point.row for point in points}
    charts: dict[str, set[str]] = defaultdict(set)
    for point in points:
        charts[point.row.collective].add(point.colour_of or point.series)
    predictions = {point.series: point.colour_of for point in points if point.colour_of}
    floors = [name for name in sorted(rows) if rows[name].floor]
    native_names = (name for name in rows if rows[name].algorithm == NATIVE)
    native = sorted(native_names, key=lambda name: (rows[name].precedence, fell_back(rows[name]), name))[:1]
    by_name = sorted(rows, key=lambda name: (rows[name].precedence, name))
    others = [name for name in by_name if name not in floors and name not in native]
    # Variants of the library's own call run other algorithms, and are families of their own.
    family = {name: name if rows[name].algorithm == NATIVE else rows[name].algorithm for name in others}
    together = [*charts.values(), answers]
    numbers = _assign_numbers(
        dict.fromkeys(family.values()), [[family[name] for name in names if name in family] for names in together],
        {name: number for name, (number, _) in MEMBERS.items()},
    )  # fmt: skip
    variants: dict[str, int] = {}
    for algorithm in dict.fromkeys(family.values()):
        of_family = [name for name in others if family[name] == algorithm]
        variants |= _assign_numbers(of_family, [[n for n in names if family.get(n) == algorithm] for names in together])
    legend = dict.fromkeys(native, LegendEntry())
    for name in others:
        first = MEMBERS.get(family[name], (0, 0))[1]
        legend[name] = LegendEntry(numbers[family[name]], first + MOST_MEMBERS * variants[name])
    legend |= dict.fromkeys(floors, LegendEntry(is_floor=True))
    return legend | {name: replace(legend[of], is_predicted=True) for name, of in predictions.items()}


def predicted_entries(algorithms: Iterable[str]) -> dict[str, LegendEntry]:
    """Return the entries of predicted algorithms, in the colours that they have where they were measured."""
    names = list(dict.fromkeys(algorithms))
    numbers = _assign_numbers(names, [names], {name: number for name, (number, _) in MEMBERS.items()})
    return {name: LegendEntry(numbers[name], MEMBERS.get(name, (0, 0))[1], is_predicted=True) for name in names}


def _assign_numbers(
    names: Iterable[str], groups: Iterable[Iterable[str]], known: Mapping[str, int] = MappingProxyType({})
) -> dict[str, int]:
    """Return for each name that has no ``known`` number the lowest that no other name in one of its groups has."""
    neighbours: Mapping[str, set[str]] = defaultdict(set)
    for group in map(set, groups):
        for name in group:
            neighbours[name] |= group
    numbers = dict(known)
    for name in names:
        if name in known:
            continue
        used = {numbers.get(other) for other in neighbours[name]}
        numbers[name] = next(i for i in range(len(used) + 1) if i not in used)
    return numbers
