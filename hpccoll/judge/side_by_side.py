"""Results of other programs next to ours of the same operation: timed differently, and therefore never ranked."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import TypedDict

from hpccoll.analysis.series_names import call_label
from hpccoll.cases.catalogue import GRAPH
from hpccoll.common.units import format_count, format_size
from hpccoll.store.call_key import CallKey
from hpccoll.store.rows import Row

OPERATION = "collective", "device", "requested_bytes", "ranks", "nodes"
"""What both calls share; placements and types of elements may differ, and are shown."""


class SideBySideJson(TypedDict):
    """A result of another program next to ours, as JSON has it."""

    collective: str
    algorithm: str
    transport: str
    device: str
    requested_bytes: int
    ranks: int
    nodes: int
    params: dict[str, int | str]
    source: str | None
    their_timing: str
    their_s: float | None
    our_timing: str | None
    our_s: float | None
    factor: float | None  # their time over ours


@dataclass(frozen=True, slots=True)
class SideBySide:
    """A result of another program, and ours of the same operation; None if ours did not measure it."""

    theirs: Row
    ours: Row | None

    @property
    def factor(self) -> float | None:
        """Their time over ours."""
        if self.ours is None or not self.ours.median_s or self.theirs.median_s is None:
            return None
        return self.theirs.median_s / self.ours.median_s

    def to_json(self) -> SideBySideJson:
        """Return both as JSON has them; absent values are None."""
        theirs, ours = self.theirs, self.ours
        our_timing: str | None = None
        our_s: float | None = None
        if ours:
            our_timing = ours.timing
            our_s = ours.median_s
        return {
            "collective": theirs.collective,
            "algorithm": theirs.algorithm,
            "transport": theirs.transport,
            "device": theirs.device,
            "requested_bytes": theirs.requested_bytes,
            "ranks": theirs.ranks,
            "nodes": theirs.nodes,
            "params": dict(theirs.params),
            "source": theirs.source,
            "their_timing": theirs.timing,
            "their_s": theirs.median_s,
            "our_timing": our_timing,
            "our_s": our_s,
            "factor": self.factor,
        }


def side_by_side(theirs: Iterable[Row], ours: Iterable[Row]) -> list[SideBySide]:
    """Return each result of another program with ours of the same operation.

    Our row with the timing of that program comes first. Then comes the row with the same timing,
    element type and placement, and then the fastest one, because the library's own call has two
    placements.
    """
    by_operation = defaultdict[tuple[str, str, CallKey], list[Row]](list)
    for row in ours:
        if row.usable and not (row.floor or row.load):
            by_operation[_operation(row)].append(row)
    pairs = []
    for row in theirs:
        if row.median_s:
            candidates = by_operation.get(_operation(row), [])
            nearest = min(candidates, key=partial(_distance, row), default=None)
            pairs.append(SideBySide(row, nearest))
    return pairs


def _operation(row: Row) -> tuple[str, str, CallKey]:
    return row.algorithm, row.transport, CallKey.of(row).only(*OPERATION)


def _distance(theirs: Row, ours: Row) -> tuple[object, ...]:
    """Return whether our result differs from theirs in each respect, the most important first, and then its time."""
    has_other_graph = bool(theirs.params.get(GRAPH)) != bool(ours.params.get(GRAPH))
    return (
        ours.timing != theirs.source,
        ours.timing != theirs.timing,
        has_other_graph,
        ours.variant is not None,
        theirs.dtype != ours.dtype,
        theirs.in_place != ours.in_place,
        ours.median_s,
    )


def operation_label(row: Row) -> str:
    """Return the operation of a result of another program in words."""
    call = call_label(row.params)
    how = f"{row.algorithm} ({call})" if call else row.algorithm
    where = f"{format_count(row.ranks, 'rank')} on {format_count(row.nodes, 'node')}"
    return f"{row.collective} {format_size(row.requested_bytes)} {how}, {row.dtype}, {where}"
