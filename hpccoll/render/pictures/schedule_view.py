"""The view of a schedule: an algorithm of a collective on a layout, from the arguments of the command line."""

from collections.abc import Sequence
from dataclasses import dataclass

from hpccoll.cases.requested_schedule import requested_layout, requested_schedule
from hpccoll.common.errors import BadInputError, UnusableError, fault_with_line
from hpccoll.common.units import parse_parameter
from hpccoll.schedule import (
    Algorithm,
    Collective,
    CollectiveCall,
    Cost,
    Layout,
    Schedule,
    ScheduleError,
    out_of_place,
)
from hpccoll.schedule.prove import UnmetPostconditionError, prove
from hpccoll.schedule.walk import Trace, trace_schedule

MAX_WORKERS = 4096
"""The most workers of a view."""

MAX_DRAWN = 128
"""The most ranks that are shown whole: lines, arrows and cells grow with their square. Of more, a part is shown."""

RANKS_OF_PART, STEPS_OF_PART = 16, 16
"""The first ranks and the first steps, which are the part."""


class UnprovenScheduleError(UnusableError):
    """A valid schedule leaves a rank without the result of its collective; its steps can be shown."""


@dataclass(frozen=True, slots=True)
class ScheduleView:
    """An algorithm of a collective on a layout."""

    call: CollectiveCall  # the call of a collective
    # the schedules, one for each slice of the buffer, all on one layout
    slices: tuple[Schedule, ...]
    name: str  # the algorithm's name
    sentence: str = ""  # the first sentence of the algorithm's page
    declared: Cost | None = None  # the cost that the algorithm declares for the layout, if any

    @property
    def collective(self) -> Collective:
        return self.call.collective

    @property
    def root(self) -> int | None:
        """The root of the call, if it has one."""
        return self.call.root if self.collective.rooted else None

    @property
    def layout(self) -> Layout:
        return self.slices[0].layout

    @property
    def is_part(self) -> bool:
        """Whether there are too many ranks to show the steps and buffers of all."""
        return self.layout.ranks > MAX_DRAWN

    @property
    def traces(self) -> list[Trace]:
        """The messages of each slice; of a part, those that its ranks send or receive in its steps."""
        if not self.is_part:
            return [trace_schedule(schedule) for schedule in self.slices]
        return [trace_schedule(schedule, RANKS_OF_PART, STEPS_OF_PART) for schedule in self.slices]

    @property
    def title(self) -> str:
        """The collective and the algorithm: ``all_reduce by ring``."""
        return f"{self.collective.name} by {self.name}"

    @property
    def algorithm(self) -> Algorithm | None:
        """The registered algorithm, if there is one of this name."""
        return self.collective.algorithms.get(self.name)

    @property
    def floor(self) -> bool:
        """Whether the schedule is empty."""
        return self.algorithm is not None and self.algorithm.floor

    def check(self) -> None:
        """Check that the schedule is valid and that the postcondition of the collective holds, unless it is a floor.

        Raises:
            UnusableError: names the step, the rank and the fault.
            UnprovenScheduleError: if the schedule is valid, but leaves a rank without its result.
        """
        in_place = self.collective.in_place
        placed = (
            self.slices
            if in_place
            else [out_of_place(self.call, schedule) for schedule in self.slices]
        )
        try:
            if not self.floor:
                prove(self.call, placed, in_place=in_place)
        except UnmetPostconditionError as error:
            raise UnprovenScheduleError(self.title, str(error)) from None
        except (ScheduleError, BadInputError) as error:
            raise UnusableError(self.title, str(error)) from None
        except Exception as error:
            where = next(
                filter(None, map(_failing_step, self.slices)), "all ranks at once (me is an array)"
            )
            file = self.algorithm.file if self.algorithm else ""
            fault = fault_with_line(error, file)
            raise UnusableError(self.title, f"{where}: {fault}") from error


def _failing_step(schedule: Schedule) -> str | None:
    """Return the first step whose generator raises an exception, and its rank; None if no rank has one."""
    for me in range(schedule.layout.ranks):
        number = 0
        try:
            for number, _ in enumerate(schedule.steps(me), 1):  # noqa: B007 - the last one
                pass
        except Exception:  # noqa: BLE001 - the caller reports it
            return f"step {number + 1}: rank {me}"
    return None


def view_of(
    algorithm: str,
    collective_name: str | None,
    workers: int,
    *,
    ranks_per_node: int | None = None,
    racks: str = "1",
    aggregators: int = 0,
    root: int | None = None,
    parameters: Sequence[str] = (),
    mapping: str = "block",
) -> ScheduleView:
    """Return the view that the arguments of ``hpccoll show`` describe; BadInputError if one is invalid."""
    layout = requested_layout(workers, ranks_per_node, racks, aggregators, MAX_WORKERS, mapping)
    values = dict(map(parse_parameter, parameters))
    call, registered, slices = requested_schedule(
        algorithm, collective_name, layout, root=root, parameters=values
    )
    return ScheduleView(
        call, slices, algorithm, f"{registered.title}.", registered.declared(workers, **values)
    )
