"""What changes the bits of a sum: the order of a case beside those of cases that differ from it in one thing."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, TypedDict

from hpccoll.cases.case import Case
from hpccoll.cases.case_order import case_order
from hpccoll.common.errors import BadInputError, UnusableError
from hpccoll.common.units import format_size
from hpccoll.schedule import MAPPINGS, Layout, numbering
from hpccoll.schedule.order import BufferOrder

CHANNELS = 1, 2, 3, 4, 8, 16
SEGMENTS = 1 << 16, 1 << 18, 1 << 20
LARGEST = 1 << 30
"""The channels, segments and sizes that are compared; sizes are powers of two."""

MANY_RANKS = 256
"""The ranks from which on fewer placements are compared: an order of 1,024 ranks takes seconds."""


ChangeJson = TypedDict(
    "ChangeJson", {"with": str, "same": bool, "compared": list[str], "changing": list[str]}
)


@dataclass(frozen=True, slots=True)
class Change:
    """Whether something changes the bits of elements, compared with the case itself."""

    subject: str  # size, channels, segment, nodes, mapping, root
    compared: tuple[str, ...]  # the values that were compared, in words
    changing: tuple[str, ...]  # those with other bits

    def to_json(self) -> ChangeJson:
        return {
            "with": self.subject,
            "same": not self.changing,
            "compared": list(self.compared),
            "changing": list(self.changing),
        }


class Variation(NamedTuple):
    """A case that differs from another in one thing."""

    value: str  # what it has, in words
    case: Case
    layout: Layout


def order_changes(case: Case, layout: Layout) -> Iterator[Change]:
    """Yield what changes the bits, subject by subject; only elements that both cases have are compared."""
    base = case_order(case, layout, with_trees=True)
    if base is None:
        return
    yield _size_change(case, layout)
    for subject, values in (("channels", CHANNELS), ("segment", SEGMENTS)):
        yield _change(subject, base, _with_parameter(case, layout, subject, values))
    yield _change("nodes", base, _on_other_nodes(case, layout))
    if layout.nodes > 1:
        yield _change("mapping", base, _with_other_mappings(case, layout))
    if case.root is not None:
        yield _change("root", base, _with_other_roots(case, layout))


def _change(subject: str, base: BufferOrder, variations: Iterable[Variation]) -> Change:
    compared = []
    changing = []
    for variation in variations:
        order = _order_or_none(variation.case, variation.layout)
        if order is None:
            continue
        compared.append(variation.value)
        if not order.elements.agrees_with(base.elements):
            changing.append(variation.value)
    return Change(subject, tuple(compared), tuple(changing))


def _order_or_none(case: Case, layout: Layout) -> BufferOrder | None:
    """Return the order of a case; None if the algorithm cannot run like that."""
    try:
        return case_order(case, layout, with_trees=True)
    except (BadInputError, UnusableError):
        return None


def _size_change(case: Case, layout: Layout) -> Change:
    """Return at which of the sizes from one element on the bits of the elements before it change."""
    compared = []
    changing = []
    before = None
    size = 4
    while size <= max(LARGEST, case.bytes):
        order = _order_or_none(replace(case, bytes=size), layout)
        if order is not None and order.elements.edges[-1]:
            compared.append(format_size(size))
            if before is not None and not order.elements.agrees_with(before.elements):
                changing.append(format_size(size))
            before = order
        size *= 2
    return Change("size", tuple(compared), tuple(changing))


def _with_parameter(
    case: Case, layout: Layout, name: str, values: Iterable[int]
) -> Iterator[Variation]:
    own = dict(case.params)
    own.pop("channels", None)
    own.pop("segment", None)
    for value in values:
        words = str(value)
        if name == "segment":
            words = format_size(value)
        yield Variation(words, replace(case, params={**own, name: value}), layout)


def _with_other_roots(case: Case, layout: Layout) -> Iterator[Variation]:
    roots = {0, 1, layout.workers - 1}
    for root in sorted(roots):
        if root != case.root:
            yield Variation(str(root), replace(case, root=root), layout)


def _on_other_nodes(case: Case, layout: Layout) -> Iterator[Variation]:
    p = layout.workers
    candidates = {1, 2, 4, p // 2, p}
    if p > MANY_RANKS:
        candidates = {8, p}
    for per_node in sorted(candidates):
        if per_node < 1 or p % per_node or per_node == layout.ranks_per_node:
            continue
        placed = Layout.of(p, per_node).with_aggregators(layout.aggregators)
        if layout.mapping in MAPPINGS:
            placed = placed.subset(numbering(placed, layout.mapping))
        yield Variation(f"{per_node} per node", case, placed)


def _with_other_mappings(case: Case, layout: Layout) -> Iterator[Variation]:
    for mapping in MAPPINGS:
        if mapping != layout.mapping:
            yield Variation(mapping, case, layout.subset(numbering(layout, mapping)))
