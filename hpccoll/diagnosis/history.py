"""Diagnoses over days: what was accused in each, what is slow again and again, and what was in its last one."""

import math
from collections import ChainMap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, Literal, TypeAlias

from hpccoll.diagnosis.recorded import RecordedDiagnosis
from hpccoll.diagnosis.transfers import DIRECTIONS
from hpccoll.diagnosis.verdict import MachineVerdict, NamedFault, Place, verdict_of
from hpccoll.store.host_names import host_order

DAYS = 3
"""The days on which a place must have been slow to be called so, and then healthy not to be any more."""

State: TypeAlias = Literal["slow", "hung", "failed", "candidate", "healthy", "absent", "undecided"]
"""What a diagnosis says of a place: a candidate is one of several that cannot be distinguished; a place is absent if a
host of it is, or all hosts of a rack; undecided are an interrupted diagnosis, what was not judged, and what load may
explain."""

CERTAIN: tuple[State, ...] = "slow", "hung", "failed"
ACCUSED: tuple[State, ...] = *CERTAIN, "candidate"

Key: TypeAlias = tuple[str, str, tuple[str, ...], int | None]
"""What identifies a place from day to day: cluster, kind, rack or sorted hosts, rail."""


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
    cluster: str = ""  # "cluster NAME"; empty if all diagnoses are of one, or it is unknown

    @property
    def order(self) -> tuple[object, ...]:
        """The sort key by the names of its cluster, its rack and its hosts."""
        names = (self.cluster, self.place.rack or "", *sorted(self.place.hosts, key=host_order))
        return self.place.kind, *map(host_order, names)

    @property
    def days(self) -> int:
        """On how many days it was slow, or did not answer."""
        return len({each.day for each in self.states if each.state in CERTAIN})

    @property
    def is_lasting(self) -> bool:
        """Whether it was so on enough days, and not healthy on as many since."""
        last = max((number for number, each in enumerate(self.states) if each.state in CERTAIN), default=-1)
        since = {each.day for each in self.states[last + 1 :] if each.state == "healthy"}
        return self.days >= DAYS > len(since)

    @property
    def is_accused(self) -> bool:
        """Whether the last diagnosis that judged it accused it."""
        judged = [each.state for each in self.states if each.state not in ("absent", "undecided")]
        return bool(judged) and judged[-1] in ACCUSED

    def to_json(self) -> dict[str, Any]:
        """Return it as an element of ``places``."""
        states = [each.to_json() for each in self.states]
        values = {"cluster": self.cluster or None, "days": self.days, "lasting": self.is_lasting}
        return {**self.place.to_json(), **values, "accused": self.is_accused, "diagnoses": states}


@dataclass(frozen=True, slots=True)
class MachineHistory:
    """Several diagnoses, of one machine or of several clusters."""

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
        several = len({_cluster(verdict) for verdict in verdicts}) > 1
        rows = (
            PlaceHistory(place, tuple(map(partial(_state, key, place), hosts, verdicts, accused)), key[0] * several)
            for key, (place, _) in ChainMap(*reversed(accused)).items()  # as the newest of them has it
        )
        begun = tuple(verdict.begun for verdict in verdicts)
        return cls(begun, tuple(sorted(rows, key=lambda row: (-row.days, row.order))), verdicts[-1])

    @property
    def is_healthy(self) -> bool:
        """Whether nothing was slow in its last diagnosis, nor on several days, and the newest diagnosis is complete."""
        return self.last.is_healthy and not any(row.is_accused or row.is_lasting for row in self.places)

    def to_json(self) -> dict[str, Any]:
        """Return the history as JSON has it."""
        return {"begun": self.begun, "places": [row.to_json() for row in self.places], "last": self.last.to_json()}


def _cluster(verdict: MachineVerdict) -> str:
    name = verdict.machine.partition(",")[0]
    return name if name.startswith("cluster ") else ""


def _accused(verdict: MachineVerdict) -> dict[Key, tuple[Place, NamedFault]]:
    """Return the places that may be slow with their faults, those that are certain in favour of candidates."""
    found: dict[Key, tuple[Place, NamedFault]] = {}
    for fault in sorted(verdict.verdicts, key=lambda fault: not fault.candidates):
        for each in chain.from_iterable(fault.candidates or ((fault.place,),)):
            place = replace(each, kind="node") if each.kind in (*DIRECTIONS, "hung", "failed") else each
            where = (place.rack,) if place.rack else tuple(sorted(place.hosts))
            found[_cluster(verdict), place.kind, where, place.rail] = place, fault
    return found


def _state(
    key: Key, place: Place, hosts: frozenset[str], verdict: MachineVerdict,
    accused: Mapping[Key, tuple[Place, NamedFault]],
) -> PastState:  # fmt: skip
    _, fault = accused.get(key, (place, None))
    is_there = not hosts.isdisjoint(place.hosts) if place.rack else hosts.issuperset(place.hosts)
    has_times = place.rack in verdict.racks if place.rack else {*place.hosts}.isdisjoint(verdict.unjudged)
    is_judged = has_times and (verdict.links or place.kind != "link")
    state: State = "healthy"
    if fault:
        state = _state_of(fault)
    elif _cluster(verdict) != key[0] or not is_there:
        state = "absent"
    elif not (verdict.complete and is_judged):
        state = "undecided"
    has_effect = fault is not None and state in ACCUSED and math.isfinite(fault.effect)
    effect = fault.effect if fault and has_effect else None
    return PastState(verdict.begun, state, effect)


def _state_of(fault: NamedFault) -> State:
    if fault.wait:
        return "undecided"
    if fault.candidates:
        return "candidate"
    if math.isfinite(fault.effect):
        return "slow"
    return "failed" if fault.error else "hung"
