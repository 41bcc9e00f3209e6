"""Which choices give the same bits: rows whose sums are added in the same order, and the findings on them."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from hpccoll.analysis.setting import Choice
from hpccoll.common.errors import UnusableError
from hpccoll.common.text import Finding, first_few, info, join_words, warning
from hpccoll.common.units import format_count, format_size
from hpccoll.schedule.collective import NATIVE
from hpccoll.schedule.order import has_order
from hpccoll.store.call_key import CallKey
from hpccoll.store.row_orders import order_with_algorithm
from hpccoll.store.rows import Results, Row


class _Sums(NamedTuple):
    """What choices are compared for: the sums of one collective on the same ranks."""

    collective: str
    dtype: str
    op: str | None
    ranks: int
    nodes: int
    root: int | None

    @property
    def words(self) -> str:
        where = f"{format_count(self.ranks, 'rank')} on {format_count(self.nodes, 'node')}"
        return f"{self.collective} of {self.dtype} on {where}"


def same_bits_findings(results: Results) -> Iterator[Finding]:
    """Yield which choices add in the same order, and those whose ranks add in different ones."""
    differing = algorithms_whose_ranks_disagree(results.rows)
    if differing:
        names = join_words(differing)
        text = f"With {names}, ranks add in different orders: the last bits of a sum may differ from rank to rank."
        yield warning("ranks_disagree", text, algorithms=differing)
    sentences = []
    for sums, orders in _orders(results.rows).items():
        sentence = _same_bits_words(orders)
        if sentence and sums.ranks > ONE_ORDER:
            sentences.append(f"{sums.words}: {sentence}")
    if sentences:
        text = f"Bits of sums: {'; '.join(first_few(sentences, MOST_SUMS, 'call'))}."
        yield info("same_bits", text, sums=sentences)


ONE_ORDER = 2
"""The most ranks whose numbers can be added in one order only."""

MOST_SUMS = 2
"""The most calls that a sentence names."""


def algorithms_whose_ranks_disagree(rows: Iterable[Row]) -> list[str]:
    """Return the algorithms with which ranks add in different orders, sorted."""
    names = set()
    for row in rows:
        if row.ranks_agree is False:
            names.add(row.algorithm)
    return sorted(names)


Orders = Mapping[str, Mapping[int, str]]
"""The order of each choice, by its name, at each size in bytes."""


def _orders(rows: Iterable[Row]) -> Mapping[_Sums, Orders]:
    orders: dict[_Sums, dict[str, dict[int, str]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        if row.order is None or not row.may_answer:
            continue
        sums = _Sums(row.collective, row.dtype, row.op, row.ranks, row.nodes, row.root)
        orders[sums][Choice.of(row).name][row.requested_bytes] = row.order
    return orders


def _same_bits_words(orders: Orders) -> str | None:
    """Return which choices give the bits of native, or the same as each other; None if none do."""
    if NATIVE in orders:
        kept = []
        for name in orders:
            if name != NATIVE:
                kept.append(_kept_words(name, orders))
        if not kept:
            return None
        return f"those of {NATIVE} have {', '.join(kept)}"
    groups: dict[tuple[tuple[int, str], ...], list[str]] = defaultdict(list)
    for name, by_size in orders.items():
        groups[tuple(sorted(by_size.items()))].append(name)
    alike = [join_words(names) for names in groups.values() if len(names) > 1]
    if not alike:
        return None
    return f"the same at all sizes with {', and with '.join(alike)}"


def _kept_words(name: str, orders: Orders) -> str:
    """Return at which sizes a choice has the bits of native, in words."""
    own = orders[name]
    native = orders[NATIVE]
    common = sorted(own.keys() & native.keys())
    differing = [size for size in common if own[size] != native[size]]
    if not differing:
        return f"{name} at all sizes"
    if len(differing) == len(common):
        return f"{name} at no size"
    if differing == common[-len(differing) :]:
        return f"{name} below {format_size(differing[0])}"
    return f"{name} but at {join_words(map(format_size, differing))}"


def with_bits_of(results: Results, reference: str) -> Results:
    """Return results without the rows whose sums have other bits than those of a reference at the same size.

    Rows whose bits have no order, as those of integers and of collectives that add nothing, are
    kept.

    Args:
        results: measured results.
        reference: ``native``, whose order must be known, or an algorithm of ours.

    Raises:
        UnusableError: if the order of the reference is not known.
    """
    native = {}
    for row in results.rows:
        if row.algorithm == NATIVE and row.order is not None:
            native[_call(row)] = row.order
    kept = []
    unknown = True
    for row in results.rows:
        if row.op is None or not has_order(row.op, row.dtype):
            kept.append(row)
            continue
        if reference == NATIVE:
            wanted = native.get(_call(row))
        else:
            wanted = order_with_algorithm(row, reference)
        unknown = unknown and wanted is None
        if wanted is not None and row.order == wanted and row.ranks_agree is not False:
            kept.append(row)
    if unknown:
        expected = "a choice whose order is known: an algorithm of ours that runs on these ranks"
        if reference == NATIVE:
            expected = "results in which the order of native is known, or an algorithm of ours"
        raise UnusableError("--keep-bits-of", f"{reference}: {expected}")
    return replace(results, rows=tuple(kept))


def _call(row: Row) -> CallKey:
    return CallKey.of(row).without("in_place")
