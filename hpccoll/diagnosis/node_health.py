"""The health of one node: its rates and devices, held against a reference of the same node when it was healthy."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypedDict

from hpccoll.common.json_schema import described
from hpccoll.common.limits import PositiveNumber
from hpccoll.common.records import json_text, load_record
from hpccoll.common.text import Finding, FindingJson, critical, first_few, info, warning
from hpccoll.common.units import format_rate
from hpccoll.store.durable_files import replacing_file

SLOWEST = 0.8
"""A rate below this part of the lowest one of the reference is a fault.

Beside an unchanging load, memory copies differed by 5 % between three checks on two cores, beside a
changing one by a factor of 2: a low rate beside other processes is therefore no fault. One channel
of memory of four is 25 %; one of eight, 12 %, shows in the size of memory only.
"""

LEAST_NUMBER = 0.95
"""A number of a device below this part of the reference is a fault; kernels reserve memory of other sizes."""

REPEATS = 5
"""How many checks make a reference."""

MAX_FILE_BYTES = 4 << 20
MOST_REASONS = 3
"""The most faults that the line names: Slurm shows it as the reason of a drained node."""

Fact: TypeAlias = str | float | bool | None
Facts: TypeAlias = Mapping[str, Mapping[str, Fact]]
"""Facts of devices by their names; None is unknown."""

Verdict: TypeAlias = Literal["healthy", "bad", "cannot tell"]

UNCERTAIN = "slow_beside_others", "rate_unmeasured", "check_failed"
"""The kinds of findings that leave open whether the node is healthy."""

_Rate = Annotated[float, PositiveNumber(1e18).meta]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """What a check of a node has measured and read."""

    rates: Mapping[str, float] = field(default_factory=dict)  # in B/s, by what was measured
    facts: Facts = field(default_factory=dict)
    findings: Sequence[Finding] = ()  # those that need no reference
    other_load: str = ""  # what else used the node meanwhile, in words; empty if nothing did


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReference:
    """What a healthy node gave, as a file has it."""

    schema: Literal["hpccoll-node-reference 1.0"] = "hpccoll-node-reference 1.0"
    host: str
    created: str  # in UTC, in the form of ISO 8601
    rates: Mapping[str, Sequence[_Rate]]  # in B/s, of each repeat
    facts: Facts

    @classmethod
    def of(cls, host: str, states: Sequence[NodeState]) -> "NodeReference":
        """Return the reference of a node from its checks: the rates and the devices that all of them have."""
        rates = {}
        for name in states[0].rates:
            if all(name in state.rates for state in states):
                rates[name] = [state.rates[name] for state in states]
        created = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(host=host, created=created, rates=rates, facts=states[-1].facts)

    def wide_rates(self) -> list[str]:
        """Return the rates whose lowest repeat would be a fault beside the highest one, in words."""
        wide = []
        for name, rates in self.rates.items():
            if min(rates) < SLOWEST * max(rates):
                wide.append(f"{name} {format_rate(min(rates))} to {format_rate(max(rates))}")
        return wide


_OfOthers = TypedDict("_OfOthers", {"others": str})  # noqa: UP013 - the word is the key's alone


class NodeHealthJson(_OfOthers):
    """The verdict of a check, as JSON has it."""

    verdict: Verdict
    line: str
    findings: list[FindingJson]
    rates: Annotated[Mapping[str, float], described("in bytes per second")]
    facts: Facts


@dataclass(frozen=True, slots=True)
class NodeHealth:
    """The verdict of a check."""

    state: NodeState
    findings: Sequence[Finding]  # those of the check and those that follow from the reference

    @property
    def verdict(self) -> Verdict:
        if self._of_severity("critical"):
            return "bad"
        if self._uncertain():
            return "cannot tell"
        return "healthy"

    @property
    def line(self) -> str:
        """The verdict and its reasons in one line."""
        reasons: Sequence[Finding] = self._of_severity("critical") or self._uncertain()
        if reasons:
            texts = first_few(map(str, reasons), MOST_REASONS, "finding")
            return f"{self.verdict}: {'; '.join(texts)}"
        rates = [finding.text for finding in self.findings if finding.kind == "rate"]
        notes = map(str, self._of_severity("warning", "absent"))
        facts = ", ".join(rates) or "no rate was measured"
        return f"{self.verdict}: {'; '.join([facts, *notes])}"

    def to_json(self) -> NodeHealthJson:
        """Return the verdict as JSON has it."""
        findings: list[Any] = []
        for finding in self.findings:
            about = {"kind": finding.kind, "severity": finding.severity, "text": finding.text}
            findings.append({**about, **finding.values})
        return {
            "verdict": self.verdict,
            "line": self.line,
            "findings": findings,
            "rates": self.state.rates,
            "facts": self.state.facts,
            "others": self.state.other_load,
        }

    def _of_severity(self, *severities: str) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity in severities]

    def _uncertain(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.kind in UNCERTAIN]


def judge_node(state: NodeState, reference: NodeReference | None) -> NodeHealth:
    """Return the health of a node; without a reference, rates are not judged."""
    if reference is None:
        return NodeHealth(state, [*state.findings, *_unjudged_rates(state)])
    compared = chain(_judge_rates(state, reference), _judge_devices(state, reference))
    return NodeHealth(state, [*state.findings, *compared])


def _unjudged_rates(state: NodeState) -> Iterator[Finding]:
    for name, rate in state.rates.items():
        yield info("rate", f"{name} {format_rate(rate)}", name=name, rate=rate)
    yield warning("no_reference", "rates were not judged: there is no --reference")


def _judge_rates(state: NodeState, reference: NodeReference) -> Iterator[Finding]:
    """Yield what is slow, and what was not measured although the reference has it."""
    for name, rates in reference.rates.items():
        if name not in state.rates:
            yield warning("rate_unmeasured", f"{name}: not measured", name=name)
            continue
        rate = state.rates[name]
        lowest = min(rates)
        ratio = rate / lowest
        values: dict[str, Any] = {"name": name, "rate": rate, "lowest": lowest, "ratio": ratio}
        compared = f"{format_rate(rate)} of {format_rate(lowest)}"
        text = f"{name} at {ratio:.2f} of the reference ({compared})"
        if ratio >= SLOWEST:
            yield info("rate", f"{name} {format_rate(rate)}", **values)
        elif state.other_load:
            yield warning("slow_beside_others", f"{text}, while {state.other_load}", **values)
        else:
            yield critical("slow", text, **values)
    for name, rate in state.rates.items():
        if name not in reference.rates:
            text = f"{name} {format_rate(rate)} (not in the reference)"
            yield info("rate", text, name=name, rate=rate)


def _judge_devices(state: NodeState, reference: NodeReference) -> Iterator[Finding]:
    """Yield devices that are missing or have become worse."""
    for device, expected_facts in reference.facts.items():
        facts = state.facts.get(device)
        if facts is None:
            yield critical("device_missing", f"{device} is missing", device=device)
            continue
        for fact, expected in expected_facts.items():
            value = facts.get(fact)
            if value is None or expected is None or not _is_worse(value, expected):
                continue
            text = f"{device}: {fact} {_words(value)} instead of {_words(expected)}"
            yield critical(
                "device_worse", text, device=device, fact=fact, value=value, expected=expected
            )


def _is_worse(value: Fact, expected: Fact) -> bool:
    """Return whether a number is lower, or anything else differs."""
    if isinstance(value, bool | str | None) or isinstance(expected, bool | str | None):
        return value != expected
    return value < LEAST_NUMBER * expected


def _words(fact: Fact) -> str:
    if isinstance(fact, bool):
        return "on" if fact else "off"
    if isinstance(fact, float | int):
        return f"{fact:g}"
    return str(fact)


def write_node_reference(reference: NodeReference, path: Path) -> None:
    """Write a reference as JSON.

    Raises:
        OSError: if the file cannot be written.
    """
    with replacing_file(path) as unfinished:
        unfinished.write_text(json_text(reference), encoding="utf-8")


def read_node_reference(path: Path) -> NodeReference:
    """Read a reference.

    Raises:
        BadInputError: if the file cannot be read, or is not a reference of a node.
    """
    kind = "a file of 'hpccoll diagnose --here --make-reference'"
    return load_record(path, "--reference", MAX_FILE_BYTES, NodeReference, kind)
