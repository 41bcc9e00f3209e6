"""What a schedule is: the steps of every rank over one slice of the buffer."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from hpccoll.schedule.layout import Layout
from hpccoll.schedule.step import Index, Step


@dataclass(frozen=True, slots=True)
class Schedule:
    """The steps of every rank over one slice of the buffer, cut into ``units``."""

    layout: Layout
    units: int
    steps: Callable[[Index], Iterator[Step]]

    @classmethod
    def of(cls, layout: Layout, program: Callable[[Layout, Index], Iterator[Step]]) -> "Schedule":
        """Return the schedule of a generator of (layout, me), with a unit for each worker."""
        return cls(layout, layout.workers, partial(program, layout))
