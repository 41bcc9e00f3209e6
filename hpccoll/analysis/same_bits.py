"""Which choices give the same bits: rows whose sums are added in the same order, and the findings on them."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

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
    device: str
    ranks: int
    nodes: int
    mapping: str
    root: int | None
    variant: str | None

    @property
    def words(self) -> str:
        where = f"{format_count(self.ranks, 'rank')} on {format_count(self.nodes, 'node')}"
        words = [f"{self.collective} of {self.dtype} on {where}"]
        if self.mapping != "block":
            words.append(f"mapping {self.mapping}")
        if self.device != "cpu":
            words.append(f"{self.device} memory")
        if self.variant:
            words.append(f"variant {self.variant}")
        return ", ".join(words)

    @classmethod
    def of(cls, row: Row) -> "_Sums":
        return cls(
            row.collective,
            row.dtype,
            row.op,
            row.device,
            row.ranks,
            row.nodes,
            row.mapping,
            row.root,
            row.variant,
        )


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
"""The order of each choice, by its label, at each size in bytes."""


def _orders(rows: Iterable[Row]) -> Mapping[_Sums, Orders]:
    digests: dict[_Sums, dict[str, dict[int, set[str]]]] = {}
    for row in rows:
        if row.order is None or not row.may_answer:
            continue
        by_choice = digests.setdefault(_Sums.of(row), {})
        by_size = by_choice.setdefault(Choice.of(row).label, {})
        by_size.setdefault(row.requested_bytes, set()).add(row.order)
    orders: dict[_Sums, Orders] = {}
    for sums, by_choice in digests.items():
        orders[sums] = {label: _unique(by_size) for label, by_size in by_choice.items()}
    return orders


Key = TypeVar("Key")


def _unique(digests: Mapping[Key, Collection[str]]) -> dict[Key, str]:
    """Return the digest of each key whose rows all have the same one: runs of two libraries may differ."""
    unique: dict[Key, str] = {}
    for key, digests_of_rows in digests.items():
        if len(digests_of_rows) == 1:
            (unique[key],) = digests_of_rows
    return unique


def _same_bits_words(orders: Orders) -> str | None:
    """Return which choices give the bits of native, or the same as each other; None if none do."""
    native_labels = [label for label in orders if label.split()[0] == NATIVE]
    if native_labels:
        sentences = [_kept_words(native, orders) for native in native_labels]
        return "; ".join(sentence for sentence in sentences if sentence) or None
    groups: dict[tuple[tuple[int, str], ...], list[str]] = defaultdict(list)
    for name, by_size in orders.items():
        if by_size:
            groups[tuple(sorted(by_size.items()))].append(name)
    alike = [join_words(names) for names in groups.values() if len(names) > 1]
    if not alike:
        return None
    return f"the same at all sizes with {', and with '.join(alike)}"


def _kept_words(native: str, orders: Orders) -> str | None:
    """Return which choices have the bits of native at which sizes, in words; None if nothing was compared."""
    choices_at: dict[str, list[str]] = defaultdict(list)
    is_compared = False
    for name, own in orders.items():
        common = sorted(own.keys() & orders[native].keys())
        if name == native or not common:
            continue
        is_compared = True
        differing = [size for size in common if own[size] != orders[native][size]]
        if len(differing) < len(common):
            choices_at[_equal_sizes(common, differing)].append(name)
    if not is_compared:
        return None
    if not choices_at:
        return f"no choice has those of {native} at a probed size"
    words = [f"{join_words(names)} {where}" for where, names in choices_at.items()]
    return f"those of {native}, at the probed sizes: {', '.join(words)}"


def _equal_sizes(common: Sequence[int], differing: Sequence[int]) -> str:
    """Return at which of the sizes that were compared the bits are equal, in words."""
    if not differing:
        return "at all"
    if differing == common[-len(differing) :]:
        return f"below {format_size(differing[0])}"
    if len(differing) > MOST_SIZES:
        return f"at {len(common) - len(differing)} of {len(common)}"
    return f"at all but {join_words(map(format_size, differing))}"


MOST_SIZES = 4
"""The most sizes that a sentence names."""


def with_bits_of(results: Results, reference: str) -> Results:
    """Return results without the rows whose sums may have other bits than a reference at the same size.

    Rows whose bits have no order, as those of integers and of collectives that add nothing, are
    kept. Where the order of the reference is not known, as at sizes that were not probed, no other
    row is.

    Args:
        results: measured results.
        reference: ``native``, whose order must be known, or an algorithm of ours.

    Raises:
        UnusableError: if the order of the reference is not known.
    """
    native = _orders_of_native(results.rows)
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
            expected = (
                "its order is not known here; do: add to PATHS the F.json of 'hpccoll order native "
                "--out F.json', run on the same ranks, library and sizes"
            )
        raise UnusableError("--keep-bits-of", f"{reference}: {expected}")
    return replace(results, rows=tuple(kept))


def _orders_of_native(rows: Iterable[Row]) -> Mapping[CallKey, str]:
    """Return the order of the library's own call, where all rows of it whose order is known agree."""
    digests: dict[CallKey, set[str]] = defaultdict(set)
    for row in rows:
        if row.algorithm == NATIVE and row.order is not None:
            digests[_call(row)].add(row.order)
    return _unique(digests)


def _call(row: Row) -> CallKey:
    """Return the call of a row, without what does not change the bits, such as how it was timed."""
    return CallKey.of(row).without("in_place", "executor", "timing", "rule", "kind", "source")
