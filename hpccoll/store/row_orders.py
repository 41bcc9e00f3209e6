"""The order in which the sums of rows are added: computed from the schedules when results are read, never on ranks."""

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
from hpccoll.schedule.order import has_order
from hpccoll.store.rows import Row

MOST_RANKS = 4096
"""The most ranks whose order is computed on reading."""

MOST_MESSAGES = 1 << 22
"""The most messages of a schedule, about: a ring of 2,048 ranks has 8 million, and would take seconds."""


class RowOrder(NamedTuple):
    """What of the order of a row is kept."""

    digest: str
    ranks_agree: bool


def with_orders(rows: Iterable[Row]) -> Iterator[Row]:
    """Yield rows with their orders, if hpccoll measured them by a schedule that can be computed here."""
    for row in rows:
        order = _order_of_row(row)
        if order is None:
            yield row
        else:
            yield replace(row, order=order.digest, ranks_agree=order.ranks_agree)


def order_with_algorithm(row: Row, algorithm: str) -> str | None:
    """Return the digest that the order of a row would have with another algorithm, at its defaults."""
    order = _order_of_row(replace(row, algorithm=algorithm, params={}))
    if order is None:
        return None
    return order.digest


def _order_of_row(row: Row) -> RowOrder | None:
    family = COLLECTIVES.get(row.collective)
    if not row.ours or family is None or row.op is None or not has_order(row.op, row.dtype):
        return None
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
