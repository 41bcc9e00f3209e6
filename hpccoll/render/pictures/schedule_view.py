"""The view of a schedule: an algorithm of a collective on a layout, from the arguments of the command line."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass

from hpccoll.cases.algorithm_registry import COLLECTIVES
from hpccoll.cases.requested_schedule import requested_layout, requested_schedule
from hpccoll.common.errors import BadInputError, UnusableError, fault_with_line
from hpccoll.common.units import parse_parameter
from hpccoll.schedule import (
    Algorithm,
    Collective,
    CollectiveCall,
    Cost,
    Counts,
    Cut,
    Layout,
    Schedule,
    ScheduleError,
    count,
    out_of_place,
    prove,
)
from hpccoll.schedule.collective import Contribution, parameter_choices
from hpccoll.schedule.prove import UnmetPostconditionError

MAX_WORKERS = 128
"""The most workers to draw: lines, arrows and cells grow with the square of the workers."""

_ITEMSIZE = 4
_GRAINS = 32
"""Elements of a unit for counting bytes: whole grains, so that all units are equal."""


class UnprovenScheduleError(UnusableError):
    """A valid schedule leaves a rank without the result of its collective; its rounds can be shown."""


@dataclass(frozen=True, slots=True)
class ScheduleView:
    """An algorithm of a collective on a layout.

    Args:
        call: the call of a collective.
        slices: the schedules, one for each slice of the buffer, all on one layout.
        name: the algorithm's name.
        sentence: the first sentence of the algorithm's page.
        declared: the cost that the algorithm declares for the layout, if any.
    """

    call: CollectiveCall
    slices: tuple[Schedule, ...]
    name: str
    sentence: str = ""
    declared: Cost | None = None

    @property
    def collective(self) -> Collective:
        return self.call.collective

    @property
    def also_in(self) -> list[str]:
        """The other collectives that have an algorithm of this name."""
        families = COLLECTIVES.values()
        return [other.name for other in families if other is not self.collective and self.name in other.algorithms]

    @property
    def root(self) -> int | None:
        """The root of the call, if it has one."""
        return self.call.root if self.collective.rooted else None

    @property
    def layout(self) -> Layout:
        return self.slices[0].layout

    @property
    def title(self) -> str:
        """The collective and the algorithm: ``all_reduce by ring``."""
        return f"{self.collective.name} by {self.name}"

    @property
    def parameters(self) -> list[str]:
        """The parameters of the algorithm, with their defaults and valid values: ``levels=3 (1 to 3)``."""
        algorithm = self.collective.algorithms.get(self.name)
        if algorithm is None:
            return []
        choices = parameter_choices(algorithm)
        return [f"{name}={algorithm.parameters[name]} ({values})" for name, values in choices.items()]

    @property
    def floor(self) -> bool:
        """Whether the schedule is empty."""
        algorithm = self.collective.algorithms.get(self.name)
        return algorithm is not None and algorithm.floor

    def check(self) -> None:
        """Check that the schedule is valid and that the postcondition of the collective holds, unless it is a floor.

        Raises:
            UnusableError: names the step, the rank and the fault.
            UnprovenScheduleError: if the schedule is valid, but leaves a rank without its result.
        """
        in_place = self.collective.in_place
        placed = self.slices if in_place else [out_of_place(self.call, schedule) for schedule in self.slices]
        try:
            if not self.floor:
                prove(self.call, placed, in_place=in_place)
        except UnmetPostconditionError as error:
            raise UnprovenScheduleError(self.title, str(error)) from None
        except (ScheduleError, BadInputError) as error:
            raise UnusableError(self.title, str(error)) from None
        except Exception as error:
            where = next(filter(None, map(_failing_step, self.slices)), "all ranks at once (me is an array)")
            raise UnusableError(self.title, f"{where}: {fault_with_line(error)}") from error

    def source_units(self, me: int, units: int) -> range:
        """Return the units that rank ``me`` contributes."""
        return self.call.source(me, units)

    def expected(self, me: int, units: int) -> dict[int, set[Contribution]]:
        """Return the contributions to each unit of dst that is defined at rank ``me`` at the end."""
        return {unit: self.call.result(me, unit) for unit in self.call.target(me, units)}

    def operation_counts(self) -> tuple[Counts, int]:
        """Return the counts of one operation, and its size S in bytes."""
        units, lanes = self.slices[0].units, len(self.slices)
        elements = _GRAINS * units * (lanes if self.collective.units == "divisible" else 1)
        counts = count(self.slices, Cut(self.call, elements, units, lanes, _ITEMSIZE))
        return counts, self.call.bytes(elements, _ITEMSIZE)


def _failing_step(schedule: Schedule) -> str | None:
    """Return the first step whose generator raises an exception, and its rank; None if no rank has one."""
    for me in range(schedule.layout.ranks):
        done = 0
        try:
            for done, _ in enumerate(schedule.steps(me), 1):  # noqa: B007
                pass
        except Exception:  # noqa: BLE001 - the caller reports it
            return f"step {done + 1}: rank {me}"
    return None


def view_of(
    algorithm: str,
    collective_name: str | None,
    workers: int,
    *,
    ranks_per_node: int | None = None,
    racks: int = 1,
    aggregators: int = 0,
    root: int | None = None,
    parameters: Sequence[str] = (),
) -> ScheduleView:
    """Return the view that the arguments of the command line describe.

    Args:
        algorithm: the bare name of the algorithm.
        collective_name: the name of its collective [the first that has such an algorithm].
        workers: the number of workers, 1 to MAX_WORKERS.
        ranks_per_node: workers on each node but the last [all].
        racks: the number of racks, to which nodes are assigned in blocks.
        aggregators: the number of aggregators, each on a node of its own.
        root: the root of a rooted collective.
        parameters: parameters of the call and of the algorithm, each as ``name=value``.

    Raises:
        BadInputError: if an argument is invalid.
    """
    layout = requested_layout(workers, ranks_per_node, racks, aggregators, MAX_WORKERS)
    values = dict(map(parse_parameter, parameters))
    call, registered, slices = requested_schedule(algorithm, collective_name, layout, root=root, parameters=values)
    return ScheduleView(call, slices, algorithm, _first_sentence(registered), registered.declared(workers, **values))


def _first_sentence(algorithm: Algorithm) -> str:
    """Return the first sentence of the algorithm's page."""
    page = inspect.getmodule(algorithm.program)
    text = " ".join(((page and page.__doc__) or "").strip().partition("\n\n")[0].split())
    first, stop, _ = text.partition(". ")
    return first + stop.strip()
