"""Groups of rows that may share a chart, with the names of their series and the entries of their legends.

Rows share a chart if they have the same collective and agree in every coordinate that is neither an
axis nor part of the name of a series. Series are named after transport, parameters and so on only
if these differ.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from hpccoll.analysis.row_labels import fell_back, has_size, placement_label
from hpccoll.analysis.series_names import group_file_names, setting_keys
from hpccoll.analysis.series_points import (
    SeriesPoint,
    best_placements,
    median_seconds,
    mixed_hosts,
    series_points,
)
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

MEMBERS = {
    name: (number, member)
    for number, names in enumerate(FAMILIES)
    for member, name in enumerate(names)
}
FAMILY_NUMBERS = {name: number for name, (number, _) in MEMBERS.items()}
MOST_MEMBERS = max(map(len, FAMILIES))

MOST_SERIES = 40
"""The most series in a chart of curves: more would cover each other and crowd the legend."""


@dataclass(frozen=True, slots=True)
class LegendEntry:
    """What distinguishes a series in all charts of a report."""

    number: int = -1  # that of its family from 0; -1 of the library's own, and of floors
    # its number in the family: other algorithms of it, other transports and parameters
    member: int = 0
    is_floor: bool = False  # whether it is a floor
    # whether it was predicted: it has the number of the series that it predicts
    is_predicted: bool = False
    is_pale: bool = False  # whether it is in the background of a chart of many series


@dataclass(frozen=True)  # no slots: every point asks for what is cached
class ChartGroup:
    """Rows that may share a chart."""

    name: str  # a unique name that is valid in a file name
    collective: str  # the collective of all rows
    kind: str  # the kind of all rows, such as ``measured``
    setting: str  # the other coordinates that all rows share, in words
    # the measured rows, in the order in which their runs were created
    points: tuple[SeriesPoint, ...]
    # the entry of every series of the report, the same in all charts, in the order of legends
    legend: Mapping[str, LegendEntry]
    recommendations: tuple["Recommendation", ...] = ()  # what to use, in each setting of the rows
    # the series of every row of the report
    series_of_row: Mapping[RowKey, str] = field(default_factory=dict)
    # the rows of other programs, which charts of times draw solid, and predicted ones, which they
    # draw dashed; nothing else takes them
    imports: tuple[SeriesPoint, ...] = ()
    predictions: tuple[SeriesPoint, ...] = ()
    # the group that this is a part of, whose names of shapes and machines hold
    whole: "ChartGroup | None" = None

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

        points = tuple(point for point in self.points if point.row.oversubscribed == crowded)
        advice = tuple(
            advice for advice in self.recommendations if advice.measured.oversubscribed == crowded
        )
        imports = tuple(filter(belongs_here, self.imports))
        predictions = tuple(filter(belongs_here, self.predictions))
        return replace(
            self,
            points=points,
            imports=imports,
            predictions=predictions,
            recommendations=advice,
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

        def drawn_points(points: Iterable[SeriesPoint]) -> tuple[SeriesPoint, ...]:
            return tuple(point for point in points if point.measured_series in tones)

        predictions = drawn_points(self.predictions)
        legend: dict[str, LegendEntry] = {}
        for name, is_pale in tones.items():
            legend[name] = replace(self.legend[name], is_pale=is_pale)
        for point in predictions:
            is_pale = tones[point.measured_series]
            legend[point.series] = replace(self.legend[point.series], is_pale=is_pale)
        for name, entry in self.legend.items():
            legend.setdefault(name, entry)
        return replace(
            self,
            points=drawn_points(self.points),
            imports=drawn_points(self.imports),
            predictions=predictions,
            legend=legend,
            whole=self.whole or self,
        )

    @cached_property
    def series(self) -> frozenset[str]:
        """The series of its curves, predictions under the name of what they predict."""
        return frozenset(point.measured_series for point in self.drawn)

    @cached_property
    def series_tones(self) -> Mapping[str, bool]:
        """The series to draw of more than MOST_SERIES, and whether each is pale; empty if all can be drawn.

        What is recommended comes first, then the library's own and floors. The others are pale, the
        series that come closest to the fastest one at any size before those that stay behind.
        """
        if len(self.series) <= MOST_SERIES:
            return {}
        foremost = dict.fromkeys(self._advised_series())
        foremost |= dict.fromkeys(name for name, entry in self.legend.items() if entry.number < 0)
        first = [name for name in foremost if name in self.series]
        timed = [point for point in self.drawn if not point.row.predicted] or self.drawn
        distance = _distance_to_fastest(timed)
        further = sorted(
            self.series.difference(first), key=lambda name: (distance.get(name, inf), name)
        )
        free = max(0, MOST_SERIES - len(first))
        return dict.fromkeys(first, False) | dict.fromkeys(further[:free], True)

    def _advised_series(self) -> Iterator[str]:
        for recommendation in self.recommendations:
            choices = dict.fromkeys(verdict.choice for verdict in recommendation.verdicts.values())
            for choice in choices:
                yield self.series_of(choice, recommendation)

    def series_of(self, choice: Choice, recommendation: "Recommendation") -> str:
        """Return the name of the series of a choice in a setting.

        The choice may have been measured with another element type or root, whose rows are of
        another group.
        """
        choice_of_row = recommendation.measured.rows
        key = next(
            key for key, measured_choice in choice_of_row.items() if measured_choice == choice
        )
        return self.series_of_row[key]

    def distinguishing_setting(self, shared: Collection[str]) -> str:
        """Return the parts of the setting but those ``shared`` by all groups (see ``shared_words``)."""
        own_words = [word for word in self.setting_words if word not in shared]
        return ", ".join(own_words) or "others"

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
        pair_points = (point for point in self.usable if rank_pair(point.row))
        keys = {point.key.only("ranks", "nodes", "pair") for point in pair_points}
        shapes = {key.without("pair") for key in keys}
        return len(shapes) < len(keys)

    @property
    def emulations(self) -> tuple[str, ...]:
        """The algorithms that emulate hardware in software, with their number of aggregators."""
        labels = []
        for name, emulation in emulations().items():
            emulating = (point.row for point in self.usable if point.row.algorithm == name)
            counts = {self.shape_label(row): row.aggregators for row in emulating}
            if not counts:
                continue
            names_shapes = len(set(counts.values())) > 1
            numbers: dict[str, None] = {}
            for shape, count in counts.items():
                where = f" ({shape})" if names_shapes else ""
                numbers[f"{format_count(count, 'aggregator')}{where}"] = None
            labels.append(f"{name}: {emulation.label}, with {', '.join(numbers)}")
        return tuple(labels)

    @cached_property
    def usable(self) -> tuple[SeriesPoint, ...]:
        """The points that may be drawn and compared."""
        return tuple(point for point in self.points if point.row.usable)

    @cached_property
    def drawn(self) -> tuple[SeriesPoint, ...]:
        """The points that axes have to include: usable ones, those of other programs, and predictions."""
        unmeasured = (*self.imports, *self.predictions)
        return (*self.usable, *(point for point in unmeasured if point.row.usable))

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
        executors = {point.row.executor for point in self.usable}
        return len(executors) > 1

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
        if point.row.predicted:
            return f"prediction: {point.machine}"
        if not point.row.ours:
            return f"{point.row.source}: {point.machine}"
        return f"machine {self.machines.index(point.machine) + 1}"

    def shape_and_machine(self, point: SeriesPoint) -> str:
        """Return its position in words, with its machine if there are several: ``4 nodes, machine 1``."""
        shape = self.shape_label(point.row)
        if len(self.machines) > 1:
            return f"{shape}, {self.machine_label(point)}"
        return shape

    @cached_property
    def ranks_per_node(self) -> int | None:
        """The ranks of each node if curves run over nodes; None if they run over ranks."""
        rows = [point.row for point in (self.whole or self).drawn]
        numbers = {row.ranks_per_node for row in rows}
        spans_nodes = any(row.nodes > 1 for row in rows)
        if len(numbers) > 1 or not spans_nodes:
            return None
        return numbers.pop()

    @property
    def unit(self) -> str:
        """The field of a row that curves run over: ``nodes`` or ``ranks``."""
        return "ranks" if self.ranks_per_node is None else "nodes"

    @property
    def unit_title(self) -> str:
        """The title of that axis: ``nodes (1 rank each)``."""
        if self.ranks_per_node is None:
            return "ranks"
        return f"nodes ({format_count(self.ranks_per_node, 'rank')} each)"

    def axis_value(self, row: Row) -> int:
        """Return the nodes or ranks of ``row``: its position on a curve."""
        return row.ranks if self.ranks_per_node is None else row.nodes

    @property
    def oversubscribed_counts(self) -> list[int]:
        """The positions on a curve at which there were more ranks than cores."""
        oversubscribed = (point.row for point in self.usable if point.row.oversubscribed)
        return sorted(set(map(self.axis_value, oversubscribed)))

    def coordinates(self, point: SeriesPoint) -> dict[str, Any]:
        """Return the values by which findings identify a point: series, shape, nbytes, pair and placement."""
        nbytes = point.row.requested_bytes if self.has_size else None
        return {
            "series": point.series,
            "shape": self.shape_label(point.row),
            "nbytes": nbytes,
            "pair": point.pair_label,
            "placement": placement_label(point.row),
        }

    def place(self, point: SeriesPoint) -> str:
        """Return the coordinates of a point besides its series: ``2 ranks at 1 KiB, in place``."""
        where = self.shape_label(point.row)
        if self.has_size:
            where += f" at {self.size_label(point.row.requested_bytes)}"
        words = where, point.pair_label, placement_label(point.row)
        return ", ".join(filter(None, words))

    def shape_label(self, row: Row) -> str:
        """Return that position in words: ``4 nodes``, ``4 ranks``, ``6 ranks on 4 nodes``."""
        if self.ranks_per_node is not None:
            return format_count(row.nodes, "node")
        ranks = format_count(row.ranks, "rank")
        return f"{ranks} on {row.nodes} nodes" if row.nodes > 1 else ranks


def _distance_to_fastest(points: Iterable[SeriesPoint]) -> dict[str, float]:
    """Return how many times as long as the fastest series each one takes, where that is least."""
    seconds: dict[CallKey, dict[str, float]] = defaultdict(dict)
    for point in points:
        name = point.measured_series
        if not point.row.floor:
            times = seconds[
                point.key.only("machine", "nodes", "ranks", "requested_bytes", "in_place")
            ]
            times[name] = min(times.get(name, inf), median_seconds(point))
    distance: dict[str, float] = {}
    for times in seconds.values():
        fastest = min(times.values())
        for name, time in times.items():
            distance[name] = min(distance.get(name, inf), time / fastest)
    return distance


def shared_words(groups: Iterable[ChartGroup]) -> set[str]:
    """Return the parts of the settings of groups, at least one, that all of them have."""
    words_of_groups = [set(group.setting_words) for group in groups]
    return set.intersection(*words_of_groups)


def chart_groups(
    results: Results,
    recommendations: Sequence["Recommendation"] = (),
    inputs: Mapping[str, str] = MappingProxyType({}),
) -> tuple[ChartGroup, ...]:
    """Return the groups of ``results``: collectives in the order of their table, settings by their number of rows.

    Settings with other timings than of single operations follow. ``inputs`` has the name of the
    input of each run, by run_id; it follows the names of series.
    """
    points = series_points(results, inputs)
    series_of_row = {point.row.key: point.series for point in points}
    members = _members_by_key(points)
    ordered = _in_order(members)
    names = group_file_names(ordered)
    answers: set[str] = set()
    for recommendation in recommendations:
        named = recommendation.named
        chosen = (key for key, choice in recommendation.measured.rows.items() if choice in named)
        answers.update(series_of_row[key] for key in chosen)
    legend = _legend_entries(points, answers)
    advice_of_group = _recommendations_of_groups(recommendations, members)
    groups = []
    for key in ordered:
        collective, *words, kind = key
        measured, imports, predictions = map(tuple, members[key].points_by_kind)
        group = ChartGroup(
            name=names[key],
            collective=collective,
            kind=kind,
            setting=", ".join(filter(None, words)),
            points=measured,
            legend=legend,
            recommendations=tuple(advice_of_group[key]),
            series_of_row=series_of_row,
            imports=imports,
            predictions=predictions,
        )
        groups.append(group)
    return tuple(groups)


def _members_by_key(points: Sequence[SeriesPoint]) -> dict[tuple[str, ...], "_Members"]:
    """Return the points of each group, by its key: the collective, the labels of its setting, and the kind."""
    rows = [point.row for point in points]
    settings = setting_keys(rows)
    calls = setting_keys(rows, loosely=True)
    members: dict[tuple[str, ...], _Members] = {}
    members_of_calls: dict[tuple[str, ...], dict[tuple[str, ...], _Members]] = defaultdict(dict)
    placed = sorted(
        zip(points, settings, calls, strict=True), key=lambda entry: entry[0].row.precedence
    )
    for point, setting, call in placed:
        kind = "predicted" if point.row.predicted else point.kind
        labels = call if point.row.imported else setting
        own_key = (*labels, kind)
        for key in _groups_joined(point, members_of_calls[call]) or [own_key]:
            if key not in members:
                members[key] = _Members()
                members_of_calls[call][key] = members[key]
            members[key].add(point)
    return members


def _in_order(members: Mapping[tuple[str, ...], "_Members"]) -> list[tuple[str, ...]]:
    """Return the keys of groups in the order in which reports have them."""
    places = {name: place for place, name in enumerate(COLLECTIVES)}

    def order(key: tuple[str, ...]) -> tuple[Any, ...]:
        collective = key[0]
        first = members[key].first.row
        place = places.get(collective, len(places))
        return place, collective, first.precedence, first.timing != SINGLE, -len(members[key]), key

    return sorted(members, key=order)


def _recommendations_of_groups(
    recommendations: Iterable["Recommendation"], members: Mapping[tuple[str, ...], "_Members"]
) -> Mapping[tuple[str, ...], list["Recommendation"]]:
    """Return the recommendations for the measured rows of each group, by its key."""
    group_of_row: dict[RowKey, tuple[str, ...]] = {}
    for group, group_members in members.items():
        measured = group_members.points_by_kind[0]
        group_of_row |= dict.fromkeys((point.row.key for point in measured), group)
    advice_of_group: dict[tuple[str, ...], list[Recommendation]] = defaultdict(list)
    for recommendation in recommendations:
        in_groups = (row for row in recommendation.measured.rows if row in group_of_row)
        for group in dict.fromkeys(map(group_of_row.__getitem__, in_groups)):
            advice_of_group[group].append(recommendation)
    return advice_of_group


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

        def agreement(key: CallKey) -> tuple[bool, bool]:
            return key.dtype == row.dtype, key.timing == row.timing

        return max(map(agreement, self.loops))


@dataclass(frozen=True, slots=True)
class _Members:
    """The points of a group, by precedence: measured, imported and predicted ones."""

    points_by_kind: tuple[list[SeriesPoint], ...] = field(default_factory=lambda: ([], [], []))
    facts: tuple[_Facts, ...] = field(default_factory=lambda: (_Facts(), _Facts(), _Facts()))

    def add(self, point: SeriesPoint) -> None:
        kind = point.row.precedence
        self.points_by_kind[kind].append(point)
        self.facts[kind].add(point)

    def __len__(self) -> int:
        return sum(map(len, self.points_by_kind))

    @property
    def first(self) -> SeriesPoint:
        return next(chain.from_iterable(self.points_by_kind))


def _groups_joined(
    point: SeriesPoint, members_of_call: Mapping[tuple[str, ...], _Members]
) -> list[tuple[str, ...]]:
    """Return the keys of the groups that an imported or predicted point joins; measured points join none.

    These are groups of its own call, ``members_of_call``, that have as many ranks on a node. Groups
    of measured rows come before those of imported ones, and groups whose elements and timing are
    alike before others. A prediction joins those of the machine that it was fitted to; any other
    point, and one that was fitted to none of them, the first.
    """
    row = point.row
    candidates: dict[tuple[str, ...], _Facts] = {}
    for kind in range(row.precedence):
        facts_of_group = {key: members.facts[kind] for key, members in members_of_call.items()}
        candidates = {
            key: facts
            for key, facts in facts_of_group.items()
            if row.ranks_per_node in facts.ranks_per_node
        }
        if candidates:
            break
    likeness = {key: facts.likeness(row) for key, facts in candidates.items()}
    best = max(likeness.values(), default=None)
    closest = [key for key in candidates if likeness[key] == best]
    fitted = [key for key in closest if point.fitted_to in candidates[key].machines]
    return fitted or closest[:1]


def _legend_entries(
    points: Iterable[SeriesPoint], answers: Collection[str]
) -> dict[str, LegendEntry]:
    """Return the entry of every series, in the order of legends.

    Series of different collectives may share a number, because the palette is limited; ``answers``
    are those that share the charts of all collectives.
    """
    # the rows of measured series count
    points = sorted(points, key=lambda point: -point.row.precedence)
    rows: dict[str, Row] = {}
    charts: dict[str, set[str]] = defaultdict(set)
    predictions: dict[str, str] = {}
    for point in points:
        rows[point.measured_series] = point.row
        charts[point.row.collective].add(point.measured_series)
        if point.colour_of:
            predictions[point.series] = point.colour_of
    floors = [name for name in sorted(rows) if rows[name].floor]
    native = _first_native(rows)
    by_name = sorted(rows, key=lambda name: (rows[name].precedence, name))
    schedules = [name for name in by_name if name not in floors and name not in native]
    legend = dict.fromkeys(native, LegendEntry())
    legend |= _entries_of_families(schedules, rows, [*charts.values(), answers])
    legend |= dict.fromkeys(floors, LegendEntry(is_floor=True))
    for name, predicted in predictions.items():
        legend[name] = replace(legend[predicted], is_predicted=True)
    return legend


def _first_native(rows: Mapping[str, Row]) -> list[str]:
    """Return the series of the library's own call that has no number, if there is one."""

    def order(name: str) -> tuple[int, bool, str]:
        return rows[name].precedence, fell_back(rows[name]), name

    native = (name for name, row in rows.items() if row.algorithm == NATIVE)
    return sorted(native, key=order)[:1]


