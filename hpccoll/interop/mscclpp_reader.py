"""Reader of plans of MSCCL++, each of which is proven and becomes a schedule of ours.

It runs at the sizes that the plan is for. Packets, pipelines and the multicast of a switch are not read.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from hpccoll.cases.algorithm_registry import COLLECTIVES, PLAN
from hpccoll.cases.case import Case
from hpccoll.common.errors import BadInputError, UnusableError
from hpccoll.common.files import parse_json, read_text, with_digest, without_digest
from hpccoll.common.limits import NAME, RANKS
from hpccoll.common.units import format_size
from hpccoll.interop.mscclpp_events import Json, PlanRun, reading
from hpccoll.interop.mscclpp_lift import lifted
from hpccoll.interop.mscclpp_order import proven_moves
from hpccoll.interop.mscclpp_plan import ALIGNMENT, PLAN_NAMES, largest_message
from hpccoll.schedule import CollectiveCall, Layout, Requirement, Schedule

PLAN_BYTES = 1 << 25
"""The maximum size of a file."""
PROTOCOLS = "Simple", "LL"
"""Those of MSCCL++. With LL the executor only makes scratch twice as large, for the packets."""


class ProvenPlan(NamedTuple):
    """A plan that is proven: the collective that it runs, as schedules of ours."""

    collective: str
    slices: tuple[Schedule, ...]
    sizes: tuple[int, int]  # the smallest and the largest message, in bytes
    multiple: int  # the bytes of which MSCCL++ runs multiples alone
    relaxed: bool  # whether a relaxed wait is to see what was written before the run
    path: str = ""  # of its file, if it was named

    @property
    def call(self) -> CollectiveCall:
        """The call that it runs."""
        return COLLECTIVES[self.collective].call(self.slices[0].layout.workers)

    @property
    def sentence(self) -> str:
        """What it is for, and on which condition it is right."""
        least, most = self.sizes
        end = min(f"to {format_size(most)}", f"below {format_size(most + 1)}", key=len)
        begin = f"from {format_size(least)} " if least else ""
        sizes = f"multiples of {format_size(self.multiple)} {begin}{end}"
        condition = " if relaxed waits see what was written before the run" if self.relaxed else ""
        return f"A plan of MSCCL++ for {sizes}, right in every order of execution{condition}."


def proven(where: str, text: str) -> ProvenPlan:
    """Return the plan in a JSON text, proven.

    Raises:
        UnusableError: if the text is not a plan, has what is not read (packets, multicast), is wrong in some order of
            execution, or is right and no schedule of ours; names rank, thread block and unit.
    """
    try:
        content = parse_json(text)
    except ValueError as error:
        raise UnusableError(where, f"it is not JSON: {error}") from None
    try:
        with reading("plan", "plan"):
            return plan_of(content)
    except BadInputError as error:
        raise error.with_key(f"{where}: {error.key}") from None


def plan_of(content: Json) -> ProvenPlan:
    """Return the plan in a JSON text, proven; raises as ``proven``, and others if it is not a plan."""
    names = {theirs: ours for ours, theirs in PLAN_NAMES.items()}
    if "colletive" in content or any("inputChunks" in gpu for gpu in content["gpus"]):
        raise UnusableError("plan", "it has the form of before August 2025 (inputChunks), which hpccoll cannot read")
    if content["collective"] not in names:
        raise UnusableError("collective", f"{content['collective']!r} is not valid; valid: {', '.join(names)}")
    if content["protocol"] not in PROTOCOLS:
        raise BadInputError("protocol", content["protocol"], PROTOCOLS)
    RANKS.check("gpus", len(content["gpus"]))
    given = {"min_message_size": 0, "max_message_size": 2**64 - 1, "buffer_alignment": ALIGNMENT}
    least, most, alignment = (content.get(key, default) for key, default in given.items())
    for key, value in zip(given, (least, most, alignment), strict=True):
        if type(value) is not int or value < 0:  # true is an int, too
            raise UnusableError(key, f"{json.dumps(value)} is not a whole number of bytes")
    if type(content["inplace"]) is not bool:
        raise UnusableError("inplace", f"{json.dumps(content['inplace'])} is neither true nor false")
    run = PlanRun(content, COLLECTIVES[names[content["collective"]]].call(len(content["gpus"])))
    chunks, scratch = run.units * run.lanes // run.pieces, max(gpu["scratch_chunks"] for gpu in run.gpus)
    most = min(most, largest_message(chunks, run.gpus))
    if content.get("reuse_resources") and scratch:  # a larger chunk overlaps the next one in its scratch of 64 MiB
        most = min(most, chunks * (1 << 26) // scratch)
    if least > most:
        raise UnusableError("plan", f"its smallest message has {least} bytes, and the largest that it can run {most}")
    multiple = alignment * run.units * run.lanes  # a group of thread blocks shares its chunks by the alignment
    slices = lifted(run, proven_moves(run))
    return ProvenPlan(run.call.collective.name, slices, (least, most), multiple, run.relaxed)


@cache
def _proven_file(digested: str) -> ProvenPlan:
    path = without_digest(digested)
    return proven(PLAN + path, read_text(Path(path), "algorithm", PLAN_BYTES))._replace(path=path)


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
    found = {name: with_digest(path + digests[name], "algorithm", PLAN_BYTES) for name, path in paths.items()}
    return {name: _proven_file(each) for name, each in found.items()}


def with_plans(names: Iterable[str], directory: Path = Path()) -> list[str]:
    """Register the plans among ``names`` of algorithms, file:PATH from a directory; return each name once.

    That of a plan is the name of its file with a digest, file:PLAN.json#1a2b3c4d, and the same in every directory.

    Raises:
        BadInputError: if ``proven_plans`` raises it.
    """
    paths: dict[str, str] = {}
    for name in names:
        if name.startswith(PLAN):
            path = with_digest(str((directory / name.removeprefix(PLAN)).absolute()), "algorithm", PLAN_BYTES)
            paths[NAME.read("algorithm", PLAN + Path(path).name)] = without_digest(path)
        else:
            paths[name] = ""
    register_plans(proven_plans({name: path for name, path in paths.items() if path}))
    return [*paths]


def plan_paths(cases: Iterable[Case]) -> dict[str, str]:
    """Return where the plans among the algorithms of cases are, by name: what a job file says of them."""
    return {case.algorithm: PLANS[case.algorithm].path for case in cases if case.algorithm in PLANS}


def register_plans(plans: Mapping[str, ProvenPlan]) -> None:
    """Register plans as algorithms of their collectives, by name; those that are registered stay."""
    PLANS.update(plans)
    for name, plan in plans.items():
        if name not in plan.call.collective.algorithms:
            _register(name, plan)


def _register(name: str, plan: ProvenPlan) -> None:
    def program(layout: Layout) -> tuple[Schedule, ...]:
        return tuple(replace(each, layout=layout) for each in plan.slices)

    p, program.__doc__ = plan.call.p, plan.sentence
    needs = [Requirement(f"{p} workers, as its plan has", lambda layout, _: layout.workers == p)]
    plan.call.collective(name, needs=needs, sizes=plan.sizes)(program)
