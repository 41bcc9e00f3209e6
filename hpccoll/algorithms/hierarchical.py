"""Hierarchical: reduce-scatter inside the nodes, all-reduce between them, all-gather inside.

At 2 nodes of 2 ranks, who has folded what of either half of the vector:

    node         0               1
    rank         0       1       2       3
    start        a a     b b     c c     d d
    inside       ab .    . ab    cd .    . cd              reduce-scatter: local rank i has half i of the node's sum
    between      * .     . *     * .     . *               all-reduce of half i among the ranks i of all nodes
    inside       * *     * *     * *     * *               all-gather: the reduce-scatter backwards

The ranks of a node together send no more through its port than one rank would in a ring of nodes; a flat ring whose
neighbours are on other nodes sends as many times as much as a node has ranks. With racks, what is between the nodes is
done in the same way again: inside the racks, then between them. Nodes need equally many ranks, racks as many nodes.

Cost: with rings, m ranks a node and n nodes, 2 (m - 1 + n - 1) alpha; inside 2 (m - 1)/m S beta for each rank, and
between the nodes 2 (n - 1)/n S/m beta, the two with a beta of their own.

M. Cho, U. Finkler, M. Serrano, D. Kung, H. Hunter: BlueConnect: decomposing all-reduce for deep learning on
heterogeneous network hierarchy, IBM J. Res. Dev. 63 (2019).
"""

from collections.abc import Mapping, Sequence

from hpccoll.schedule import Layout, Need, Parameter, Schedule, all_reduce, nested, reduce_scatter


def _tiers(layout: Layout, levels: Parameter) -> list[str]:
    """Return what ranks are grouped by, from the inside out: a tier of one group, or of groups of one, is none."""
    tiers = ("node", "rack")[: int(levels) - 1]
    return [tier for tier in tiers if 1 < len(layout.groups(tier)) < layout.workers]


def _even(layout: Layout, parameters: Mapping[str, Parameter]) -> bool:
    ranks_a_node = {len(group) for group in layout.groups("node")}
    ranks_a_rack = {len(group) for group in layout.groups("rack")}
    racks_matter = "rack" in _tiers(layout, parameters["levels"])
    return len(ranks_a_node) == 1 and not (racks_matter and len(ranks_a_rack) > 1)


@all_reduce("hierarchical", needs=[Need("as many ranks on every node, and as many nodes in every rack", _even)])
def hierarchical(layout: Layout, *, inner: str = "ring", outer: str = "ring", levels: int = 3) -> tuple[Schedule, ...]:
    scatter, between = reduce_scatter.part(inner), all_reduce.part(outer)

    def over(part: Layout, tiers: Sequence[str]) -> tuple[Schedule, ...]:
        if not tiers:
            return between.slices(part)
        return nested(part, part.groups(tiers[0]), scatter.schedule, lambda peers: over(peers, tiers[1:]))

    return over(layout, _tiers(layout, levels))
