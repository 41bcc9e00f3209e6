"""What an answer does not cover: sizes, types, ranks, placements and calls of a collective that were not measured."""

from dataclasses import dataclass

from hpccoll.analysis.setting import Choice, Setting
from hpccoll.schedule import WORKLOADS, collective
from hpccoll.store.rows import Results


@dataclass(frozen=True, slots=True)
class Unmeasured:
    """What the answers of a collective do not cover: all but what is listed, and what is said to be missing."""

    sizes: tuple[int, ...]  # the measured sizes, in bytes, ascending; empty if the collective has none
    # the nodes and ranks that were measured with a core for each rank, ascending
    shapes: tuple[tuple[int, int], ...]
    crowded: tuple[tuple[int, int], ...]  # those that were measured with more ranks than cores only
    dtypes: tuple[str, ...]  # the measured element types; empty if the collective has none
    ops: tuple[str, ...]  # the measured reductions; likewise
    # the placement that was not measured, ``in place`` or ``out of place``; empty if both were; None if there is one
    placement: str | None
    native: bool  # whether the library's own call was not measured


def unmeasured(results: Results, name: str) -> Unmeasured | None:
    """Return what the answers of the collective ``name`` do not cover; None for steps and without answers."""
    rows = [row for row in results.ours.rows if row.collective == name and row.may_answer]
    if not rows or name in WORKLOADS:
        return None
    called, placements = collective(name), {row.in_place for row in rows}
    settings = [(Setting.of(row), row.oversubscribed) for row in rows]
    fitting = {(setting.nodes, setting.ranks) for setting, oversubscribed in settings if not oversubscribed}
    crowded = {(setting.nodes, setting.ranks) for setting, oversubscribed in settings if oversubscribed} - fitting
    one_way = called.one_buffer or not (called.in_place and called.out_of_place)
    missing = "" if len(placements) > 1 else "out of place" if True in placements else "in place"
    return Unmeasured(
        sizes=() if called.token else tuple(sorted({row.requested_bytes for row in rows})),
        shapes=tuple(sorted(fitting)),
        crowded=tuple(sorted(crowded)),
        dtypes=() if called.token else tuple(sorted({row.dtype for row in rows})),
        ops=tuple(sorted({row.op for row in rows if row.op})) if called.has_op else (),
        placement=None if one_way else missing,
        native=not any(Choice.of(row).is_native for row in rows),
    )
