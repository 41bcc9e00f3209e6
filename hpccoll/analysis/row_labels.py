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
    if not pairs:
        return "all pairs at once"
    return f"{format_count(int(pairs), 'pair')} at once"


def has_size(collective: str) -> bool:
    """Return whether a collective has a message size: a barrier moves a token only, a training step many messages."""
    if is_workload(collective):
        return False
    return collective not in COLLECTIVES or not COLLECTIVES[collective].token


def placement_label(row: Row) -> str:
    """Return ``in place`` or ``out of place``; empty if the collective has one placement only."""
    family = COLLECTIVES.get(row.collective) or WORKLOADS.get(row.collective)
    if family:
        one_placement = not (family.in_place and family.out_of_place)
        one_buffer = row.algorithm == NATIVE and family.one_buffer
        if one_placement or one_buffer:
            return ""
    return "in place" if row.in_place else "out of place"


def node_of_rank(row: Row, rank: int) -> int | None:
    """Return the index of the node of a worker; None if the mapping of the row does not determine it."""
    if row.nodes == 1:
        return 0
    if row.mapping == "cyclic":
        return rank % row.nodes
    if row.mapping == "block" and row.ranks_per_node:
        return rank // row.ranks_per_node
    return None


def host_of_rank(row: Row, hosts: Sequence[str], rank: int) -> str:
    """Return the host of a worker if there are several; empty if it is unknown; ``hosts`` are those of its nodes."""
    node = node_of_rank(row, rank)
    if node is None or row.nodes < 2 or len(hosts) != row.nodes:
        return ""
    return hosts[node]


def tier_label(row: Row) -> str:
    """Return whether two ranks are on one node or not, in words; empty if all ranks take part or nodes are unknown."""
    pair = rank_pair(row)
    if pair is None:
        return ""
    first, second = (node_of_rank(row, rank) for rank in pair)
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
    if row.requested is None:
        return False
    name, _, name_in_brackets = row.executed.partition(" ")
    return row.requested != name and f"({row.requested})" != name_in_brackets


def requested_note(row: Row) -> str:
    """Return what ran, in brackets, with the request if that differs; empty without a request."""
    if row.requested is None:
        return ""
    name = executed_name(row)
    if not fell_back(row):
        return f"({name})"
    executed = "not shown" if name == UNKNOWN else f"{name} ran"
    return f"({row.requested} asked, {executed})"


def executed_note(row: Row) -> str:
    """Return what the library ran, for a tooltip; empty for our own schedules, whose name says it."""
    if row.algorithm != NATIVE:
        return ""
    is_known = row.requested or executed_name(row) != UNKNOWN
    return row.executed if is_known else ""
