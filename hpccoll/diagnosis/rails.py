"""Several rails: each is diagnosed as a machine of its own, all in the same slots."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import get_args

import numpy as np

from hpccoll.diagnosis.records import Component, Diagnosis, Fault, Procedure, Purpose, Slots
from hpccoll.diagnosis.transfers import DIRECTIONS


def diagnose_rails(procedures: Sequence[Procedure[Diagnosis]], nodes: int) -> Procedure[Diagnosis]:
    """Advance the procedures of all rails together: slots of one purpose at once, the earliest; other rails rest.

    A node that is slow on several rails is a slow node; on one, a slow rail.
    """
    if len(procedures) == 1:
        return (yield from procedures[0])
    asked = {rail: next(procedure) for rail, procedure in enumerate(procedures)}
    found: dict[int, Diagnosis] = {}
    while asked:
        purpose = min((slots.purpose for slots in asked.values()), key=get_args(Purpose).index)
        now = {rail: slots for rail, slots in asked.items() if slots.purpose == purpose}
        count = max(len(slots.partners) for slots in now.values())
        partners = np.tile(np.arange(nodes * len(procedures)), (count, 1))
        for rail, slots in now.items():
            partners[: len(slots.partners), rail * nodes : (rail + 1) * nodes] = slots.partners + rail * nodes
        times = yield Slots(partners, purpose)
        for rail, slots in now.items():
            try:
                mine = times[: len(slots.partners), rail * nodes : (rail + 1) * nodes]
                asked[rail] = procedures[rail].send(mine)
            except StopIteration as end:
                found[rail] = end.value
                del asked[rail]
    return _merged(found)


def _merged(found: Mapping[int, Diagnosis]) -> Diagnosis:
    by_place = defaultdict[tuple[object, ...], dict[int, Fault]](dict)
    for rail, diagnosis in sorted(found.items()):
        for fault in diagnosis.faults:
            kind = "node" if fault.component.kind in DIRECTIONS else fault.component.kind
            by_place[kind, fault.component.where][rail] = fault
    return Diagnosis(
        faults=tuple(map(_of_rails, by_place.values())),
        slots=0,
        noise=max(each.noise for each in found.values()),
        smallest_effect=max(each.smallest_effect for each in found.values()),
        smallest_link_effect=max(each.smallest_link_effect for each in found.values()),
        too_many=any(each.too_many for each in found.values()),
        links=all(each.links for each in found.values()),
        effects=tuple(
            replace(each, component=replace(each.component, rail=rail))
            for rail, diagnosis in sorted(found.items())
            for each in diagnosis.effects
        ),
    )


def _of_rails(faults: Mapping[int, Fault]) -> Fault:
    """Return the fault of a component on the rails that have it: the strongest one, by its kind on all of them."""
    strongest = max(faults.values(), key=lambda fault: fault.effect)
    if len(faults) > 1:
        kinds = {fault.component.kind for fault in faults.values()}
        component = strongest.component if len(kinds) == 1 else replace(strongest.component, kind="node")
        return replace(strongest, component=component)
    (rail,) = faults

    def on_rail(component: Component) -> Component:
        return replace(component, rail=rail, kind="rail" if component.kind in DIRECTIONS else component.kind)

    candidates = tuple(tuple(map(on_rail, each)) for each in strongest.candidates)
    return replace(strongest, component=on_rail(strongest.component), candidates=candidates)
