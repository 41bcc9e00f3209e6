"""A measurement held against what is expected of it: an earlier run, a reference, published figures, a model, a curve.

What a verdict follows from differs: a shift of two samples (``run_comparison``), a range with slack
at its ends (``verdicts``) or its ends alone (``verdict_between``). What a judgement consists of
does not.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

from hpccoll.common.json_schema import type_at, typed_dict
from hpccoll.common.records import to_builtins

EARLIER_RUN = "run"
CURVE = "curve"
PUBLISHED = "published"
REFERENCE = "reference"
MACHINE = "machine"
MODEL = "model"
"""Where an expectation comes from: an earlier run, measured times by size, published figures of a
class of machines, the user's reference, the simulation on a machine file, NCCL's own model."""

NEAREST, PHYSICS = "nearest", "physics"
"""Where what is said of a row comes from if nothing can be expected of it: the nearest published
figures, too few or too unlike for a verdict, or what the wires of the machine carry at most."""

SAYING = NEAREST, PHYSICS
"""The origins that say how fast a row is, and decide nothing, unless it is faster than the wires."""

OF_RATES = PUBLISHED, MODEL, NEAREST, PHYSICS
"""The origins whose figures are bus bandwidths; those of the others are times."""

RATE, TIME = "busbw_Bps", "time_s"
"""What is judged: bus bandwidth in bytes a second, or the time in seconds."""


class Acceptance(StrEnum):
    """What a gate makes of a verdict."""

    PASS = "pass"  # noqa: S105  a verdict, and no password
    FAIL = "fail"
    CANNOT_TELL = "cannot_tell"


class HeldVerdict(StrEnum):
    """What a measurement is, beside what is expected of it, in the order of reports; the values are compare's words."""

    SLOWER = "regression"
    WRONG = "wrong"  # the result is wrong, or the call failed
    MISSING = "missing"  # a result is expected, and there is none
    IMPOSSIBLE = "impossible"  # faster than the wires
    FASTER = "improvement"
    BELOW_PUBLISHED = "below_published"  # slower than what is too little for a verdict
    # as fast as what is too little for a verdict, or next to it
    WITHIN_PUBLISHED = "within_published"
    ABOVE_PUBLISHED = "above_published"  # faster than all that was published
    FAR_BELOW_WIRES = "far_below_wires"  # nothing was published, and the wires carry far more
    BELOW_WIRES = "below_wires"  # nothing was published
    CANNOT_TELL = "undecided"
    AS_EXPECTED = "unchanged"
    NEW = "new"  # nothing is expected, because it was not measured before

    @property
    def is_said(self) -> bool:
        """Whether it says how fast a measurement is, although it decides nothing."""
        return self in SAID

    @property
    def acceptance(self) -> Acceptance:
        """What a gate makes of it."""
        if self in FAILING:
            return Acceptance.FAIL
        if self is HeldVerdict.CANNOT_TELL or self.is_said:
            return Acceptance.CANNOT_TELL
        return Acceptance.PASS


FAILING = (
    HeldVerdict.SLOWER,
    HeldVerdict.WRONG,
    HeldVerdict.MISSING,
    HeldVerdict.IMPOSSIBLE,
)
"""The verdicts that fail."""

SAID = (
    HeldVerdict.BELOW_PUBLISHED,
    HeldVerdict.WITHIN_PUBLISHED,
    HeldVerdict.ABOVE_PUBLISHED,
    HeldVerdict.FAR_BELOW_WIRES,
    HeldVerdict.BELOW_WIRES,
)
"""The verdicts that decide nothing, and yet say how fast a measurement is."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What is expected of a measurement; bytes a second of bus bandwidth, or seconds, as the quantity says."""

    low: float  # the lower end of the range; 0 if only its upper end is known
    value: float  # what is likely
    high: float  # the upper end of the range
    origin: str  # where it comes from, such as PUBLISHED
    sources: tuple[str, ...] = ()  # the independent sources, as they are to be named
    # the bound of the wires as bus bandwidth; None if the machine does not say it
    wire_Bps: float | None = None
    # what a ring gets out of the wires, where it is likely and the bound is that of other algorithms
    ring_Bps: float | None = None
    ring_wires: str = ""  # the wires that bound the ring
    gpus: tuple[str, ...] = ()  # those that published figures are of
    # those that published figures are of, the oldest first; empty for an unknown one
    libraries: tuple[str, ...] = ()
    lacking: str = ""  # of an origin of SAYING, why it decides nothing
    excuse: str = ""  # why a healthy measurement may be below it; empty if none may

    def contains(self, measured: float) -> bool:
        """Return whether a measurement is in the range, its ends included."""
        return self.low <= measured <= self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A measurement, what is expected of it, and the verdict.

    Each origin of expectations has a subclass: it adds what was measured, and names the keys of its
    JSON.
    """

    # the keys of JSON, with the path of each value, such as ``expected.low``
    KEYS: ClassVar[Mapping[str, str]] = {}
    # the types of keys that a subclass adds, and of those of whose values a type says too little
    FURTHER: ClassVar[Mapping[str, Any]] = {}

    measured: float | None  # the measured quantity; None without a result
    expected: Expected | None  # None if nothing can be expected
    verdict: HeldVerdict
    reason: str = ""  # why it is wrong or missing, or why it cannot be told; else empty
    quantity: str = TIME  # RATE or TIME

    @property
    def acceptance(self) -> Acceptance:
        """What a gate makes of the verdict."""
        return self.verdict.acceptance

    @property
    def ratio(self) -> float | None:
        """The measured over the expected quantity; None without either."""
        if self.measured is None or self.expected is None:
            return None
        return self.measured / self.expected.value

    @classmethod
    def json_record(cls) -> Any:
        """Return the type of its JSON."""
        types = {}
        for key, path in cls.KEYS.items():
            kind = type_at(cls, path)
            if path in EMPTY_IF_ABSENT:
                kind = kind | None
            types[key] = kind
        return typed_dict(f"{cls.__name__}Json", {**types, **cls.FURTHER})

    def to_json(self) -> dict[str, Any]:
        """Return the judgement as JSON has it, in SI units; absent values are None."""
        return {key: _value_at(self, path) for key, path in self.KEYS.items()}


EMPTY_IF_ABSENT = "reason", "library", "kind", "basis"
"""The texts of judgements that are empty where JSON has null."""


def _value_at(record: object, path: str) -> Any:
    """Return the value at a path of attributes and keys as JSON has it; None if a part of the path is absent."""
    value: Any = record
    for name in path.split("."):
        if value is None:
            return None
        if isinstance(value, Mapping):
            value = value[name]
        else:
            value = getattr(value, name)
    if value == "" and path in EMPTY_IF_ABSENT:
        return None
    return to_builtins(value)


def verdict_between(time: float, low: float, high: float) -> HeldVerdict:
    """Return the verdict on a time, in any unit, which is as expected from ``low`` to ``high``."""
    if time > high:
        return HeldVerdict.SLOWER
    if time < low:
        return HeldVerdict.FASTER
    return HeldVerdict.AS_EXPECTED
