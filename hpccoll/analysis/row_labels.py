"""Labels of a row: the pattern, pair and placement of its call, and what ran, which may not be what was requested."""

from collections.abc import Sequence

from hpccoll.cases.algorithm_registry import COLLECTIVES, WORKLOADS, is_workload
from hpccoll.common.units import format_count
from hpccoll.evidence.verdict import OFFLOADED, UNKNOWN
from hpccoll.schedule.collective import NATIVE
from hpccoll.store.call_key import call_arguments, rank_pair
from hpccoll.store.rows import Row

ON_ONE_NODE, BETWEEN_NODES = "on one node", "between nodes"


def traffic_pattern(row: Row) -> str | None:
    """Return the pattern of unequal blocks, such as ``zipf``; None if the blocks are equal."""
    pattern = call_arguments(row).get("traffic")
    return None if pattern is None else str(pattern)


def concurrent_label(row: Row) -> str:
    """Return how many pairs of ranks exchange messages at once, in words; empty if the collective has no pairs."""
    pairs = call_arguments(row).get("concurrent")
    if pairs is None:
        return ""
    return f"{format_count(int(pairs), 'pair')} at once" if pairs else "all pairs at once"


def has_size(collective: str) -> bool:
    """Return whether a collective has a message size: a barrier moves a token only, a training step many messages."""
    return not is_workload(collective) and (collective not in COLLECTIVES or not COLLECTIVES[collective].token)


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


def host_of_rank(row: Row, hosts: Sequence[str], rank: int) -> str:
    """Return the host of a worker if there are several; empty if it is unknown; ``hosts`` are those of its nodes."""
    node = node_of_rank(row, rank)
    return hosts[node] if node is not None and len(hosts) == row.nodes > 1 else ""


def tier_label(row: Row) -> str:
    """Return whether two ranks are on one node or not, in words; empty if all ranks take part or nodes are unknown."""
    two = rank_pair(row)
    if two is None:
        return ""
    first, second = (node_of_rank(row, rank) for rank in two)
    if first is None or second is None:
        return ""
    return ON_ONE_NODE if first == second else BETWEEN_NODES


def executed_name(row: Row) -> str:
    """Return the name of the executed algorithm; ``unknown`` without evidence."""
    return row.executed.partition(" ")[0]


def offloaded(row: Row) -> bool:
    """Return whether the evidence shows that switches reduced: busbw then assumes bytes that no rank sent."""
    return executed_name(row) in OFFLOADED


def fell_back(row: Row) -> bool:
    """Return whether the library ran something other than the request, or left no evidence that it ran the request.

    ``executed`` may have two names: ``sharp (collnet_direct)``.
    """
    return row.requested is not None and f"({row.requested})" not in (
        f"({executed_name(row)})",
        row.executed.partition(" ")[2],
    )


def requested_note(row: Row) -> str:
    """Return what ran, in brackets, with the request if that differs; empty without a request."""
    if row.requested is None:
        return ""
    executed = "not shown" if executed_name(row) == UNKNOWN else f"{executed_name(row)} ran"
    return f"({row.requested} asked, {executed})" if fell_back(row) else f"({executed_name(row)})"


def executed_note(row: Row) -> str:
    """Return what the library ran, for a tooltip; empty for our own schedules, whose name says it."""
    return row.executed if row.algorithm == NATIVE and (row.requested or executed_name(row) != UNKNOWN) else ""
