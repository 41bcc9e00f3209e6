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
from statistics import median
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

Series: TypeAlias = tuple[CallKey, str]  # the own calls of a library: their key without the size; the library
# the moved bytes; of the time in seconds the lower end, the median and the upper end; whether ranks outnumber the cores
Measured: TypeAlias = tuple[int, float, float, float, bool]
Curves: TypeAlias = Mapping[Series, Mapping[int, Measured]]  # what was measured, by requested size, ascending


def guideline_findings(results: Results) -> Iterator[Finding]:
    """Yield a finding for each series of a library's own calls and each detour that is faster.

    A detour is faster if the upper ends of its 95 % intervals add up to less than the lower end of the call's. All
    calls have the same ranks, machine, library, variant, element type, reduction, root and placement of buffers. The
    shapes of a series share a finding, which marks those with more ranks than cores.
    """
    curves = _own_curves(results)
    # the time over that of the fastest detour, 0 if none is faster, by series, detour, shape and size
    factors: dict[tuple[Series, Detour], dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for (key, library), curve in curves.items():
        shape = Setting.of_key(key).shape_label + (f" in {key.racks} racks" if (key.racks or 1) > 1 else "")
        shape += ", more ranks than cores" * any(crowded for *_, crowded in curve.values())
        joined = key.without("ranks", "nodes", "ranks_per_node", "racks")
        for detour, size, parts in _detours((key, library), curves):
            at_size = factors[(joined, library), detour][shape]
            at_size[size] = max(at_size.get(size, 0.0), _factor(curve[size], parts))
    for (joined_series, detour), of_shapes in factors.items():
        yield from _findings(joined_series, detour, of_shapes, (each for each, _ in factors))


def _own_curves(results: Results) -> Curves:
    runs = {run.run_id: run for run in results.runs}
    rows: dict[Series, dict[int, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for (_, conditions), of_setting in rows_by_setting(results).items():
        mpi = re.sub(r"(\D*[\w.]*).*", r"\1", conditions.mpi)  # MPICH 5.0.2
        for row in of_setting:
            if Choice.of(row).is_native and row.interval:
                library = nccl_name(runs[row.run_id]) if row.transport == "nccl" else mpi
                one_buffer = COLLECTIVES[row.collective].one_buffer  # such a call is of both placements
                key = CallKey.of(row, conditions.machine).without("requested_bytes", *["in_place"] * one_buffer)
                rows[key, library][row.requested_bytes].append(row)
    return {series: {size: _joined(by_size[size]) for size in sorted(by_size)} for series, by_size in rows.items()}


def _joined(rows: Sequence[Row]) -> Measured:
    """Return what one run or several measured: its interval encloses all of theirs."""
    lows, highs = zip(*(row.interval for row in rows if row.interval), strict=True)
    middle, crowded = median(row.median_s or 0.0 for row in rows), any(row.oversubscribed for row in rows)
    return rows[0].bytes, min(lows), middle, max(highs), crowded


def _detours(series: Series, curves: Curves) -> Iterator[tuple[Detour, int, list[Measured]]]:
    """Yield each measured detour of a series, the size, and what was measured of its calls."""
    (key, library), curve = series, curves[series]
    placements = (False, True) if key.in_place is None else (key.in_place,)
    for detour, in_place in product(DETOURS.get(key.collective or "", ()), placements):
        parts = [curves.get((_part(key, name, in_place=in_place), library), {}) for name in detour]
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


def _factor(own: Measured, parts: Sequence[Measured]) -> float:
    """Return the time over that of the parts together; 0 if intervals do not show that these are faster.

    A part that moved fewer bytes, because blocks are whole elements, counts as if its time grew in proportion.
    """
    growth = [max(1.0, own[0] / part[0]) for part in parts]
    middle, high = (sum(g * part[end] for g, part in zip(growth, parts, strict=True)) for end in (2, 3))
    return own[2] / middle if own[1] > high else 0.0


def _findings(
    series: Series, detour: Detour, factors: Mapping[str, Mapping[int, float]], every: Iterable[Series]
) -> Iterator[Finding]:
    """Yield the finding on a detour of a series, if it is faster in some shape."""
    (key, library), shapes, clauses = series, list[dict[str, Any]](), list[str]()
    for shape, of_shape in factors.items():
        if slower := {size: factor for size, factor in of_shape.items() if factor}:
            ends = min(slower.values()), max(slower.values())
            shapes.append({"shape": shape, "ends": ends, "sizes": tuple(slower), "compared": len(of_shape)})
            some = f"{len(slower)} of {len(of_shape)} sizes" if len(slower) < len(of_shape) else ""
            where = f"{join_ends(map(format_factor, ends))} at {join_ends(map(format_size, slower))}"
            clauses.append(where + in_brackets(some, shape))
    if shapes:
        details = key.label(other for other, _ in every if other.collective == key.collective)
        what = f"its {join_words(detour)}{' together' * (len(detour) > 1)}" if detour else "with a larger message"
        text = f"{key.collective}{in_brackets(details)} takes longer than {what}"
        yield info(
            "guideline", f"{text}: {'; '.join(first_few(clauses, MAX_SHAPES, 'shape'))}.", title=library,
            collective=key.collective, detour=detour, library=library, shapes=tuple(shapes),
        )  # fmt: skip
