"""Nodes that do not answer: found by a second partner, and left out of what is measured."""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from hpccoll.diagnosis.matchings import Pair, pair_up, random_matchings, sweep_length
from hpccoll.diagnosis.slot_records import (
    OF_A_RACK,
    Component,
    Diagnosis,
    Fault,
    Floats,
    Integers,
    Kind,
    Procedure,
    Slots,
)

MOST_MISSES = 3
"""How often a pair may miss its deadline, although both nodes answer to others, until its link is a fault."""


class AnsweringNodes:
    """The nodes and links of a machine that have answered so far.

    Args:
        nodes: how many there are.
        rails: on how many rails.
        rng: draws pairs of silent nodes.
    """

    def __init__(self, nodes: int, rails: int, rng: np.random.Generator) -> None:
        self._nodes = nodes
        self._rails = rails
        self._rng = rng
        self._living = np.arange(nodes)
        self._misses = Counter[Pair]()  # by pair of endpoints
        self._faults: list[Fault] = []
        self._slots = 0

    def diagnose(self, start: Callable[[Integers], Procedure[Diagnosis]]) -> Procedure[Diagnosis]:
        """Run a procedure on the nodes that answer, from its beginning whenever one or a link is found that does not.

        Args:
            start: begins the procedure with some nodes, which it numbers from 0 on.
        """
        diagnosis = None
        while diagnosis is None and len(self._living) > 1:
            diagnosis = yield from self._attempt(start(self._living))
        if diagnosis is None:
            diagnosis = Diagnosis((), 0, math.nan, math.inf)
        elif len(self._living) < self._nodes:
            diagnosis = self._renumbered(diagnosis)
        hung = sum(fault.component.kind == "hung" for fault in self._faults)
        return replace(
            diagnosis,
            faults=(*self._faults, *diagnosis.faults),
            slots=self._slots,
            too_many=diagnosis.too_many or hung > max(1, self._nodes // 4),
        )

    def _attempt(self, procedure: Procedure[Diagnosis]) -> Procedure[Diagnosis | None]:
        """Run a procedure to its end, and return its diagnosis; None if a pair has not answered."""
        first = np.arange(self._rails)[:, None] * self._nodes  # of each rail
        endpoints = (first + self._living).ravel()
        try:
            requested = next(procedure)
            while True:
                partners = self._on_all_endpoints(requested.partners, endpoints)
                self._separate_dead_links(partners)
                times = yield from self._measure(Slots(partners, requested.purpose))
                if np.isinf(times).any():
                    yield from self._find_silent(partners[: len(times)], times)
                    return None
                requested = procedure.send(
                    times if len(self._living) == self._nodes else times[:, endpoints]
                )
        except StopIteration as end:
            diagnosis: Diagnosis = end.value
            return diagnosis

    def _on_all_endpoints(self, partners: Integers, endpoints: Integers) -> Integers:
        """Return slots of all endpoints from those of the ones that answer; the others rest."""
        if len(self._living) == self._nodes:
            return partners.copy()
        all_partners = np.tile(np.arange(self._nodes * self._rails), (len(partners), 1))
        all_partners[:, endpoints] = endpoints[partners]
        return all_partners

    def _separate_dead_links(self, partners: Integers) -> None:
        """Let the endpoints of links that are faults rest where slots pair them."""
        for (first, second), misses in self._misses.items():
            if misses >= MOST_MISSES:
                are_paired = partners[:, first] == second
                partners[are_paired, first] = first
                partners[are_paired, second] = second

    def _measure(self, slots: Slots) -> Procedure[Floats]:
        times = yield slots
        self._slots += len(times)
        return times

    def _find_silent(self, partners: Integers, times: Floats) -> Procedure[None]:
        """Find out which nodes of the pairs that missed their deadline in the last slot do not answer, on each rail."""
        hung: set[int] = set()
        for rail in range(self._rails):
            endpoints = slice(rail * self._nodes, (rail + 1) * self._nodes)
            pairs = _missed_pairs(
                partners[-1, endpoints] - rail * self._nodes, times[-1, endpoints]
            )
            pairs = [pair for pair in pairs if hung.isdisjoint(pair)]  # others are explained
            helpers = self._helpers(times[:, endpoints])
            silent, uncertain = yield from self._ask_again(rail, pairs, helpers)
            hung |= silent
            self._living = np.setdiff1d(self._living, [*silent, *uncertain])
            self._faults += [_endless("hung", (node,)) for node in sorted(silent)]
            if uncertain:
                candidates = tuple((Component("hung", (node,)),) for node in sorted(uncertain))
                fault = _endless("hung", (min(uncertain),))
                self._faults.append(replace(fault, candidates=candidates))
                continue
            for pair in pairs:
                if hung.isdisjoint(pair):
                    yield from self._ask_pair(rail, pair)

    def _helpers(self, times: Floats) -> list[int]:
        """Return nodes that have answered in slots with times [slots, nodes], or else those that have rested so far."""
        has_missed = np.isinf(times[-1])
        present = self._living[~has_missed[self._living]]
        answered = present[np.isfinite(times[:, present]).any(0)]
        helpers: list[int] = (answered if answered.size else present).tolist()
        return helpers

    def _ask_again(
        self, rail: int, pairs: list[Pair], helpers: list[int]
    ) -> Procedure[tuple[set[int], set[int]]]:
        """Return the nodes of pairs that do not answer to helpers either, and those for which no helper was found."""
        unclear = [node for pair in pairs for node in pair]
        silent: set[int] = set()
        while unclear:
            if not helpers:
                helpers = yield from self._find_helpers(rail, unclear)
                unclear = [node for node in unclear if node not in helpers]
            if not helpers:
                return silent, set(unclear)
            questioned = unclear[: len(helpers)]
            unclear = unclear[len(helpers) :]
            times = yield from self._ask(rail, questioned, helpers)
            silent.update(node for node in questioned if np.isinf(times[node]))
            helpers = [*helpers, *(node for node in questioned if node not in silent)]
        return silent, set()

    def _find_helpers(self, rail: int, nodes: list[int]) -> Procedure[list[int]]:
        """Return the nodes that answer one another in the first slot in which any do; empty if none ever does."""
        for matching in random_matchings(len(nodes), sweep_length(len(nodes)), self._rng):
            times = yield from self._ask(rail, nodes, [nodes[number] for number in matching])
            answering = [node for node in nodes if np.isfinite(times[node])]
            if answering:
                return answering
        return []

    def _ask_pair(self, rail: int, pair: Pair) -> Procedure[None]:
        """Ask a pair whose nodes answer to others, until it answers, or its link is a fault."""
        name = (pair[0] + rail * self._nodes, pair[1] + rail * self._nodes)
        missed = True
        while missed and self._misses[name] < MOST_MISSES:
            self._misses[name] += 1
            times = yield from self._ask(rail, [pair[0]], [pair[1]])
            missed = bool(np.isinf(times).any())
        if missed:
            self._faults.append(_endless("link", pair, rail if self._rails > 1 else None))

    def _ask(self, rail: int, nodes: list[int], partners: list[int]) -> Procedure[Floats]:
        """Return the times [nodes] of pairs on a rail, in one slot: of as many as the shorter list has."""
        first = rail * self._nodes
        rail_endpoints = slice(first, first + self._nodes)
        slot = np.arange(self._nodes * self._rails)
        slot[rail_endpoints] = first + pair_up(
            self._nodes, list(zip(nodes, partners, strict=False))
        )
        times = yield from self._measure(Slots(slot[None], "hung"))
        return times[0, rail_endpoints]

    def _renumbered(self, diagnosis: Diagnosis) -> Diagnosis:
        """Return a diagnosis with the numbers that nodes have on the whole machine."""
        effects = tuple(
            replace(effect, component=self._component(effect.component))
            for effect in diagnosis.effects
        )
        faults = []
        for fault in diagnosis.faults:
            candidates = tuple(
                tuple(map(self._component, explanation)) for explanation in fault.candidates
            )
            faults.append(
                replace(fault, component=self._component(fault.component), candidates=candidates)
            )
        return replace(diagnosis, faults=tuple(faults), effects=effects)

    def _component(self, component: Component) -> Component:
        if component.kind in OF_A_RACK:
            return component
        nodes = self._living[list(component.where)].tolist()
        return replace(component, where=tuple(nodes))


def _missed_pairs(partners: Integers, times: Floats) -> list[Pair]:
    """Return the pairs of a slot [nodes] that missed their deadline."""
    missed = np.flatnonzero(np.isinf(times)).tolist()
    return [(node, int(partners[node])) for node in missed if node < partners[node]]


def _endless(kind: Kind, where: tuple[int, ...], rail: int | None = None) -> Fault:
    """Return a fault whose transfers do not end."""
    return Fault(
        Component(kind, where, rail), effect=math.inf, low=math.inf, high=math.inf, chance=0.0
    )
