"""Diagnoses over days: what was accused in each, what is slow again and again, and what was in its last one."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, TypedDict

from hpccoll.common.json_schema import typed_dict
from hpccoll.diagnosis.recorded import RecordedDiagnosis
from hpccoll.diagnosis.transfers import DIRECTIONS
from hpccoll.diagnosis.verdict import MachineVerdict, NamedFault, Place, PlaceJson, verdict_of
from hpccoll.store.host_names import host_order

DAYS = 3
"""On how many days a place must have been slow to count as lasting, and healthy since then to count no longer."""

State: TypeAlias = Literal["slow", "hung", "failed", "candidate", "healthy", "absent", "undecided"]
"""What a diagnosis says of a place. A place is a *candidate* if the diagnosis suspects it and cannot
tell it from other suspects. It is *absent* if one of its hosts is, or all hosts of its rack. It is
*undecided* if the diagnosis was interrupted or did not judge the place, or if load may explain what
it saw."""

CERTAIN: tuple[State, ...] = "slow", "hung", "failed"
ACCUSED: tuple[State, ...] = *CERTAIN, "candidate"

Key: TypeAlias = tuple[str, str, tuple[str, ...], int | None]
"""What identifies a place from day to day: cluster, kind, rack or sorted hosts, rail."""


class PastStateJson(TypedDict):
    """What one diagnosis says of a place, as JSON has it."""

    begun: str
    state: State
    effect: float | None


class PlaceHistoryJson(PlaceJson):
    """A place over time, as JSON has it."""

    cluster: str | None
    days: int
    lasting: bool
    accused: bool
    diagnoses: list[PastStateJson]


class _HistoryKeys(TypedDict):
    begun: Sequence[str]
    places: list[PlaceHistoryJson]


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

    def to_json(self) -> PastStateJson:
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
        hosts = sorted(self.place.hosts, key=host_order)
        names = [self.cluster, self.place.rack or "", *hosts]
        return self.place.kind, *map(host_order, names)

    @property
    def days(self) -> int:
        """On how many days it was slow, or did not answer."""
        days = {past.day for past in self.states if past.state in CERTAIN}
        return len(days)

    @property
    def is_lasting(self) -> bool:
        """Whether it was slow or did not answer on DAYS days, and has not been healthy on as many since."""
        healthy_days: set[str] = set()
        for past in self.states:
            if past.state in CERTAIN:
                healthy_days.clear()
            elif past.state == "healthy":
                healthy_days.add(past.day)
        return self.days >= DAYS and len(healthy_days) < DAYS

    @property
    def is_accused(self) -> bool:
        """Whether the last diagnosis that judged it accused it."""
        for past in reversed(self.states):
            if past.state not in ("absent", "undecided"):
                return past.state in ACCUSED
        return False

    def to_json(self) -> PlaceHistoryJson:
        """Return it as an element of ``places``."""
        return {
            **self.place.to_json(),
            "cluster": self.cluster or None,
            "days": self.days,
            "lasting": self.is_lasting,
            "accused": self.is_accused,
            "diagnoses": [past.to_json() for past in self.states],
        }


@dataclass(frozen=True, slots=True)
class MachineHistory:
    """Diagnoses of one machine, or of more than one cluster, in the order of time."""

    begun: tuple[str, ...]  # of each diagnosis, the oldest first
    # those that were ever accused, those that were on most days first
    places: tuple[PlaceHistory, ...]
    last: MachineVerdict  # of the newest one

    @classmethod
    def of(cls, diagnoses: Iterable[RecordedDiagnosis]) -> "MachineHistory":
        """Return the history of diagnoses in any order."""
        ordered = sorted(diagnoses, key=lambda recorded: str(recorded.provenance["begun"]))
        days = [_Diagnosed.of(recorded) for recorded in ordered]
        newest_places: dict[Key, Place] = {}
        for diagnosed in days:
            for key, (place, _) in diagnosed.accused.items():
                newest_places[key] = place
        clusters = {diagnosed.cluster for diagnosed in days}
        histories = []
        for key, place in newest_places.items():
            states = tuple(_state(key, place, diagnosed) for diagnosed in days)
            cluster = key[0] if len(clusters) > 1 else ""
            histories.append(PlaceHistory(place, states, cluster))
        histories.sort(key=lambda history: (-history.days, history.order))
        begun = tuple(diagnosed.verdict.begun for diagnosed in days)
        return cls(begun, tuple(histories), days[-1].verdict)

    @property
    def is_healthy(self) -> bool:
        """Whether nothing was slow in its last diagnosis, nor on several days, and the newest diagnosis is complete."""
        is_any_slow = any(place.is_accused or place.is_lasting for place in self.places)
        return self.last.is_healthy and not is_any_slow

    @staticmethod
    def json_record() -> Any:
        """Return the type of its JSON."""
        last = {"last": MachineVerdict.json_record()}
        return typed_dict("MachineHistoryJson", last, _HistoryKeys)

    def to_json(self) -> dict[str, Any]:
        """Return the history as JSON has it."""
        places = [place.to_json() for place in self.places]
        return {"begun": self.begun, "places": places, "last": self.last.to_json()}


@dataclass(frozen=True, slots=True)
class _Diagnosed:
    """What is looked up in a diagnosis for each place."""

    verdict: MachineVerdict
    hosts: frozenset[str]
    cluster: str  # "cluster NAME"; empty if it is unknown
    accused: Mapping[Key, tuple[Place, NamedFault]]

    @classmethod
    def of(cls, recorded: RecordedDiagnosis) -> "_Diagnosed":
        verdict = verdict_of(recorded)
        hosts = frozenset(recorded.question.hosts)
        return cls(verdict, hosts, _cluster(verdict), _accused(verdict))

    def has(self, place: Place) -> bool:
        """Return whether all hosts of a place were there, or any of a rack."""
        if place.rack:
            return not self.hosts.isdisjoint(place.hosts)
        return self.hosts.issuperset(place.hosts)

    def judges(self, place: Place) -> bool:
        """Return whether the diagnosis is complete and has judged a place."""
        if not self.verdict.complete or (place.kind == "link" and not self.verdict.links):
            return False
        if place.rack:
            return place.rack in self.verdict.racks
        return set(place.hosts).isdisjoint(self.verdict.unjudged)


def _cluster(verdict: MachineVerdict) -> str:
    name = verdict.machine.partition(",")[0]
    return name if name.startswith("cluster ") else ""


def _accused(verdict: MachineVerdict) -> dict[Key, tuple[Place, NamedFault]]:
    """Return the places that may be slow with their faults, those that are certain in favour of candidates."""
    accused: dict[Key, tuple[Place, NamedFault]] = {}
    for fault in sorted(verdict.verdicts, key=lambda fault: not fault.candidates):
        for explanation in fault.candidates or ((fault.place,),):
            for part in explanation:
                place = part
                if part.kind in (*DIRECTIONS, "hung", "failed"):
                    place = replace(part, kind="node")
                where = (place.rack,) if place.rack else tuple(sorted(place.hosts))
                accused[_cluster(verdict), place.kind, where, place.rail] = place, fault
    return accused


def _state(key: Key, place: Place, diagnosed: _Diagnosed) -> PastState:
    begun = diagnosed.verdict.begun
    if key in diagnosed.accused:
        _, fault = diagnosed.accused[key]
        state = _state_of(fault)
        has_effect = state in ACCUSED and math.isfinite(fault.effect)
        return PastState(begun, state, fault.effect if has_effect else None)
    if diagnosed.cluster != key[0] or not diagnosed.has(place):
        return PastState(begun, "absent", None)
    if not diagnosed.judges(place):
        return PastState(begun, "undecided", None)
    return PastState(begun, "healthy", None)


def _state_of(fault: NamedFault) -> State:
    if fault.wait:
        return "undecided"
    if fault.candidates:
        return "candidate"
    if math.isfinite(fault.effect):
        return "slow"
    return "failed" if fault.error else "hung"
