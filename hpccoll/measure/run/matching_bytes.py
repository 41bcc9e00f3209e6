"""Names the algorithms whose messages have as many bytes as the ports of the hosts sent."""

from hpccoll.cases.planned_schedule import cached_crossings, cached_slices
from hpccoll.schedule import Algorithm, Cut, wire_bytes
from hpccoll.schedule.operation import Operation

MATCHING_RATIO = 0.98, 1.1
"""The ratios of port bytes to a schedule's bytes at which both match: headers add 7 % at an MTU of
1500 bytes (hpccoll/render/wire_bandwidth.py), and there is little other traffic while messages are
large."""

MAX_COMPARED_RANKS = 1024
"""The maximum number of ranks for which a library's bytes are compared with those of our
algorithms: counting all algorithms of an all-reduce takes 3 s, and 13 s for 4096 ranks, while all
ranks wait."""

MAX_NAMED = 3
"""The maximum number of matching algorithms that are named."""


def algorithms_matching_bytes(operation: Operation, nbytes: int, sent: int) -> str:
    """Return a sentence with the bytes that a library sent, and our algorithms that send as many.

    The library may have run none of them. ``nbytes`` is the size S; ``sent`` are the bytes per
    operation that all hosts sent, by their port counters.
    """
    family = operation.collective
    layout = operation.layout
    if family.token:
        amount = f"{sent} B"
    else:
        amount = f"{sent / layout.nodes / nbytes:.3f} S a node"
    if layout.ranks > MAX_COMPARED_RANKS:
        return f"the ports sent {amount}; not compared with algorithms: more than {MAX_COMPARED_RANKS} ranks"
    matching = [
        algorithm.name
        for algorithm in family.algorithms.values()
        if not algorithm.floor
        and not algorithm.unmet(layout)
        and _matches(operation, algorithm, sent)
    ]
    if len(matching) > MAX_NAMED:  # on two ranks nearly all algorithms send the same
        matching[MAX_NAMED:] = [f"{len(matching) - MAX_NAMED} others"]
    return f"the ports sent {amount}" + (
        f", as much as {' or '.join(matching)}" if matching else ""
    )


def _matches(operation: Operation, algorithm: Algorithm, sent: int) -> bool:
    if operation.call.traffic:
        return False  # the total does not distinguish algorithms if blocks are unequal
    slices = cached_slices(operation.call, algorithm, operation.layout, ())
    cut = Cut(
        operation.call, operation.count, slices[0].units, len(slices), operation.dtype.itemsize
    )
    counted = wire_bytes([cached_crossings(part, "node") for part in slices], cut)
    least, most = MATCHING_RATIO
    return least * counted <= sent <= most * counted
