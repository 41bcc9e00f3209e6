"""Points of charts: rows with the names of their series, and the machine, hosts, wires and memory of their runs.

With the functions over points that most charts and findings need.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from hpccoll.analysis.library_evidence import expected_s, library_summary, nccl_name, probe_of_run
from hpccoll.analysis.machine_names import has_mixed_curve, machine_names
from hpccoll.analysis.memory_bandwidth import UNKNOWN_RATES, CopyRates
from hpccoll.analysis.round_comparison import round_statistics
from hpccoll.analysis.row_labels import host_of_rank
from hpccoll.analysis.series_names import imported_name, series_namer
from hpccoll.analysis.setting import recorded_mpi_version
from hpccoll.analysis.wire_bandwidth import Wire
from hpccoll.evidence.verdict import UNKNOWN
from hpccoll.schedule.collective import NATIVE
from hpccoll.store.call_key import CallKey, rank_pair
from hpccoll.store.host_names import canonical_hosts
from hpccoll.store.rows import Interval, Results, Row, Run
from hpccoll.store.workload_timeline import WorkloadTimeline


@dataclass(frozen=True)  # without slots, because cached_property needs a __dict__
class SeriesPoint:
    """A row with the name of its series, and the machine, hosts, wires and memory of its run."""

    row: Row
    series: str
    machine: str
    hosts: tuple[str, ...]  # one for each node, in order
    wire: Wire
    memory: CopyRates = UNKNOWN_RATES
    racks: tuple[int, ...] = ()  # the rack of each node
    hosts_changed: bool = False  # whether its rounds were measured on different hosts
    library: str = ""  # the library and its network, from its logs
    expected_s: float | None = None  # the time that the library's own model predicts for what ran
    mpi: str = ""  # the version of the MPI library
    nccl: str = ""  # NCCL and its version, of a row over NCCL
    colour_of: str = ""  # the series whose colour a prediction has, measured or not
    prediction: str = ""  # the machine file of a prediction, and its error on held-out measurements
    fitted_to: str = ""  # the machine whose measurements a prediction was fitted to
    machine_name: str = ""  # of an imported row; empty if it is unknown: see machine_names
    # of a workload, one iteration
    timeline: WorkloadTimeline | None = field(default=None, compare=False)

    @cached_property
    def key(self) -> CallKey:
        return CallKey.of(self.row, self.machine)

    @property
    def measured_series(self) -> str:
        """The name of its series; of a prediction that of what it predicts."""
        return self.colour_of or self.series

    @property
    def kind(self) -> str:
        """The kind of the result, with the rate of the wires if they are those of a testbed."""
        words = self.row.kind, self.wire.rate_label
        return ", ".join(filter(None, words))

    def host_of(self, rank: int) -> str:
        """Return the host of a worker if there are several; empty if it is unknown."""
        return host_of_rank(self.row, self.hosts, rank)

    @property
    def names_hosts(self) -> bool:
        """Whether hosts name workers: there are several, and each has one worker."""
        return bool(self.host_of(0)) and self.row.ranks == self.row.nodes

    def rank_name(self, rank: int) -> str:
        """Return a worker in words: ``rank 3 on n17``, or ``n17`` if that has one worker; ``rank 3`` on one host."""
        host = self.host_of(rank)
        if host and self.names_hosts:
            return host
        return f"rank {rank} on {host}" if host else f"rank {rank}"

    def rank_label(self, rank: int) -> str:
        """Return a worker for an axis of ranks: ``3 (n17)``, ``n17`` or ``3``."""
        host = self.host_of(rank)
        if host and self.names_hosts:
            return host
        return f"{rank} ({host})" if host else str(rank)

    @property
    def pair_label(self) -> str:
        """The two workers that exchange messages, in words; empty if all take part."""
        pair = rank_pair(self.row) or ()
        return " and ".join(map(self.rank_name, pair))


def series_points(results: Results, inputs: Mapping[str, str]) -> list[SeriesPoint]:
    """Return the points of all rows but those of launches that lost ranks, in the order in which runs were created.

    ``inputs`` has the name of the input of each run, by run_id; it follows the names of series.
    """
    runs = {run.run_id: run for run in results.runs}
    created = {run_id: run.created for run_id, run in runs.items()}
    incomplete = {run_id for run_id, run in runs.items() if run.rank_loss}  # see opening_findings
    complete = (row for row in results.rows if row.run_id not in incomplete)
    rows = sorted(complete, key=lambda row: created.get(row.run_id, ""))
    # other kinds change no measured name
    measured_name = series_namer(row for row in rows if row.ours)
    machines = machine_names(run for run in runs.values() if run.imported)
    name = _point_namer(rows, runs, machines, measured_name, inputs)
    probes = {run_id: probe_of_run(run) for run_id, run in runs.items()}
    names = canonical_hosts(host for run in runs.values() for host in run.hosts)
    hosts = {run_id: tuple(map(names.__getitem__, run.hosts)) for run_id, run in runs.items()}

    def point(row: Row) -> SeriesPoint:
        run = runs.get(row.run_id)
        series = name(row)
        label = inputs.get(row.run_id)
        if label:
            series += f" ({label})"
        if run is None:
            return SeriesPoint(row, series, UNKNOWN_MACHINE, (), Wire())
        if row.imported:
            return SeriesPoint(
                row,
                series,
                run.machine,
                hosts[run.run_id],
                Wire(),
                machine_name=machines.get(run.run_id, ""),
            )
        if row.predicted:
            return _predicted_point(row, series, run, colour_of=measured_name(row))
        probe = probes[run.run_id]
        hosts_of_rounds = {hosts[run_id] for run_id in row.round_run_ids if run_id in hosts}
        library = library_summary(probe) if row.algorithm == NATIVE else ""
        nccl = nccl_name(run) if row.transport == "nccl" else ""
        return SeriesPoint(
            row=row,
            series=series,
            machine=run.machine,
            hosts=hosts[run.run_id],
            wire=Wire.of(run),
            memory=CopyRates.of(run),
            racks=run.racks,
            hosts_changed=len(hosts_of_rounds) > 1,
            library=library,
            expected_s=expected_s(probe, row),
            mpi=recorded_mpi_version(run.provenance),
            nccl=nccl,
            timeline=results.timelines.get(row.key),
        )

    return list(map(point, rows))


def _point_namer(
    rows: Sequence[Row],
    runs: Mapping[str, Run],
    machines: Mapping[str, str],
    measured_name: Callable[[Row], str],
    inputs: Mapping[str, str],
) -> Callable[[Row], str]:
    """Return a function that names the series of a row of any kind, without its input."""
    predicted_name = series_namer(row for row in rows if not row.imported)
    imported = [row for row in rows if row.imported]
    name_of_imported = _imported_namer(imported, runs, machines, inputs)

    def name(row: Row) -> str:
        if row.imported:
            return name_of_imported(row)
        if row.ours:
            return measured_name(row)
        run = runs.get(row.run_id)
        assumed = ", assumed" if run and run.provenance.get("assumed") else ""
        return f"{predicted_name(row)} ({row.kind}{assumed})"

    return name


def _imported_namer(
    rows: Sequence[Row],
    runs: Mapping[str, Run],
    machines: Mapping[str, str],
    inputs: Mapping[str, str],
) -> Callable[[Row], str]:
    """Return a function that names the series of imported rows.

    The library is a part of the names if there are several, and the machine if one series would
    otherwise have rows from several machines.
    """
    libraries: dict[str, str] = {}
    for run_id, run in runs.items():
        if run.imported:
            library = str(run.provenance.get("library", UNKNOWN))
            libraries[run_id] = "" if library == UNKNOWN else library
    several_libraries = len(set(libraries.values())) > 1

    def name(row: Row, machine: str = "") -> str:
        library = libraries.get(row.run_id, "") if several_libraries else ""
        return imported_name(row, library, machine)

    def curve(row: Row) -> str:
        return f"{name(row)} {inputs.get(row.run_id, '')}"

    if not has_mixed_curve(rows, machines, curve):
        return name
    return lambda row: name(row, machines.get(row.run_id) or UNKNOWN_MACHINE)


UNKNOWN_MACHINE = "unknown machine"


def _predicted_point(row: Row, series: str, run: Run, colour_of: str) -> SeriesPoint:
    return SeriesPoint(
        row=row,
        series=series,
        machine=run.machine,
        hosts=(),
        wire=Wire(),
        colour_of=colour_of,
        prediction=str(run.provenance.get("prediction") or ""),
        fitted_to=str(run.provenance.get("fitted_to") or ""),
    )


def median_seconds(point: SeriesPoint) -> float:
    """Return the median time of a usable point."""
    assert point.row.median_s is not None  # noqa: S101 - usable
    return point.row.median_s


def busbw_interval(point: SeriesPoint) -> Interval:
    """Return the ends of the busbw of a point, by the interval of its time; None without one."""
    interval = point.row.interval
    if interval is None or not interval[0]:
        return None
    shortest, longest = interval
    busbw = point.row.busbw_Bps or 0.0
    seconds = median_seconds(point)
    return busbw * seconds / longest, busbw * seconds / shortest


def split_by_launch(points: Iterable[SeriesPoint]) -> list[list[SeriesPoint]]:
    """Return the points in parts that have no launch in common.

    Points of one run are in one part, and so are those of a resumed job, whose rounds belong to
    several runs.
    """
    parts: list[tuple[set[str], list[SeriesPoint]]] = []
    for point in points:
        runs = {run for run, _ in round_statistics(point.row)}
        members = [point]
        separate = []
        for part in parts:
            part_runs, part_members = part
            if part_runs & runs:
                runs = part_runs | runs
                members = [*part_members, *members]
            else:
                separate.append(part)
        parts = [*separate, (runs, members)]
    return [members for _, members in parts]


def best_placements(points: Iterable[SeriesPoint]) -> tuple[SeriesPoint, ...]:
    """Return the faster of in place and out of place for each run, series, ranks and size, without floor and auto."""
    by_call: dict[CallKey, list[SeriesPoint]] = defaultdict(list)
    for point in points:
        if point.row.ranked:
            by_call[point.key.without("in_place", "variant", "aggregators")].append(point)
    faster: list[SeriesPoint] = []
    for points_of_call in by_call.values():
        for points_of_launch in split_by_launch(points_of_call):
            best: dict[str, SeriesPoint] = {}
            for point in points_of_launch:
                best[point.series] = min(best.get(point.series, point), point, key=median_seconds)
            faster += best.values()
    return tuple(faster)


def mixed_hosts(points: Iterable[SeriesPoint]) -> tuple[tuple[str, frozenset[str]], ...]:
    """Return jobs and hosts of launches that a curve joins, if not all ran on a subset of the hosts of the largest."""
    curves: dict[tuple[str, CallKey, int], dict[tuple[str, frozenset[str]], None]] = defaultdict(
        dict
    )
    times: Counter[tuple[str, CallKey]] = Counter()
    for point in points:
        if point.row.usable and point.hosts:
            repetition = times[point.series, point.key]  # a repeated measurement is another curve
            curve = point.series, point.key.only("machine", "in_place"), repetition
            launch = point.row.job, frozenset(point.hosts)
            curves[curve][launch] = None
            times[point.series, point.key] += 1
    joined: dict[tuple[str, frozenset[str]], None] = {}
    for launches in curves.values():
        if not _are_nested(launches):
            joined |= launches
    return tuple(joined)


def _are_nested(launches: Iterable[tuple[str, frozenset[str]]]) -> bool:
    hosts = [hosts for _, hosts in launches]
    largest = max(hosts, key=len)
    return all(some <= largest for some in hosts)
