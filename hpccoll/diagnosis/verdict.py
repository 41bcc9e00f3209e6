"""The verdict of a diagnosis, with the names of hosts and racks: what is slow, how much, how surely, by which slots."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from typing import Annotated, Any, TypedDict, cast

import numpy as np

from hpccoll.common.json_schema import described, record_of_fields
from hpccoll.common.text import Finding, FindingJson
from hpccoll.diagnosis.cluster import judged_racks as numbers_of_judged_racks
from hpccoll.diagnosis.core_waits import (
    CORE_WAITS,
    CoreWait,
    explaining_wait,
    finding_of_load,
    largest_hidden,
)
from hpccoll.diagnosis.nodes_alone import TRANSFER_ERRORS, TransferError, findings_of_nodes
from hpccoll.diagnosis.recorded import Load, Question, RecordedDiagnosis
from hpccoll.diagnosis.slot_records import OF_A_RACK, Component, Diagnosis, Fault, Kind, Purpose
from hpccoll.diagnosis.transfers import DIRECTIONS

DECIDING: Mapping[Kind, Purpose] = {
    "node": "retest",
    "send": "retest",
    "receive": "retest",
    "rail": "retest",
    "link": "links",
    "shared_link": "accused",
    "uplink": "racks",
    "rack": "racks",
    "hung": "hung",
    "failed": "hung",
}
"""The purpose of the slots that decide on a fault; of two to seven nodes the screen decides."""

OF_NODES: tuple[Kind, ...] = "node", "send", "receive", "rail", "link"
"""The kinds of faults that the load of a node may look like."""


class PlaceJson(TypedDict):
    """A component of a machine, as JSON has it."""

    kind: Kind
    where: Sequence[str]
    rack: str | None
    rail: int | None


class FaultJson(PlaceJson):
    """What is slow, fails or does not answer, as JSON has it."""

    candidates: list[list[PlaceJson]]
    effect: Annotated[
        float | None,
        described("how many times as long its transfers take; null if they do not end"),
    ]
    low: Annotated[float | None, described("the lower end of the 95 % interval of effect")]
    high: Annotated[float | None, described("the upper end of that interval")]
    confidence: float | None
    chance: float | None
    under_load_only: bool
    slots: dict[Purpose, int]
    missed_with: Sequence[str]
    error: str | None
    waited_for_core: float | None


@dataclass(frozen=True, slots=True)
class Place:
    """A component by the names of its hosts."""

    kind: Kind
    hosts: tuple[str, ...]  # of an uplink or a rack all of the rack
    rack: str | None = None  # of an uplink or a rack
    rail: int | None = None  # None if it is not one of a single rail

    def to_json(self) -> PlaceJson:
        """Return it as an element of ``candidates``."""
        return {"kind": self.kind, "where": self.hosts, "rack": self.rack, "rail": self.rail}


@dataclass(frozen=True, slots=True)
class NamedFault:
    """A fault by the names of its hosts."""

    place: Place  # if there are candidates, the first component of the likeliest one
    # explanations that cannot be distinguished; empty if there is only one
    candidates: tuple[tuple[Place, ...], ...]
    effect: float  # how many times as long its transfers take; infinite if they do not end
    low: float  # the 95 % interval of the effect
    high: float
    chance: float  # of an effect as large as this, somewhere on a healthy machine
    under_load_only: bool  # whether it is as fast as others while the rest of the machine is silent
    slots: Mapping[Purpose, int]  # how many measured it, by their purpose
    missed_with: tuple[str, ...] = ()  # the other hosts of transfers that did not end
    error: str | None = None  # with which transfers ended
    # a wait for cores that may explain the effect: then the hosts are not accused
    wait: CoreWait | None = None

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts of the fault, or of all candidates."""
        candidate_hosts: dict[str, None] = {}
        for place in chain.from_iterable(self.candidates):
            candidate_hosts |= dict.fromkeys(place.hosts)
        return tuple(candidate_hosts) or self.place.hosts

    @property
    def deciding(self) -> Purpose:
        """The purpose of the slots that decided."""
        decides: Purpose = "hung" if math.isinf(self.effect) else DECIDING[self.place.kind]
        return decides if decides in self.slots else "screen"

    @property
    def confidence(self) -> float:
        """How sure it is that this is slow, and not the load of its node, which is as likely if it explains that."""
        surely_slow = 1 - self.chance
        return min(surely_slow, 0.5) if self.wait else surely_slow

    def to_json(self) -> FaultJson:
        """Return it as an element of ``verdicts``."""
        confidence: float | None = None
        chance: float | None = None
        if math.isfinite(self.effect):  # without an answer it was measured once or twice
            confidence = self.confidence
            chance = self.chance
        waited_for_core: float | None = None
        if self.wait:
            waited_for_core = self.wait.share
        candidates = []
        for explanation in self.candidates:
            candidates.append([place.to_json() for place in explanation])
        return {
            **self.place.to_json(),
            "where": self.hosts,
            "candidates": candidates,
            "effect": _finite(self.effect),
            "low": _finite(self.low),
            "high": _finite(self.high),
            "confidence": confidence,
            "chance": chance,
            "under_load_only": self.under_load_only,
            "slots": dict(self.slots),
            "missed_with": self.missed_with,
            "error": self.error,
            "waited_for_core": waited_for_core,
        }


