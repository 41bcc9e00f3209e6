"""The collectives of a recorded job beside what measurements of the machine gave for the same call."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hpccoll.judge.held import CURVE, Expected, Held, HeldVerdict, verdict_between
from hpccoll.store.rows import Row
from hpccoll.traces.operation_times import OperationTimes
from hpccoll.traces.recorded_job import Group

SLOWER_BEYOND = 1.1
"""The transfer over the measured time beyond which a collective is slower than the machine has shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgainstCurve(Held):
    """The transfer of the operations of a group with one collective, size and type, held against the measured time.

    The transfer is the median over operations of the shortest over ranks; the expected time lies
    between those of the nearest measured sizes, in logarithms.
    """

    KEYS: ClassVar[Mapping[str, str]] = {
        "group": "group.name",
        "collective": "collective",
        "bytes": "bytes",
        "dtype": "dtype",
        "operations": "operations",
        "transfer_s": "measured",
        "measured_s": "expected.value",
        "kind": "kind",
        "factor": "ratio",
    }

    group: Group
    collective: str
    bytes: int
    dtype: str | None
    operations: int
    measured: float
    # of the measurement that is expected again, such as "measured on a testbed"; empty without one
    kind: str


def against_curves(
    times: Iterable[OperationTimes], rows: Sequence[Row], hosts: Mapping[int, str | None]
) -> list[AgainstCurve]:
    """Return each collective of a job whose transfer is known beside the fastest measured time of the same call.

    The same call is of buffers of a GPU, as those of all recorders of times are. It has as many
    ranks and the same nodes; if the host of a rank is not known, all rows must have the same. If it
    reduces and its type is recorded, it has the same type.

    Args:
        times: the operations; those that lack the record of a rank are left out.
        rows: measurements of the machine.
        hosts: of the ranks, None where unknown.
    """
    curves: list[AgainstCurve] = []
    for calls in times:
        transfers_s = _transfers(calls)
        if not transfers_s:
            continue
        hosts_of_ranks = {hosts.get(rank) for rank in calls.ranks}
        nodes = None if None in hosts_of_ranks else len(hosts_of_ranks)
        rows_of_call = [row for row in rows if _is_same_call(row, calls, nodes)]
        for (nbytes, dtype), seconds in transfers_s.items():
            fitting = _of_type(rows_of_call, dtype)
            if nodes is None and len({row.nodes for row in fitting}) > 1:
                fitting = []
            expected, kind = _time_at(fitting, nbytes)
            curves.append(_curve(calls, nbytes, dtype, seconds, expected, kind))
    return curves


def _curve(
    calls: OperationTimes,
    nbytes: int,
    dtype: str | None,
    transfers_s: Sequence[float],
    expected: Expected | None,
    kind: str,
) -> AgainstCurve:
    transfer_s = float(np.median(transfers_s))
    verdict, reason = HeldVerdict.CANNOT_TELL, "not at this size"
    if expected:
        verdict, reason = verdict_between(transfer_s / expected.value, 0.0, SLOWER_BEYOND), ""
    return AgainstCurve(
        group=calls.group,
        collective=calls.collective,
        bytes=nbytes,
        dtype=dtype,
        operations=len(transfers_s),
        kind=kind,
        measured=transfer_s,
        expected=expected,
        verdict=verdict,
        reason=reason,
    )


def _of_type(rows: Sequence[Row], dtype: str | None) -> list[Row]:
    """Return the rows with a type of elements; all of them if it is not recorded, and if nothing is reduced."""
    return [row for row in rows if row.op is None or dtype in (None, row.dtype)]


def _transfers(calls: OperationTimes) -> Mapping[tuple[int, str | None], list[float]]:
    """Return the seconds of transfer by size and type; none if they are not known of all ranks."""
    transfers_s: defaultdict[tuple[int, str | None], list[float]] = defaultdict(list)
    if calls.waiting is None or not calls.is_complete:
        return transfers_s
    for operation, seconds in zip(calls.operations, calls.waiting.transfer_s.tolist(), strict=True):
        if operation.bytes:
            transfers_s[operation.bytes, operation.first.dtype].append(seconds)
    return transfers_s


def _is_same_call(row: Row, calls: OperationTimes, nodes: int | None) -> bool:
    """Return whether a row measures the collective of operations on as many ranks, and on ``nodes`` if they are known.

    Types of elements may still differ.
    """
    if not row.may_answer or row.predicted or row.device == "cpu" or row.load:
        return False
    has_same_place = row.ranks == len(calls.ranks) and nodes in (None, row.nodes)
    return has_same_place and row.collective == calls.collective


def _time_at(rows: Iterable[Row], nbytes: int) -> tuple[Expected | None, str]:
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
    expected_s = float(np.exp(np.interp(np.log(nbytes), np.log(sizes), np.log(seconds))))
    _, kind = fastest[nearest]
    return Expected(expected_s, expected_s, expected_s, CURVE), kind
