"""Exposed communication: what a training step takes longer than the same step without communication, the ``null`` case.

It may be more than the tail of the step, where communication also slows down computations or delays them.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from hpccoll.cases.algorithm_registry import WORKLOADS
from hpccoll.store.call_key import CallKey
from hpccoll.store.rows import Row


def with_exposed_times(rows: Iterable[Row], machines: Mapping[str, str]) -> list[Row]:
    """Return rows, of which training steps have their exposed time if the same step was measured without communication.

    Of several such steps the one of the same launch counts, else one of the same job, else one on the same machine. The
    interval contains all differences of the intervals of the two medians.
    ``machines`` has the machine of each run by run_id.
    """
    rows = list(rows)
    bare: dict[CallKey, list[Row]] = defaultdict(list)

    def step(row: Row) -> CallKey:
        key = CallKey.of(row, machines.get(row.run_id, ""))
        return key.without("op", "root", "requested_bytes", "in_place", "racks", "aggregators", "executor")

    for row in rows:
        if row.collective in WORKLOADS and row.floor and row.usable:
            bare[step(row)].append(row)
    return [_with_exposed_time(row, bare.get(step(row), ())) for row in rows] if bare else rows


def _with_exposed_time(row: Row, bare: Sequence[Row]) -> Row:
    if row.floor or not bare or row.median_s is None:
        return row

    def closeness(null: Row) -> tuple[bool | int, ...]:
        return null.run_id == row.run_id, null.job == row.job, null.transport == row.transport, null.attempt

    null = max(bare, key=closeness)
    exposed_s = row.median_s - (null.median_s or 0.0)
    if row.interval is None or null.interval is None:
        return replace(row, exposed_s=exposed_s)
    low, high = row.interval[0] - null.interval[1], row.interval[1] - null.interval[0]
    return replace(row, exposed_s=exposed_s, exposed_low_s=low, exposed_high_s=high)
