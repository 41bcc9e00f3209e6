"""The order of a case in words: its trees, the bound of the error, and what changes the bits."""

from collections.abc import Iterator
from textwrap import shorten

from hpccoll.analysis.order_changes import Change
from hpccoll.analysis.order_record import ElementTree, OrderRecord
from hpccoll.common.text import join_words
from hpccoll.common.units import format_count, format_size
from hpccoll.render.pictures.schedule_text import layout_text

MOST_TREES = 16
MOST_RANGES = 3
EXPRESSION_WIDTH = 90
"""How many trees, ranges of elements, and characters of an expression are printed."""

ORDER_DIFFERS = "ranks add in different orders: the last bits of a sum may differ from rank to rank"
ORDER_AGREES = "all ranks add in the same order, and get the same bits"


def order_title(record: OrderRecord) -> str:
    """Return what is ordered, in a line."""
    case = record.case
    size = f"{format_size(case.bytes)} of {case.dtype}"
    channels = format_count(record.channels, "channel")
    where = layout_text(record.layout, case.root)
    return f"{case.collective} by {case.algorithm} on {where}, {size}, {channels}"


def order_lines(record: OrderRecord) -> Iterator[str]:
    """Yield the order of a case as text."""
    yield order_title(record)
    yield count_sentence(record)
    yield ORDER_AGREES if record.ranks_agree else ORDER_DIFFERS
    yield bound_sentence(record)
    yield ""
    yield "elements, and the order in which the ranks' numbers are added:"
    for tree in record.trees[:MOST_TREES]:
        yield f"  {_ranges_text(tree)}  {expression(tree)}"
    if len(record.trees) > MOST_TREES:
        yield f"  and {len(record.trees) - MOST_TREES:,} further orders"
    yield ""
    yield "the bits change with"
    for change in record.changes:
        yield f"  {change.subject:10s}{change_text(change)}"
    yield "  ranks     always: they are sums of other numbers"


def count_sentence(record: OrderRecord) -> str:
    """Return how many orders there are."""
    if len(record.trees) == 1:
        return "one order for all elements"
    return f"{len(record.trees):,} orders, which depend on the position of the element"


def bound_sentence(record: OrderRecord) -> str:
    """Return how far a sum may be from the exact one."""
    bounds = []
    for dtype, bound in record.bounds.items():
        text = "no bound" if bound is None else f"{bound:.2g}"
        bounds.append(f"{dtype} {text}")
    additions = format_count(record.depth, "addition")
    return f"depth: {additions}; largest error over the sum of the magnitudes: {', '.join(bounds)}"


def expression(tree: ElementTree) -> str:
    """Return the expression of a tree, or as much as fits."""
    if tree.tree is None:
        return tree.digest
    return shorten(str(tree.tree), EXPRESSION_WIDTH, placeholder=" ...")


def _ranges_text(tree: ElementTree) -> str:
    texts = [f"{start}..{stop - 1}" for start, stop in tree.ranges[:MOST_RANGES]]
    if len(tree.ranges) > MOST_RANGES:
        texts.append(f"and {len(tree.ranges) - MOST_RANGES} more")
    return ", ".join(texts)


def change_text(change: Change) -> str:
    """Return whether something changes the bits, in words."""
    if not change.compared:
        return "cannot tell: nothing else runs"
    if not change.changing:
        return f"no: the same at {_values(change.compared)}"
    if len(change.changing) == len(change.compared):
        return f"yes, at all of {_values(change.compared)}"
    return f"yes, at {_values(change.changing)}"


MOST_VALUES = 12


def _values(values: tuple[str, ...]) -> str:
    if len(values) > MOST_VALUES:
        return f"{len(values)} sizes from {values[0]} to {values[-1]}"
    return join_words(values)
