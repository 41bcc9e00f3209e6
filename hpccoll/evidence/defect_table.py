"""Known defects of libraries, drivers and containers, by version. The table is ``defects.toml``."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from hpccoll.common.json_schema import record_of_fields
from hpccoll.common.text import join_ends

Version: TypeAlias = tuple[int, ...]
"""The numbers of a version."""

OPEN = "open"
"""The end of a range if the sources know no good version."""

FIRST_CODE = 1000
"""From this number on, a version of a single number is a code of NCCL: 2408 is 2.4.8, and 22907 is 2.29.7 (nccl.h)."""


def parse_version(text: str) -> Version:
    """Return the numbers of a version, such as ``2.29.7``, ``v2.29.7-1``, ``22907``; empty without a number."""
    match = re.search(r"\d+(?:[.-]\d+)*", text)
    if match is None:
        return ()
    numbers = tuple(map(int, re.split("[.-]", match[0])))
    if len(numbers) > 1 or numbers[0] < FIRST_CODE:
        return numbers
    minors = 10
    if numbers[0] >= 10 * FIRST_CODE:  # from NCCL 2.9 on
        minors = 100
    rest, patch = divmod(numbers[0], 100)
    major, minor = divmod(rest, minors)
    return major, minor, patch


@dataclass(frozen=True, slots=True)
class VersionRange:
    """The versions of a component that have a defect.

    ``least`` and ``below`` are the ends that a source names; ``after`` is the last version that is
    known to be good, and ``named`` are the versions in which the defect was met. An empty version
    says nothing.
    """

    component: str
    least: Version = ()
    below: Version = ()
    after: Version = ()
    named: Sequence[Version] = ()
    is_open: bool = False

    @property
    def has_bound(self) -> bool:
        """Whether a source names an end of the range."""
        return bool(self.least or self.below)

    def contains(self, version: Version) -> bool:
        """Return whether a version has the defect by what the sources say."""
        for named in self.named:
            if _begins_with(version, named):
                return True
        return self._is_from_first(version) and self._is_before_good(version)

    def _is_from_first(self, version: Version) -> bool:
        if self.least:
            return version >= self.least
        if self.after:
            return version > self.after and not _begins_with(version, self.after)
        if self.below or not self.named:
            return True
        return version >= min(self.named)

    def _is_before_good(self, version: Version) -> bool:
        if self.below:
            return version < self.below
        if self.is_open:
            return True
        last = max((*self.named, self.least))
        return not last or version[: len(last)] <= last


def _begins_with(version: Version, prefix: Version) -> bool:
    return version[: len(prefix)] == prefix


def _component_and_version(text: str, component: str) -> tuple[str, Version]:
    """Return the component that a version of the table names, or ``component``, and its numbers."""
    name, _, number = text.rpartition(" ")
    return name or component, parse_version(number)


def _version_range(row: Mapping[str, Any]) -> VersionRange:
    own = row["component"]
    if own.startswith("libfabric "):
        own = "libfabric"  # whose providers have its versions
    first_good = row.get("first_good", "")
    component, least = _component_and_version(row.get("first_bad", ""), own)
    below: Version = ()
    if first_good != OPEN:
        component_of_end, below = _component_and_version(first_good, component)
        if below:
            component = component_of_end
    named = []
    for text in row.get("seen", ()):
        component_seen, version = _component_and_version(text, own)
        if component_seen == component and version:
            named.append(version)
    component_before, after = _component_and_version(row.get("good_before", ""), component)
    if component_before != component:
        after = ()
    return VersionRange(component, least, below, after, tuple(named), first_good == OPEN)


Patterns: TypeAlias = Sequence[re.Pattern[str]]
Extent: TypeAlias = Sequence[int]
"""The least value, and the largest if there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """The condition of a defect, as the head of the table explains it; an empty field needs nothing."""

    gpu: Sequence[str] = ()
    cpu: Sequence[str] = ()
    mixed_gpus: bool = False
    network: Sequence[str] = ()
    nodes: Extent = ()
    ranks: Extent = ()
    ranks_per_node: Extent = ()
    bytes: Extent = ()
    device: Sequence[str] = ()
    algorithm: Sequence[str] = ()
    protocol: Sequence[str] = ()
    logged_algorithm: Sequence[str] = ()
    settings: Patterns = ()
    unless: Patterns = ()
    line: re.Pattern[str] | None = None
    differs: Sequence[str] = ()
    versions: Mapping[str, tuple[Version, Version]] = field(default_factory=dict)
    present: Sequence[str] = ()

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "Needs":
        """Return the needs as TOML has them."""
        needs = dict(row)
        for name in ("settings", "unless"):
            needs[name] = tuple(map(re.compile, needs.get(name, ())))
        if "line" in needs:
            needs["line"] = re.compile(needs["line"])
        versions = {}
        for component, (least, below) in needs.get("versions", {}).items():
            versions[component] = parse_version(least), parse_version(below)
        return cls(**{**needs, "versions": versions})


