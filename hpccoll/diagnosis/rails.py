"""Several rails: each is diagnosed as a machine of its own, all in the same slots."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import get_args

import numpy as np

from hpccoll.diagnosis.slot_records import (
    Component,
    Diagnosis,
    Fault,
    Kind,
    Procedure,
    Purpose,
    Slots,
)
from hpccoll.diagnosis.transfers import DIRECTIONS


def diagnose_rails(procedures: Sequence[Procedure[Diagnosis]], nodes: int) -> Procedure[Diagnosis]:
    """Advance the procedures of all rails together: slots of one purpose at once, the earliest; other rails rest.

    A node that is slow on several rails is a slow node; on one, a slow rail.
    """
    if len(procedures) == 1:
        return (yield from procedures[0])
    slots_of_rails = {rail: next(procedure) for rail, procedure in enumerate(procedures)}
    diagnoses: dict[int, Diagnosis] = {}
    while slots_of_rails:
        purpose = min(
            (slots.purpose for slots in slots_of_rails.values()), key=get_args(Purpose).index
        )
        current = {
            rail: slots for rail, slots in slots_of_rails.items() if slots.purpose == purpose
        }
        times = yield _beside_each_other(current, purpose, nodes, len(procedures))
        for rail, slots in current.items():
            times_of_rail = times[: len(slots.partners), rail * nodes : (rail + 1) * nodes]
            try:
                slots_of_rails[rail] = procedures[rail].send(times_of_rail)
            except StopIteration as end:
                diagnoses[rail] = end.value
                del slots_of_rails[rail]
    return _merged(diagnoses)


def _beside_each_other(
    by_rail: Mapping[int, Slots], purpose: Purpose, nodes: int, rails: int
) -> Slots:
    """Return the slots of some rails as slots of all endpoints."""
    count = max(len(slots.partners) for slots in by_rail.values())
    partners = np.tile(np.arange(nodes * rails), (count, 1))
    for rail, slots in by_rail.items():
        first = rail * nodes
        partners[: len(slots.partners), first : first + nodes] = slots.partners + first
    return Slots(partners, purpose)


def _merged(by_rail: Mapping[int, Diagnosis]) -> Diagnosis:
    """Return the diagnosis of a machine from those of its rails."""
    by_place = defaultdict[tuple[object, ...], dict[int, Fault]](dict)
    effects = []
    for rail, diagnosis in sorted(by_rail.items()):
        for fault in diagnosis.faults:
            kind = fault.component.kind
            if kind in DIRECTIONS:
                kind = "node"
            by_place[kind, fault.component.where][rail] = fault
        for effect in diagnosis.effects:
            component = replace(effect.component, rail=rail)
            effects.append(replace(effect, component=component))
    diagnoses = by_rail.values()
    faults = tuple(map(_of_rails, by_place.values()))
    noise = max(diagnosis.noise for diagnosis in diagnoses)
    smallest_effect = max(diagnosis.smallest_effect for diagnosis in diagnoses)
    smallest_link_effect = max(diagnosis.smallest_link_effect for diagnosis in diagnoses)
    return Diagnosis(
        faults=faults,
        slots=0,
        noise=noise,
        smallest_effect=smallest_effect,
        smallest_link_effect=smallest_link_effect,
        too_many=any(diagnosis.too_many for diagnosis in diagnoses),
        links=all(diagnosis.links for diagnosis in diagnoses),
        effects=tuple(effects),
    )


def _of_rails(faults: Mapping[int, Fault]) -> Fault:
    """Return the fault of a component on the rails that have it: the strongest one, by its kind on all of them."""
    strongest = max(faults.values(), key=lambda fault: fault.effect)
    if len(faults) > 1:
        kinds = {fault.component.kind for fault in faults.values()}
        if len(kinds) == 1:
            return strongest
        component = replace(strongest.component, kind="node")
        return replace(strongest, component=component)
    (rail,) = faults

    def on_rail(component: Component) -> Component:
        kind: Kind = "rail" if component.kind in DIRECTIONS else component.kind
        return replace(component, rail=rail, kind=kind)

    candidates = tuple(tuple(map(on_rail, explanation)) for explanation in strongest.candidates)
    return replace(strongest, component=on_rail(strongest.component), candidates=candidates)