class _VerdictKeys(TypedDict):
    noise: float | None
    smallest_effect: float | None
    smallest_link_effect: float | None
    verdicts: list[FaultJson]
    findings: list[FindingJson]


@dataclass(frozen=True, slots=True)
class MachineVerdict:
    """What a diagnosis says about a machine."""

    verdicts: tuple[NamedFault, ...]
    exclude: tuple[str, ...]  # the hosts to exclude from jobs
    complete: bool  # False if it was interrupted or still runs: then it says nothing
    slots: int  # how many were measured
    # standard deviation of the logarithm of the time of a pair; NaN if none was left to measure
    noise: float
    # of a node, which would have been found in 90 % of diagnoses; infinite if none would
    smallest_effect: float
    # whether more than a quarter of the nodes seems faulty: then effects are underestimates
    too_many: bool
    nodes: int
    unjudged: tuple[str, ...]  # the hosts with valid times in fewer than half of their slots
    # whether a slow direction only would have been found: of two nodes without a right rate
    only_directions: bool
    racks: tuple[str, ...]  # those that were judged: few, or small ones, are not
    links: bool  # whether single links were judged
    load: Load
    kind: str  # what a result is: measured, measured on a testbed, ...
    machine: str
    begun: str  # ISO 8601, UTC
    # as ``smallest_effect``, of a single link; infinite if none is judged
    smallest_link_effect: float = math.inf
    # what stands beside it: what nodes do alone, differing devices, failed launches
    findings: tuple[Finding, ...] = ()
    # racks that were not judged: too small, or too few of them
    unjudged_racks: tuple[str, ...] = ()
    # whether the user said how fast a transfer should be: nothing else shows a common fault
    has_rate: bool = False
    kubernetes: bool = False  # whether hosts have the names of nodes of Kubernetes
    # when a diagnosis that still runs, or was killed, wrote its file last: ISO 8601, UTC, empty if
    # that is unknown; None of one that has ended
    kept_at: str | None = None
    slurm_job: str = ""  # that it ran in; empty without one

    @property
    def accuses_none(self) -> bool:
        """Whether at least half of the nodes were judged, and nothing of what was is slow."""
        is_most_judged = 2 * len(self.unjudged) <= self.nodes
        return self.complete and is_most_judged and not self.verdicts and not self.too_many

    @property
    def is_healthy(self) -> bool:
        """Whether all nodes were judged, none is slow, and no finding is critical."""
        is_any_critical = any(finding.severity == "critical" for finding in self.findings)
        return self.accuses_none and not self.unjudged and not is_any_critical

    @staticmethod
    def json_record() -> Any:
        """Return the type of its JSON."""
        return record_of_fields("MachineVerdictJson", MachineVerdict, changed=_VerdictKeys)

    def to_json(self) -> dict[str, Any]:
        """Return the verdict as JSON has it: what is absent, or not finite, is null."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        verdicts = [fault.to_json() for fault in self.verdicts]
        findings = [_finding_to_json(finding) for finding in self.findings]
        return {
            **fields,
            "noise": _finite(self.noise),
            "smallest_effect": _finite(self.smallest_effect),
            "smallest_link_effect": _finite(self.smallest_link_effect),
            "verdicts": verdicts,
            "load": asdict(self.load),
            "findings": findings,
        }


def _finding_to_json(finding: Finding) -> dict[str, Any]:
    return {
        "kind": finding.kind,
        "severity": finding.severity,
        "text": finding.text,
        **finding.values,
    }


def verdict_of(recorded: RecordedDiagnosis) -> MachineVerdict:
    """Return the verdict of a diagnosis."""
    question = recorded.question
    is_complete = recorded.diagnosis is not None
    slots = sum(len(request.seconds) for request in recorded.measured)
    diagnosis = recorded.diagnosis or Diagnosis((), slots, math.nan, math.inf, links=False)
    unjudged = _unjudged(recorded)
    # noise and thresholds are those of nodes without times
    if 2 * len(unjudged) > len(question.hosts):
        diagnosis = replace(
            diagnosis, noise=math.nan, smallest_effect=math.inf, smallest_link_effect=math.inf
        )
    waits = cast("Mapping[str, float]", recorded.provenance.get(CORE_WAITS, {}))
    hidden = largest_hidden(waits, diagnosis.noise)
    smallest_effect = max(diagnosis.smallest_effect, hidden)
    smallest_link_effect = max(diagnosis.smallest_link_effect, hidden)
    faults = [_named(fault, recorded) for fault in diagnosis.faults]
    verdicts = _with_waits(faults, waits, diagnosis.noise)
    undecided: set[str] = set()
    for fault in verdicts:
        if fault.wait:
            undecided.update(fault.hosts)
    excluded = []
    for node in diagnosis.exclude:
        host = question.hosts[node]
        if host not in undecided:
            excluded.append(host)
    only_directions = is_complete and _shows_directions_only(diagnosis, question)
    judged_racks, unjudged_racks = _racks(question)
    begun = str(recorded.provenance["begun"])
    findings = _findings(recorded, verdicts)
    return MachineVerdict(
        verdicts=tuple(verdicts),
        exclude=tuple(excluded),
        complete=is_complete,
        slots=slots,
        noise=diagnosis.noise,
        smallest_effect=smallest_effect,
        smallest_link_effect=smallest_link_effect,
        too_many=diagnosis.too_many,
        nodes=len(question.hosts),
        unjudged=unjudged,
        only_directions=only_directions,
        racks=judged_racks,
        unjudged_racks=unjudged_racks,
        links=diagnosis.links,
        has_rate=question.expected_s is not None,
        load=recorded.load,
        kind=recorded.kind,
        machine=recorded.machine,
        begun=begun,
        findings=findings,
        kubernetes=recorded.names_kubernetes_nodes,
        kept_at=recorded.kept_at,
        slurm_job=recorded.slurm_job,
    )


def _findings(recorded: RecordedDiagnosis, faults: Sequence[NamedFault]) -> tuple[Finding, ...]:
    """Return what stands beside the verdict: first that load may explain faults."""
    findings = findings_of_nodes(recorded)
    waits = [fault.wait for fault in faults if fault.wait]
    if waits:
        return (finding_of_load(waits, recorded.provenance), *findings)
    return tuple(findings)


def _racks(question: Question) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the racks that a diagnosis judges, and those that it cannot judge: too small, or too few of them."""
    numbers = numbers_of_judged_racks(question.rack_numbers or ())
    judged = tuple(question.rack_names[number] for number in numbers)
    if len(question.rack_names) == 1:  # no transfer is across racks
        return judged, ()
    return judged, tuple(name for name in question.rack_names if name not in judged)