def _entries_of_families(
    names: Sequence[str], rows: Mapping[str, Row], charts: Sequence[Collection[str]]
) -> dict[str, LegendEntry]:
    """Return the entries of series: a number for each family, and one in the family; ``charts`` have series each."""
    family: dict[str, str] = {}
    for name in names:
        # Variants of the library's own call run other algorithms, and are families of their own.
        family[name] = name if rows[name].algorithm == NATIVE else rows[name].algorithm
    algorithms = dict.fromkeys(family.values())
    families_of_charts = []
    for chart in charts:
        families_of_charts.append([family[name] for name in chart if name in family])
    numbers = _assign_numbers(algorithms, families_of_charts, FAMILY_NUMBERS)
    variants: dict[str, int] = {}
    for algorithm in algorithms:
        members = [name for name in names if family[name] == algorithm]
        members_of_charts = []
        for chart in charts:
            members_of_charts.append([name for name in chart if family.get(name) == algorithm])
        variants |= _assign_numbers(members, members_of_charts)
    entries = {}
    for name in names:
        _, first = MEMBERS.get(family[name], (0, 0))
        entries[name] = LegendEntry(numbers[family[name]], first + MOST_MEMBERS * variants[name])
    return entries


def predicted_entries(algorithms: Iterable[str]) -> dict[str, LegendEntry]:
    """Return the entries of predicted algorithms, in the colours that they have where they were measured."""
    names = list(dict.fromkeys(algorithms))
    numbers = _assign_numbers(names, [names], FAMILY_NUMBERS)
    entries = {}
    for name in names:
        _, member = MEMBERS.get(name, (0, 0))
        entries[name] = LegendEntry(numbers[name], member, is_predicted=True)
    return entries


def _assign_numbers(
    names: Iterable[str],
    groups: Iterable[Iterable[str]],
    fixed: Mapping[str, int] = MappingProxyType({}),
) -> dict[str, int]:
    """Return for each name without a ``fixed`` number the lowest that no other name in one of its groups has."""
    neighbours: Mapping[str, set[str]] = defaultdict(set)
    for group in map(set, groups):
        for name in group:
            neighbours[name] |= group
    numbers = dict(fixed)
    for name in names:
        if name in fixed:
            continue
        used = {numbers.get(neighbour) for neighbour in neighbours[name]}
        numbers[name] = next(number for number in range(len(used) + 1) if number not in used)
    return numbers
