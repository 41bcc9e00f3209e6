"""Random numbers that confirm an order: every rank knows those of all ranks."""

import numpy as np
from numpy.typing import NDArray

from hpccoll.schedule.operation import Array

FEWEST_ELEMENTS = 32
"""The random elements that confirm the tree of a block.

Two trees differ in the bits of about a third of random elements, so that 32 elements miss a wrong
tree once in a million times.
"""

SEED = 66


class RandomVectors:
    """Vectors of normal numbers; the vector of rank r begins at number r of one long vector.

    The numbers that meet in an element are thus different ones.
    """

    def __init__(self, elements: int, ranks: int, dtype: np.dtype[np.generic]) -> None:
        self.elements = elements
        self.ranks = ranks
        elements_of_block = max(1, elements // ranks)  # as a ring cuts a vector
        self.count = -(-FEWEST_ELEMENTS // elements_of_block)
        """How many vectors have that many elements in each block."""
        numbers = np.random.default_rng(SEED).standard_normal((self.count, elements + ranks - 1))
        self._numbers: Array = numbers.astype(dtype)

    def vector(self, number: int, rank: int) -> Array:
        """Return vector ``number`` of a rank."""
        return self._numbers[number, rank : rank + self.elements]

    def parts(self, number: int, start: int, stop: int) -> list[Array]:
        """Return some elements of vector ``number`` of each rank."""
        return [self.vector(number, rank)[start:stop] for rank in range(self.ranks)]


def differing_bits(a: Array, b: Array) -> NDArray[np.bool]:
    """Return for each element whether its bits differ."""
    size = a.dtype.itemsize
    differs = a.view(np.uint8).reshape(-1, size) != b.view(np.uint8).reshape(-1, size)
    return np.asarray(differs.any(axis=1))
