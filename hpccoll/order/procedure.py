"""The procedure that reveals the order of a call at one size, written once: for ranks, and for simulated libraries.

Masked calls reveal the trees of all elements, and random numbers summed along them confirm them. A
rank yields its vector of each call, and is sent its part of the sums; all ranks run the procedure
in step.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hpccoll.order.masks import leaves_below, mask_of, masked_value, pairs_of
from hpccoll.order.random_vectors import RandomVectors, differing_bits
from hpccoll.order.revealed import Block, LeafCounts, joined
from hpccoll.schedule.operation import Array


class Call(NamedTuple):
    """A call that is to be made."""

    vector: Array  # what this rank contributes
    in_place: bool = False


class RankOrder(NamedTuple):
    """What a rank knows of its part of the result."""

    blocks: list[Block]  # by the elements of the whole vector
    in_place_agrees: bool  # whether the bits in place are those out of place


Procedure: TypeAlias = Generator[Call, Array, RankOrder]


@dataclass(frozen=True, slots=True)
class ProbedCall:
    """A call, as one rank sees it."""

    rank: int
    ranks: int
    dtype: np.dtype[np.generic]
    elements: int  # of the vector
    first: int  # the element of the vector with which the part of this rank begins
    length: int  # the elements of that part

    @property
    def random_vectors(self) -> RandomVectors:
        """The vectors that confirm an order."""
        return RandomVectors(self.elements, self.ranks, self.dtype)

    def masked_vectors(self) -> Iterator[Array]:
        """Yield the vector of this rank for each pair to probe."""
        mask = mask_of(self.dtype.name, self.ranks)
        for pair in pairs_of(self.ranks):
            value = masked_value(mask, pair, self.rank)
            yield np.full(self.elements, value, self.dtype)

    def moved(self, blocks: Iterable[Block]) -> list[Block]:
        """Return blocks of the part by the elements of the whole vector."""
        first = self.first
        return [replace(b, start=b.start + first, stop=b.stop + first) for b in blocks]


def reveal_masked(call: ProbedCall, *, in_place: bool) -> Generator[Call, Array, list[Block]]:
    """Return the blocks of the part of this rank, by its elements, as masked calls reveal them."""
    mask = mask_of(call.dtype.name, call.ranks)
    counts = LeafCounts(call.ranks, call.length)
    for vector in call.masked_vectors():
        sums = yield Call(vector, in_place)
        counts.add(leaves_below(sums, mask, call.ranks))
    return counts.blocks()


def reveal_at_size(call: ProbedCall) -> Procedure:
    """Reveal the order of a call, and compare it with that in place and with a repetition."""
    blocks = yield from reveal_masked(call, in_place=False)
    vectors = call.random_vectors
    varies = np.zeros(call.length, bool)
    explained = np.ones(call.length, bool)
    in_place_agrees = True
    for number in range(vectors.count):
        own = vectors.vector(number, call.rank)
        sums = yield Call(own)
        repeated = yield Call(own)
        in_place = yield Call(own, in_place=True)
        varies |= differing_bits(sums, repeated)
        explained &= ~differing_bits(sums, _predicted(blocks, vectors, number, call.first, sums))
        in_place_agrees &= not differing_bits(sums, in_place).any()
    confirmed = joined(_confirmed(blocks, varies, explained))
    return RankOrder(call.moved(confirmed), in_place_agrees)


def _predicted(
    blocks: Sequence[Block], vectors: RandomVectors, number: int, first: int, sums: Array
) -> Array:
    """Return the sums of random vectors along the trees; where these say nothing, ``sums`` themselves."""
    predicted = sums.copy()
    for block in blocks:
        if block.kind != "tree" or block.tree is None:
            continue
        values = vectors.parts(number, first + block.start, first + block.stop)
        predicted[block.start : block.stop] = block.tree.evaluate(values, np.add)
    return predicted


def _confirmed(
    blocks: Sequence[Block], varies: NDArray[np.bool], explained: NDArray[np.bool]
) -> Iterator[Block]:
    """Yield blocks; without a tree where the bits of two calls differ, or are not those of the tree."""
    for block in blocks:
        if varies[block.start : block.stop].any():
            yield Block(block.start, block.stop, "varying")
        elif not explained[block.start : block.stop].all():
            yield Block(block.start, block.stop, "unexplained")
        else:
            yield block
