"""What the wires of a class of machines carry at most, as bus bandwidth, whatever an algorithm does with them."""

from hpccoll.cases.algorithm_registry import COLLECTIVES
from hpccoll.model.machine_sections import ClassSection
from hpccoll.model.published_rates import usual_algorithm, word_of

TREES = "tree", "nvls_tree"
"""NCCL's algorithms that pass a port half as often on two nodes, where each node is a leaf of one of two trees."""


def wire_bound(
    like: ClassSection,
    collective: str,
    nodes: int,
    ranks_per_node: int,
    algorithm: str | None = None,
) -> float | None:
    """Return the highest bus bandwidth in bytes a second that the wires admit; None if their rates are not known.

    With L the rate of a GPU into the fabric, B that of the ports of a fabric, n ranks and N
    fabrics: a ring has at most L and B, a reduction in the switches of the fabric 2 (n-1)/(n+1) L,
    a tree over two nodes 2 (n-1)/n B. The ranks of an all-to-all send (N-1)/N of their blocks
    through the ports; all blocks count.

    Args:
        like: the class of the machine.
        collective: the collective; rooted ones have no bound here.
        nodes: the nodes.
        ranks_per_node: the ranks on each node.
        algorithm: the algorithm, by the project's name [what NCCL takes without a setting; if
            unknown, a tree].
    """
    family = COLLECTIVES[collective]
    if family.rooted or family.busbw is None or like.fabric_bytes_per_s is None:
        return None
    if not algorithm:
        usual = usual_algorithm(like, nodes) if collective == "all_reduce" else None
        algorithm = word_of(usual) if usual else None
    ranks = nodes * ranks_per_node
    fabrics = -(-nodes // like.fabric_nodes)
    on_fabric = ranks // fabrics
    inside = like.fabric_bytes_per_s.at("low_cost", is_rate=True)
    if algorithm and algorithm.startswith("nvls"):
        inside *= 2 * (on_fabric - 1) / (on_fabric + 1)
    if fabrics == 1:
        return inside
    if like.network_bytes_per_s is None:
        return None
    port = like.network_bytes_per_s.at("low_cost", is_rate=True)
    if collective == "all_to_all":
        return min(inside, port * (ranks - 1) / ranks * fabrics / (fabrics - 1))
    passes_port_half_as_often = fabrics == 2 and algorithm in (None, *TREES)
    twice = 2 * (ranks - 1) / ranks if passes_port_half_as_often else 1.0
    return min(inside, twice * port * on_fabric)
