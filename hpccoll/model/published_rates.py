"""What was published of NCCL near a case, on machines of one class: the section ``published`` of a machine file."""

from itertools import groupby
from math import log

from hpccoll.model.machine_file import MachineFile
from hpccoll.model.machine_sections import PublishedSection

FEW_NODES = 2
"""Up to so many nodes NCCL has other algorithms on each number of them."""

NEAR = 2
"""The ratio of two sizes, and of two larger numbers of nodes, up to which a figure of one says something of the other:
bus bandwidth grows by up to a half from a size to its double, and falls by a few per cent on twice as many nodes."""


def published_near(
    machine: MachineFile, collective: str, nodes: int, ranks_per_node: int, nbytes: int
) -> list[PublishedSection]:
    """Return what was published near a case: by algorithm that of the nearest nodes, and then of the nearest size.

    Near are the same nodes, or beyond FEW_NODES those that differ by a factor of NEAR at most; sizes that differ by a
    factor of NEAR at most; and only all ranks of each node.
    """
    if machine.geometry is None or ranks_per_node != machine.geometry.ranks_per_node:
        return []
    near = [
        each
        for each in machine.published
        if each.collective == collective
        and (each.nodes == nodes or (min(each.nodes, nodes) > FEW_NODES and _ratio(each.nodes, nodes) <= NEAR))
        and _ratio(each.nbytes, nbytes) <= NEAR
    ]
    by_algorithm = groupby(sorted(near, key=lambda each: each.algorithm), key=lambda each: each.algorithm)
    return [
        min(several, key=lambda each: (abs(log(each.nodes / nodes)), abs(log(each.nbytes / nbytes))))
        for _, several in by_algorithm
    ]


def _ratio(one: float, other: float) -> float:
    return max(one, other) / min(one, other)
