"""Counted: what schedules send between nodes and racks, and which of them send as much as a library did."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hpccoll.schedule import Algorithm, CollectiveCall, Cut, Layout, Schedule, crossings, wire_bytes
from hpccoll.spec.case import Parameter
from hpccoll.transports.operation import Operation

MATCHING_RATIO = 0.98, 1.1
"""How many times the bytes of a schedule ports may send and be said to send as many: headers add 7 % at an MTU of 1500
(hpccoll/report/wire_bandwidth.py), and little else does where messages are large."""

MAX_COMPARED_RANKS = 1024
"""The most ranks for which the library's bytes are compared with those of our algorithms: to count all of an all-reduce
takes 3 s, for 4096 ranks 13 s, while all ranks wait."""

MAX_NAMED = 3
"""The most algorithms that are named as those that send as much as the library."""


@lru_cache
def cached_slices(
    call: CollectiveCall, algorithm: Algorithm, layout: Layout, parameters: tuple[tuple[str, Parameter], ...]
) -> tuple[Schedule, ...]:
    """Return the slices, the same ones for all sizes of a job: what is found out of them is found once."""
    return call.slices(algorithm, layout, **dict(parameters))


@lru_cache
def cached_crossings(
    call: CollectiveCall,
    algorithm: Algorithm,
    layout: Layout,
    parameters: tuple[tuple[str, Parameter], ...],
    tier: str,
    end: str | None = None,
) -> tuple[NDArray[np.int64], ...]:
    """Return the crossings of each slice, found once for all sizes of a job: 4096 ranks take seconds."""
    return tuple(crossings(schedule, tier, end) for schedule in cached_slices(call, algorithm, layout, parameters))


def algorithms_matching_bytes(operation: Operation, nbytes: int, sent: int) -> str:
    """Return in words what a library sent, and which of our algorithms send as much: it may be none of them.

    Args:
        operation: that it did.
        nbytes: the size S of it.
        sent: the bytes that all hosts sent for it by their counters.
    """
    family, layout = operation.collective, operation.layout
    amount = f"{sent} B" if family.token else f"{sent / layout.nodes / nbytes:.3f} S a node"
    if layout.ranks > MAX_COMPARED_RANKS:
        return f"the ports sent {amount}; no algorithm is compared with that for over {MAX_COMPARED_RANKS} ranks"
    alike = [
        algorithm.name
        for algorithm in family.algorithms.values()
        if not algorithm.floor and not algorithm.unmet(layout) and _as_much(operation, algorithm, sent)
    ]
    if len(alike) > MAX_NAMED:  # of two ranks nearly all send as much
        alike[MAX_NAMED:] = [f"{len(alike) - MAX_NAMED} others"]
    return f"the ports sent {amount}" + (f", as much as {' or '.join(alike)}" if alike else "")


def _as_much(of: Operation, algorithm: Algorithm, sent: int) -> bool:
    if of.call.traffic:
        return False  # bytes alone do not tell unequal blocks apart
    slices = cached_crossings(of.call, algorithm, of.layout, (), "node")
    counted = wire_bytes(slices, Cut(of.call, of.count, len(slices[0]), len(slices), of.dtype.itemsize))
    least, most = MATCHING_RATIO
    return least * counted <= sent <= most * counted
