"""Why it is unknown which messages a measured operation has, or what they cost."""

from collections.abc import Collection, Sequence

from hpccoll.model.machine import TIER_LABELS
from hpccoll.model.observations import Observation
from hpccoll.schedule import Schedule
from hpccoll.store.schema import PEERS


def schedules_of(observation: Observation) -> Sequence[Schedule]:
    """Return the schedules of an observation, one for each slice of the vector; ValueError if they are unknown."""
    if observation.algorithm is None:
        raise ValueError("the library's own algorithm has no schedule")
    return observation.call.slices(
        observation.algorithm, observation.layout, **observation.own_parameters
    )


def other_peers_reason(observation: Observation) -> str:
    """Return why it is unknown which messages of an observation stay inside a node; nothing if it is known.

    On one node all do, and with one rank on each node none does, whichever ranks they go to.
    """
    layout = observation.layout
    if PEERS in observation.params and 1 < layout.nodes < layout.workers:
        return "its messages go to other ranks, some on the same node"
    return ""


def unmet_reason(observation: Observation) -> str:
    """Return which requirement of its algorithm an observation does not meet; nothing if it meets all.

    Another program may have an algorithm of this name that needs less.
    """
    algorithm = observation.algorithm
    unmet = None
    if algorithm is not None:
        unmet = algorithm.unmet(observation.layout, **observation.own_parameters)
    return unmet or ""


def several_schedules_reason(observation: Observation) -> str:
    """Return that an observation runs several schedules at once; nothing if it does not."""
    several = len(schedules_of(observation)) > 1
    return "it runs several schedules at once" if several else ""


def unknown_tiers_reason(observation: Observation, tiers: Collection[str]) -> str:
    """Return which of the tiers that an observation crosses are unknown, as a sentence; nothing if none is."""
    unknown_tiers = sorted(observation.tiers.difference(tiers))
    if unknown_tiers:
        where = " or ".join(TIER_LABELS[tier] for tier in unknown_tiers)
        return f"the run has no ping-pong {where} (a sweep's 'pairs: all' has all there are)"
    return ""