def _with_waits(
    faults: Sequence[NamedFault], waits: Mapping[str, float], noise: float
) -> list[NamedFault]:
    """Return faults with the wait for cores that may explain them: of nodes and links, and not of racks."""
    accused = {host for fault in faults for host in fault.hosts}
    explained = []
    for fault in faults:
        hosts = fault.hosts if fault.place.kind in OF_NODES else ()
        explained.append(
            replace(fault, wait=explaining_wait(waits, hosts, accused, fault.effect, noise))
        )
    return explained


def _shows_directions_only(diagnosis: Diagnosis, question: Question) -> bool:
    """Return whether two nodes were left to compare, without a rate that decides about them.

    A rate that is a little wrong says nothing of a node either: then only directions have effects.
    """
    hung = set()
    for fault in diagnosis.faults:
        for component in chain((fault.component,), *fault.candidates):
            if component.kind == "hung":
                hung.add(component.where)
    if len(question.hosts) - len(hung) != 2:
        return False
    if question.expected_s is None:
        return True
    kinds = {effect.component.kind for effect in diagnosis.effects}
    return kinds == set(DIRECTIONS[1:])


def place_of(component: Component, question: Question) -> Place:
    """Return the place of a component of the machine that a question is about."""
    if component.kind in OF_A_RACK:
        rack = question.rack_names[component.where[0]]
        members = zip(question.hosts, question.racks or (), strict=True)
        hosts = tuple(host for host, rack_of_host in members if rack_of_host == rack)
        return Place(component.kind, hosts, rack, component.rail)
    hosts = tuple(question.hosts[node] for node in component.where)
    return Place(component.kind, hosts, rail=component.rail)


