"""The effects of all nodes, links and racks that were judged, the most noticeable ones first."""

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal, TypeAlias, get_args

from hpccoll.diagnosis.records import Component, Diagnosis, JudgedEffect, Kind
from hpccoll.diagnosis.transfers import DIRECTIONS

MOST_RANKED = 20
"""The effects that a page shows of a subject; others are counted."""

Subject: TypeAlias = Literal["node", "link", "rack"]
ORDER: tuple[Subject, ...] = get_args(Subject)
SUBJECTS: Mapping[Kind, Subject] = {
    "node": "node", "send": "node", "receive": "node", "rail": "node", "hung": "node", "shared_link": "node",
    "link": "link", "uplink": "rack", "rack": "rack",
}  # fmt: skip
"""What is slow if there is a fault of a kind."""

_Place: TypeAlias = tuple[Subject, tuple[int, ...], int | None]

Outcome: TypeAlias = Literal["slow", "above", "within"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
"""slow: the verdict names it; above: it exceeds its threshold, but another fault explains it, or it was not measured
again; within: it does not exceed its threshold. The gravest is first."""


@dataclass(frozen=True, slots=True)
class RankedEffect:
    """The effects of a node, a link or a rack, by the kinds of its faults."""

    where: tuple[int, ...]
    rail: int | None  # None if the machine has one
    named: frozenset[Kind]  # the kinds of effects that the verdict names
    screened: Mapping[Kind, JudgedEffect]
    tested: Mapping[Kind, JudgedEffect]  # in the slots that decide; empty if the screen raised no suspicion

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
        return min(map(self.outcome_of, self.decisive), key=OUTCOMES.index)

    @property
    def is_decided(self) -> bool:
        """Whether its slots decide, and not only whether it is measured again."""
        return bool(self.tested) or self.outcome == "slow"


def rank_effects(diagnosis: Diagnosis) -> dict[Subject, list[RankedEffect]]:
    """Return the effects of nodes, links and racks: those that are slow, then those that were tested, by their excess.

    The excess is the largest effect over its threshold, of logarithms. Subjects of which something is slow come first.
    """
    faults = [each for fault in diagnosis.faults for each in chain((fault.component,), *fault.candidates)]
    named = defaultdict[_Place, set[Kind]](set)
    for each in faults:
        for where in _places(each):
            named[SUBJECTS[each.kind], where, each.rail].update(_named_kinds(each))
    by_place = defaultdict[_Place, dict[bool, dict[Kind, JudgedEffect]]](lambda: {False: {}, True: {}})
    for effect in diagnosis.effects:
        component = effect.component
        place = SUBJECTS[component.kind], component.where, component.rail
        by_place[place][effect.purpose != "screen"][component.kind] = effect
    ranked = defaultdict[Subject, list[tuple[bool, bool, float, RankedEffect]]](list)
    for (subject, where, rail), effects in by_place.items():
        screened, tested = effects.values()
        excess = max(map(_excess, (tested or screened).values()))
        kinds = frozenset(named[subject, where, rail] | named[subject, where, None])
        ranked_effect = RankedEffect(where, rail, kinds, screened, tested)
        ranked[subject].append((ranked_effect.outcome == "slow", bool(tested), excess, ranked_effect))
    first = sorted(ranked.items(), key=lambda item: (not any(slow for slow, *_ in item[1]), ORDER.index(item[0])))
    return {
        subject: [each for *_, each in sorted(entries, key=lambda entry: entry[:3], reverse=True)]
        for subject, entries in first
    }


def _places(component: Component) -> Sequence[tuple[int, ...]]:
    """Return the places of a component's subject: each node of several, both nodes of a link at once."""
    return [component.where] if component.kind == "link" else [(each,) for each in component.where]


def _named_kinds(component: Component) -> Collection[Kind]:
    """Return the kinds of the effects that a component explains: one direction, or all of its subject."""
    return (component.kind,) if component.kind in DIRECTIONS[1:] else SUBJECTS


def _excess(effect: JudgedEffect) -> float:
    return math.log(effect.effect) / math.log(effect.threshold) if math.isfinite(effect.effect) else -math.inf
