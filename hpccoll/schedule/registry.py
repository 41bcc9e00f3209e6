"""The declarations of an algorithm: cost, requirements, parameters."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from types import MappingProxyType
from typing import TypeAlias

from hpccoll.common.errors import BadInputError, UnusableError, fault_with_line
from hpccoll.common.limits import MAX_BYTES
from hpccoll.common.units import format_size
from hpccoll.schedule.group_composition import with_idle_aggregators
from hpccoll.schedule.layout import Layout
from hpccoll.schedule.regularity import Regularity
from hpccoll.schedule.schedule import Schedule
from hpccoll.schedule.step import Step, is_power_of_two

Parameter: TypeAlias = int | str


Program: TypeAlias = (
    Callable[..., Iterator[Step]] | Callable[..., Schedule] | Callable[..., tuple[Schedule, ...]]
)
"""A generator of (layout, me), or a function of the layout that composes one schedule or one for each slice."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of the critical path: ``steps`` alpha + ``sent`` S beta + ``reduced`` S gamma."""

    steps: float
    sent: float
    reduced: float

    def folding(self) -> "Cost":
        """Return the cost of the same backwards, where the critical path reduces all that it sends."""
        return Cost(self.steps, self.sent, reduced=self.sent)


@dataclass(frozen=True, slots=True)
class Requirement:
    """A restriction on the layout, with a text that completes the sentence "it needs ..."."""

    text: str  # the end of the sentence
    # whether a layout meets it, given the values of the algorithm's parameters
    met: Callable[[Layout, Mapping[str, Parameter]], bool]


@dataclass(frozen=True, slots=True)
class Emulation:
    """What reports print about an algorithm whose ranks stand in for hardware."""

    label: str  # the mark next to its name
    definition: str  # the sentences of the list of definitions


def at_least(workers: int) -> Requirement:
    return Requirement(f"at least {workers} workers", lambda layout, _: layout.workers >= workers)


power_of_two = Requirement(
    "a power-of-two number of workers", lambda layout, _: is_power_of_two(layout.workers)
)


def total_cost(p: int, *parts: "Algorithm") -> Cost | None:
    """Return the declared cost of algorithms one after the other at their defaults; None where one declares none."""
    steps: float = 0
    sent: float = 0
    reduced: float = 0
    for part in parts:
        cost = part.declared(p)
        if cost is None:
            return None
        steps += cost.steps
        sent += cost.sent
        reduced += cost.reduced
    return Cost(steps, sent, reduced)


class UnmetRequirementError(UnusableError):
    """An algorithm cannot run on a layout; a planner skips it."""