def _unjudged(recorded: RecordedDiagnosis) -> tuple[str, ...]:
    """Return the hosts whose transfers mostly have no valid time, on a rail at least; none if it was interrupted."""
    if not recorded.diagnosis:
        return ()
    hosts = recorded.question.hosts
    endpoints = recorded.question.rails * len(hosts)
    requested = np.zeros(endpoints, np.int64)
    valid = np.zeros(endpoints, np.int64)
    for request in recorded.measured:
        partners = request.slots.partners[: len(request.seconds)]
        is_asked = partners != np.arange(endpoints)
        requested += is_asked.sum(0)
        valid += (is_asked & ~np.isnan(request.seconds)).sum(0)
    nodes = np.flatnonzero(2 * valid < requested) % len(hosts)
    return tuple(hosts[node] for node in np.unique(nodes))


def _named(fault: Fault, recorded: RecordedDiagnosis) -> NamedFault:
    question = recorded.question
    place = place_of(fault.component, question)
    candidates = []
    for explanation in fault.candidates:
        candidates.append(tuple(place_of(component, question) for component in explanation))
    slots, missed_with = _slots_of(fault.component, place, recorded)
    named = NamedFault(
        place=place,
        candidates=tuple(candidates),
        effect=fault.effect,
        low=fault.low,
        high=fault.high,
        chance=fault.chance,
        under_load_only=fault.under_load_only,
        slots=slots,
        missed_with=missed_with,
    )
    if math.isfinite(fault.effect):
        return named
    errors = cast("Sequence[TransferError]", recorded.provenance.get(TRANSFER_ERRORS, ()))
    error = _error_of(named, errors)
    if error is None:
        return named
    if place.kind == "hung":
        place = replace(place, kind="failed")
    return replace(named, place=place, error=error)


def _error_of(fault: NamedFault, errors: Sequence[TransferError]) -> str | None:
    """Return the last error with which a host of a fault answered, or one of the link; None if there is none."""
    for error in reversed(errors):
        is_of_pair = fault.place.kind != "link" or set(error["hosts"]) == set(fault.hosts)
        if error["hosts"][0] in fault.hosts and is_of_pair:
            return error["why"]
    return None


def _slots_of(
    component: Component, place: Place, recorded: RecordedDiagnosis
) -> tuple[Mapping[Purpose, int], tuple[str, ...]]:
    """Return how many slots measured a component, by their purpose, and the hosts with which it missed a deadline.

    A link is measured if its nodes are a pair.
    """
    hosts = recorded.question.hosts
    nodes = np.flatnonzero(np.isin(hosts, place.hosts))
    rails: Sequence[int] = range(recorded.question.rails)
    if component.rail is not None:
        rails = [component.rail]
    endpoints = np.array([rail * len(hosts) + node for rail in rails for node in nodes])
    counts = Counter[Purpose]()
    missed_with: dict[str, None] = {}
    for request in recorded.measured:
        partners = request.slots.partners[: len(request.seconds), endpoints]
        is_measured = partners != endpoints
        if component.kind == "link":
            is_measured &= np.isin(partners, endpoints)
        slots_measured = is_measured.any(1)
        counts[request.slots.purpose] += int(slots_measured.sum())
        is_missed = is_measured & np.isinf(request.seconds[:, endpoints])
        for partner in partners[is_missed]:
            missed_with[hosts[partner % len(hosts)]] = None
    slots = {purpose: count for purpose, count in counts.items() if count}
    return slots, tuple(missed_with)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
