"""The limit of a point: the busbw that the wires between its nodes allow, or the memory that its ranks share."""

from dataclasses import dataclass

from hpccoll.analysis.memory_bandwidth import memory_limit
from hpccoll.analysis.series_points import SeriesPoint, median_seconds
from hpccoll.analysis.wire_bandwidth import rails_in_use, wire_limit

WIRE, MEMORY = "wire", "memory"
"""The kinds of limits: calibrated wires between nodes, and copies in the memory of a node."""


@dataclass(frozen=True, slots=True)
class Limit:
    """The busbw of a point that wires allow, or memory without the help of caches."""

    kind: str  # WIRE or MEMORY
    name: str  # in a chart: wire, 2 wires, memory
    label: str  # in a sentence: the calibrated wire, 2 calibrated wires, what memory allows
    busbw: float  # in bytes per second
    share: float  # the part of it that the point reaches
    seconds: float  # the time of the point's call at that busbw


def limit_of(point: SeriesPoint) -> Limit | None:
    """Return the limit of a point; None if it is unknown, or if the point has no busbw."""
    row = point.row
    if not row.busbw_Bps:
        return None
    if busbw := wire_limit(row, point.wire):
        kind = WIRE
        rails = rails_in_use(row, point.wire)
        name, label = (
            ("wire", "the calibrated wire")
            if rails == 1
            else (f"{rails} wires", f"{rails} calibrated wires")
        )
    elif busbw := memory_limit(row, point.memory):
        kind = MEMORY
        name, label = "memory", "what memory allows"
    else:
        return None
    share = row.busbw_Bps / busbw
    return Limit(kind, name, label, busbw, share, share * median_seconds(point))


def limit_share(point: SeriesPoint, kind: str) -> float | None:
    """Return the part of its limit that a point reaches, if it has a limit of that kind."""
    limit = limit_of(point)
    if limit is None or limit.kind != kind:
        return None
    return limit.share
