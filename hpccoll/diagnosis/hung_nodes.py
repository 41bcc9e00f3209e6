"""Nodes that do not answer: found by a second partner, and left out of what is measured."""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from hpccoll.diagnosis.matchings import Pair, pair_up, random_matchings, sweep_length
from hpccoll.diagnosis.records import (
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
        self._nodes, self._rails, self._rng = nodes, rails, rng
        self._living = np.arange(nodes)
        self._misses = Counter[Pair]()  # by pair of endpoints
        self._faults: list[Fault] = []
        self._slots = 0

    def diagnose(self, start: Callable[[Integers], Procedure[Diagnosis]]) -> Procedure[Diagnosis]:
        """Run a procedure on the nodes that answer, from its beginning whenever one or a link is found that does not.

        Args:
            start: begins the procedure with some nodes, which it numbers from 0 on.
        """
        while len(self._living) > 1:
            found = yield from self._attempt(start(self._living))
            if found is not None:
                if len(self._living) < self._nodes:
                    found = self._renumbered(found)
                break
        else:
            found = Diagnosis((), 0, math.nan, math.inf)
        hung = sum(fault.component.kind == "hung" for fault in self._faults)
        too_many = found.too_many or hung > max(1, self._nodes // 4)
        return replace(found, faults=(*self._faults, *found.faults), slots=self._slots, too_many=too_many)

    def _attempt(self, procedure: Procedure[Diagnosis]) -> Procedure[Diagnosis | None]:
        """Run a procedure to its end, and return its diagnosis; None if a pair has not answered."""
        endpoints = (np.arange(self._rails)[:, None] * self._nodes + self._living).ravel()
        try:
            asked = next(procedure)
            while True:
                partners = self._on_all_endpoints(asked.partners, endpoints)
                for one, other in self._dead_links:
                    together = partners[:, one] == other
                    partners[together, one], partners[together, other] = one, other
                times = yield from self._measure(Slots(partners, asked.purpose))
                if np.isinf(times).any():
                    yield from self._find_silent(partners[: len(times)], times)
                    return None
                asked = procedure.send(times if len(self._living) == self._nodes else times[:, endpoints])
        except StopIteration as end:
            diagnosis: Diagnosis = end.value
            return diagnosis

    def _on_all_endpoints(self, partners: Integers, endpoints: Integers) -> Integers:
        """Return slots of all endpoints from those of the ones that answer; the others rest."""
        if len(self._living) == self._nodes:
            return partners.copy()
        of_all = np.tile(np.arange(self._nodes * self._rails), (len(partners), 1))
        of_all[:, endpoints] = endpoints[partners]
        return of_all

    @property
    def _dead_links(self) -> list[Pair]:
        return [pair for pair, count in self._misses.items() if count >= MOST_MISSES]

    def _measure(self, slots: Slots) -> Procedure[Floats]:
        times = yield slots
        self._slots += len(times)
        return times

    def _find_silent(self, partners: Integers, times: Floats) -> Procedure[None]:
        """Find out which nodes of the pairs that missed their deadline in the last slot do not answer, on each rail."""
        hung: set[int] = set()
        for rail in range(self._rails):
            mine = slice(rail * self._nodes, (rail + 1) * self._nodes)
            missed = np.isinf(times[-1, mine])
            mates = partners[-1, mine] - rail * self._nodes
            pairs = [(a, int(mates[a])) for a in np.flatnonzero(missed).tolist() if a < mates[a]]
            pairs = [pair for pair in pairs if hung.isdisjoint(pair)]  # others are explained
            others = self._living[~missed[self._living]]
            answered = others[np.isfinite(times[:, mine][:, others]).any(0)]
            helpers = answered if answered.size else others  # these have rested so far
            silent, uncertain = yield from self._ask_again(rail, pairs, helpers.tolist())
            hung |= silent
            self._living = np.setdiff1d(self._living, [*silent, *uncertain])
            self._faults += [_endless("hung", (node,)) for node in sorted(silent)]
            if uncertain:
                alike = tuple((Component("hung", (node,)),) for node in sorted(uncertain))
                self._faults.append(replace(_endless("hung", alike[0][0].where), candidates=alike))
            for pair in pairs:
                if hung.isdisjoint(pair) and not uncertain:
                    yield from self._ask_pair(rail, pair)

    def _ask_again(self, rail: int, pairs: list[Pair], helpers: list[int]) -> Procedure[tuple[set[int], set[int]]]:
        """Return the nodes of pairs that do not answer to helpers either, and those for which none was found."""
        unclear = [node for pair in pairs for node in pair]
        silent: set[int] = set()
        while unclear:
            if not helpers:
                for matching in random_matchings(len(unclear), sweep_length(len(unclear)), self._rng):
                    times = yield from self._ask(rail, unclear, [unclear[k] for k in matching])
                    helpers = [node for node in unclear if np.isfinite(times[node])]
                    if helpers:
                        break
                else:
                    return silent, set(unclear)
                unclear = [node for node in unclear if node not in helpers]
            asked, unclear = unclear[: len(helpers)], unclear[len(helpers) :]
            times = yield from self._ask(rail, asked, helpers)
            silent.update(node for node in asked if np.isinf(times[node]))
            helpers = [*helpers, *(node for node in asked if node not in silent)]
        return silent, set()

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

    def _ask(self, rail: int, one: list[int], other: list[int]) -> Procedure[Floats]:
        """Return the times [nodes] of pairs on a rail, in one slot."""
        first, partners = rail * self._nodes, np.arange(self._nodes * self._rails)
        mine = slice(first, first + self._nodes)
        partners[mine] = pair_up(self._nodes, [*zip(one, other, strict=False)]) + first
        times = yield from self._measure(Slots(partners[None], "hung"))
        return times[0, mine]

    def _renumbered(self, found: Diagnosis) -> Diagnosis:
        """Return a diagnosis with the numbers that nodes have on the whole machine."""
        named = self._component
        effects = tuple(replace(each, component=named(each.component)) for each in found.effects)
        faults = (
            replace(
                each, component=named(each.component), candidates=tuple(tuple(map(named, c)) for c in each.candidates)
            )
            for each in found.faults
        )
        return replace(found, faults=tuple(faults), effects=effects)

    def _component(self, component: Component) -> Component:
        if component.kind in OF_A_RACK:
            return component
        return replace(component, where=tuple(self._living[[*component.where]].tolist()))


def _endless(kind: Kind, where: tuple[int, ...], rail: int | None = None) -> Fault:
    return Fault(Component(kind, where, rail), math.inf, math.inf, math.inf, 0.0)
