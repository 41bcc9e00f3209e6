"""The subject of a picture: an algorithm of a collective on a layout, made of the words of the command line.

What is asked of the table of collectives is asked here, and nowhere else in this room.
"""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass

from hpccoll.errors import BadInputError
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
from hpccoll.schedule.collective import NATIVE, Contribution, parameter_words
from hpccoll.spec.registry import COLLECTIVES, collective
from hpccoll.units import parse_parameter

MOST_WORKERS = 128
"""Lines, arrows and cells grow with the square of the workers, and are too small to see long before that."""

_ITEMSIZE = 4
_GRAINS = 32
"""Elements of a unit where bytes are counted: whole grains, so that all units are equal."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What is shown.

    Args:
        call: the call of a collective.
        slices: the schedules, one for each slice of the buffer, all on one layout.
        name: of the algorithm.
        sentence: what the algorithm's page says first.
        declared: the cost that the algorithm declares for so many workers, if it does.
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
    def namesakes(self) -> list[str]:
        """The other collectives that have an algorithm of this name."""
        families = COLLECTIVES.values()
        return [other.name for other in families if other is not self.collective and self.name in other.algorithms]

    @property
    def root(self) -> int | None:
        """The rank that the call names, where it names one."""
        return self.call.root if self.collective.rooted else None

    @property
    def layout(self) -> Layout:
        return self.slices[0].layout

    @property
    def title(self) -> str:
        """The collective and the algorithm in words: ``all_reduce by ring``."""
        return f"{self.collective.name} by {self.name}"

    @property
    def parameters(self) -> list[str]:
        """The parameters of the algorithm, with their defaults and what else they can be: ``levels=3 (1 to 3)``."""
        found = self.collective.algorithms.get(self.name)
        words = parameter_words(found) if found else {}
        return [f"{name}={found.parameters[name]} ({values})" for name, values in words.items()] if found else []

    @property
    def floor(self) -> bool:
        """Whether it is an empty schedule, which promises nothing."""
        found = self.collective.algorithms.get(self.name)
        return found is not None and found.floor

    def fault(self) -> str | None:
        """Return why the schedule does not keep the promise of its collective; None where it does, or is a floor."""
        if self.floor:
            return None
        in_place = self.collective.in_place
        placed = self.slices if in_place else [out_of_place(self.call, schedule) for schedule in self.slices]
        try:
            prove(self.call, placed, in_place=in_place)
        except ScheduleError as error:
            return str(error)
        return None

    def contributed(self, me: int, units: int) -> range:
        """Return the units that rank ``me`` contributes."""
        return self.call.source(me, units)

    def promised(self, me: int, units: int) -> dict[int, set[Contribution]]:
        """Return what is to be folded in each unit of dst that is defined at rank ``me`` in the end."""
        return {unit: self.call.result(me, unit) for unit in self.call.target(me, units)}

    def counted(self) -> tuple[Counts, int]:
        """Return what one operation takes, and the bytes S for which it takes that."""
        units, lanes = self.slices[0].units, len(self.slices)
        elements = _GRAINS * units * (lanes if self.collective.units == "divisible" else 1)
        counts = count(self.slices, Cut(self.call, elements, units, lanes, _ITEMSIZE))
        return counts, self.call.bytes(elements, _ITEMSIZE)


def ask(
    algorithm: str,
    collective_name: str | None,
    workers: int,
    *,
    ranks_per_node: int | None = None,
    racks: int = 1,
    aggregators: int = 0,
    root: int | None = None,
    parameters: Sequence[str] = (),
) -> Subject:
    """Return the subject that the words of the command line name.

    Args:
        algorithm: its bare name.
        collective_name: the name of its collective; the first one that has such an algorithm unless given.
        workers: how many, 1 to MOST_WORKERS.
        ranks_per_node: workers on a node, the last of which may have fewer; all on one node unless given.
        racks: how many racks the nodes are dealt to, in blocks.
        aggregators: ranks that aggregate, each on a node of its own.
        root: of a collective that has one.
        parameters: of the call and of the algorithm, each as ``name=value``.

    Raises:
        BadInputError: names the word that does not fit, and what would.
    """
    family = collective(collective_name) if collective_name and algorithm != NATIVE else _first_with(algorithm)
    found = family.algorithm(algorithm)
    layout = _layout(workers, ranks_per_node, racks, aggregators)
    values = dict(map(parse_parameter, parameters))
    call = family.call(workers, root, **{name: values.pop(name) for name in family.arguments if name in values})
    declared = found.declared(workers, **values)
    return Subject(call, call.slices(found, layout, **values), algorithm, _first_sentence(found), declared)


def _first_with(algorithm: str) -> Collective:
    """Return the first collective that has an algorithm of that name."""
    families = COLLECTIVES.values()
    if found := next((family for family in families if algorithm in family.algorithms), None):
        return found
    known = sorted({name for family in families for name in family.algorithms})
    told = f"it is the library's own and has no schedule; choose from {', '.join(known)}"
    raise BadInputError("algorithm", algorithm, told if algorithm == NATIVE else known)


def _layout(workers: int, ranks_per_node: int | None, racks: int, aggregators: int) -> Layout:
    for key, number, least in (
        ("--workers", workers, 1),
        ("--ranks-per-node", workers if ranks_per_node is None else ranks_per_node, 1),
        ("--racks", racks, 1),
        ("--aggregators", aggregators, 0),
    ):
        if not least <= number <= MOST_WORKERS:
            raise BadInputError(key, number, f"a number from {least} to {MOST_WORKERS}")
    flat = Layout.of(workers, ranks_per_node, aggregators)
    if racks > flat.nodes:
        raise BadInputError("--racks", racks, f"at most the number of nodes, which is {flat.nodes}")
    rack = [node * racks // flat.nodes for node in flat.node[:workers]]
    above = [_rack_of(number, aggregators, racks) for number in range(aggregators)]
    return Layout(flat.node, (*rack, *above), aggregators=aggregators)


def _rack_of(number: int, aggregators: int, racks: int) -> int:
    """Return the rack of an aggregator: one is in each rack if there are enough, and the others are in none of them."""
    if racks == 1:
        return 0
    return number if number < racks <= aggregators else racks + number


def _first_sentence(found: Algorithm) -> str:
    """Return the first sentence of the algorithm's page."""
    page = inspect.getmodule(found.program)
    words = " ".join(((page and page.__doc__) or "").strip().partition("\n\n")[0].split())
    first, stop, _ = words.partition(". ")
    return first + stop.strip()
