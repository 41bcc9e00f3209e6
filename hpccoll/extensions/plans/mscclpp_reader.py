"""Reader of plans of MSCCL++: each plan is proven, and becomes a schedule of ours.

It runs at the sizes that the plan is for. Packets, pipelines and the multicast of a switch are not
read.
"""

import json
from dataclasses import replace
from typing import NamedTuple

from hpccoll.cases.algorithm_files import AlgorithmFormat
from hpccoll.cases.algorithm_registry import COLLECTIVES
from hpccoll.common.errors import BadInputError, UnusableError
from hpccoll.common.files import parse_json
from hpccoll.common.limits import RANKS
from hpccoll.common.units import format_size
from hpccoll.extensions.plans.mscclpp_events import Json, PlanRun, reading
from hpccoll.extensions.plans.mscclpp_lift import lifted
from hpccoll.extensions.plans.mscclpp_order import proven_moves
from hpccoll.extensions.plans.mscclpp_plan import ALIGNMENT, PLAN_NAMES, largest_message
from hpccoll.schedule import CollectiveCall, Layout, Requirement, Schedule

PROTOCOLS = "Simple", "LL"
"""Those of MSCCL++. With LL the executor only makes scratch twice as large, for the packets."""


class ProvenPlan(NamedTuple):
    """A plan that is proven: the collective that it runs, as schedules of ours."""

    collective: str
    slices: tuple[Schedule, ...]
    sizes: tuple[int, int]  # the smallest and the largest message, in bytes
    multiple: int  # MSCCL++ only runs messages whose bytes are a multiple of this
    relaxed: bool  # whether a relaxed wait is to see what was written before the run

    @property
    def call(self) -> CollectiveCall:
        """The call that it runs."""
        return COLLECTIVES[self.collective].call(self.layout.workers)

    @property
    def layout(self) -> Layout:
        """The ranks that it is for."""
        return self.slices[0].layout

    @property
    def sentence(self) -> str:
        """What it is for, and on which condition it is right."""
        least, most = self.sizes
        end = min(f"to {format_size(most)}", f"below {format_size(most + 1)}", key=len)
        begin = f"from {format_size(least)} " if least else ""
        sizes = f"multiples of {format_size(self.multiple)} {begin}{end}"
        condition = ""
        if self.relaxed:
            condition = " if relaxed waits see what was written before the run"
        return f"A plan of MSCCL++ for {sizes}, right in every order of execution{condition}."

    def register(self, name: str) -> None:
        """Register it as an algorithm of its collective, unless the collective has registered one of this name."""
        p, family = self.call.p, self.call.collective
        if family.has_registered(name):
            return

        def program(layout: Layout) -> tuple[Schedule, ...]:
            return tuple(replace(schedule, layout=layout) for schedule in self.slices)

        program.__doc__ = self.sentence
        needs = [
            Requirement(f"{p} workers, as its plan has", lambda layout, _: layout.workers == p)
        ]
        family(name, needs=needs, sizes=self.sizes)(program)


def proven(where: str, text: str) -> ProvenPlan:
    """Return the plan in a JSON text, proven.

    Raises:
        UnusableError: if the text is not a plan, has what is not read (packets, multicast), is
            wrong in some order of execution, or is right and no schedule of ours; names rank,
            thread block and unit.
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
        raise UnusableError(
            "plan", "it has the form of before August 2025 (inputChunks), which hpccoll cannot read"
        )
    if content["collective"] not in names:
        raise UnusableError(
            "collective", f"{content['collective']!r} is not valid; valid: {', '.join(names)}"
        )
    if content["protocol"] not in PROTOCOLS:
        raise BadInputError("protocol", content["protocol"], PROTOCOLS)
    RANKS.check("gpus", len(content["gpus"]))
    defaults = {"min_message_size": 0, "max_message_size": 2**64 - 1, "buffer_alignment": ALIGNMENT}
    least, most, alignment = (content.get(key, default) for key, default in defaults.items())
    for key, value in zip(defaults, (least, most, alignment), strict=True):
        if type(value) is not int or value < 0:  # true is an int, too
            raise UnusableError(key, f"{json.dumps(value)} is not a whole number of bytes")
    if type(content["inplace"]) is not bool:
        raise UnusableError(
            "inplace", f"{json.dumps(content['inplace'])} is neither true nor false"
        )
    run = PlanRun(content, COLLECTIVES[names[content["collective"]]].call(len(content["gpus"])))
    chunks = run.units * run.lanes // run.pieces
    scratch = max(gpu["scratch_chunks"] for gpu in run.gpus)
    most = min(most, largest_message(chunks, run.gpus))
    # a larger chunk overlaps the next one in its scratch of 64 MiB
    if content.get("reuse_resources") and scratch:
        most = min(most, chunks * (1 << 26) // scratch)
    if least > most:
        raise UnusableError(
            "plan",
            f"its smallest message has {least} bytes, and the largest that it can run {most}",
        )
    # a group of thread blocks shares its chunks by the alignment
    multiple = alignment * run.units * run.lanes
    slices = lifted(run, proven_moves(run))
    return ProvenPlan(run.call.collective.name, slices, (least, most), multiple, run.relaxed)


def begins_as_json(text: str) -> bool:
    """Return whether a text begins as JSON does, which may have a byte order mark."""
    return text.lstrip().startswith(("{", "[", "\ufeff"))


PLAN_FORMAT = AlgorithmFormat(
    name="a plan of MSCCL++",
    suffix=".json",
    valid="a plan of MSCCL++ (JSON); MSCCL's XML and GOAL are not read",
    recognises=begins_as_json,
    read=proven,
)
