"""From counts of leaves to summation trees: of one element, and of all elements of a vector."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hpccoll.order.masks import UNKNOWN, Counts, Pair, pairs_of
from hpccoll.schedule.order import ElementOrder
from hpccoll.schedule.summation_tree import SummationTree, leaf, node, parse_tree

Ints: TypeAlias = NDArray[np.int64]

Kind: TypeAlias = Literal["tree", "fused", "exact", "varying", "unexplained"]
"""What is known of the order of an element:

tree: every sum has two parts, and random numbers summed along it have the same bits
fused: the tree has sums of more than two parts at once, whose rounding is unknown
exact: the small numbers are not lost: a wider or an exact accumulator
varying: two calls with the same numbers differ
unexplained: no tree gives these results
"""

CANNOT_TELL: tuple[Kind, ...] = ("exact", "varying", "unexplained")
"""The kinds without a tree."""


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive elements that are summed alike."""

    start: int  # the first element
    stop: int  # the one after the last
    kind: Kind
    tree: SummationTree | None = None  # None if it cannot be told


class OrderAtSize(NamedTuple):
    """What is known of the order at a size. Two sizes of one order may differ in where blocks begin."""

    contents: frozenset[tuple[Kind, SummationTree | None]]
    ranks_agree: bool
    in_place_agrees: bool


class LeafCounts:
    """The counts of all pairs for each element, in the order of ``pairs_of``.

    Blocks of a buffer are summed alike: of each pair only the elements are kept at which the count
    changes.
    """

    def __init__(self, ranks: int, length: int) -> None:
        self.ranks = ranks
        self.length = length
        self._starts: list[Ints] = []  # per pair, the first elements of runs
        self._counts: list[Counts] = []  # per pair, the counts of the runs

    def add(self, counts: Counts) -> None:
        """Add the counts of the next pair."""
        changes = np.flatnonzero(counts[1:] != counts[:-1]) + 1
        starts = np.concatenate([np.zeros(1, np.int64), changes])[: len(counts)]
        self._starts.append(starts)
        self._counts.append(counts[starts])

    def blocks(self) -> list[Block]:
        """Return the blocks, in their order."""
        if not self.length:
            return []
        starts = np.unique(np.concatenate([np.zeros(1, np.int64), *self._starts]))
        columns = np.empty((len(starts), len(self._starts)), np.int32)
        for number, (own_starts, counts) in enumerate(zip(self._starts, self._counts, strict=True)):
            columns[:, number] = counts[np.searchsorted(own_starts, starts, "right") - 1]
        stops = [*starts[1:].tolist(), self.length]
        kinds: dict[bytes, tuple[Kind, SummationTree | None]] = {}
        blocks = []
        for start, stop, column in zip(starts.tolist(), stops, columns, strict=True):
            key = column.tobytes()
            if key not in kinds:
                kinds[key] = reveal(column, self.ranks)
            blocks.append(Block(start, stop, *kinds[key]))
        return joined(blocks)


def joined(blocks: Iterable[Block]) -> list[Block]:
    """Return blocks with neighbours that are summed alike as one."""
    merged: list[Block] = []
    for block in blocks:
        last = merged[-1] if merged else None
        if last and (last.stop, last.kind, last.tree) == (block.start, block.kind, block.tree):
            merged[-1] = Block(last.start, block.stop, block.kind, block.tree)
        else:
            merged.append(block)
    return merged


def reveal(counts: Counts, ranks: int) -> tuple[Kind, SummationTree | None]:
    """Return what the counts of all pairs, in the order of ``pairs_of``, say about an element."""
    tree = tree_of_counts(counts, ranks)
    if tree is None:
        nothing_is_lost = ranks > 2 and bool(np.all(counts == 2))
        return ("exact" if nothing_is_lost else "unexplained"), None
    return ("fused" if tree.has_fused_sums else "tree"), tree


