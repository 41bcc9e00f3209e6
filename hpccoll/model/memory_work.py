"""What an operation moves inside the memory of a rank, besides its messages and folds.

An implementation of a collective has buffers of its own where those of the caller do not suffice:
one for what arrives to be folded, one for partial results if the result is smaller than the vector,
one to reorder blocks. It copies the caller's data into them or into the result. Buffers above the
largest size that the C library keeps between calls (32 MiB in glibc) are new memory in each call,
whose pages the kernel clears when they are first written.
"""

import math
from typing import NamedTuple

from hpccoll.model.machine import Machine
from hpccoll.schedule import CollectiveCall, Layout

REORDERING = ("bruck",)
"""The algorithms whose blocks are not where the result has them."""


class MemoryWork(NamedTuple):
    """What each rank moves."""

    copied_bytes: int
    buffer_bytes: int  # of its own buffers


def memory_work(call: CollectiveCall, algorithm: str, nbytes: int, largest_fold: int) -> MemoryWork:
    """Return what an operation moves.

    Args:
        call: the call of the collective.
        algorithm: the name of the algorithm.
        nbytes: the size S.
        largest_fold: the bytes of the largest fold of a rank; 0 without folds.
    """
    copied = 0
    buffers = largest_fold
    if largest_fold:
        copied += nbytes  # of the contribution, which must stay as it is
        if call.collective.name in ("reduce_scatter", "reduce"):
            buffers += nbytes
    if algorithm in REORDERING:
        copied += nbytes
        buffers += nbytes
    return MemoryWork(copied, buffers)


def seconds_beside_messages(machine: Machine, layout: Layout, work: MemoryWork) -> float:
    """Return the seconds of an operation besides its messages and folds: of late starts and own buffers.

    Args:
        machine: the machine.
        layout: the layout of the ranks.
        work: what the operation moves in memory.
    """
    seconds = machine.start_skew_s * math.log2(layout.workers)
    costs = machine.own_memory
    if costs is None:
        return seconds
    seconds += work.copied_bytes * costs.copy_byte_s
    if work.buffer_bytes > costs.kept_bytes:
        hindering = ranks_of_node(layout) - 1
        seconds += work.buffer_bytes * (costs.new_byte_s + hindering * costs.sharing_byte_s)
    return seconds


def ranks_of_node(layout: Layout) -> float:
    """Return the ranks on a node, the mean over the nodes."""
    return layout.workers / layout.nodes
