"""The order in which the sums of rows are added, added when results are read, never on ranks.

That of our algorithms is computed from their schedules; that of the library's own calls is the one
that ``hpccoll order native`` revealed, if its file was read, too.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from hpccoll.cases.algorithm_registry import COLLECTIVES
from hpccoll.cases.case import Case, Parameter
from hpccoll.cases.case_order import case_order
from hpccoll.cases.catalogue import check_case
from hpccoll.cases.planned_schedule import mapped_layout
from hpccoll.common.errors import BadInputError
from hpccoll.schedule import Layout, NotVectorisedError, ScheduleError
from hpccoll.schedule.collective import NATIVE
from hpccoll.schedule.order import has_order
from hpccoll.store.native_orders import NativeOrders
from hpccoll.store.rows import Row

MOST_RANKS = 4096
"""The most ranks whose order is computed on reading."""

MOST_MESSAGES = 1 << 22
"""The most messages of a schedule, about: a ring of 2,048 ranks has 8 million, and would take seconds."""


class RowOrder(NamedTuple):
    """The order of a row, without its trees."""

    digest: str
    ranks_agree: bool


def with_orders(rows: Iterable[Row], native: NativeOrders | None = None) -> Iterator[Row]:
    """Yield rows that hpccoll measured with their orders, where they can be computed, or were revealed.

    Args:
        rows: measured and other rows.
        native: the revealed orders of native calls.
    """
    for row in rows:
        order = _order_of_row(row, native)
        if order is None:
            yield row
        else:
            yield replace(row, order=order.digest, ranks_agree=order.ranks_agree)


def order_with_algorithm(row: Row, algorithm: str) -> str | None:
    """Return the digest that the order of a row would have with another algorithm, at its defaults."""
    order = _order_of_schedule(replace(row, algorithm=algorithm, params={}))
    if order is None:
        return None
    return order.digest


def _order_of_row(row: Row, native: NativeOrders | None) -> RowOrder | None:
    if row.algorithm != NATIVE:
        return _order_of_schedule(row)
    if native is None or not _may_have_order(row):
        return None
    digest = native.digest(row)
    if digest is None:
        return None
    return RowOrder(digest, ranks_agree=True)


def _may_have_order(row: Row) -> bool:
    """Return whether hpccoll measured a row whose bits depend on the order."""
    if not row.ours or row.op is None or row.collective not in COLLECTIVES:
        return False
    return has_order(row.op, row.dtype)


def _order_of_schedule(row: Row) -> RowOrder | None:
    if row.op is None or not _may_have_order(row):
        return None
    family = COLLECTIVES[row.collective]
    if row.algorithm not in family.algorithms or not 1 < row.ranks <= MOST_RANKS:
        return None
    if row.ranks_per_node is None or row.racks > 1 or row.mapping not in ("block", "cyclic"):
        return None  # the layout is not known from the row
    call = _OrderedCall(
        row.collective,
        row.algorithm,
        row.transport,
        row.dtype,
        row.op,
        row.requested_bytes,
        row.root,
        tuple(sorted(row.params.items())),
    )
    place = _Place(row.ranks, row.ranks_per_node, row.aggregators, row.mapping)
    return _computed_order(call, place)


class _OrderedCall(NamedTuple):
    """All of a case that its order depends on, but for the placement of ranks."""

    collective: str
    algorithm: str
    transport: str
    dtype: str
    op: str
    nbytes: int
    root: int | None
    params: tuple[tuple[str, Parameter], ...]

    @property
    def case(self) -> Case:
        return Case(
            collective=self.collective,
            algorithm=self.algorithm,
            transport=self.transport,
            dtype=self.dtype,
            op=self.op,
            bytes=self.nbytes,
            root=self.root,
            params=dict(self.params),
        )


class _Place(NamedTuple):
    """The placement of ranks."""

    ranks: int
    ranks_per_node: int
    aggregators: int
    mapping: str

    @property
    def layout(self) -> Layout:
        blocks = Layout.of(self.ranks, self.ranks_per_node).with_aggregators(self.aggregators)
        return mapped_layout(blocks, self.mapping)


@lru_cache(1 << 14)
def _computed_order(call: _OrderedCall, place: _Place) -> RowOrder | None:
    """Return an order; None if the schedule does not run here, as an extension or a plan may have changed since."""
    try:
        check_case(call.case)
        order = case_order(call.case, place.layout, most_messages=MOST_MESSAGES)
    except (BadInputError, ScheduleError, NotVectorisedError):
        return None
    if order is None:
        return None
    return RowOrder(order.elements.digest, order.ranks_agree)
