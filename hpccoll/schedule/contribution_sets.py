"""Sets of contributions under numbers, so that a buffer of units is an array of numbers.

Nearly every set has contributions of one unit, from several ranks: it is a row of bits, one for
each origin. A single contribution needs no row, its number says what it is. Sets of contributions
to more than one unit, which no correct schedule needs, are kept as sets of pairs.
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Contribution = tuple[int, int]
"""A rank, and a unit of its source buffer."""

Ints = NDArray[np.int64]
Numbers: TypeAlias = int | Ints

UNDEFINED = 0
"""The number of the empty set."""

_BITS = 64
"""The origins of a word of a row."""

_SEVERAL_UNITS = -1
"""In the place of the unit of a set that has contributions to more than one unit."""

_FOLDED_AT_ONCE = 1 << 15
"""The most sets that are united at once: the arrays that this takes are small beside the rows of all sets."""


def row_words(origins: int) -> int:
    """Return the words of a row."""
    return -(-origins // _BITS)


class ContributionSets:
    """Sets of contributions, from the single ones up.

    Args:
        origins: the number of ranks that contribute, from rank 0 on.
        units: the units that they contribute, ascending; the sets name a unit by its place among
            them.
        unions: the number of unions to make room for; more find room, too.
    """

    def __init__(self, origins: int, units: Ints, unions: int = 0) -> None:
        self.origins = origins
        self.units = units
        self._singles = origins * len(units)
        # a bit for each origin, [set, word]
        self._rows = np.empty((1 + unions, row_words(origins)), np.uint64)
        self._unit_of = np.empty(1 + unions, np.int64)  # the place of the unit of each set
        # the sets of more than one unit, by number
        self._mixed: dict[int, frozenset[Contribution]] = {}
        self._count = 0

    def single(self, origin: Numbers, place: Numbers) -> Numbers:
        """Return the number of the contribution of a rank to the unit at a place."""
        return 1 + origin * len(self.units) + place

    def members(self, number: int) -> frozenset[Contribution]:
        """Return the contributions of a set."""
        if number == UNDEFINED:
            return frozenset()
        if number in self._mixed:
            return self._mixed[number]
        if number <= self._singles:
            origin, place = divmod(number - 1, len(self.units))
            return frozenset([(origin, int(self.units[place]))])
        row = number - self._singles - 1
        unit = int(self.units[self._unit_of[row]])
        bits = np.unpackbits(self._rows[row].view(np.uint8), bitorder="little")
        return frozenset((int(origin), unit) for origin in np.flatnonzero(bits))

    def are_complete(self, numbers: Ints, places: Ints) -> NDArray[np.bool]:
        """Return whether each of some sets has the contributions of all ranks to the unit at its place, and no more."""
        if self.origins == 1:
            return np.equal(numbers, self.single(0, places))
        rows = numbers - self._singles - 1
        united = rows >= 0
        rows = np.where(united, rows, 0)
        counts = np.bitwise_count(self._rows[rows]).sum(axis=1)
        complete: NDArray[np.bool] = (
            united & (counts == self.origins) & (self._unit_of[rows] == places)
        )
        return complete

    def unite(self, left: Ints, right: Ints) -> tuple[Ints, NDArray[np.bool]]:
        """Return the numbers of the unions of sets, pair by pair, and whether the two of each pair overlap."""
        numbers = np.empty(len(left), np.int64)
        overlap = np.empty(len(left), bool)
        for first in range(0, len(left), _FOLDED_AT_ONCE):
            part = slice(first, first + _FOLDED_AT_ONCE)
            numbers[part], overlap[part] = self._unite_rows(left[part], right[part])
        units = self._units_of(left)
        for i in np.flatnonzero((units != self._units_of(right)) | (units == _SEVERAL_UNITS)):
            mine = self.members(int(left[i]))
            its = self.members(int(right[i]))
            overlap[i] = not mine.isdisjoint(its)
            self._mixed[int(numbers[i])] = mine | its
            self._unit_of[numbers[i] - self._singles - 1] = _SEVERAL_UNITS
        return numbers, overlap

    def _unite_rows(self, left: Ints, right: Ints) -> tuple[Ints, NDArray[np.bool]]:
        """Return the unions of sets of one unit as new rows, and whether the two of each pair overlap."""
        mine = self._rows_of(left)
        its = self._rows_of(right)
        added = slice(self._count, self._count + len(left))
        self._make_room(added.stop)
        np.bitwise_or(mine, its, out=self._rows[added])
        self._unit_of[added] = self._units_of(left)
        self._count = added.stop
        mine &= its
        overlap = np.not_equal(np.bitwise_or.reduce(mine, axis=1), 0)
        rows = np.arange(added.start, added.stop, dtype=np.int64)
        return rows + (self._singles + 1), overlap

    def _rows_of(self, numbers: Ints) -> NDArray[np.uint64]:
        rows = numbers - self._singles - 1
        alone = np.flatnonzero(rows < 0)
        if not len(alone):
            return self._rows[rows]
        taken = self._rows[np.maximum(rows, 0)]
        origin = (numbers[alone] - 1) // len(self.units)
        taken[alone] = 0
        taken[alone, origin // _BITS] = np.uint64(1) << (origin % _BITS).astype(np.uint64)
        return taken

    def _units_of(self, numbers: Ints) -> Ints:
        rows = np.maximum(numbers - self._singles - 1, 0)
        unit_of_single = (numbers - 1) % len(self.units)
        return np.where(numbers > self._singles, self._unit_of[rows], unit_of_single)

    def _make_room(self, count: int) -> None:
        if count <= len(self._rows):
            return
        room = max(count, 2 * len(self._rows))
        rows = np.empty((room, self._rows.shape[1]), np.uint64)
        rows[: self._count] = self._rows[: self._count]
        self._rows = rows
        self._unit_of = np.resize(self._unit_of, room)
