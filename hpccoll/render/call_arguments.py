"""Arguments of the call that a row measured: root, ranks, traffic pattern, and placement of the buffers."""

from hpccoll.cases.algorithm_registry import COLLECTIVES, WORKLOADS, collective
from hpccoll.cases.catalogue import choice_parameters
from hpccoll.common.units import format_count
from hpccoll.schedule.collective import NATIVE
from hpccoll.store.rows import Row

ON_ONE_NODE, BETWEEN_NODES = "on one node", "between nodes"


def call_arguments(row: Row) -> dict[str, int | str]:
    """Return the arguments of the call other than the root, or the workload, with defaults."""
    known = collective(row.collective).arguments if row.collective in {*COLLECTIVES, *WORKLOADS} else {}
    return {name: row.params.get(name, value) for name, value in known.items()}


def algorithm_params(row: Row) -> dict[str, int | str]:
    """Return the parameters of the algorithm: no arguments of the call, and no ``graph=0``, the default."""
    return choice_parameters(row.collective, row.params)


def rank_pair(row: Row) -> tuple[int, int] | None:
    """Return the two ranks that exchange messages; None if all ranks take part. A peer of -1 is the last rank."""
    peer = call_arguments(row).get("peer")
    return None if peer is None else (row.root or 0, int(peer) % row.ranks)


def traffic_pattern(row: Row) -> str | None:
    """Return the pattern of unequal blocks, such as ``zipf``; None if the blocks are equal."""
    pattern = call_arguments(row).get("traffic")
    return None if pattern is None else str(pattern)


def concurrent_label(row: Row) -> str:
    """Return how many pairs of ranks exchange messages at once, in words; empty if the collective has no pairs."""
    pairs = call_arguments(row).get("concurrent")
    return "" if pairs is None else "all pairs at once" if pairs == 0 else f"{format_count(int(pairs), 'pair')} at once"


def root_rank(row: Row) -> int | None:
    """Return the root; None if the collective has none."""
    rooted = row.collective in COLLECTIVES and COLLECTIVES[row.collective].rooted
    return None if rank_pair(row) or not (rooted or row.root) else row.root or 0


def has_size(collective: str) -> bool:
    """Return whether a collective has a message size: a barrier moves a token only, a training step many messages."""
    return collective not in WORKLOADS and (collective not in COLLECTIVES or not COLLECTIVES[collective].token)


def placement_label(row: Row) -> str:
    """Return ``in place`` or ``out of place``; empty if the collective has one placement only."""
    known = COLLECTIVES.get(row.collective) or WORKLOADS.get(row.collective)
    one_placement = known and not (known.in_place and known.out_of_place)
    if known and (one_placement or (row.algorithm == NATIVE and known.one_buffer)):
        return ""
    return "in place" if row.in_place else "out of place"


def node_of_rank(row: Row, rank: int) -> int | None:
    """Return the index of the node of a worker; None if the mapping of the row does not determine it."""
    if row.nodes == 1:
        return 0
    if row.mapping == "cyclic":
        return rank % row.nodes
    return rank // row.ranks_per_node if row.mapping == "block" and row.ranks_per_node else None


def tier_label(row: Row) -> str:
    """Return whether two ranks are on one node or not, in words; empty if all ranks take part or nodes are unknown."""
    two = rank_pair(row)
    if two is None:
        return ""
    first, second = (node_of_rank(row, rank) for rank in two)
    if first is None or second is None:
        return ""
    return ON_ONE_NODE if first == second else BETWEEN_NODES
