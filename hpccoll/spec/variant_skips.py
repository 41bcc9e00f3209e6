"""Varied: whether the variant of a job makes a difference to a case, and can be asked of the library for it.

A sweep leaves out what it says when it is planned, and a launch by hand skips it: a row never carries the name of a
variant that nothing stands behind.
"""

import re
from collections.abc import Mapping

from hpccoll.evidence.communicator_settings import COMMUNICATOR_SETTINGS
from hpccoll.evidence.variants import named_variants
from hpccoll.schedule.collective import AUTO, NATIVE
from hpccoll.spec.case import Case, Shape

COLLECTIVE_VARIABLES = re.compile(
    r"NCCL_(ALGO|COLLNET_ENABLE|NVLS_ENABLE|SHARP_DISABLE)|(SHARP_COLL|UCC|HCOLL|OMPI_MCA_coll)_\w+|MV[P2]_ENABLE_SHARP"
)
"""Variables by which a library's own collectives go, and no sends and receives: of those are our schedules made."""


def variant_skip_reason(variant: str | None, sets: Mapping[str, object], case: Case, shape: Shape) -> str | None:
    """Return why ``case`` is not measured in a variant, or None where it is.

    Args:
        variant: by name; of the table, or the sweep's own. None: there is none.
        sets: the variables, and the settings of communicators, that it sets.
        case: as it is asked for.
        shape: that it runs on.
    """
    if variant is None or case.algorithm == AUTO:
        return None
    known = named_variants().get(variant)
    nccls = bool(sets) and all(name.startswith("NCCL_") or name in COMMUNICATOR_SETTINGS for name in sets)
    over = known.transport if known else "nccl" if nccls else None
    if over and (over == "nccl") != (case.transport == "nccl"):
        return f"{variant}: what it sets is for what goes over {over}, not over {case.transport}"
    if case.algorithm != NATIVE:
        alone = bool(sets) and all(map(_of_collectives, sets))
        return f"{variant}: only the library's own collectives go by what it sets" if alone else None
    if known is None or case.transport != known.transport:
        return None
    reason = known.limits.violation(case.collective, case.dtype, case.op, shape.nodes, shape.ranks_per_node)
    return f"{variant}: {reason}" if reason else None


def _of_collectives(name: str) -> bool:
    return (
        COMMUNICATOR_SETTINGS[name].library_only
        if name in COMMUNICATOR_SETTINGS
        else bool(COLLECTIVE_VARIABLES.fullmatch(name))
    )
