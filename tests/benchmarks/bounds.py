"""The least time that the wires of a testbed leave a schedule: the bytes of its busiest wire over what that carries."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from hpccoll.cases.case import Case
from hpccoll.cases.catalogue import call_of, own_parameters
from hpccoll.schedule import Cut, Layout, collective, match, numbering


def bound_s(
    case: Case, layout: Layout, params: Mapping[str, Any], marker: Mapping[str, Any]
) -> float:
    """Return the seconds that the busiest wire takes for an operation, of a node or of a rack, in or out."""
    mapped = layout.subset(numbering(layout, case.mapping)) if case.mapping else layout
    call = call_of(case, layout.workers)
    family = collective(case.collective)
    slices = call.slices(family.algorithm(case.algorithm), mapped, **own_parameters(case))
    itemsize = np.dtype(case.dtype).itemsize
    elements = family.elements(case.bytes, itemsize, layout.workers)
    cut = Cut(call, elements, slices[0].units, len(slices) * int(params["channels"]), itemsize)
    node, rack = np.array(mapped.node), np.array(mapped.rack)
    metered = set(mapped.node[: mapped.workers])  # the wires of aggregators have no meter
    carried = {
        "node": {n: np.zeros(2) for n in metered},
        "rack": {r: np.zeros(2) for r in {*mapped.rack}},
    }
    for lane in range(cut.lanes):
        for m in (m for matched in match(slices[lane % len(slices)]) for m in matched.sent):
            nbytes = cut.lengths(lane, m.sent, m.source) * itemsize
            for tier, place in (("node", node), ("rack", rack)):
                away = place[m.source] != place[m.target]
                for way, ends in enumerate((m.source, m.target)):
                    for wire, amount in zip(place[ends[away]], nbytes[away], strict=True):
                        if wire in carried[tier]:
                            carried[tier][wire][way] += amount
    rates = {"node": marker["wire_Bps"], "rack": marker.get("uplink_Bps")}
    return max(
        wire.max() / rate for tier, rate in rates.items() if rate for wire in carried[tier].values()
    )
