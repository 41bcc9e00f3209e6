"""What ``hpccoll show --format`` writes for LogGOPSim, and for MSCCL++."""

import math
from collections.abc import Iterator, Mapping

from hpccoll.cases.requested_schedule import RequestedOperation
from hpccoll.cli.schedule_formats import ScheduleFormat
from hpccoll.common.errors import BadInputError
from hpccoll.common.options import Option
from hpccoll.extensions.plans.goal import (
    MAX_FILE_BYTES,
    MAX_FOLD_COST,
    MAX_PRINTED_BYTES,
    goal_texts,
)
from hpccoll.extensions.plans.mscclpp_plan import plan_text

FOLD_COST = "--fold-cost"


def _goal(
    operation: RequestedOperation, options: Mapping[str, str], *, printed: bool
) -> Iterator[str]:
    schedules, cut, window, words = operation
    fold_cost = _fold_cost(options[FOLD_COST])
    comment = f"{words}, {cut.call.bytes(cut.count, cut.itemsize)} bytes"
    if printed:
        max_bytes = MAX_PRINTED_BYTES
    else:
        max_bytes = MAX_FILE_BYTES
    return goal_texts(
        schedules, cut, window=window, fold_cost=fold_cost, comment=comment, max_bytes=max_bytes
    )


def _fold_cost(text: str) -> float:
    try:
        cost = float(text)
    except ValueError:
        cost = math.nan
    if not 0 <= cost <= MAX_FOLD_COST:
        raise BadInputError(FOLD_COST, text, f"a number from 0 to {MAX_FOLD_COST:g}")
    return cost


def _mscclpp(
    operation: RequestedOperation,
    options: Mapping[str, str],  # noqa: ARG001 - the interface of a written format
    *,
    printed: bool,  # noqa: ARG001 - the same
) -> Iterator[str]:
    schedules, cut, window, words = operation
    return iter([plan_text(schedules, cut, window=window, name=words)])


GOAL = ScheduleFormat(
    name="goal",
    help="for LogGOPSim",
    texts=_goal,
    options=[
        Option(
            (FOLD_COST,), "time of a reduced byte, in the simulator's unit", "0.0", metavar="TIME"
        )
    ],
    about="With --format it is written for a simulator: choose picoseconds for its parameters and for --fold-cost.",
    examples=["hpccoll show ring -p 16 -b 1M --format goal --out ring.goal"],
)
MSCCLPP = ScheduleFormat(
    name="mscclpp",
    help="a plan of MSCCL++",
    texts=_mscclpp,
    about="A plan of MSCCL++ is proven in every order of execution, described and drawn; file:PLAN is the algorithm of "
    "its ranks in other commands.",
    examples=[
        "hpccoll show ring -p 8 -b 1M --format mscclpp --out ring.json",
        "hpccoll show ring.json",
    ],
)
