"""Who is faster, by how much, and since which size: pure functions over points.

A comparison stays within one launch, round by round, and takes of every series the faster of the placements that were
measured. The harness floor is in none of them.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from hpccoll.report.calls import own_params, pair
from hpccoll.report.groups import Point, competes, usable
from hpccoll.report.rounds import ahead, apart, interval, joined, ratio, seconds
from hpccoll.schedule.promise import NATIVE


@dataclass(frozen=True, slots=True)
class Contest:
    """The series that did the same work in the same run, fastest first."""

    entries: tuple[Point, ...]

    @property
    def winner(self) -> Point:
        return self.entries[0]

    @property
    def ranks(self) -> int:
        return self.winner.row.ranks

    @property
    def nbytes(self) -> int:
        """The size that was asked for: what is moved may differ a little with the ranks."""
        return self.winner.row.requested_bytes

    @property
    def lead(self) -> float | None:
        """How many times as long the runner-up takes, round by round; None without one."""
        return ratio(self.entries[1], self.winner) if len(self.entries) > 1 else None

    @property
    def leader(self) -> str | None:
        """The fastest series; None where it is not ahead of all others in every round: no clear winner."""
        clear = all(ahead(self.winner, entry) for entry in self.entries[1:])
        return self.winner.series if clear else None

    @property
    def variants(self) -> frozenset[str | None]:
        """The environments that the entries ran in."""
        return frozenset(entry.row.variant for entry in self.entries)

    @property
    def variant(self) -> str | None:
        """The one that all entries share."""
        return next(iter(self.variants)) if len(self.variants) == 1 else None

    @property
    def mapping(self) -> str:
        """How the ranks of all entries are numbered."""
        return self.winner.row.mapping

    @property
    def native(self) -> Point | None:
        """The library's own collective at its default settings; where all share a variant, in that."""
        natives = [e for e in self.entries if e.row.algorithm == NATIVE and not own_params(e.row)]
        return next((e for e in natives if e.row.variant is None or len(self.variants) == 1), None)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Neighbouring sizes with the same leader (None: no clear winner), and the range of its lead."""

    leader: str | None
    sizes: tuple[int, ...]
    leads: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Efficiency:
    """busbw of ``point`` over that of ``base``, the same series and size on the fewest ranks measured."""

    point: Point
    base: Point
    value: float


def best_placements(points: Iterable[Point]) -> tuple[Point, ...]:
    """Return for each run, series, ranks and size the faster of in place and out of place; no floor and no policy."""
    return tuple(point for _, entries in _side_by_side(points) for point in entries)


def _side_by_side(points: Iterable[Point]) -> Iterator[tuple[tuple[object, ...], list[Point]]]:
    """Yield what was measured side by side of the same work, the faster placement of each series, and which work."""
    alike: dict[tuple[object, ...], list[Point]] = defaultdict(list)
    for point in points:
        row = point.row
        if usable(row) and competes(row):
            alike[point.machine, pair(row), row.mapping, row.ranks, row.nodes, row.requested_bytes].append(point)
    for work, found in alike.items():
        for together in joined(found):
            best: dict[str, Point] = {}
            for point in together:
                best[point.series] = min(best.get(point.series, point), point, key=seconds)
            yield work, [*best.values()]


def contests(points: Iterable[Point]) -> tuple[Contest, ...]:
    """Return one contest for each machine, variant, mapping, ranks, size and pair of ranks, by ranks and then size.

    Where several runs did the same work, the one with the most series counts, the later of equals.
    """
    chosen: dict[tuple[object, ...], Contest] = {}
    for work, entries in _side_by_side(points):
        contest = Contest(tuple(sorted(entries, key=seconds)))
        held = chosen.get((*work, contest.variants))
        if held is None or len(entries) >= len(held.entries):
            chosen[*work, contest.variants] = contest
    return tuple(sorted(chosen.values(), key=lambda contest: (contest.ranks, contest.nbytes)))


def native_ratios(found: Iterable[Contest]) -> dict[tuple[str, int], list[tuple[int, float]]]:
    """Return for each series and ranks its time over native's, round by round: pairs of (bytes, ratio)."""
    ratios: dict[tuple[str, int], list[tuple[int, float]]] = defaultdict(list)
    for contest in found:
        if native := contest.native:
            for entry in contest.entries:
                if entry is not native:
                    ratios[entry.series, contest.ranks].append((contest.nbytes, ratio(entry, native)))
    return dict(ratios)


