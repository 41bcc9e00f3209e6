"""The order that ``hpccoll order`` revealed, as text: a table of sizes for each collective, and what it depends on."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from hpccoll.common.text import first_few, join_words, table_lines
from hpccoll.common.units import format_count, format_size
from hpccoll.order.order_file import OrderOfCollective, OrderOfSizes, RevealedOrder
from hpccoll.order.revealed import Kind
from hpccoll.schedule import itemsize
from hpccoll.schedule.summation_tree import parse_tree

MOST_CHARACTERS = 48
"""The longest expression that a table shows."""

WITHOUT_TREE: dict[Kind, str] = {
    "exact": "cannot tell: exact or wider sums",
    "varying": "cannot tell: two calls differ",
    "unexplained": "cannot tell: no tree",
}
"""By what is known of an order without a tree."""

HEAD = "from", "to", "order", "depth", "same bits as"


def revealed_order_lines(revealed: RevealedOrder) -> Iterator[str]:
    """Yield the lines."""
    yield _title(revealed)
    for collective in revealed.collectives:
        yield collective.collective
        yield from table_lines(HEAD, (_row(order, revealed) for order in collective.ranges))
        for sentence in _sentences(collective, revealed):
            yield f"  {sentence}"
        if any(order.as_scheduled is False for order in collective.ranges):
            yield f"  Schedule: {revealed.algorithm} does not add in the order of its schedule."


def _title(revealed: RevealedOrder) -> str:
    library = revealed.library.split(",")[0]
    if revealed.nccl:
        library = f"NCCL {revealed.nccl}"
    ranks = format_count(revealed.ranks, "rank")
    nodes = format_count(revealed.nodes, "node")
    name = revealed.algorithm
    if revealed.variant:
        name += f" ({revealed.variant})"
    level = f"thread level {revealed.thread_level}"
    return f"{name} over {revealed.transport}: {library}, {level}; {ranks} on {nodes}; {revealed.dtype}"


def _row(order: OrderOfSizes, revealed: RevealedOrder) -> Sequence[str]:
    depths = [parse_tree(text).depth for text in order.trees]
    return (
        format_size(order.first_bytes),
        format_size(order.last_bytes),
        _order_words(order, depths, revealed.ranks),
        str(max(depths, default="")),
        ", ".join(order.same_bits_as) or "-",
    )


def _order_words(order: OrderOfSizes, depths: Sequence[int], ranks: int) -> str:
    parts = []
    if len(order.trees) == 1 and len(order.trees[0]) <= MOST_CHARACTERS:
        parts.append(order.trees[0])
    elif order.trees:
        noun = "tree"
        if set(depths) == {ranks - 1} and ranks > 3:
            noun = "chain"
        parts.append(format_count(len(order.trees), noun))
    if "fused" in order.kinds:
        parts.append("fused sums")
    parts += [WITHOUT_TREE[kind] for kind in order.kinds if kind in WITHOUT_TREE]
    if not order.ranks_agree:
        parts.append("ranks differ")
    return "; ".join(parts)


def _sentences(collective: OrderOfCollective, revealed: RevealedOrder) -> Iterator[str]:
    """Yield what the bits of a collective depend on."""
    yield from _on_size(collective, itemsize(revealed.dtype) * _blocks(collective, revealed))
    yield from _on_position(collective)
    yield from _on_placement(collective)
    yield from _on_history(collective, revealed.thread_level)


def _blocks(collective: OrderOfCollective, revealed: RevealedOrder) -> int:
    from hpccoll.schedule import COLLECTIVES

    return COLLECTIVES[collective.collective].blocks(revealed.ranks)


def _on_size(collective: OrderOfCollective, step: int) -> Iterator[str]:
    ranges = collective.ranges
    if len(ranges) == 1:
        yield from _on_probed_sizes(ranges[0])
        return
    changes = [format_size(after.first_bytes) for after in ranges[1:]]
    yield f"Size: the order changes at {join_words(changes)}."
    for before, after in pairwise(ranges):
        if after.first_bytes - before.last_bytes > step:
            ends = f"{format_size(before.last_bytes)} and {format_size(after.first_bytes)}"
            yield f"Size: between {ends} there may be further changes."


def _on_probed_sizes(order: OrderOfSizes) -> Iterator[str]:
    """Yield what sizes of the same trees have in common: with several trees, blocks move with the size."""
    count = len(order.sizes)
    if count == 1:
        return
    same = "one order"
    if len(order.trees) > 1:
        same = f"the same {len(order.trees)} trees, for blocks that the size cuts,"
    yield f"Size: {same} at {count} probed sizes; sizes between them are not probed."


def _on_position(collective: OrderOfCollective) -> Iterator[str]:
    """Yield where blocks begin, for the largest sizes alone: smaller ones are cut likewise."""
    cut = [order for order in collective.ranges if len(order.blocks) > 1]
    if not cut:
        return
    largest = cut[-1]
    starts = [str(start) for start, _ in largest.blocks]
    if len(starts) > MOST_BLOCKS:
        starts[MOST_BLOCKS:] = ["..."]
    yield f"Position: at {format_size(largest.last_bytes)} blocks begin at elements {', '.join(starts)}."


MOST_BLOCKS = 8
"""The most first elements of blocks that a line names."""


def _on_placement(collective: OrderOfCollective) -> Iterator[str]:
    different = [order for order in collective.ranges if not order.in_place_agrees]
    if not different:
        yield "Placement: in place gives the same bits."
    for order in different:
        trees = join_words(order.in_place_trees) or "an order that cannot be told"
        yield f"Placement: in place at {format_size(order.last_bytes)}: {trees}."


def _on_history(collective: OrderOfCollective, thread_level: str) -> Iterator[str]:
    """Yield what first calls do, as tried at the smallest size of each range."""
    level = f"(thread level {thread_level})"
    unchanged = []
    last_calls = []
    for order in collective.ranges:
        if order.depends_on_history:
            for sentence in _changes_with_calls(order):
                yield f"History: at {format_size(order.first_bytes)}, {sentence} {level}."
        elif order.history:
            unchanged.append(format_size(order.first_bytes))
            last_calls.append(order.history[-1].last_call)
    if unchanged:
        sizes = join_words(first_few(unchanged, MOST_BLOCKS, "size"))
        calls = f"calls 1 to {max(last_calls)} on a new communicator"
        yield f"History: at {sizes}, {calls} give the same bits {level}."


MOST_EPOCHS = 4
"""The most groups of calls that are named."""


def _changes_with_calls(order: OrderOfSizes) -> Iterator[str]:
    """Yield which calls on a communicator add otherwise than later ones."""
    differing = [epoch for epoch in order.history if not epoch.as_later]
    if len(differing) > MOST_EPOCHS:
        last_call = order.history[-1].last_call
        yield f"the order changes {len(order.history) - 1} times in {last_call} calls on a communicator"
        return
    for epoch in differing:
        calls = f"calls {epoch.first_call} to {epoch.last_call} on a communicator"
        yield f"{calls} add otherwise: {_few(epoch.trees)}"


def _few(trees: Sequence[str]) -> str:
    if not trees:
        return "in an order that cannot be told"
    if len(trees) == 1:
        return trees[0]
    return format_count(len(trees), "tree")
