"""Verdicts on measured numbers: what was expected of a row of results, where that comes from, and whether it is so."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from hpccoll.judge.causes import Cause
from hpccoll.store.rows import Row

PUBLISHED, REFERENCE, MACHINE, MODEL = "published", "reference", "machine", "model"
"""Where an expectation comes from: published figures of a class of machines, the user's reference, the simulation on a
machine file, NCCL's own model."""

LARGEST = 8
"""The large sizes of results are those down to the largest one divided by this."""

RATE, TIME = "busbw_Bps", "time_s"
"""What is judged: bus bandwidth in bytes a second, or the time in seconds."""


class Acceptance(StrEnum):
    """The verdict on a call."""

    PASS = "pass"  # noqa: S105  a verdict, and no password
    FAIL = "fail"
    CANNOT_TELL = "cannot_tell"


@dataclass(frozen=True, slots=True)
class Expected:
    """What is expected of a call; bytes a second of bus bandwidth, or seconds, as the quantity says."""

    low: float  # the lower end of the range
    value: float  # what is likely
    high: float  # the upper end of the range
    origin: str  # PUBLISHED, REFERENCE, MACHINE or MODEL
    sources: tuple[str, ...] = ()  # the independent sources, as they are to be named
    wire_Bps: float | None = None  # the bound of the wires as bus bandwidth; None if the machine does not say it
    gpus: tuple[str, ...] = ()  # those that published figures are of
    libraries: tuple[str, ...] = ()  # those that published figures are of, the oldest first; empty for an unknown one

    def to_json(self) -> dict[str, Any]:
        """Return the expectation as the verdict has it in JSON."""
        return {
            "low": self.low, "expected": self.value, "high": self.high, "wire_Bps": self.wire_Bps,
            "expected_from": self.origin, "sources": list(self.sources), "gpus": list(self.gpus),
            "libraries": [library or None for library in self.libraries],
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Judged:
    """A row of results, with its verdict."""

    row: Row
    quantity: str  # RATE or TIME
    measured: float  # the measured quantity
    expected: Expected | None  # None if nothing can be expected
    verdict: Acceptance
    reason: str = ""  # why it cannot be told, and what is missing; else empty
    causes: tuple[Cause, ...] = ()  # of a fail, the likeliest first
    library: str = ""  # the library of the run, with its version where it is known
    gpu_unnamed: bool = False  # whether the results of a library for GPUs do not say which GPUs ran

    def to_json(self) -> dict[str, Any]:
        """Return the verdict as JSON has it, in SI units; absent values are None."""
        json = _call_to_json(self.row) | {
            "library": self.library or None, "quantity": self.quantity, "measured": self.measured,
            "low": None, "expected": None, "high": None, "wire_Bps": None,
            "verdict": str(self.verdict), "reason": self.reason or None,
            "expected_from": None, "sources": [], "gpus": [], "libraries": [],
            "causes": [cause.to_json() for cause in self.causes],
        }  # fmt: skip
        if self.expected:
            json |= self.expected.to_json()
        return json


def _call_to_json(row: Row) -> dict[str, Any]:
    return {
        "collective": row.collective, "algorithm": row.algorithm, "bytes": row.bytes, "nodes": row.nodes,
        "ranks": row.ranks, "ranks_per_node": row.ranks_per_node, "dtype": row.dtype, "in_place": row.in_place,
    }  # fmt: skip


def of_large_sizes(judged: Sequence[Judged]) -> list[Judged]:
    """Return the rows of the large sizes; ValueError if there are no rows."""
    least = max(judgement.row.requested_bytes for judgement in judged) / LARGEST
    return [judgement for judgement in judged if judgement.row.requested_bytes >= least]