def stretches(found: Sequence[Contest]) -> list[Stretch]:
    """Return the contests of one rank count, in order of size, as stretches with the same leader."""
    runs = (list(run) for _, run in groupby((c for c in found if c.lead), key=lambda contest: contest.leader))
    return [
        Stretch(run[0].leader, tuple(c.nbytes for c in run), (min(leads), max(leads)))
        for run in runs
        for leads in [[contest.lead or 1.0 for contest in run]]
    ]


def efficiencies(points: Iterable[Point]) -> tuple[Efficiency, ...]:
    """Return the parallel efficiency of every point that has a bandwidth, within one machine."""
    curves: dict[tuple[object, ...], list[Point]] = defaultdict(list)
    for point in best_placements(points):
        if point.row.busbw_Bps and not pair(point.row):
            curves[point.machine, point.series, point.row.requested_bytes].append(point)
    return tuple(
        Efficiency(point, base, (point.row.busbw_Bps or 0.0) / base.row.busbw_Bps)
        for curve in curves.values()
        for base in [min(curve, key=lambda point: point.row.ranks)]
        for point in curve
        if base.row.busbw_Bps
    )


def strangers(points: Iterable[Point]) -> tuple[tuple[str, frozenset[str]], ...]:
    """Return the jobs and hosts of launches that a curve joins though they are not all on hosts of the largest one."""
    curves: dict[tuple[object, ...], dict[tuple[str, frozenset[str]], None]] = defaultdict(dict)
    times: Counter[tuple[object, ...]] = Counter()
    for point in points:
        row = point.row
        if usable(row) and point.hosts:
            curve = point.machine, point.series, row.in_place
            measured = *curve, pair(row), row.ranks, row.nodes, row.requested_bytes
            again = times[measured]  # a repeated measurement is another curve
            curves[*curve, again][row.job, frozenset(point.hosts)] = None
            times[measured] += 1
    joined = (launch for launches in curves.values() if not _nested(launches) for launch in launches)
    return tuple(dict.fromkeys(joined))


def _nested(launches: Iterable[tuple[str, frozenset[str]]]) -> bool:
    hosts = [hosts for _, hosts in launches]
    return all(some <= max(hosts, key=len) for some in hosts)


@dataclass(frozen=True, slots=True)
class Repeat:
    """A point that several runs measured, as the fastest and the slowest of them did."""

    fastest: Point
    slowest: Point

    @property
    def apart(self) -> float:
        """How many times as long the slowest took."""
        return seconds(self.slowest) / seconds(self.fastest)

    @property
    def disagrees(self) -> bool:
        return apart(interval(self.fastest), interval(self.slowest))


def repeats(points: Iterable[Point]) -> tuple[Repeat, ...]:
    """Return the points that were measured in more than one run on the same machine."""
    alike: dict[tuple[object, ...], list[Point]] = defaultdict(list)
    for point in points:
        row = point.row
        if usable(row) and not row.floor:
            key = (point.machine, point.series, pair(row), row.in_place, row.ranks, row.nodes, row.requested_bytes)
            alike[key].append(point)
    several = (found for found in alike.values() if len({point.row.run_id for point in found}) > 1)
    return tuple(Repeat(min(found, key=seconds), max(found, key=seconds)) for found in several)


def spread(values: Sequence[int], count: int) -> list[int]:
    """Return at most ``count`` of the sorted ``values``, evenly spaced, the first and the last among them."""
    if len(values) <= count:
        return list(values)
    return [values[round(i * (len(values) - 1) / (count - 1))] for i in range(count)]
