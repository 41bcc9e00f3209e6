"""What the call of a row was, beside its size: a root, two ranks, a pattern of traffic, a placement of its buffers."""

from hpccoll.schedule.collective import NATIVE
from hpccoll.schedule.collective_table import COLLECTIVES
from hpccoll.store.rows import Row

ON_ONE_NODE, BETWEEN_NODES = "on one node", "between nodes"


def call_arguments(row: Row) -> dict[str, int | str]:
    """Return what the call named beside its root, with the defaults of the collective."""
    known = COLLECTIVES[row.collective].arguments if row.collective in COLLECTIVES else {}
    return {name: row.params.get(name, value) for name, value in known.items()}


def algorithm_params(row: Row) -> dict[str, int | str]:
    """Return the parameters that are of the algorithm, not of the call."""
    return {name: value for name, value in row.params.items() if name not in call_arguments(row)}


def rank_pair(row: Row) -> tuple[int, int] | None:
    """Return the two ranks that exchange messages, or None where all take part. A peer of -1 is the last rank."""
    peer = call_arguments(row).get("peer")
    return None if peer is None else (row.root or 0, int(peer) % row.ranks)


def traffic_pattern(row: Row) -> str | None:
    """Return the name of the pattern of unequal blocks."""
    pattern = call_arguments(row).get("traffic")
    return None if pattern is None else str(pattern)


def root_rank(row: Row) -> int | None:
    """Return the root of a collective that has one."""
    rooted = row.collective in COLLECTIVES and COLLECTIVES[row.collective].rooted
    return None if rank_pair(row) or not (rooted or row.root) else row.root or 0


def has_size(collective: str) -> bool:
    """Return whether a size can be asked for: a barrier has one that says nothing."""
    return collective not in COLLECTIVES or not COLLECTIVES[collective].token


def placement_label(row: Row) -> str:
    """Return where the result was, in words; nothing where there is no choice."""
    known = COLLECTIVES.get(row.collective)
    alone = known and not (known.in_place and known.out_of_place)
    if known and (alone or (row.algorithm == NATIVE and known.one_buffer)):
        return ""
    return "in place" if row.in_place else "out of place"


def node_of_rank(row: Row, rank: int) -> int | None:
    """Return the node that a worker was on, numbered as they come; None where the row does not tell."""
    if row.nodes == 1:
        return 0
    if row.mapping == "cyclic":
        return rank % row.nodes
    return rank // row.ranks_per_node if row.mapping == "block" and row.ranks_per_node else None


def tier_label(row: Row) -> str:
    """Return how far the messages of two ranks go, in words; nothing where all ranks take part, or it is not known."""
    two = rank_pair(row)
    if two is None:
        return ""
    first, second = (node_of_rank(row, rank) for rank in two)
    if first is None or second is None:
        return ""
    return ON_ONE_NODE if first == second else BETWEEN_NODES
