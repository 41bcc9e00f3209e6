"""Findings where a library's call is slower than a detour through its other calls: it breaks a guideline.

The guidelines are those of J. L. Träff, W. D. Gropp, R. Thakur, Self-Consistent MPI Performance
Guidelines, IEEE TPDS 21(5), 2010, and of PGMPI (S. Hunold, A. Carpen-Amarie, 2016): a call takes no
longer than other calls of its library that one after the other give its result, and no longer than
itself with a larger message.
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

# collectives whose calls, one after the other, give the result of another
Detour: TypeAlias = tuple[str, ...]
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

# own calls: their key without the size; the library; the run_id
Series: TypeAlias = tuple[CallKey, str, str]
Curves: TypeAlias = Mapping[Series, Mapping[int, Row]]  # by requested size, ascending


def guideline_findings(results: Results) -> Iterator[Finding]:
    """Yield a finding for each series of a library's own calls and each detour that is faster.

    A detour is faster if the upper ends of its 95 % intervals add up to less than the lower end of
    the call's, in every launch that measured it. All calls have the same launch, ranks, variant,
    element type, reduction, root and placement of buffers. The shapes of a series share a finding,
    which marks those with more ranks than cores.
    """
    curves = _own_curves(results)
    # the time over that of the fastest detour, 0 if none is faster, by series, detour, shape and
    # size
    factors: dict[tuple[CallKey, str, Detour], dict[str, dict[int, float]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for series, curve in curves.items():
        key, library, _ = series
        shape = _shape_in_words(key, curve.values())
        joined = key.without("ranks", "nodes", "ranks_per_node", "racks")
        for (detour, size), factor in _factors_of_launch(series, curves).items():
            at_size = factors[joined, library, detour][shape]
            at_size[size] = min(at_size.get(size, factor), factor)
    compared_keys = [key for key, _, _ in factors]
    for (joined, library, detour), by_shape in factors.items():
        yield from _findings(joined, library, detour, by_shape, compared_keys)


def _shape_in_words(key: CallKey, rows: Iterable[Row]) -> str:
    shape = Setting.of_key(key).shape_label
    if (key.racks or 1) > 1:
        shape += f" in {key.racks} racks"
    if any(row.oversubscribed for row in rows):
        shape += ", more ranks than cores"
    return shape


def _factors_of_launch(series: Series, curves: Curves) -> dict[tuple[Detour, int], float]:
    """Return the time over that of each detour, in its fastest placement, at each size."""
    factors: dict[tuple[Detour, int], float] = defaultdict(float)
    for detour, size, parts in _detours(series, curves):
        factor = _factor(curves[series][size], parts)
        factors[detour, size] = max(factors[detour, size], factor)
    return factors


def _own_curves(results: Results) -> Curves:
    runs = {run.run_id: run for run in results.runs}
    curves: dict[Series, dict[int, Row]] = defaultdict(dict)
    for (_, conditions), rows in rows_by_setting(results).items():
        mpi = re.sub(r"(\D*[\w.]*).*", r"\1", conditions.mpi)  # MPICH 5.0.2
        for row in sorted(rows, key=lambda row: row.requested_bytes):
            # Copies through host memory are a part of the time of a staged call.
            is_own_call = Choice.of(row).is_native and row.transport != "staged"
            if is_own_call and row.interval:
                library = nccl_name(runs[row.run_id]) if row.transport == "nccl" else mpi
                key = CallKey.of(row, conditions.machine).without("requested_bytes")
                if COLLECTIVES[row.collective].one_buffer:  # such a call belongs to both placements
                    key = key.without("in_place")
                curves[key, library, row.run_id][row.requested_bytes] = row
    return curves


def _detours(series: Series, curves: Curves) -> Iterator[tuple[Detour, int, list[Row]]]:
    """Yield each measured detour of a series, the size, and what was measured of its calls."""
    key, library, run_id = series
    curve = curves[series]
    detours = DETOURS.get(key.collective or "", ())
    placements = (False, True) if key.in_place is None else (key.in_place,)
    for detour, in_place in product(detours, placements):
        part_keys = [_part(key, name, in_place=in_place) for name in detour]
        part_curves = [curves.get((part, library, run_id), {}) for part in part_keys]
        for size in curve:
            if all(size in part for part in part_curves):
                yield detour, size, [part[size] for part in part_curves]
    for size, larger in combinations(curve, 2):
        yield LARGER, size, [curve[larger]]


def _part(key: CallKey, name: str, *, in_place: bool) -> CallKey:
    """Return the key of a call of a detour, with the root of the call itself, or 0."""
    part = COLLECTIVES[name]
    op = key.op if part.has_op else None
    root = (key.root or 0) if part.rooted else None
    placement = None if part.one_buffer else in_place
    return replace(key, collective=name, op=op, root=root, in_place=placement)


def _factor(own: Row, parts: Sequence[Row]) -> float:
    """Return the time over that of the parts together; 0 if intervals do not show that these are faster.

    A part that moved fewer bytes, because blocks are whole elements, counts as if its time grew in
    proportion.
    """
    medians = []
    highs = []
    for part in parts:
        growth = max(1.0, own.bytes / part.bytes)
        medians.append(growth * (part.median_s or inf))
        highs.append(growth * (part.ci_high_s or inf))
    if (own.ci_low_s or 0.0) > sum(highs):
        return (own.median_s or 0.0) / sum(medians)
    return 0.0


def _findings(
    key: CallKey,
    library: str,
    detour: Detour,
    factors: Mapping[str, Mapping[int, float]],
    compared_keys: Iterable[CallKey],
) -> Iterator[Finding]:
    """Yield the finding on a detour of a series, if it is faster in some shape."""
    shapes = list[dict[str, Any]]()
    clauses = list[str]()
    for shape, factor_of_size in factors.items():
        slower = {size: factor for size, factor in factor_of_size.items() if factor}
        if not slower:
            continue
        ends = min(slower.values()), max(slower.values())
        shapes.append(
            {"shape": shape, "ends": ends, "sizes": tuple(slower), "compared": len(factor_of_size)}
        )
        some = ""
        if len(slower) < len(factor_of_size):
            some = f"{len(slower)} of {len(factor_of_size)} sizes"
        where = f"{join_ends(map(format_factor, ends))} at {join_ends(map(format_size, slower))}"
        clauses.append(where + in_brackets(some, shape))
    if not shapes:
        return
    details = key.label(
        compared for compared in compared_keys if compared.collective == key.collective
    )
    slow = f"{key.collective}{in_brackets(details)}"
    text = f"{slow} takes longer for a smaller message than for a larger one"
    if detour:
        together = " together" if len(detour) > 1 else ""
        text = f"{slow} takes longer than its {join_words(detour)}{together}"
    where = "; ".join(first_few(clauses, MAX_SHAPES, "shape"))
    yield info(
        "guideline",
        f"{text}: {where}.",
        title=library,
        collective=key.collective,
        detour=detour,
        library=library,
        shapes=tuple(shapes),
    )
