"""A schedule: the steps of every rank over one slice of the buffer."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hpccoll.schedule.layout import Layout
from hpccoll.schedule.regularity import Regularity
from hpccoll.schedule.step import Index, Step, with_unit_count


class NotVectorisedError(ValueError):
    """Steps that no array of all ranks can describe, found while they are generated."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """The steps of every rank over one slice of the buffer."""

    layout: Layout
    units: int  # the number of units that the slice is cut into
    # generates the steps of one rank; if ``vectorised``, of an array of all ranks, too
    steps: Callable[[Index], Iterator[Step]]
    vectorised: bool = False  # whether ``steps`` takes an array of all ranks, or of some
    regularity: Regularity | None = None  # how ranks do alike, if ``vectorised`` and known

    @classmethod
    def of(
        cls,
        layout: Layout,
        program: Callable[[Layout, Index], Iterator[Step]],
        *,
        vectorised: bool = True,
        regularity: Regularity | None = None,
    ) -> "Schedule":
        """Return the schedule of a generator of (layout, me), with a unit for each worker."""
        units = layout.workers

        def steps(me: Index) -> Iterator[Step]:
            return (with_unit_count(step, units) for step in program(layout, me))

        return cls(layout, units, steps, vectorised, regularity)
