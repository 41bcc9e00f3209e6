"""Geometries that are slow although others are not: numbers of nodes, and of ranks on a node.

If a collective is slow on three nodes, and on any two and any four of them it is not, no node is
at fault. A geometry is slow between a smaller and a larger one that are not, because
bandwidth rises or falls with the number of nodes or ranks on healthy machines, and has no dip. The
geometries with a known reason are in ``geometries.toml``. A finding never changes a verdict.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from hpccoll.analysis.setting import Choice
from hpccoll.common.text import Finding, info, join_words
from hpccoll.common.units import format_count, format_factor, format_rate, format_size
from hpccoll.evidence.log_record import NCCL_LIBRARIES
from hpccoll.judge.acceptance import Judged
from hpccoll.judge.causes import OF_AMD, in_words_of_rccl
from hpccoll.judge.held import RATE, Held, HeldVerdict
from hpccoll.judge.run_comparison import CaseComparison, compared_rows
from hpccoll.model.machine_file import MachineFile
from hpccoll.schedule.collective import NATIVE
from hpccoll.store.call_key import CallKey
from hpccoll.store.host_names import canonical_hosts
from hpccoll.store.rows import Results, Row, Run

SLOW_SHARE = 0.8
"""A geometry is slow if it has less than this share of the bandwidth of a smaller and of a larger
one. No healthy machine was seen with a dip: of the published figures of one machine on three and
more numbers of nodes, the middle ones have at least 1.00 times the bandwidth of the lower end (44
triples of numbers). Several healthy machines of one class differ more: H100 has 320 GB/s on 4 nodes
of one machine, and 387 GB/s on 8 of another (0.83)."""

LARGE = 1 << 20
"""The size in bytes from which on bandwidths of different geometries are compared."""

FAILING = {HeldVerdict.SLOWER, HeldVerdict.WRONG, HeldVerdict.MISSING}
HEALTHY = {HeldVerdict.AS_EXPECTED, HeldVerdict.FASTER}
"""The verdicts of results that are slow, and of those that are not; others leave it open."""

NODES, RANKS_PER_NODE = "nodes", "ranks_per_node"
"""What geometries differ in."""

PLACE = "nodes", "ranks", "ranks_per_node", "racks", "machine"
"""The fields of a call that a geometry sets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedResult:
    """A measured result in its geometry, with its verdict."""

    call: object  # what was called, without size and geometry
    name: str  # the collective, with the algorithm if it is not the library's own choice
    transport: str
    nbytes: int  # the requested size
    nodes: int
    ranks_per_node: int
    racks: int
    verdict: HeldVerdict
    bandwidth: float | None  # bus bandwidth in bytes/s; None if only verdicts are to be compared
    factor: float | None  # the time over the expected one; None without an expectation
    hosts: frozenset[str]  # one for each node; empty if they are unknown

    @classmethod
    def of(cls, row: Row, run: Run | None, held: Held, bandwidth: float | None) -> "PlacedResult":
        """Return a row with its verdict; all nodes of the row have as many ranks."""
        name = row.collective
        if row.algorithm != NATIVE:
            name = f"{name} {row.algorithm}"
        hosts: frozenset[str] = frozenset()
        if run and len(run.hosts) == row.nodes:
            hosts = frozenset(run.hosts)
        factor = held.ratio
        if factor and held.quantity == RATE:
            factor = 1 / factor
        return cls(
            call=(Choice.of(row), CallKey.of(row).without("requested_bytes", *PLACE)),
            name=name,
            transport=row.transport,
            nbytes=row.requested_bytes,
            nodes=row.nodes,
            ranks_per_node=row.ranks_per_node or 1,
            racks=row.racks,
            verdict=held.verdict,
            bandwidth=bandwidth,
            factor=factor,
            hosts=hosts,
        )

    @property
    def speed(self) -> float:
        """The bandwidth, or the expected time over the measured one: larger is faster."""
        if self.bandwidth:
            return self.bandwidth
        return 1 / self.factor if self.factor else 0.0

    def at(self, dimension: str) -> int:
        """Return the nodes or the ranks on each node."""
        return self.nodes if dimension == NODES else self.ranks_per_node


def judged_geometries(
    judged: Iterable[Judged], runs: Iterable[Run], machine: MachineFile | None = None
) -> list[Finding]:
    """Return the slow geometries among rows that ``accept`` judges.

    Args:
        judged: the rows with their verdicts.
        runs: the runs that the rows belong to.
        machine: the machine that they were measured on; None if it is not described.
    """
    run_of = {run.run_id: run for run in runs}
    placed = []
    for judgement in judged:
        row = judgement.row
        if row.ranks_per_node is not None:
            run = run_of.get(row.run_id)
            placed.append(PlacedResult.of(row, run, judgement, row.busbw_Bps))
    return slow_geometries(placed, machine)


