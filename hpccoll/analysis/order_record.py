"""The order of a case as a record: its trees, the elements that have each, the bound of the error, what changes it."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import TypedDict

from hpccoll.analysis.order_changes import Change, ChangeJson, order_changes
from hpccoll.cases.case import Case, Parameter
from hpccoll.cases.case_order import case_order
from hpccoll.cases.planned_schedule import planned_schedule
from hpccoll.common.errors import BadInputError
from hpccoll.schedule import Layout
from hpccoll.schedule.order import UNIT_ROUNDOFF, BufferOrder, error_bound
from hpccoll.schedule.summation_tree import SummationTree

MOST_EXPRESSIONS = 16
"""The most different trees whose expressions are given: those of the first elements."""


class ElementTreeJson(TypedDict):
    """A summation tree, and the elements that have it."""

    digest: str
    expression: str | None  # such as ((0 1) (2 3)); null of a tree beyond the first ones
    depth: int | None
    elements: list[list[int]]  # ranges [start, stop)


class OrderJson(TypedDict):
    """The order in which an algorithm adds, as JSON has it."""

    collective: str
    algorithm: str
    params: dict[str, Parameter]
    ranks: int
    nodes: int
    root: int | None
    bytes: int
    dtype: str
    op: str | None
    channels: int
    digest: str
    ranks_agree: bool
    one_order: bool
    depth: int
    error_bounds: dict[str, float | None]
    trees: list[ElementTreeJson]
    changes: list[ChangeJson]


@dataclass(frozen=True, slots=True)
class ElementTree:
    """A tree, and the elements whose contributions are added in its order."""

    digest: str
    tree: SummationTree | None  # None beyond MOST_EXPRESSIONS
    ranges: tuple[tuple[int, int], ...]  # [start, stop) of the elements, ascending

    def to_json(self) -> ElementTreeJson:
        ranges = [list(ends) for ends in self.ranges]
        record = ElementTreeJson(digest=self.digest, expression=None, depth=None, elements=ranges)
        if self.tree is not None:
            record["expression"] = str(self.tree)
            record["depth"] = self.tree.depth
        return record


@dataclass(frozen=True, slots=True)
class OrderRecord:
    """The order in which a case adds."""

    case: Case
    layout: Layout
    channels: int
    digest: str  # equal for cases with equal bits of all elements
    ranks_agree: bool
    depth: int
    trees: tuple[ElementTree, ...]  # in the order of their first elements
    changes: tuple[Change, ...]

    @property
    def bounds(self) -> dict[str, float | None]:
        """The largest error over the sum of the magnitudes, by type; None where nothing bounds it."""
        bounds = {}
        for dtype in UNIT_ROUNDOFF:
            bounds[dtype] = error_bound(self.depth, dtype)
        return bounds

    def to_json(self) -> OrderJson:
        return {
            "collective": self.case.collective,
            "algorithm": self.case.algorithm,
            "params": dict(self.case.params),
            "ranks": self.layout.workers,
            "nodes": self.layout.nodes,
            "root": self.case.root,
            "bytes": self.case.bytes,
            "dtype": self.case.dtype,
            "op": self.case.op,
            "channels": self.channels,
            "digest": self.digest,
            "ranks_agree": self.ranks_agree,
            "one_order": len(self.trees) == 1,
            "depth": self.depth,
            "error_bounds": self.bounds,
            "trees": [tree.to_json() for tree in self.trees],
            "changes": [change.to_json() for change in self.changes],
        }


def order_record(case: Case, layout: Layout) -> OrderRecord:
    """Return the order of a case of ours.

    Raises:
        BadInputError: if the case cannot run on the layout, or its bits have no order.
    """
    planned = planned_schedule(case, layout)
    order = case_order(case, layout, with_trees=True)
    if planned is None or order is None:
        expected = "a schedule of hpccoll that adds floats"
        raise BadInputError("algorithm", case.algorithm, expected)
    return OrderRecord(
        case,
        layout,
        planned.channels,
        order.elements.digest,
        order.ranks_agree,
        order.depth,
        tuple(_element_trees(order)),
        tuple(order_changes(case, layout)),
    )


def _element_trees(order: BufferOrder) -> Sequence[ElementTree]:
    ranges: dict[int, list[tuple[int, int]]] = defaultdict(list)
    elements = order.elements
    digests = elements.digests.tolist()
    for digest, ends in zip(digests, pairwise(elements.edges.tolist()), strict=True):
        ranges[digest].append(ends)
    trees = dict(islice(order.trees(), MOST_EXPRESSIONS))
    listed = []
    for digest, elements_of_tree in ranges.items():
        tree = ElementTree(f"{digest:016x}", trees.get(digest), tuple(elements_of_tree))
        listed.append(tree)
    return listed
