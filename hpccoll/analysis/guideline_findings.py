"""Findings where a library's call is slower than a detour through its other calls: it breaks a guideline.

The guidelines are those of J. L. Träff, W. D. Gropp, R. Thakur, Self-Consistent MPI Performance Guidelines, IEEE TPDS
21(5), 2010, and of PGMPI (S. Hunold, A. Carpen-Amarie, 2016): a call takes no longer than other calls of its library
that one after the other give its result, and no longer than itself with a larger message.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product
from math import inf
from typing import Any, TypeAlias

from hpccoll.analysis.library_evidence import nccl_name
from hpccoll.analysis.measured_choices import rows_by_setting
from hpccoll.analysis.setting import Choice, Setting
from hpccoll.cases.algorithm_registry import COLLECTIVES
from hpccoll.common.text import Finding, first_few, in_brackets, info, join_ends, join_words
from hpccoll.common.units import format_factor, format_size
from hpccoll.store.call_key import CallKey
from hpccoll.store.rows import Results, Row

Detour: TypeAlias = tuple[str, ...]  # collectives whose calls, one after the other, give the result of another
LARGER: Detour = ()  # the detour of every collective: itself with a larger message
DETOURS: Mapping[str, Sequence[Detour]] = {
    "all_reduce": (("reduce", "broadcast"), ("reduce_scatter", "all_gather")),
    "reduce_scatter": (("reduce", "scatter"), ("all_reduce",)),
    "all_gather": (("gather", "broadcast"), ("all_to_all",)),
    "broadcast": (("scatter", "all_gather"),),
    "reduce": (("all_reduce",), ("reduce_scatter", "gather")),
    "gather": (("all_gather",),),
    "scatter": (("broadcast",),),
}
"""The other detours. All of their calls have one size S: that of the whole buffer, or of the blocks of all ranks."""

MAX_SHAPES = 3  # in a sentence; the values of the finding have all

Series: TypeAlias = tuple[CallKey, str, str]  # own calls: their key without the size; the library; the run_id
Curves: TypeAlias = Mapping[Series, Mapping[int, Row]]  # by requested size, ascending


def guideline_findings(results: Results) -> Iterator[Finding]:
    """Yield a finding for each series of a library's own calls and each detour that is faster.

    A detour is faster if the upper ends of its 95 % intervals add up to less than the lower end of the call's, in every
    launch that measured it. All calls have the same launch, ranks, variant, element type, reduction, root and placement
    of buffers. The shapes of a series share a finding, which marks those with more ranks than cores.
    """
    curves = _own_curves(results)
    # the time over that of the fastest detour, 0 if none is faster, by series, detour, shape and size
    factors: dict[tuple[CallKey, str, Detour], dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for (key, library, run_id), curve in curves.items():
        shape = Setting.of_key(key).shape_label + (f" in {key.racks} racks" if (key.racks or 1) > 1 else "")
        shape += ", more ranks than cores" * any(row.oversubscribed for row in curve.values())
        joined = key.without("ranks", "nodes", "ranks_per_node", "racks")
        of_launch: dict[tuple[Detour, int], float] = defaultdict(float)
        for detour, size, parts in _detours((key, library, run_id), curves):
            of_launch[detour, size] = max(of_launch[detour, size], _factor(curve[size], parts))
        for (detour, size), factor in of_launch.items():
            at_size = factors[joined, library, detour][shape]
            at_size[size] = min(at_size.get(size, factor), factor)
    for (joined, library, detour), of_shapes in factors.items():
        yield from _findings(joined, library, detour, of_shapes, (each for each, *_ in factors))


def _own_curves(results: Results) -> Curves:
    runs = {run.run_id: run for run in results.runs}
    curves: dict[Series, dict[int, Row]] = defaultdict(dict)
    for (_, conditions), rows in rows_by_setting(results).items():
        mpi = re.sub(r"(\D*[\w.]*).*", r"\1", conditions.mpi)  # MPICH 5.0.2
        for row in sorted(rows, key=lambda row: row.requested_bytes):
            # of a call through copies in host memory, these take a part of the time
            if Choice.of(row).is_native and row.interval and row.transport != "staged":
                library = nccl_name(runs[row.run_id]) if row.transport == "nccl" else mpi
                one_buffer = COLLECTIVES[row.collective].one_buffer  # such a call is of both placements
                key = CallKey.of(row, conditions.machine).without("requested_bytes", *["in_place"] * one_buffer)
                curves[key, library, row.run_id][row.requested_bytes] = row
    return curves


def _detours(series: Series, curves: Curves) -> Iterator[tuple[Detour, int, list[Row]]]:
    """Yield each measured detour of a series, the size, and what was measured of its calls."""
    (key, library, run_id), curve = series, curves[series]
    placements = (False, True) if key.in_place is None else (key.in_place,)
    for detour, in_place in product(DETOURS.get(key.collective or "", ()), placements):
        parts = [curves.get((_part(key, name, in_place=in_place), library, run_id), {}) for name in detour]
        for size in curve:
            if all(size in part for part in parts):
                yield detour, size, [part[size] for part in parts]
    for size, larger in combinations(curve, 2):
        yield LARGER, size, [curve[larger]]


def _part(key: CallKey, name: str, *, in_place: bool) -> CallKey:
    """Return the key of a call of a detour, with the root of the call itself, or 0."""
    part = COLLECTIVES[name]
    op, root = key.op if part.has_op else None, (key.root or 0) if part.rooted else None
    return replace(key, collective=name, op=op, root=root, in_place=None if part.one_buffer else in_place)


def _factor(own: Row, parts: Sequence[Row]) -> float:
    """Return the time over that of the parts together; 0 if intervals do not show that these are faster.

    A part that moved fewer bytes, because blocks are whole elements, counts as if its time grew in proportion.
    """
    growth = [max(1.0, own.bytes / part.bytes) for part in parts]
    middle, high = (
        sum(g * (getattr(part, end) or inf) for g, part in zip(growth, parts, strict=True))
        for end in ("median_s", "ci_high_s")
    )
    return (own.median_s or 0.0) / middle if (own.ci_low_s or 0.0) > high else 0.0


def _findings(
    key: CallKey, library: str, detour: Detour, factors: Mapping[str, Mapping[int, float]], every: Iterable[CallKey]
) -> Iterator[Finding]:
    """Yield the finding on a detour of a series, if it is faster in some shape."""
    shapes, clauses = list[dict[str, Any]](), list[str]()
    for shape, of_shape in factors.items():
        if slower := {size: factor for size, factor in of_shape.items() if factor}:
            ends = min(slower.values()), max(slower.values())
            shapes.append({"shape": shape, "ends": ends, "sizes": tuple(slower), "compared": len(of_shape)})
            some = f"{len(slower)} of {len(of_shape)} sizes" if len(slower) < len(of_shape) else ""
            where = f"{join_ends(map(format_factor, ends))} at {join_ends(map(format_size, slower))}"
            clauses.append(where + in_brackets(some, shape))
    if shapes:
        details = key.label(other for other in every if other.collective == key.collective)
        what = "with a larger message"
        if detour:
            together = " together" if len(detour) > 1 else ""
            what = f"its {join_words(detour)}{together}"
        text = f"{key.collective}{in_brackets(details)} takes longer than {what}"
        yield info(
            "guideline", f"{text}: {'; '.join(first_few(clauses, MAX_SHAPES, 'shape'))}.", title=library,
            collective=key.collective, detour=detour, library=library, shapes=tuple(shapes),
        )  # fmt: skip