def tree_of_counts(counts: Counts, ranks: int) -> SummationTree | None:
    """Return the tree in which each pair meets in a sum of the counted leaves; None if there is none.

    Sums are made from the smallest to the largest: those whose lowest common ancestor has n leaves
    are the parts of a sum of n.

    Args:
        counts: of the pairs of ``pairs_of``.
        ranks: the number of leaves.
    """
    if ranks == 1:
        return leaf(0)
    if np.any(counts == UNKNOWN):
        return None
    matrix = _matrix(counts, pairs_of(ranks), ranks)
    sums = [leaf(rank) for rank in range(ranks)]  # the largest one so far that has each rank
    for size in np.unique(counts).tolist():
        waiting = [rank for rank in range(ranks) if np.any(matrix[rank] == size)]
        while waiting:
            members = np.flatnonzero(matrix[waiting[0]] <= size)
            together = matrix[np.ix_(members, members)]
            if len(members) != size or np.any(together > size):
                return None
            parts = list(dict.fromkeys(sums[member] for member in members))
            if not _meet_only_here(parts, together, members.tolist(), size):
                return None
            total = node(*parts)
            for member in members.tolist():
                sums[member] = total
            waiting = [rank for rank in waiting if rank not in members]
    if sums[0].ranks != tuple(range(ranks)):
        return None
    return sums[0]


def _meet_only_here(
    parts: Sequence[SummationTree], together: Counts, members: Sequence[int], size: int
) -> bool:
    """Return whether ranks of different parts, and only these, meet in the sum of the parts."""
    if len(parts) < 2:
        return False
    part_of = np.zeros(len(members), np.int64)
    for number, part in enumerate(parts):
        part_of[np.searchsorted(members, part.ranks)] = number
    differs = part_of[:, np.newaxis] != part_of
    return bool(np.array_equal(differs, together == size))


def _matrix(counts: Counts, pairs: Sequence[Pair], ranks: int) -> Counts:
    """Return the counts by both ranks of each pair; a rank with itself has one leaf."""
    matrix = np.ones((ranks, ranks), np.int32)
    first, second = np.array(pairs).T
    matrix[first, second] = counts
    matrix[second, first] = counts
    return matrix


def digest_of(blocks: Sequence[Block]) -> str | None:
    """Return the digest of a whole result, by which it is compared with other ones; None if it cannot be told.

    It is that of an ``ElementOrder``.
    """
    trees = [block.tree for block in blocks if block.tree is not None]
    if not blocks or len(trees) < len(blocks):
        return None
    starts = np.array([block.start for block in blocks])
    digests = np.array([tree.digest for tree in trees], np.uint64)
    return ElementOrder.of_runs(starts, digests, blocks[-1].stop).digest


PackedBlock: TypeAlias = tuple[int, int, Kind, str | None]
"""A block as ranks send it."""


def pack(blocks: Iterable[Block]) -> list[PackedBlock]:
    """Return blocks with expressions in the place of trees."""
    return [
        (block.start, block.stop, block.kind, None if block.tree is None else str(block.tree))
        for block in blocks
    ]


def unpack(blocks: Sequence[PackedBlock]) -> list[Block]:
    """Return the blocks that were packed."""
    trees = {text: parse_tree(text) for _, _, _, text in blocks if text is not None}
    return [
        Block(start, stop, kind, None if text is None else trees[text])
        for start, stop, kind, text in blocks
    ]


def join_ranks(parts: Iterable[Sequence[Block]]) -> tuple[list[Block], bool]:
    """Return the blocks of a whole result, and whether the ranks that have the same elements agree.

    Args:
        parts: the blocks of each rank, none of a rank without a result. All have the whole result,
            or each has a part of its own.
    """
    with_result = [list(part) for part in parts if part]
    if len({part[0].start for part in with_result}) > 1:
        with_result.sort(key=lambda part: part[0].start)
        return joined(chain.from_iterable(with_result)), True
    first = with_result[0]
    return first, all(part == first for part in with_result)
