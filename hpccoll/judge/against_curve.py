"""The collectives of a recorded job beside what measurements of the machine gave for the same call."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from hpccoll.store.rows import Row
from hpccoll.traces.operation_times import OperationTimes
from hpccoll.traces.records import Group


class AgainstCurve(NamedTuple):
    """The transfer of the operations of a group with one collective, size and type, beside the measured time."""

    group: Group
    collective: str
    bytes: int
    dtype: str | None
    operations: int
    transfer_s: float  # median over operations of the shortest over ranks
    measured_s: float | None  # between the nearest measured sizes, in logarithms; None without both of them
    kind: str  # of the measurement, such as "measured on a testbed"

    @property
    def factor(self) -> float | None:
        """The transfer over the measured time."""
        return self.transfer_s / self.measured_s if self.measured_s else None


def against_curves(
    times: Iterable[OperationTimes], rows: Sequence[Row], hosts: Mapping[int, str | None]
) -> list[AgainstCurve]:
    """Return each collective of a job whose transfer is known beside the fastest measured time of the same call.

    The same call is of buffers of a GPU, as those of all recorders of times are. It has as many ranks and the same
    nodes; if the host of a rank is not known, all rows must have the same. If it reduces and its type is recorded, it
    has the same type.

    Args:
        times: the operations; those that lack the record of a rank are left out.
        rows: measurements of the machine.
        hosts: of the ranks, None where unknown.
    """
    found = []
    for of in times:
        if of.waiting is None or not of.is_complete:
            continue
        transfers: defaultdict[tuple[int, str | None], list[float]] = defaultdict(list)
        for operation, seconds in zip(of.operations, of.waiting.transfer_s.tolist(), strict=True):
            if nbytes := operation.bytes:
                transfers[nbytes, operation.first.dtype].append(seconds)
        here = {hosts.get(rank) for rank in of.ranks}
        nodes = None if None in here else len(here)
        for (nbytes, dtype), seconds in transfers.items():
            fitting = [row for row in rows if _is_same_call(row, of, nodes, dtype)]
            if nodes is None and len({row.nodes for row in fitting}) > 1:
                fitting = []
            found.append(AgainstCurve(
                of.group, of.collective, nbytes, dtype, len(seconds), float(np.median(seconds)),
                *_time_at(fitting, nbytes),
            ))  # fmt: skip
    return found


def _is_same_call(row: Row, of: OperationTimes, nodes: int | None, dtype: str | None) -> bool:
    return (
        row.may_answer and not row.predicted and row.device != "cpu" and not row.load
        and row.collective == of.collective and row.ranks == len(of.ranks) and nodes in (None, row.nodes)
        and (row.op is None or dtype in (None, row.dtype))
    )  # fmt: skip


def _time_at(rows: Iterable[Row], nbytes: int) -> tuple[float | None, str]:
    """Return the time of the fastest rows at a size, and their kind; None outside the measured sizes."""
    fastest: dict[int, tuple[float, str]] = {}
    for row in rows:
        if row.median_s and (row.bytes not in fastest or row.median_s < fastest[row.bytes][0]):
            fastest[row.bytes] = row.median_s, row.kind
    sizes = sorted(fastest)
    if not sizes or not sizes[0] <= nbytes <= sizes[-1]:
        return None, ""
    seconds = [fastest[size][0] for size in sizes]
    nearest = min(sizes, key=lambda size: abs(np.log(size / nbytes)))
    return float(np.exp(np.interp(np.log(nbytes), np.log(sizes), np.log(seconds)))), fastest[nearest][1]
