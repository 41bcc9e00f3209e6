"""Hierarchical: reduce-scatter inside the nodes, all-reduce between them, all-gather inside.

At 2 nodes of 2 ranks, who has folded what of the two halves of the vector (.: not used any more, *:
abcd):

    node         0               1
    rank         0       1       2       3
    start        a a     b b     c c     d d
    inside       ab .    . ab    cd .    . cd              reduce-scatter: local rank i has half i of the node's sum
    between      * .     . *     * .     . *               all-reduce of half i among the local ranks i of all nodes
    inside       * *     * *     * *     * *               all-gather: the reduce-scatter backwards

``inner`` names the reduce-scatter inside (the all-gather is the same backwards), ``outer`` the
all-reduce between. With racks, "between" has three parts again: reduce-scatter among the nodes of a
rack, all-reduce between racks, all-gather. Every node needs the same number of ranks, every rack
the same number of nodes; ``levels`` 2 ignores racks, 1 nodes too.

Cost: with rings, m ranks a node and n nodes, 2 (m + n - 2) alpha instead of 2 (m n - 1), 2 (m -
1)/m S beta inside and 2 (n - 1)/n S/m beta between, each with a beta of its own, (p - 1)/p S gamma.
Through the port of a node go only 2 (n - 1)/n S, as from one rank in a ring of nodes. A flat ring
sends 2 (p - 1)/p S there where the ranks fill one node after the other, and m times that where all
neighbours are on other nodes. With ``inner`` direct and ``outer`` recursive_doubling, (log2(n) + 2)
alpha, and log2(n) S/m beta between: the choice of NVRAR for small vectors on GPUs.

M. Cho, U. Finkler, M. Serrano, D. Kung, H. Hunter: BlueConnect: decomposing all-reduce for deep
learning on heterogeneous network hierarchy, IBM J. Res. Dev. 63 (2019). P. Singhania et al.: LLM
inference beyond a single node, arXiv:2511.09557 (2025).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated

from hpccoll.schedule import Layout, Parameter, Requirement, Schedule, in_groups, reverse, then
from hpccoll.schedule.collective_table import all_reduce, reduce_scatter


def _tiers(layout: Layout, levels: Parameter) -> list[str]:
    """Return what ranks are grouped by, inside first; a tier with one group, or one rank a group, is left out."""
    tiers = ("node", "rack")[: int(levels) - 1]
    return [tier for tier in tiers if 1 < len(layout.groups(tier)) < layout.workers]


def _even(layout: Layout, parameters: Mapping[str, Parameter]) -> bool:
    tiers = _tiers(layout, parameters["levels"])
    for tier in tiers:
        sizes = {len(group) for group in layout.groups(tier)}
        if len(sizes) > 1:
            return False
    if len(tiers) > 1:
        racks_of_nodes = [{layout.rack[me] for me in group} for group in layout.groups("node")]
        return all(len(racks) == 1 for racks in racks_of_nodes)
    return True


@all_reduce(
    "hierarchical",
    needs=[Requirement("as many ranks on every node, as many nodes in every rack", _even)],
)
def hierarchical(
    layout: Layout,
    *,
    inner: Annotated[str, reduce_scatter] = "ring",
    outer: Annotated[str, all_reduce] = "ring",
    levels: Annotated[int, range(1, 4)] = 3,
) -> tuple[Schedule, ...]:
    scatter = reduce_scatter.component(inner)
    between = all_reduce.component(outer)

    def over(part: Layout, tiers: Sequence[str]) -> tuple[Schedule, ...]:
        if not tiers:
            return between.slices(part)
        return three_phases(
            part, part.groups(tiers[0]), scatter.schedule, lambda peers: over(peers, tiers[1:])
        )

    return over(layout, _tiers(layout, levels))


def three_phases(
    layout: Layout,
    nodes: Sequence[Sequence[int]],
    reduce_scatter: Callable[[Layout], Schedule],
    all_reduce: Callable[[Layout], tuple[Schedule, ...]],
) -> tuple[Schedule, ...]:
    """Return the all-reduce in two levels: inside ``nodes``, groups of one size, and among their i-th ranks.

    It has as many slices as ``all_reduce`` of those ranks has.
    """
    peers = list(zip(*nodes, strict=True))

    def slice_of(number: int, units: int) -> Schedule:
        return then(
            in_groups(layout, units, nodes, reduce_scatter),
            in_groups(layout, units, peers, lambda part: all_reduce(part)[number], share=True),
            # the all-gather
            in_groups(layout, units, nodes, lambda part: reverse(reduce_scatter(part))),
        )

    slices = all_reduce(layout.subset(peers[0]))
    return tuple(
        slice_of(number, len(peers) * schedule.units) for number, schedule in enumerate(slices)
    )
