"""What an answer does not cover: sizes, types, ranks, placements and calls of a collective that were not measured."""

from collections.abc import Collection
from dataclasses import dataclass

from hpccoll.analysis.setting import Choice, Setting
from hpccoll.schedule import Collective, collective, is_workload
from hpccoll.store.rows import Results

SMALL_BLOCK = 8
"""The bytes of each block from which on calls need no smaller measurement: one element of the largest type."""


@dataclass(frozen=True, slots=True)
class Unmeasured:
    """What the answers of a collective do not cover: all but what is listed, and what is said to be missing."""

    # the measured sizes, in bytes, ascending; empty if the collective has none
    sizes: tuple[int, ...]
    # the nodes and ranks that were measured with a core for each rank, ascending
    shapes: tuple[tuple[int, int], ...]
    crowded: tuple[tuple[int, int], ...]  # those that were measured with more ranks than cores only
    dtypes: tuple[str, ...]  # the measured element types; empty if the collective has none
    ops: tuple[str, ...]  # the measured reductions; likewise
    # the placement that was not measured, ``in place`` or ``out of place``; empty if both were;
    # None if there is one
    placement: str | None
    native: bool  # whether the library's own call was not measured


def unmeasured(results: Results, name: str) -> Unmeasured | None:
    """Return what the answers of the collective ``name`` do not cover; None for steps and without answers."""
    rows = [row for row in results.ours.rows if row.collective == name and row.may_answer]
    if not rows or is_workload(name):
        return None
    family = collective(name)
    fitting: set[tuple[int, int]] = set()
    crowded: set[tuple[int, int]] = set()
    sizes: set[int] = set()
    dtypes: set[str] = set()
    ops: set[str] = set()
    for row in rows:
        setting = Setting.of(row)
        shapes = crowded if row.oversubscribed else fitting
        shapes.add((setting.nodes, setting.ranks))
        if not family.token:
            sizes.add(row.requested_bytes)
            dtypes.add(row.dtype)
        if family.has_op and row.op:
            ops.add(row.op)
    return Unmeasured(
        sizes=tuple(sorted(sizes)),
        shapes=tuple(sorted(fitting)),
        crowded=tuple(sorted(crowded - fitting)),
        dtypes=tuple(sorted(dtypes)),
        ops=tuple(sorted(ops)),
        placement=_missing_placement(family, {row.in_place for row in rows}),
        native=not any(Choice.of(row).is_native for row in rows),
    )


def are_smaller_unmeasured(name: str, ranks: int, smallest: int) -> bool:
    """Return whether a collective has calls below its smallest measured size, in bytes, that may differ from it."""
    if is_workload(name):
        return False
    family = collective(name)
    return not family.token and smallest > SMALL_BLOCK * family.blocks(ranks)


def _missing_placement(family: Collective, measured: Collection[bool]) -> str | None:
    """Return the placement that was not measured; empty if both were, None if the collective has only one."""
    if family.one_buffer or not (family.in_place and family.out_of_place):
        return None
    if len(measured) > 1:
        return ""
    return "out of place" if True in measured else "in place"
