"""The procedure of a diagnosis, written once: for ranks, for a simulated machine, and for recorded slots."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from hpccoll.diagnosis.accused_nodes import join_sharing, mark_fast_alone
from hpccoll.diagnosis.cluster import Cluster
from hpccoll.diagnosis.contention import divided, is_contended
from hpccoll.diagnosis.fitted_effects import fit_effects
from hpccoll.diagnosis.hung_nodes import AnsweringNodes
from hpccoll.diagnosis.link_faults import (
    find_link_faults,
    find_slow_pairs,
    measure_other_pairs,
    smallest_link_effect,
)
from hpccoll.diagnosis.matchings import Pair
from hpccoll.diagnosis.node_faults import find_node_faults
from hpccoll.diagnosis.rack_faults import find_rack_faults
from hpccoll.diagnosis.rails import diagnose_rails
from hpccoll.diagnosis.recorded import Question
from hpccoll.diagnosis.slot_records import Diagnosis, Floats, Integers, Procedure, Slots
from hpccoll.diagnosis.small_clusters import FEWEST_NODES_TO_FIT, diagnose_small
from hpccoll.diagnosis.transfers import measure_transfers

MOST_NODES_OF_ALL_PAIRS = 64
"""The most nodes whose single links are looked for by default."""


def diagnose(
    nodes: int,
    *,
    seed: int,
    racks: Sequence[int] | None = None,
    rails: int = 1,
    links: bool | None = None,
    expected_s: float | None = None,
) -> Procedure[Diagnosis]:
    """Diagnose a machine: yield slots to measure, and return what is slow.

    All that is random follows from the seed, and all that is yielded from that and the times that
    were sent: ranks that are sent the same times measure the same slots, and recorded times are
    replayed.

    1. Pairs that do not answer before their deadline: their nodes are asked by others
    (``hung_nodes``).
    2. The screen: random matchings, with few pairs across racks at once if racks are known
       (``matchings``), in several slots each if pairs slow one another and racks are unknown
       (``contention``).
    3. Effects of nodes from a model (``fitted_effects``).
    4. Racks and uplinks first, whose effects are subtracted (``rack_faults``).
    5. Nodes that stand out are measured again, and this retest alone decides (``node_faults``).
    6. Slow nodes among themselves, and alone (``accused_nodes``).
    7. Pairs that are slower than their nodes, after those that the screen left out, if links are
       looked for (``link_faults``).

    Rails are diagnosed beside each other (``rails``); two to seven nodes by hypotheses
    (``small_clusters``).

    Args:
        nodes: how many there are, two at least.
        seed: of the random numbers.
        racks: of each node, the number of its rack; None if racks are unknown.
        rails: how many ports each node has; each transfers to the same port of other nodes.
        links: whether to look for single slow links, which takes as many slots as nodes; None: up
            to MOST_NODES_OF_ALL_PAIRS nodes. It is not done where pairs slow one another.
        expected_s: the usual time of a transfer in seconds, which a diagnosis of two or three nodes
            may need; None if it is unknown.

    Raises:
        ValueError: if there are fewer than two nodes, or the racks are not those of all nodes.
    """
    if nodes < 2:
        raise ValueError(f"a diagnosis takes two nodes at least: {nodes}")
    if racks is not None and len(racks) != nodes:
        raise ValueError(f"racks of {len(racks)} nodes: there are {nodes} nodes")
    rng = np.random.default_rng(seed)
    rack_of = np.zeros(nodes, np.int64) if racks is None else np.asarray(racks, np.int64)
    if links is None:
        links = nodes <= MOST_NODES_OF_ALL_PAIRS

    def start(living: Integers) -> Procedure[Diagnosis]:
        procedures = []
        for rng_of_rail in rng.spawn(rails):
            cluster = Cluster.of(rack_of[living], rng_of_rail, links=links, rails=rails)
            procedures.append(_diagnose_rail(cluster, expected_s))
        return diagnose_rails(procedures, len(living))

    return AnsweringNodes(nodes, rails, rng).diagnose(start)


def _diagnose_rail(cluster: Cluster, expected_s: float | None) -> Procedure[Diagnosis]:
    if cluster.nodes < FEWEST_NODES_TO_FIT:
        return (yield from diagnose_small(cluster, expected_s))
    at_once = cluster.links or not cluster.has_level_rounds
    return (yield from _diagnose_fitted(cluster, check_contention=at_once))


def _diagnose_fitted(cluster: Cluster, *, check_contention: bool = False) -> Procedure[Diagnosis]:
    slots = cluster.screen()
    screen = yield from measure_transfers(next(slots), "screen")
    fit = fit_effects(screen, cluster.racks)
    if check_contention and (
        yield from is_contended(cluster, fit, cluster.is_far(screen.partners))
    ):
        without_links = _diagnose_fitted(replace(cluster, links=False))
        if cluster.has_level_rounds:
            return (yield from without_links)
        return (yield from divided(without_links, cluster.rng))
    racks = yield from find_rack_faults(cluster, fit, screen)
    slow_pairs = set[Pair]()
    if cluster.links:
        slow_pairs = find_slow_pairs(fit, screen.partners)
    nodes = yield from find_node_faults(cluster, fit, racks, len(screen.partners), slow_pairs)
    faults = yield from join_sharing(cluster, racks, nodes.faults)
    faults = yield from mark_fast_alone(cluster, racks, faults, fit.noise)
    judged = racks.effects + nodes.effects
    if cluster.links:
        slow_pairs |= yield from measure_other_pairs(cluster, fit, slots)
        slow_links, links = yield from find_link_faults(
            cluster, fit, slow_pairs, nodes.nodes, nodes.retest
        )
        faults += slow_links
        judged += links
    smallest_of_links = math.inf
    if cluster.links:
        smallest_of_links = math.exp(smallest_link_effect(cluster, fit))
    return Diagnosis(
        faults=(*racks.faults, *faults),
        slots=0,
        noise=fit.noise,
        smallest_effect=math.exp(nodes.smallest_effect),
        too_many=nodes.too_many,
        links=cluster.links,
        effects=judged,
        smallest_link_effect=smallest_of_links,
    )


def complete(procedure: Procedure[Diagnosis], measure: Callable[[Slots], Floats]) -> Diagnosis:
    """Run a procedure to its end with a function that measures slots."""
    try:
        slots = next(procedure)
        while True:
            slots = procedure.send(measure(slots))
    except StopIteration as end:
        diagnosis: Diagnosis = end.value
        return diagnosis


def ask(question: Question, measure: Callable[[Slots], Floats]) -> Diagnosis:
    """Return the answer to a question by a function that measures slots, or knows their times."""
    procedure = diagnose(
        len(question.hosts),
        seed=question.seed,
        racks=question.rack_numbers,
        rails=question.rails,
        links=question.links,
        expected_s=question.expected_s,
    )
    return complete(procedure, measure)
