"""What was measured where: the heading of the page, and one sentence."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from hpccoll.analysis.chart_groups import ChartGroup
from hpccoll.analysis.library_evidence import nccl_name
from hpccoll.analysis.series_points import SeriesPoint
from hpccoll.cases.algorithm_registry import WORKLOADS
from hpccoll.common.text import join_ends, join_words
from hpccoll.common.units import format_count, format_size
from hpccoll.render.definitions import heading_of
from hpccoll.schedule.collective import NATIVE
from hpccoll.store.rows import Results

MAX_SERIES = 8
"""The series that the sentence names; of more it names the algorithms."""


def measured_heading(groups: Sequence[ChartGroup]) -> str:
    """Return the collective, or their number, and the ranks or nodes: ``all_reduce on 2, 4 and 8 nodes``."""
    of_kinds = {
        "": [point for group in groups for point in group.points],
        ", imported": [point for group in groups for point in group.imports],
        ", predicted": [point for group in groups for point in group.predictions],
    }
    kind, points = next(((kind, points) for kind, points in of_kinds.items() if points), ("", []))
    if not points:
        return "No results"
    names = list(dict.fromkeys(point.row.collective for point in points))
    return f"{heading_of(names[0]) if len(names) == 1 else _counted(names)} on {_shapes(points)}{kind}"


def _counted(names: Sequence[str]) -> str:
    collectives = [name for name in names if name not in WORKLOADS]
    counted = f"{len(collectives)} collectives" if len(collectives) > 1 else collectives[0]
    return counted + (" and training steps" if len(collectives) < len(names) else "")


def _shapes(points: Iterable[SeriesPoint]) -> str:
    rows = [point.row for point in points]
    ranks, nodes = (sorted({getattr(row, name) for row in rows}) for name in ("ranks", "nodes"))
    if nodes == [1]:
        return _listed(ranks, "rank")
    if all(row.nodes == row.ranks for row in rows):
        return _listed(nodes, "node")
    return f"{_listed(ranks, 'rank')} of {_listed(nodes, 'node')}"


def _listed(numbers: Sequence[int], noun: str) -> str:
    words = join_words(numbers)
    return format_count(1 if words == "1" else words, noun)


def measured_summary(groups: Sequence[ChartGroup]) -> str:
    """Return one sentence: algorithms, sizes, types, machines and libraries; what native is."""
    points = [point for group in groups for point in group.usable]
    also = _beside(groups)
    if not points and also:
        imported = any(group.imports for group in groups)
        return f"{also}. hpccoll measured nothing." if imported else f"Nothing was measured. {also}."
    if not points:
        return "There is no usable result: nothing can be drawn or compared."
    rows = [point.row for point in points]
    sizes = sorted({p.row.requested_bytes for group in groups if group.has_size for p in group.usable})
    ends = join_ends(map(format_size, sizes))
    calls = list(dict.fromkeys(" ".join(filter(None, (row.dtype, row.op))) for row in rows if row.op))
    rounds = sorted({row.rounds for row in rows})
    kinds = join_words(sorted({point.kind for point in points}))
    kinds = kinds.replace("measured on a testbed", "measured on a testbed (virtual nodes of one machine)")
    machines = "; ".join(dict.fromkeys(point.machine for point in points))
    parts = filter(None, (_algorithms(points), ends, ", ".join(calls), _rounds(rounds)))
    return f"{', '.join(parts)}; {kinds} on {machines}{_libraries(points)}.{f' Next to it: {also}.' if also else ''}"


def _beside(groups: Sequence[ChartGroup]) -> str:
    """Return what other programs measured, and what was predicted, in words; empty if that is nothing."""
    others = {id(point): point for group in groups for point in group.drawn if not point.row.ours}
    of_nouns: dict[str, list[SeriesPoint]] = defaultdict(list)
    for point in sorted(others.values(), key=lambda point: point.row.precedence):
        of_nouns["prediction" if point.row.predicted else f"result of {point.row.source}"].append(point)
    return "; ".join(f"{_count(points, noun)} on {_shapes(points)}" for noun, points in of_nouns.items())


def _count(points: Sequence[SeriesPoint], noun: str) -> str:
    first, of, source = noun.partition(" of ")
    return f"{format_count(len(points), first)}{of}{source}"


def _algorithms(points: Sequence[SeriesPoint]) -> str:
    algorithms = dict.fromkeys(point.row.algorithm for point in points if not point.row.floor)
    if len({point.row.collective for point in points}) > 1:
        return format_count(len(algorithms), "algorithm")
    series = dict.fromkeys(point.series for point in points if not point.row.floor)
    return ", ".join(series) if len(series) <= MAX_SERIES else f"{len(series)} series of {', '.join(algorithms)}"


def _rounds(rounds: Sequence[int]) -> str:
    return f"{join_ends(rounds)} {'round' if rounds[-1] == 1 else 'rounds'}"


def _libraries(points: Sequence[SeriesPoint]) -> str:
    versions = dict.fromkeys([*(point.mpi for point in points), *(point.nccl for point in points)])
    versions.pop("", None)
    named = [name for name in versions if not any(other.startswith(f"{name}+") for other in versions)]  # + is a build
    native = (point for point in points if point.row.algorithm == NATIVE)
    own = dict.fromkeys(
        "NCCL" if point.row.transport == "nccl" else library_name(point.mpi) for point in native if point.mpi
    )
    meaning = f" (native: {join_words(own, 'or')}'s own)" if own else ""
    return f"; {join_words(named)}{meaning}" if named else ""


def library_name(version: str) -> str:
    """Return the name of an MPI library from its version text: ``MPICH`` from ``MPICH 5.0.2``."""
    return re.split(r"\s+(?:version\s+)?v?\d", version, maxsplit=1)[0] or "the library"


def gpu_machines(results: Results) -> Iterator[str]:
    """Yield each machine with GPUs and its NCCL in a sentence, for a terminal, where no page shows it."""
    on_gpus = (run for run in results.runs if run.provenance.get("gpus"))
    parts = ((f"{run.kind} on {run.machine}", nccl_name(run)) for run in on_gpus)
    yield from dict.fromkeys("; ".join(filter(None, each)) for each in parts)
