"""A plan of MSCCL++, right in every order of execution.

It is read and proven, and becomes a schedule of ours, which runs at the sizes that the plan is for. Packets, pipelines
and the multicast of a switch are not read.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from hpccoll.cases.algorithm_registry import COLLECTIVES, PLAN
from hpccoll.cases.case import Case
from hpccoll.common.errors import UnusableError
from hpccoll.common.files import read_json, with_digest, without_digest
from hpccoll.common.limits import MAX_BYTES, NAME
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
    path: str = ""  # of its file, if it was named

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
    name = run.call.collective.name
    # MSCCL++ compares the block of one rank in all_gather, and S otherwise (src/ext/nccl/nccl.cc).
    blocks = run.call.p if name == "all_gather" else 1
    least, most = (_bytes(content, f"{end}_message_size", default) for end, default in (("min", 0), ("max", MAX_BYTES)))
    if least > most:
        raise UnusableError("plan", f"its smallest message has {least} bytes, and its largest {most}")
    sizes = least * blocks, min(most * blocks, MAX_BYTES)
    return ProvenPlan(content["name"], name, lifted(run, proven_moves(run)), sizes, run.relaxed)


def _bytes(content: Json, key: str, default: int) -> int:
    value = content.get(key, default)
    if type(value) is not int or value < 0:  # true is an int, too
        raise UnusableError(key, f"{json.dumps(value)} is no whole number of bytes")
    return value


@cache
def _proven_file(path: str, _digest: str) -> ProvenPlan:
    return proven(PLAN + path, read_json(Path(path), "algorithm", PLAN_BYTES))._replace(path=path)


PLANS: dict[str, ProvenPlan] = {}
"""The plans that were registered in this process, by name."""


def proven_plans(paths: Mapping[str, str]) -> dict[str, ProvenPlan]:
    """Return plans by name, which has a digest of the content, from the paths of their files.

    Each is proven once in a process; one rank proves them for all.

    Raises:
        BadInputError: if a file cannot be read, or its name has the digest of something else.
        UnusableError: if ``proven`` raises it.
    """
    digests = {name: name.removeprefix(without_digest(name)) for name in paths}
    for name, path in paths.items():
        with_digest(path + digests[name], "algorithm", PLAN_BYTES)
    return {name: _proven_file(path, digests[name]) for name, path in paths.items()}


def with_plans(names: Iterable[str], directory: Path = Path()) -> list[str]:
    """Register the plans among ``names`` of algorithms, file:PATH from a directory; return each name once.

    That of a plan is the name of its file with a digest, file:PLAN.json#1a2b3c4d, and the same in every directory.

    Raises:
        BadInputError: if ``proven_plans`` raises it.
    """
    paths: dict[str, str] = {}
    for name in names:
        path = str((directory / name.removeprefix(PLAN)).absolute()) if name.startswith(PLAN) else ""
        named = with_digest(path, "algorithm", PLAN_BYTES) if path else name
        paths[NAME.read("algorithm", PLAN + Path(named).name) if path else name] = without_digest(path)
    register_plans(proven_plans({name: path for name, path in paths.items() if path}))
    return [*paths]


def plan_paths(cases: Iterable[Case]) -> dict[str, str]:
    """Return where the plans among the algorithms of cases are, by name: what a job file says of them."""
    return {case.algorithm: PLANS[case.algorithm].path for case in cases if case.algorithm in PLANS}


def register_plans(plans: Mapping[str, ProvenPlan]) -> None:
    """Register plans as algorithms of their collectives, by name; those that are registered stay."""
    PLANS.update(plans)
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