def compared_geometries(cases: Iterable[CaseComparison], new: Results) -> list[Finding]:
    """Return the geometries that became slower, while smaller and larger ones did not.

    Args:
        cases: the cases of a comparison, with their verdicts.
        new: the results of the new run, which have the hosts.
    """
    held_of = {held.case.identity: held for held in cases}
    if not any(held.verdict in FAILING for held in held_of.values()):
        return []
    run_of = {run.run_id: run for run in new.runs}
    placed = []
    for row, case in compared_rows(new.rows, new.runs):
        held = held_of.get(case.identity)
        if held and row.ranks_per_node is not None:
            run = run_of.get(row.run_id)
            placed.append(PlacedResult.of(row, run, held, bandwidth=None))
    return slow_geometries(placed)


@dataclass(frozen=True, slots=True)
class SameSize:
    """Results of one call and size."""

    results: list[PlacedResult] = field(default_factory=list)

    def __add__(self, added: "SameSize") -> "SameSize":
        return SameSize(self.results + added.results)

    @property
    def nbytes(self) -> int:
        return self.results[0].nbytes

    @property
    def verdicts(self) -> set[HeldVerdict]:
        return {result.verdict for result in self.results}

    @property
    def bandwidths(self) -> list[float]:
        """The bandwidth of each, 0 where it is not known."""
        return [result.bandwidth or 0.0 for result in self.results]

    @property
    def hosts(self) -> set[str] | None:
        """Their hosts; None if those of a result are unknown."""
        hosts: set[str] = set()
        for result in self.results:
            if not result.hosts:
                return None
            hosts |= result.hosts
        return hosts

    def is_comparable(self) -> bool:
        """Whether they tell whether a geometry is slow, by verdicts or by bandwidths."""
        if self.verdicts <= FAILING | HEALTHY:
            return True
        return self.nbytes >= LARGE and min(self.bandwidths) > 0

    def is_slow_next_to(self, healthy: "SameSize") -> bool:
        """Return whether all rows are slow next to all rows of another geometry."""
        if self.verdicts <= FAILING and healthy.verdicts <= HEALTHY:
            return True
        slowest = min(healthy.bandwidths)
        return self.nbytes >= LARGE and 0 < max(self.bandwidths) < SLOW_SHARE * slowest


BySize = Mapping[int, SameSize]
"""The results of one call in one geometry, by size."""


@dataclass(frozen=True, slots=True)
class SlowGeometry:
    """A geometry in which a call is slow, and the nearest ones in which it is not."""

    dimension: str  # what these geometries differ in
    slow: PlacedResult  # the result of the largest slow size
    healthy: Sequence[PlacedResult]  # those of the same size in the other geometries
    has_same_hosts: bool | None  # whether the other geometries include its hosts; None if unknown

    @property
    def geometry(self) -> tuple[str, int, int]:
        """What differs, and the place."""
        return self.dimension, self.slow.nodes, self.slow.ranks_per_node


def slow_geometries(
    placed: Iterable[PlacedResult], machine: MachineFile | None = None
) -> list[Finding]:
    """Return a finding for each slow geometry; none if other geometries are not shown to be healthy.

    Its kind is ``geometry_`` and the name of the known geometry, or of what differs. Its values are
    nodes, ranks_per_node, calls (names), bytes, healthy (the numbers of nodes or ranks that are not
    slow), share (of their bandwidth or speed) and same_hosts (true, or None if unknown).
    """
    every = list(placed)
    slow_by_geometry: dict[tuple[str, int, int], list[SlowGeometry]] = defaultdict(list)
    for dimension in (NODES, RANKS_PER_NODE):
        for by_value in _curves(every, dimension):
            for slow in _slow_of_curve(by_value, dimension):
                slow_by_geometry[slow.geometry].append(slow)
    return [_finding(slow_calls, machine) for slow_calls in slow_by_geometry.values()]


def _curves(placed: Iterable[PlacedResult], dimension: str) -> Iterator[Mapping[int, BySize]]:
    """Yield the results of each call by the number of nodes or ranks on a node, and by size."""
    curves: dict[object, dict[int, dict[int, SameSize]]] = {}
    for result in placed:
        fixed = result.ranks_per_node if dimension == NODES else result.nodes
        by_value = curves.setdefault((result.call, fixed), {})
        by_size = by_value.setdefault(result.at(dimension), {})
        by_size.setdefault(result.nbytes, SameSize()).results.append(result)
    yield from curves.values()


