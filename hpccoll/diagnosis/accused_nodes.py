"""Slow nodes, measured once more: beside one another, and while the rest of the machine is silent."""

import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from hpccoll.diagnosis.cluster import Cluster
from hpccoll.diagnosis.controls import Controls
from hpccoll.diagnosis.matchings import beside_healthy, within_groups
from hpccoll.diagnosis.rack_faults import RackFaults
from hpccoll.diagnosis.significance import effect_error
from hpccoll.diagnosis.slot_records import Component, Fault, Integers, Procedure
from hpccoll.diagnosis.transfers import DIRECTIONS, measure_transfers

SLOTS_AMONG_THEMSELVES = 9
"""The slots in which slow nodes transfer to one another."""

LEAST_SHARING = 3
"""The slow nodes from which on they may share a slow link: what two share is the link between them and all others."""

SLOTS_ALONE = 5
"""The slots in which slow nodes transfer while others rest."""

CONTROLS_ALONE = 4
"""The most pairs that transfer beside slow nodes alone; one of 16 nodes, at least two."""

CERTAIN = 3
"""The standard errors below half of its effect at which a node alone is as fast as others."""


def join_sharing(
    cluster: Cluster, racks: RackFaults, faults: tuple[Fault, ...]
) -> Procedure[tuple[Fault, ...]]:
    """Replace slow nodes that are fast among themselves by the link that they share.

    A slow node is slow beside a slow node, too. Behind one slow uplink, whose racks are unknown,
    all nodes are slow to others, but fast among themselves.
    """
    if len(faults) < LEAST_SHARING:
        return faults
    slow = _nodes(faults)
    healthy = np.setdiff1d(np.arange(cluster.nodes), slow)
    partners = within_groups((slow, healthy), cluster.nodes, SLOTS_AMONG_THEMSELVES, cluster.rng)
    measured = yield from measure_transfers(partners, "accused")
    without_racks = measured.less(racks.added(partners))
    effects = Controls(without_racks, slow).effects[0]
    sharing = []
    for fault in faults:
        node = fault.component.where[0]
        if effects[node] < math.log(fault.effect) / 2:
            sharing.append(fault)
    if len(sharing) < LEAST_SHARING:
        return faults
    by_effect = sorted(sharing, key=lambda fault: fault.effect)
    middle = by_effect[len(sharing) // 2]
    members = tuple(sorted(_nodes(sharing).tolist()))
    shared = replace(middle, component=Component("shared_link", members))
    return (*(fault for fault in faults if fault not in sharing), shared)


def mark_fast_alone(
    cluster: Cluster, racks: RackFaults, faults: tuple[Fault, ...], noise: float
) -> Procedure[tuple[Fault, ...]]:
    """Mark slow nodes that are as fast as others while the rest of the machine is silent."""
    slow = _nodes(fault for fault in faults if fault.component.kind in DIRECTIONS)
    if not slow.size:
        return faults
    healthy = np.setdiff1d(np.arange(cluster.nodes), slow)
    all_pairs = beside_healthy(slow, healthy, cluster.racks, SLOTS_ALONE, cluster.rng)
    partners = _silenced(all_pairs, slow, min(CONTROLS_ALONE, max(2, cluster.nodes // 16)))
    measured = yield from measure_transfers(partners, "alone")
    controls = Controls(measured.less(racks.added(partners)), slow)
    error = effect_error(noise, SLOTS_ALONE, controls.pairs)
    alone = dict(zip(DIRECTIONS, controls.effects, strict=True))

    def is_fast(fault: Fault) -> bool:
        kind = fault.component.kind
        if kind not in alone:
            return False
        effect_alone = alone[kind][fault.component.where[0]]
        return bool(effect_alone + CERTAIN * error < math.log(fault.effect) / 2)

    return tuple(replace(fault, under_load_only=is_fast(fault)) for fault in faults)


def _nodes(faults: Iterable[Fault]) -> Integers:
    nodes: list[int] = []
    for fault in faults:
        nodes += fault.component.where
    return np.array(nodes, np.int64)


def _silenced(partners: Integers, kept: Integers, controls: int) -> Integers:
    """Return slots without pairs other than those of some nodes, and a few controls."""
    nodes = np.arange(partners.shape[1])
    lower = np.minimum(nodes, partners)  # the name of a pair
    is_kept = np.isin(nodes, kept) | np.isin(partners, kept)
    can_control = ~is_kept & (nodes < partners)
    is_lower_of_control = can_control & (np.cumsum(can_control, axis=1) <= controls)
    is_control = np.take_along_axis(is_lower_of_control, lower, 1)
    return np.where(is_kept | is_control, partners, nodes)
