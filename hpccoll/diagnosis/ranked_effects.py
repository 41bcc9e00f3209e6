"""The effects of all nodes, links and racks that were judged, the most noticeable ones first."""

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal, TypeAlias, get_args

from hpccoll.diagnosis.slot_records import Component, Diagnosis, JudgedEffect, Kind
from hpccoll.diagnosis.transfers import DIRECTIONS

MOST_RANKED = 20
"""The effects that a page shows of a subject; others are counted."""

Subject: TypeAlias = Literal["node", "link", "rack"]
ORDER: tuple[Subject, ...] = get_args(Subject)
SUBJECTS: Mapping[Kind, Subject] = {
    "node": "node",
    "send": "node",
    "receive": "node",
    "rail": "node",
    "hung": "node",
    "shared_link": "node",
    "link": "link",
    "uplink": "rack",
    "rack": "rack",
}
"""What is slow if there is a fault of a kind."""

_Place: TypeAlias = tuple[Subject, tuple[int, ...], int | None]

Outcome: TypeAlias = Literal["slow", "above", "within"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
"""slow: the verdict names it; above: it exceeds its threshold, but another fault explains it, or it
was not measured again; within: it does not exceed its threshold. The gravest is first."""


@dataclass(frozen=True, slots=True)
class RankedEffect:
    """The effects of a node, a link or a rack, by the kinds of its faults."""

    where: tuple[int, ...]
    rail: int | None  # None if the machine has one
    named: frozenset[Kind]  # the kinds of effects that the verdict names
    screened: Mapping[Kind, JudgedEffect]
    # in the slots that decide; empty if the screen raised no suspicion
    tested: Mapping[Kind, JudgedEffect]

    @property
    def decisive(self) -> Mapping[Kind, JudgedEffect]:
        """The effects that decided."""
        return self.tested or self.screened

    def outcome_of(self, kind: Kind) -> Outcome:
        """Return what follows from the effect of a kind: of a node that sends slowly, what it receives may be usual."""
        if _excess(self.decisive[kind]) <= 1:
            return "within"
        return "slow" if kind in self.named else "above"

    @property
    def outcome(self) -> Outcome:
        """The gravest outcome of an effect."""
        outcomes = map(self.outcome_of, self.decisive)
        return min(outcomes, key=OUTCOMES.index)

    @property
    def excess(self) -> float:
        """The largest effect over its threshold, of logarithms."""
        return max(map(_excess, self.decisive.values()))

    @property
    def order(self) -> tuple[bool, bool, float]:
        """The sort key: what is slow, then what was tested, then by the excess, each from least to most."""
        return self.outcome == "slow", bool(self.tested), self.excess

    @property
    def is_decided(self) -> bool:
        """Whether its slots decide, and not only whether it is measured again."""
        return bool(self.tested) or self.outcome == "slow"


def rank_effects(diagnosis: Diagnosis) -> dict[Subject, list[RankedEffect]]:
    """Return the effects of nodes, links and racks: those that are slow, then those that were tested, by their excess.

    The excess is the largest effect over its threshold, of logarithms. Subjects with something slow
    come first.
    """
    named = _named_kinds_by_place(diagnosis)
    by_place = defaultdict[_Place, list[JudgedEffect]](list)
    for effect in diagnosis.effects:
        component = effect.component
        by_place[SUBJECTS[component.kind], component.where, component.rail].append(effect)
    ranked = defaultdict[Subject, list[RankedEffect]](list)
    for place, effects in by_place.items():
        subject, where, rail = place
        screened: dict[Kind, JudgedEffect] = {}
        tested: dict[Kind, JudgedEffect] = {}
        for effect in effects:
            if effect.purpose == "screen":
                screened[effect.component.kind] = effect
            else:
                tested[effect.component.kind] = effect
        kinds = frozenset(named[place] | named[subject, where, None])
        ranked[subject].append(RankedEffect(where, rail, kinds, screened, tested))
    for entries in ranked.values():
        entries.sort(key=lambda effect: effect.order, reverse=True)

    def order(subject: Subject) -> tuple[bool, int]:
        is_slow = ranked[subject][0].outcome == "slow"
        return not is_slow, ORDER.index(subject)

    return {subject: ranked[subject] for subject in sorted(ranked, key=order)}


def _named_kinds_by_place(diagnosis: Diagnosis) -> Mapping[_Place, set[Kind]]:
    """Return the kinds of effects of each place that faults and their candidates name."""
    named = defaultdict[_Place, set[Kind]](set)
    for fault in diagnosis.faults:
        for component in chain((fault.component,), *fault.candidates):
            for where in _places(component):
                place = SUBJECTS[component.kind], where, component.rail
                named[place].update(_named_kinds(component))
    return named


def _places(component: Component) -> Sequence[tuple[int, ...]]:
    """Return the places that a component concerns: a link is one place, otherwise every node is one."""
    if component.kind == "link":
        return [component.where]
    return [(number,) for number in component.where]


def _named_kinds(component: Component) -> Collection[Kind]:
    """Return the kinds of the effects that a component explains: one direction, or all of its subject."""
    if component.kind in DIRECTIONS[1:]:
        return (component.kind,)
    return SUBJECTS


def _excess(effect: JudgedEffect) -> float:
    if not math.isfinite(effect.effect):
        return -math.inf
    return math.log(effect.effect) / math.log(effect.threshold)
