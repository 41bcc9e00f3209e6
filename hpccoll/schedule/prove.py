"""The prover: runs a schedule on sets of contributions, and checks the postcondition of its collective.

A unit of a buffer holds the set of contributions folded into it; the empty set is undefined. For
every rank it checks that nothing undefined is sent or folded, that no contribution is counted
twice, and that dst ends as the postcondition requires.

Units that all messages leave where they are stay apart from one another, and units between which no
range of a message begins or ends hold the same ranks' contributions. So one of them stands for all,
and units are proven in groups if the sets of all would need too much memory. If every rank does for
the unit of its number what rank 0 does for unit 0, as in a ring, one unit stands for all. If even
ranks do what rank 0 does and odd ones what rank 1 does, as in Swing, two units do; and so on for
longer periods. The messages are compared, and no declaration is believed.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from hpccoll.schedule.collective import ALL_RANKS, CollectiveCall
from hpccoll.schedule.contribution_sets import Contribution, ContributionSets, row_words
from hpccoll.schedule.match import ScheduleError
from hpccoll.schedule.place_walk import Extent, FoldPlaces, Ints, PlaceMemory, fault_of_step
from hpccoll.schedule.schedule import Schedule

MOST_ROW_BYTES = 1 << 29
"""The bytes of sets up to which all units are proven at once."""


class UnmetPostconditionError(ScheduleError):
    """A schedule is valid, but it leaves a rank without the result of its collective."""


def prove(call: CollectiveCall, schedules: Iterable[Schedule], *, in_place: bool = True) -> None:
    """Check each schedule (slice) of an algorithm against the postcondition of a call.

    Args:
        call: the call of a collective.
        schedules: the slices; each is checked over its own units.
        in_place: whether dst starts with the contributions and src is undefined, or the other way
            step.

    Raises:
        ScheduleError: if something undefined is read, or a contribution is counted twice; names
            step, rank and unit.
        UnmetPostconditionError: if a contribution is missing or misplaced at the end; names rank
            and unit.
    """
    for schedule in schedules:
        extent = Extent.of(call, schedule)
        row_bytes = 8 * row_words(schedule.layout.workers) * extent.folds
        for places in extent.groups(-(-row_bytes // MOST_ROW_BYTES), alike_once=True):
            contributions = _Contributions(call, extent, places, in_place=in_place)
            contributions.run()
            contributions.check()


class _Contributions(PlaceMemory):
    """What is folded in some of the places of all buffers, as numbers of sets."""

    def __init__(
        self, call: CollectiveCall, extent: Extent, places: range, *, in_place: bool
    ) -> None:
        super().__init__(call, extent, places, in_place=in_place)
        unions = len(places) * extent.folds // extent.count
        self.sets = ContributionSets(extent.schedule.layout.workers, self.units, unions)

    def contributions(self, me: int, places: Ints) -> Ints:
        return np.asarray(self.sets.single(me, places))

    def fold(self, held: Ints, arriving: Ints, at: FoldPlaces) -> Ints:
        united, twice = self.sets.unite(held, arriving)
        if twice.any() and not self.call.collective.idempotent:
            i = int(np.flatnonzero(twice)[0])
            both = self.sets.members(int(held[i])) & self.sets.members(int(arriving[i]))
            unit = self.units[at.places[i]]
            raise fault_of_step(
                self.extent.schedule,
                at.number,
                int(at.target[i]),
                f"counts twice in unit {unit}: {_names(both)}",
            )
        return united

    def check(self) -> None:
        """Check the postcondition after the last step.

        Raises:
            UnmetPostconditionError: if a contribution is missing or misplaced.
        """
        for me in range(self.extent.schedule.layout.workers):
            held = self.places_of(self.call.target(me, self.extent.schedule.units))
            places = np.arange(len(self.units))[held]
            sets = self.buffers["dst"][me, held]
            wrong = np.flatnonzero(~self._are_results(me, places, sets))
            if len(wrong):
                i = wrong[0]
                self._refuse(me, int(self.units[places[i]]), int(sets[i]))

    def _are_results(self, me: int, places: Ints, sets: Ints) -> NDArray[np.bool]:
        """Return whether sets are what a rank must hold at places."""
        origin, unit = self.call.collective.result(self.call, me, self.units[places])
        if np.ndim(origin) == 0 and origin == ALL_RANKS:
            return self.sets.are_complete(sets, places)
        wanted = np.searchsorted(self.units, unit).clip(max=len(self.units) - 1)
        are_here = self.units[wanted] == unit
        results: NDArray[np.bool] = are_here & (
            sets == self.sets.single(np.asarray(origin), wanted)
        )
        return results

    def _refuse(self, me: int, unit: int, number: int) -> None:
        """Raise the error of a unit of dst that ends with the set of this number."""
        required = self.call.result(me, unit)
        held = self.sets.members(number)
        after = f"after step {self.extent.number}, the last one, " if self.extent.number else ""
        missing = required - held
        if missing:
            raise UnmetPostconditionError(
                f"{after}rank {me} ends without {_names(missing)} in unit {unit}"
            )
        raise UnmetPostconditionError(
            f"{after}rank {me} ends with {_names(held - required)} in unit {unit}"
        )


def _names(contributions: Iterable[Contribution]) -> str:
    return ", ".join(f"rank {origin}'s unit {unit}" for origin, unit in sorted(contributions))
