"""Finds the cases that are skipped in a variant, because its settings have no effect on them or are not supported.

Plans leave such cases out, and launches by hand skip them: every row with the name of a variant was affected by it.
"""

import re
from collections.abc import Mapping

from hpccoll.cases.case import Case, Shape
from hpccoll.cases.communicator_settings import COMMUNICATOR_SETTINGS
from hpccoll.cases.planned_schedule import smallest_message
from hpccoll.cases.variants import NodeView, named_variants
from hpccoll.schedule import Layout
from hpccoll.schedule.collective import AUTO, NATIVE

COLLECTIVE_VARIABLES = re.compile(
    r"NCCL_(ALGO|PROTO|COLLNET_ENABLE|NVLS_ENABLE|SHARP_DISABLE)"
    r"|(SHARP_COLL|UCC|HCOLL|OMPI_MCA_coll)_\w+|MV[P2]_ENABLE_SHARP"
)
"""The variables that affect a library's own collectives only, and not the sends and receives of our schedules.

The protocol of NCCL's sends and receives depends on NCCL_P2P_LL_THRESHOLD instead (addP2pToPlan in src/enqueue.cc,
2.20.5 to 2.30.7).
"""


def planned_nodes(shape: Shape, nvlink_nodes: int) -> NodeView:
    """Return the nodes of a launch as NCCL counts them, if it fills one NVLink domain after the other.

    Args:
        shape: the shape of the launch.
        nvlink_nodes: the hosts of an NVLink domain.
    """
    return NodeView.of(-(-shape.nodes // nvlink_nodes), min(shape.nodes, nvlink_nodes) * shape.ranks_per_node)


def variant_skip_reason(
    variant: str | None,
    sets: Mapping[str, object],
    case: Case,
    shape: Shape,
    layout: Layout,
    nccl: NodeView | None = None,
) -> str | None:
    """Return the reason why ``case`` is skipped in a variant, None if it is measured.

    Args:
        variant: the name of a known variant or of one of the sweep, None for no variant.
        sets: the environment variables and communicator settings of the variant.
        case: the case as requested, which can run.
        shape: the shape of its launch.
        layout: the layout of its ranks.
        nccl: its nodes as NCCL counts them; None if unknown: any number of its hosts may be of one NVLink domain.
    """
    if variant is None or case.algorithm == AUTO:
        return None
    known = named_variants().get(variant)
    nccls = bool(sets) and all(name.startswith("NCCL_") or name in COMMUNICATOR_SETTINGS for name in sets)
    over = known.transport if known else "nccl" if nccls else None
    if over and (over == "nccl") != (case.transport == "nccl"):
        return f"{variant}: its settings affect cases over {over}, not over {case.transport}"
    schedule = case.algorithm != NATIVE
    if schedule and sets and all(map(_of_collectives, sets)):
        return f"{variant}: the variant affects the library's own collectives only"
    if known is None:
        return None
    known = known.with_added(sets)
    view = NodeView.of(shape.nodes, shape.ranks_per_node)
    if known.transport == "nccl":
        view = nccl or NodeView((1, shape.nodes), (shape.ranks_per_node, shape.ranks))
    message = smallest_message(case, layout) if known.limits_messages else None
    own_call = not schedule and case.transport == known.transport  # over staged, the call is MPI's on host memory
    reason = (
        known.violation(case.collective, case.dtype, case.op, view, message)
        if own_call
        else known.violation_of_schedule(view, message)
    )
    return f"{variant}: {reason}" if reason else None


def _of_collectives(name: str) -> bool:
    return (
        COMMUNICATOR_SETTINGS[name].library_only
        if name in COMMUNICATOR_SETTINGS
        else bool(COLLECTIVE_VARIABLES.fullmatch(name))
    )