@dataclass(frozen=True, slots=True, kw_only=True)
class Defect:
    """A row of the table, whose keys are its fields."""

    id: str
    component: str
    condition: str
    symptom: str
    kind: str
    collectives: Sequence[str]
    sources: Sequence[str]
    date: str
    confidence: str
    first_bad: str = ""
    first_good: str = ""
    good_before: str = ""
    good_note: str = ""
    seen: Sequence[str] = ()
    sizes: str = ""
    ranks: str = ""
    factor: float | None = None
    time_factor: float | None = None
    workaround: str = ""
    inferred: Sequence[str] = ()
    log: re.Pattern[str] | None = None
    reread: str = ""
    silent: str = ""
    needs: Needs
    versions: VersionRange

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "Defect":
        """Return a row as TOML has it."""
        parsed: dict[str, Any] = dict(row)
        parsed["needs"] = Needs.of(row.get("needs", {}))
        parsed["versions"] = _version_range(row)
        if "log" in row:
            parsed["log"] = re.compile(row["log"])
        return cls(**parsed)

    @property
    def bandwidth_share(self) -> float | None:
        """The measured bandwidth over the normal one; None if no source says it."""
        if self.factor:
            return self.factor
        if self.time_factor:
            return 1 / self.time_factor
        return None

    @property
    def range_text(self) -> str:
        """The versions in words: ``2.26.2 to before 2.27.5``, ``before 2.30.3``, ``from 2.29 on``, ``2.16.2 seen``."""
        end = ""
        if self.first_good not in ("", OPEN):
            end = f"before {self.first_good}"
        if self.first_bad and end:
            return f"{self.first_bad} to {end}"
        if self.first_bad:
            return f"from {self.first_bad} on"
        return end or self._named_versions

    @property
    def _named_versions(self) -> str:
        """The versions in words if no source names an end of their range."""
        if self.good_before:
            return f"after {self.good_before}"
        if not self.seen:
            return "of all versions"
        if self.first_good == OPEN:
            return f"from {self.seen[0]} on, if not before"
        return f"{join_ends(self.seen)} seen"

    @staticmethod
    def json_record() -> Any:
        """Return the type of its JSON."""
        return record_of_fields("DefectJson", Defect, without=("needs", "versions"))

    def to_json(self) -> dict[str, Any]:
        """Return the row as JSON has it, without what only programs need."""
        values: dict[str, Any] = {}
        for row_field in fields(self):
            values[row_field.name] = getattr(self, row_field.name)
        del values["needs"], values["versions"]
        if self.log is not None:
            values["log"] = self.log.pattern
        return values


@cache
def known_defects() -> Sequence[Defect]:
    """Return all rows of the table, in its order."""
    import tomllib  # few commands need the table

    text = Path(__file__).with_name("defects.toml").read_text(encoding="utf-8")
    return tuple(map(Defect.of, tomllib.loads(text)["defect"]))