@dataclass(frozen=True, slots=True)
class Algorithm:
    """A registered algorithm."""

    name: str
    collective: str  # the name of its collective
    program: Program  # its text
    # its cost from p and those parameters that it names, each with a default: the algorithm's own,
    # ``channels`` and ``window``. Tested against what ``count`` and ``simulate`` find; None where
    # it takes more than these
    cost: Callable[..., Cost | None] | None = None
    # the requirements; a planner skips a layout that does not meet them, with the reason
    needs: tuple[Requirement, ...] = ()
    floor: bool = False  # whether the schedule is empty and only measures the harness
    aggregates: bool = False  # whether aggregators take part; else they are idle
    pipelined: bool = (
        # whether channels are segments of a pipeline; the default number of channels is then larger
        False
    )
    # what reports print if ranks stand in for hardware; None for all other algorithms
    emulation: Emulation | None = None
    # whether its text, if it is a generator, takes an array of ranks as ``me``
    vectorised: bool = True
    regularity: Regularity | None = None  # how the ranks of its text do alike, if it is a generator
    # the smallest and the largest S of a call that it can run
    sizes: tuple[int, int] = (0, MAX_BYTES)

    @property
    def title(self) -> str:
        """The first sentence of its text, or else of its page, without the full stop."""
        page = inspect.getmodule(self.program)
        text = self.program.__doc__ or (page and page.__doc__) or ""
        paragraph = " ".join(text.strip().partition("\n\n")[0].split())
        return paragraph.partition(". ")[0].removesuffix(".")

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """The algorithm's own parameters with their defaults: the keyword-only arguments of its text."""
        return _keywords(self.program)

    def declared(self, p: int, **parameters: Parameter) -> Cost | None:
        """Return the declared cost of a case, or None.

        Where ``channels`` do not follow one another as in a pipeline, each is a collective of its
        own on the same ports, for its share of the bytes: what they send adds up to the same, and
        what their messages cost adds up.

        Raises:
            UnusableError: if the cost cannot be computed.
        """
        if self.cost is None:
            return None
        with self._naming_file("cost"):
            named = inspect.signature(self.cost).parameters
            cost = self.cost(
                p, **{name: value for name, value in parameters.items() if name in named}
            )
            sequential = 1 if "channels" in named else int(parameters.get("channels", 1))
            declared = cost and Cost(cost.steps * sequential, cost.sent, cost.reduced)
        return declared  # noqa: RET504 - mypy: the context may go on after an exception

    @property
    def file(self) -> str:
        """The path of its text; empty if it is in none."""
        page = inspect.getmodule(self.program)
        return (page and page.__file__) or ""

    @contextmanager
    def _naming_file(self, part: str) -> Iterator[None]:
        """Report a mistake in its text, which may be a user's, in a line that names the part and the file.

        Raises:
            UnusableError: if there is one.
        """
        try:
            yield
        except (BadInputError, MemoryError):
            raise
        except Exception as error:
            fault = fault_with_line(error, self.file)
            raise UnusableError(f"{self.collective} by {self.name}: {part}", fault) from error

    def unmet(self, layout: Layout, **parameters: Parameter) -> str | None:
        """Return why the algorithm cannot run on ``layout``, or None where it can."""
        values = {**self.parameters, **parameters}
        whose = f"{self.name} of {self.collective}"
        with self._naming_file("needs"):
            unmet = [need.text for need in self.needs if not need.met(layout, values)]
        if unmet:
            return f"{whose} needs {' and '.join(unmet)}"
        try:
            self._made(layout, **parameters)
        except UnmetRequirementError as error:  # of a part that it is composed of
            return f"{whose}: {error.expected}"
        return None

    def unmet_size(self, nbytes: int) -> str | None:
        """Return why the algorithm cannot run a call of S = ``nbytes``, or None where it can."""
        if self.sizes[0] <= nbytes <= self.sizes[1]:
            return None
        return f"{self.name} of {self.collective} needs {' to '.join(map(format_size, self.sizes))}"

    def slices(self, layout: Layout, **parameters: Parameter) -> tuple[Schedule, ...]:
        """Return the schedules, one for each slice of the buffer.

        Raises:
            UnmetRequirementError: if the algorithm cannot run on the layout.
        """
        reason = self.unmet(layout, **parameters)
        if reason:
            raise UnmetRequirementError("algorithm", reason)
        return self._made(layout, **parameters)

    def _made(self, layout: Layout, **parameters: Parameter) -> tuple[Schedule, ...]:
        with self._naming_file("schedule"):
            schedules = _composed(self, layout, tuple(sorted(parameters.items())))
        return schedules  # noqa: RET504 - likewise

    def schedule(self, layout: Layout, **parameters: Parameter) -> Schedule:
        """Return the schedule of an algorithm that does not slice the buffer, to compose others of it.

        Raises:
            BadInputError: if ``slices`` raises it, or returns more than one schedule.
        """
        schedules = self.slices(layout, **parameters)
        if len(schedules) > 1:
            pieces = f"one that leaves the buffer in one piece, not in {len(schedules)}"
            raise BadInputError("algorithm", self.name, pieces)
        return schedules[0]


@lru_cache
def _keywords(program: Program) -> Mapping[str, Parameter]:
    """Return the keyword-only arguments of ``program`` with their defaults."""
    parameters = inspect.signature(program).parameters
    return MappingProxyType(
        {name: p.default for name, p in parameters.items() if p.kind is p.KEYWORD_ONLY}
    )


@lru_cache  # a case asks repeatedly, and thousands of ranks in groups take seconds to compose
def _composed(
    algorithm: Algorithm, layout: Layout, parameters: tuple[tuple[str, Parameter], ...]
) -> tuple[Schedule, ...]:
    if layout.aggregators and not algorithm.aggregates:
        worker_schedules = _composed(algorithm, layout.subset(range(layout.workers)), parameters)
        return tuple(with_idle_aggregators(layout, schedule) for schedule in worker_schedules)
    if inspect.isgeneratorfunction(algorithm.program):
        program = partial(algorithm.program, **dict(parameters))
        return (
            Schedule.of(
                layout, program, vectorised=algorithm.vectorised, regularity=algorithm.regularity
            ),
        )
    composed: object = algorithm.program(layout, **dict(parameters))
    if isinstance(composed, tuple):
        return composed
    if isinstance(composed, Schedule):
        return (composed,)
    raise TypeError(
        f"it returns {composed!r}, and yields no steps; do: yield steps, or return a schedule"
    )
