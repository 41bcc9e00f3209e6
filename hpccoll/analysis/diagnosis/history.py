"""Diagnoses of one machine over days: what was accused in each, and what is slow again and again."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, Literal, TypeAlias

from hpccoll.analysis.diagnosis.recorded import RecordedDiagnosis
from hpccoll.analysis.diagnosis.transfers import DIRECTIONS
from hpccoll.analysis.diagnosis.verdict import MachineVerdict, NamedFault, Place, verdict_of

DAYS = 3
"""The days on which a place must have been slow to be called so."""

State: TypeAlias = Literal["slow", "hung", "candidate", "healthy", "absent", "undecided"]
"""What a diagnosis says of a place: a candidate is one of several that cannot be distinguished; a place is absent if a
host of it is; undecided are an interrupted diagnosis, and hosts that were not judged."""


@dataclass(frozen=True, slots=True)
class PastState:
    """What one diagnosis says of a place."""

    begun: str  # ISO 8601, UTC
    state: State
    effect: float | None  # how many times as long its transfers took, if it was slow or a candidate

    @property
    def day(self) -> str:
        """The day of the diagnosis."""
        return self.begun.partition("T")[0]

    def to_json(self) -> dict[str, Any]:
        """Return it as an element of ``diagnoses``."""
        return {"begun": self.begun, "state": self.state, "effect": self.effect}


@dataclass(frozen=True, slots=True)
class PlaceHistory:
    """A place that was accused at least once; a node stands for both of its directions."""

    place: Place
    states: tuple[PastState, ...]  # of each diagnosis, the oldest first

    @property
    def days(self) -> int:
        """On how many days it was slow, or did not answer."""
        return len({each.day for each in self.states if each.state in ("slow", "hung")})

    @property
    def is_lasting(self) -> bool:
        """Whether it was so on enough days."""
        return self.days >= DAYS

    def to_json(self) -> dict[str, Any]:
        """Return it as an element of ``places``."""
        states = [each.to_json() for each in self.states]
        return {**self.place.to_json(), "days": self.days, "lasting": self.is_lasting, "diagnoses": states}


@dataclass(frozen=True, slots=True)
class MachineHistory:
    """Several diagnoses of one machine."""

    begun: tuple[str, ...]  # of each diagnosis, the oldest first
    places: tuple[PlaceHistory, ...]  # those that were ever accused, those that were on most days first
    last: MachineVerdict  # of the newest one

    @classmethod
    def of(cls, diagnoses: Iterable[RecordedDiagnosis]) -> "MachineHistory":
        """Return the history of diagnoses in any order."""
        ordered = sorted(diagnoses, key=lambda each: str(each.provenance["begun"]))
        verdicts = [verdict_of(each) for each in ordered]
        accused = [_accused(verdict) for verdict in verdicts]
        hosts = [frozenset(each.question.hosts) for each in ordered]
        rows = (
            PlaceHistory(place, tuple(map(partial(_state, place), hosts, verdicts, accused)))
            for place in dict.fromkeys(chain.from_iterable(accused))
        )
        begun = tuple(verdict.begun for verdict in verdicts)
        return cls(begun, tuple(sorted(rows, key=lambda row: -row.days)), verdicts[-1])

    @property
    def is_healthy(self) -> bool:
        """Whether nothing is slow in the newest diagnosis, nor was on several days."""
        return self.last.is_healthy and not any(row.is_lasting for row in self.places)

    def to_json(self) -> dict[str, Any]:
        """Return the history as JSON has it."""
        return {"begun": self.begun, "places": [row.to_json() for row in self.places], "last": self.last.to_json()}


def _accused(verdict: MachineVerdict) -> Mapping[Place, NamedFault]:
    """Return the faults of a diagnosis by their places, those that are certain in favour of candidates."""
    found: dict[Place, NamedFault] = {}
    for fault in sorted(verdict.verdicts, key=lambda fault: not fault.candidates):
        for place in chain.from_iterable(fault.candidates or ((fault.place,),)):
            whole = (*DIRECTIONS, "hung")
            found[replace(place, kind="node") if place.kind in whole else place] = fault
    return found


def _state(
    place: Place, hosts: frozenset[str], verdict: MachineVerdict, accused: Mapping[Place, NamedFault]
) -> PastState:
    fault = accused.get(place)
    state: State = "healthy"
    if not verdict.complete:
        state = "undecided"
    elif not hosts.issuperset(place.hosts):
        state = "absent"
    elif fault:
        state = "candidate" if fault.candidates else "slow" if math.isfinite(fault.effect) else "hung"
    elif not {*place.hosts}.isdisjoint(verdict.unjudged):
        state = "undecided"
    effect = fault.effect if fault and math.isfinite(fault.effect) else None
    return PastState(verdict.begun, state, effect)
