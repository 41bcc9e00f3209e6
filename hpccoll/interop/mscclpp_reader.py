"""A plan of MSCCL++, right in every order of execution.

It is read and proven, and becomes a schedule of ours, which runs at the sizes that the plan is for. Packets, pipelines
and the multicast of a switch are not read.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from hpccoll.cases.algorithm_registry import COLLECTIVES, PLAN
from hpccoll.common.errors import UnusableError
from hpccoll.common.files import read_json, with_digest
from hpccoll.common.limits import MAX_BYTES
from hpccoll.interop.mscclpp_events import Json, PlanRun
from hpccoll.interop.mscclpp_lift import lifted
from hpccoll.interop.mscclpp_order import proven_moves
from hpccoll.interop.mscclpp_plan import PLAN_NAMES
from hpccoll.schedule import CollectiveCall, Layout, Requirement, Schedule

PLAN_BYTES = 1 << 25
"""The maximum size of a file."""


class ProvenPlan(NamedTuple):
    """A plan that is proven: the collective that it runs, as schedules of ours."""

    name: str
    collective: str
    slices: tuple[Schedule, ...]
    sizes: tuple[int, int]  # the smallest and the largest message, in bytes
    relaxed: bool  # whether a relaxed wait is to see what was written before the run

    @property
    def call(self) -> CollectiveCall:
        """The call that it runs."""
        return COLLECTIVES[self.collective].call(self.slices[0].layout.workers)


def read_plan(path: Path) -> ProvenPlan:
    """Read a plan, and prove it; raises as ``proven``."""
    return proven(str(path), read_json(path, "FILE", PLAN_BYTES))


def proven(where: str, content: Json) -> ProvenPlan:
    """Return the plan in a JSON text, proven.

    Raises:
        UnusableError: if the text is no plan, has what is not read (packets, multicast), is wrong in some order of
            execution, or is right and no schedule of ours; names rank, thread block and unit.
    """
    try:
        return plan_of(content)
    except UnusableError as error:
        raise error.with_key(f"{where}: {error.key}") from None
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, StopIteration) as error:
        raise UnusableError(where, f"it is no plan of MSCCL++ ({type(error).__name__}: {error})") from None


def plan_of(content: Json) -> ProvenPlan:
    """Return the plan in a JSON text, proven; raises as ``proven``, and others if it is no plan."""
    names = {theirs: ours for ours, theirs in PLAN_NAMES.items()}
    if content["collective"] not in names:
        raise UnusableError("collective", f"{content['collective']!r} is not read, but {', '.join(names)}")
    run = PlanRun(content, COLLECTIVES[names[content["collective"]]].call(len(content["gpus"])))
    sizes = int(content.get("min_message_size", 0)), min(int(content.get("max_message_size", MAX_BYTES)), MAX_BYTES)
    if sizes[0] > sizes[1]:
        raise UnusableError("plan", f"its smallest message has {sizes[0]} bytes, and its largest {sizes[1]}")
    return ProvenPlan(content["name"], run.call.collective.name, lifted(run, proven_moves(run)), sizes, run.relaxed)


@cache
def _proven_file(name: str) -> ProvenPlan:
    """Return the plan in a file, whose name has its digest."""
    return proven(PLAN + name, read_json(Path(name.partition("#")[0]), "algorithm", PLAN_BYTES))


def proven_plans(names: Iterable[str]) -> dict[str, ProvenPlan]:
    """Return the plans among ``names`` of algorithms, by file:PLAN with a digest of the content.

    Each is proven once in a process; one rank proves them for all.

    Raises:
        BadInputError: if a file cannot be read, or its name has the digest of something else.
        UnusableError: if ``proven`` raises it.
    """
    paths = (name.removeprefix(PLAN) for name in dict.fromkeys(names) if name.startswith(PLAN))
    named = [with_digest(path, "algorithm", PLAN_BYTES) for path in paths]
    return {PLAN + name: _proven_file(name) for name in named}


def with_plans(names: Sequence[str]) -> list[str]:
    """Register the plans among ``names`` of algorithms, and return these, those of plans with their digests.

    Raises:
        BadInputError: if ``proven_plans`` raises it.
    """
    plans = proven_plans(names)
    register_plans(plans)
    named = {name.partition("#")[0]: name for name in plans}
    return [named.get(name.partition("#")[0], name) for name in names]


def register_plans(plans: Mapping[str, ProvenPlan]) -> None:
    """Register plans as algorithms of their collectives, by name; those that are registered stay."""
    known = {name for family in COLLECTIVES.values() for name in family.algorithms}
    for name, plan in plans.items():
        if name not in known:
            _register(name, plan)


def _register(name: str, plan: ProvenPlan) -> None:
    p = plan.call.p

    @plan.call.collective(
        name,
        needs=[Requirement(f"{p} workers, as its plan has", lambda layout, _: layout.workers == p)],
        sizes=plan.sizes,
    )
    def _(layout: Layout) -> tuple[Schedule, ...]:
        return tuple(replace(each, layout=layout) for each in plan.slices)