def _slow_of_curve(by_value: Mapping[int, BySize], dimension: str) -> Iterator[SlowGeometry]:
    """Yield the slow geometries of one call."""
    values = sorted(by_value)
    for place, value in enumerate(values):
        slow = _slow_between(by_value, values[:place], value, values[place + 1 :], dimension)
        if slow is None and dimension == RANKS_PER_NODE:
            slow = _slow_beyond_half(by_value, value)
        if slow:
            yield slow


def _slow_between(
    by_value: Mapping[int, BySize],
    smaller: Sequence[int],
    value: int,
    larger: Sequence[int],
    dimension: str,
) -> SlowGeometry | None:
    """Return a geometry that is slow next to the nearest smaller and larger ones that are not."""
    for below in reversed(smaller):
        for above in larger:
            neighbours = by_value[below], by_value[above]
            slow = _slow_next_to(by_value[value], neighbours, dimension)
            if slow:
                return slow
    return None


def _slow_beyond_half(by_value: Mapping[int, BySize], value: int) -> SlowGeometry | None:
    """Return a number of ranks that fails, if those of up to half of a node are not slow.

    Nothing larger shows that it is a geometry, so that its own verdict has to say that it is slow.
    """
    half = max(by_value) // 2
    fitting = [by_value[ranks] for ranks in sorted(by_value) if ranks <= half]
    at = by_value[value]
    if value <= half or not fitting or not at[max(at)].verdicts <= FAILING:
        return None
    return _slow_next_to(at, fitting, RANKS_PER_NODE)


def _slow_next_to(at: BySize, geometries: Sequence[BySize], dimension: str) -> SlowGeometry | None:
    """Return a geometry that is slow next to others: at most large sizes, or at most small ones."""
    large: list[tuple[SameSize, SameSize]] = []
    small: list[tuple[SameSize, SameSize]] = []
    for nbytes in sorted(set(at).intersection(*geometries)):
        neighbours = sum((geometry[nbytes] for geometry in geometries), SameSize())
        if neighbours.verdicts & FAILING:
            return None
        if (at[nbytes] + neighbours).is_comparable():
            sizes = large if nbytes >= LARGE else small
            sizes.append((at[nbytes], neighbours))
    for sizes in (large, small):
        if not _is_slow_at_most(sizes):
            continue
        slow, healthy = sizes[-1]
        has_same_hosts = _has_same_hosts(slow, healthy)
        if has_same_hosts is False:  # a node that only the slow geometry has may be slow
            return None
        fastest = max(slow.results, key=lambda result: result.speed)
        return SlowGeometry(dimension, fastest, healthy.results, has_same_hosts)
    return None


def _is_slow_at_most(sizes: Sequence[tuple[SameSize, SameSize]]) -> bool:
    """Return whether a geometry is slow next to healthy ones at most of some sizes, and at the largest."""
    slow = [results.is_slow_next_to(healthy) for results, healthy in sizes]
    return 2 * sum(slow) > len(slow) and slow[-1]


def _has_same_hosts(slow: SameSize, healthy: SameSize) -> bool | None:
    """Return whether other geometries include all hosts of a slow one; None if hosts are unknown."""
    slow_hosts, healthy_hosts = slow.hosts, healthy.hosts
    if slow_hosts is None or healthy_hosts is None:
        return None
    names = canonical_hosts(sorted(slow_hosts | healthy_hosts))
    return {names[host] for host in slow_hosts} <= {names[host] for host in healthy_hosts}


@dataclass(frozen=True, slots=True)
class KnownGeometry:
    """A row of the table."""

    what: str
    why: str
    check: str
    source: str
    check_amd: str = ""

    def remedy(self, transport: str) -> str:
        """Return why the geometry is slow, and what shows it on the GPUs of the vendor."""
        why, check = self.why, self.check
        if f"transport {transport}" == OF_AMD:
            why, check = in_words_of_rccl(why), in_words_of_rccl(self.check_amd or check)
        return f"{self.what}: {why}; check: {check} ({self.source})"


@cache
def _known() -> Mapping[str, KnownGeometry]:
    import tomllib  # only a slow geometry needs them

    table = tomllib.loads((Path(__file__).parent / "geometries.toml").read_text(encoding="utf-8"))
    return {name: KnownGeometry(**row) for name, row in table.items()}


def _fills_domains_unequally(slow: SlowGeometry, machine: MachineFile | None) -> bool:
    like = machine.machine_class if machine else None
    if like is None or slow.dimension != NODES or like.fabric_nodes == 1:
        return False
    return slow.slow.nodes > like.fabric_nodes and slow.slow.nodes % like.fabric_nodes > 0


def _fills_racks_unequally(slow: SlowGeometry, _: MachineFile | None) -> bool:
    return slow.dimension == NODES and slow.slow.nodes % slow.slow.racks > 0


