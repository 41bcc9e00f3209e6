"""What was measured where: the heading of the page, and one sentence."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from hpccoll.analysis.chart_groups import ChartGroup
from hpccoll.analysis.library_evidence import nccl_name
from hpccoll.analysis.series_points import SeriesPoint
from hpccoll.cases.algorithm_registry import is_workload
from hpccoll.common.text import first_few, join_ends, join_words
from hpccoll.common.units import format_count, format_size
from hpccoll.render.definitions import heading_of
from hpccoll.schedule.collective import NATIVE
from hpccoll.store.rows import Results

MAX_SERIES = 8
"""The series that the sentence names; of more it names the algorithms."""


def measured_heading(groups: Sequence[ChartGroup]) -> str:
    """Return the collective, or their number, and the ranks or nodes: ``all_reduce on 2, 4 and 8 nodes``."""
    points, kind = _headed_points(groups)
    if not points:
        return "No results"
    names = list(dict.fromkeys(point.row.collective for point in points))
    collectives = heading_of(names[0]) if len(names) == 1 else _counted(names)
    return f"{collectives} on {_shapes(points)}{kind}"


def _headed_points(groups: Sequence[ChartGroup]) -> tuple[list[SeriesPoint], str]:
    """Return the measured points; without any the imported ones, or else the predicted ones, and which they are."""
    measured = [point for group in groups for point in group.points]
    if measured:
        return measured, ""
    imported = [point for group in groups for point in group.imports]
    if imported:
        return imported, ", imported"
    return [point for group in groups for point in group.predictions], ", predicted"


MAX_MACHINES = 3
"""The machines of imported results that the sentence names."""

MOST_LISTED = 6
"""The most numbers of ranks or nodes that are listed; of more, the smallest and the largest are named."""


def _counted(names: Sequence[str]) -> str:
    collectives = [name for name in names if not is_workload(name)]
    counted = collectives[0]
    if len(collectives) > 1:
        counted = f"{len(collectives)} collectives"
    if len(collectives) < len(names):
        counted += " and training steps"
    return counted


def _shapes(points: Iterable[SeriesPoint]) -> str:
    rows = [point.row for point in points]
    ranks = sorted({row.ranks for row in rows})
    nodes = sorted({row.nodes for row in rows})
    if nodes == [1]:
        return _listed(ranks, "rank")
    if all(row.nodes == row.ranks for row in rows):
        return _listed(nodes, "node")
    return f"{_listed(ranks, 'rank')} of {_listed(nodes, 'node')}"


def _listed(numbers: Sequence[int], noun: str) -> str:
    words = join_words(numbers)
    if len(numbers) > MOST_LISTED:
        words = join_ends(numbers)
    return format_count(1 if words == "1" else words, noun)


def measured_summary(groups: Sequence[ChartGroup]) -> str:
    """Return one sentence: algorithms, sizes, types, machines and libraries; what native is."""
    points = [point for group in groups for point in group.usable]
    also = _beside(groups)
    if not points:
        return _nothing_measured(groups, also)
    kinds = join_words(sorted({point.kind for point in points}))
    kinds = kinds.replace(
        "measured on a testbed", "measured on a testbed (virtual nodes of one machine)"
    )
    machines = "; ".join(dict.fromkeys(point.machine for point in points))
    parts = filter(None, (_algorithms(points), _sizes(groups), _types(points), _rounds(points)))
    beside = f" Next to it: {also}." if also else ""
    return f"{', '.join(parts)}; {kinds} on {machines}{_libraries(points)}.{beside}"


def _nothing_measured(groups: Sequence[ChartGroup], also: str) -> str:
    if not also:
        return "There is no usable result: nothing can be drawn or compared."
    if any(group.imports for group in groups):
        return f"{also}. hpccoll measured nothing."
    return f"Nothing was measured. {also}."


def _sizes(groups: Sequence[ChartGroup]) -> str:
    """Return the smallest and the largest size; empty if no collective has sizes."""
    points = [point for group in groups if group.has_size for point in group.usable]
    sizes = sorted({point.row.requested_bytes for point in points})
    return join_ends(map(format_size, sizes))


def _types(points: Iterable[SeriesPoint]) -> str:
    """Return the types and operations of reductions: ``float32 sum, float64 max``."""
    reductions = [point.row for point in points if point.row.op]
    words = dict.fromkeys(" ".join(filter(None, (row.dtype, row.op))) for row in reductions)
    return ", ".join(words)


def _beside(groups: Sequence[ChartGroup]) -> str:
    """Return what other programs measured, and what was predicted, in words; empty if that is nothing."""
    # by identity: a point may be drawn in several groups
    points_beside: dict[int, SeriesPoint] = {}
    for group in groups:
        for point in group.drawn:
            if not point.row.ours:
                points_beside[id(point)] = point
    by_noun: dict[str, list[SeriesPoint]] = defaultdict(list)
    for point in sorted(points_beside.values(), key=lambda point: point.row.precedence):
        noun = "prediction" if point.row.predicted else f"result of {point.row.source}"
        by_noun[noun].append(point)
    parts = []
    for noun, points in by_noun.items():
        parts.append(f"{_count(points, noun)} on {_shapes(points)}{_of_machines(points)}")
    return "; ".join(parts)


def _of_machines(points: Iterable[SeriesPoint]) -> str:
    """Return whose nodes imported points are on, if they are from several machines; else an empty text."""
    names = dict.fromkeys(point.machine_name for point in points)
    names.pop("", None)
    if len(names) < 2:
        return ""
    return f" of {join_words(first_few(names, MAX_MACHINES, 'machine'))}"


def _count(points: Sequence[SeriesPoint], noun: str) -> str:
    first, joint, source = noun.partition(" of ")
    return f"{format_count(len(points), first)}{joint}{source}"


def _algorithms(points: Sequence[SeriesPoint]) -> str:
    ranked = [point for point in points if not point.row.floor]
    algorithms = dict.fromkeys(point.row.algorithm for point in ranked)
    collectives = {point.row.collective for point in points}
    if len(collectives) > 1:
        return format_count(len(algorithms), "algorithm")
    series = dict.fromkeys(point.series for point in ranked)
    if len(series) > MAX_SERIES:
        return f"{len(series)} series of {', '.join(algorithms)}"
    return ", ".join(series)


def _rounds(points: Iterable[SeriesPoint]) -> str:
    rounds = sorted({point.row.rounds for point in points})
    noun = "round" if rounds[-1] == 1 else "rounds"
    return f"{join_ends(rounds)} {noun}"


def _libraries(points: Sequence[SeriesPoint]) -> str:
    versions = dict.fromkeys(point.mpi for point in points)
    versions |= dict.fromkeys(point.nccl for point in points)
    versions.pop("", None)
    named = [version for version in versions if not _has_build(version, versions)]
    if not named:
        return ""
    libraries = f"; {join_words(named)}"
    owners = dict.fromkeys(
        _owner(point) for point in points if point.row.algorithm == NATIVE and point.mpi
    )
    if owners:
        libraries += f" (native: {join_words(owners, 'or')}'s own)"
    return libraries


def _has_build(version: str, versions: Iterable[str]) -> bool:
    """Return whether ``versions`` also has a build of this version, whose name follows a +."""
    return any(candidate.startswith(f"{version}+") for candidate in versions)


def _owner(point: SeriesPoint) -> str:
    """Return whose call a native one is: NCCL's, or the MPI library's."""
    if point.row.transport == "nccl":
        return "NCCL"
    return library_name(point.mpi)


def library_name(version: str) -> str:
    """Return the name of an MPI library from its version text: ``MPICH`` from ``MPICH 5.0.2``."""
    return re.split(r"\s+(?:version\s+)?v?\d", version, maxsplit=1)[0] or "the library"


def gpu_machines(results: Results) -> Iterator[str]:
    """Yield each machine with GPUs and its NCCL in a sentence, for a terminal, where no page shows it."""
    sentences: dict[str, None] = {}
    for run in results.runs:
        if run.provenance.get("gpus"):
            parts = (f"{run.kind} on {run.machine}", nccl_name(run))
            sentences["; ".join(filter(None, parts))] = None
    yield from sentences