def _loads_rails_unequally(slow: SlowGeometry, machine: MachineFile | None) -> bool:
    rails = machine.geometry.rails if machine and machine.geometry else 1
    ranks = slow.slow.ranks_per_node
    if slow.dimension != RANKS_PER_NODE or slow.slow.nodes == 1 or rails == 1:
        return False
    return ranks % rails > 0 and rails % ranks > 0


def _crosses_sockets(slow: SlowGeometry, _: MachineFile | None) -> bool:
    """Return whether only numbers of ranks that may be of one socket are healthy."""
    if slow.slow.transport not in NCCL_LIBRARIES:
        return False
    most = max(result.ranks_per_node for result in slow.healthy)
    is_beyond_half = slow.slow.ranks_per_node >= 2 * most
    return slow.dimension == RANKS_PER_NODE and is_beyond_half


def _has_odd_nodes(slow: SlowGeometry, _: MachineFile | None) -> bool:
    if slow.slow.transport not in NCCL_LIBRARIES:
        return False
    return slow.dimension == NODES and slow.slow.nodes % 2 == 1


def _is_no_power_of_two(slow: SlowGeometry, _: MachineFile | None) -> bool:
    ranks = slow.slow.nodes * slow.slow.ranks_per_node
    return ranks & (ranks - 1) > 0


CONDITIONS: Mapping[str, Callable[[SlowGeometry, MachineFile | None], bool]] = {
    "domains": _fills_domains_unequally,
    "racks": _fills_racks_unequally,
    "rails": _loads_rails_unequally,
    "sockets": _crosses_sockets,
    "odd_nodes": _has_odd_nodes,
    "power_of_two": _is_no_power_of_two,
}
"""The conditions of the known geometries, the most specific first."""


def _finding(slow_calls: Sequence[SlowGeometry], machine: MachineFile | None) -> Finding:
    """Return the finding on a geometry in which some calls are slow; the first one is described."""
    first = slow_calls[0]
    slow = first.slow
    name = next((name for name, holds in CONDITIONS.items() if holds(first, machine)), "")
    remedy = ""
    if name:
        remedy = _known()[name].remedy(slow.transport)
    healthy_at = _by_geometry(first)
    slowest = min(healthy_at.values(), key=lambda result: result.speed)
    return info(
        f"geometry_{name or first.dimension}",
        _sentence(first, slow_calls, healthy_at),
        remedy=remedy,
        nodes=slow.nodes,
        ranks_per_node=slow.ranks_per_node,
        calls=_names(slow_calls),
        bytes=slow.nbytes,
        healthy=list(healthy_at),
        share=slow.speed / slowest.speed,
        same_hosts=first.has_same_hosts,
    )


def _names(slow_calls: Iterable[SlowGeometry]) -> list[str]:
    return list(dict.fromkeys(call.slow.name for call in slow_calls))


def _by_geometry(slow: SlowGeometry) -> dict[int, PlacedResult]:
    """Return the slowest result of each other geometry, by its nodes or ranks, ascending."""
    slowest_at: dict[int, PlacedResult] = {}
    for result in sorted(slow.healthy, key=lambda result: result.speed):
        slowest_at.setdefault(result.at(slow.dimension), result)
    return dict(sorted(slowest_at.items()))


def _sentence(
    first: SlowGeometry, slow_calls: Sequence[SlowGeometry], healthy_at: Mapping[int, PlacedResult]
) -> str:
    """Return what is slow where, and where it is not.

    For example ``this geometry, not a node: all_reduce 1 GiB on 3 nodes x 8 ranks reaches 20 GB/s
    busbw, on 2 and 4 nodes 40 GB/s and 41 GB/s, and these include its nodes``.
    """
    slow = first.slow
    call = f"{join_words(_names(slow_calls))} {format_size(slow.nbytes)} on {_place_words(slow)}"
    numbers = join_words(healthy_at)
    elsewhere = f"on {numbers} nodes"
    if first.dimension == RANKS_PER_NODE:
        elsewhere = f"with {numbers} ranks on a node"
    if slow.verdict is HeldVerdict.WRONG:
        figures = f"{call} fails, {elsewhere} it does not"
    elif slow.bandwidth:
        rates = join_words(format_rate(result.bandwidth or 0.0) for result in healthy_at.values())
        figures = f"{call} reaches {format_rate(slow.bandwidth)} busbw, {elsewhere} {rates}"
    else:
        longer = f"takes {format_factor(slow.factor or 1.0)} as long as expected"
        figures = f"{call} {longer}, {elsewhere} it does not"
    hosts = "if these include its nodes"
    if first.has_same_hosts:
        hosts = "and these include its nodes"
    return f"this geometry, not a node: {figures}, {hosts}"


def _place_words(result: PlacedResult) -> str:
    nodes = format_count(result.nodes, "node")
    return f"{nodes} x {format_count(result.ranks_per_node, 'rank')}"
