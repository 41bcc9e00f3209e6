"""Verdicts of ``accept``: rows of results, held against a machine or a reference."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from hpccoll.common.json_schema import described
from hpccoll.evidence.defects import FittingDefect, FittingDefectJson
from hpccoll.judge.causes import Cause
from hpccoll.judge.held import Acceptance, Held, HeldVerdict
from hpccoll.store.rows import Row

LARGEST = 8
"""The large sizes of results are those down to the largest one divided by this."""

_CALL = "collective", "algorithm", "bytes", "nodes", "ranks", "ranks_per_node", "dtype", "in_place"
"""The fields of a row that its JSON has."""


_Figure = Annotated[
    float | None,
    described("in bytes per second if quantity is busbw_Bps, in seconds if it is time_s"),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged(Held):
    """A row of results, with its verdict."""

    KEYS: ClassVar[Mapping[str, str]] = {
        **{name: f"row.{name}" for name in _CALL},
        "library": "library",
        "quantity": "quantity",
        "measured": "measured",
        "low": "expected.low",
        "expected": "expected.value",
        "high": "expected.high",
        "wire_Bps": "expected.wire_Bps",
        "ring_Bps": "expected.ring_Bps",
        "verdict": "acceptance",
        "reason": "reason",
        "expected_from": "expected.origin",
        "sources": "expected.sources",
        "gpus": "expected.gpus",
        "libraries": "expected.libraries",
        "causes": "causes",
    }
    FURTHER: ClassVar[Mapping[str, Any]] = {
        "measured": _Figure,
        "low": _Figure,
        "expected": _Figure,
        "high": _Figure,
        "sources": list[str | None],
        "gpus": list[str | None],
        "libraries": list[str | None],
        "defects": list[FittingDefectJson],
        "file": Annotated[str | None, described("the file of the row")],
    }

    row: Row
    measured: float
    causes: tuple[Cause, ...] = ()  # of a low row, the likeliest first
    defects: tuple[FittingDefect, ...] = ()  # known ones that fit a fail, the surest first
    library: str = ""  # the library of the run, with its version where it is known
    gpu_unnamed: bool = False  # whether the results of a library for GPUs do not say which GPUs ran

    @property
    def is_low(self) -> bool:
        """Whether it is lower than others without an excuse, so that it may have causes."""
        if self.verdict is HeldVerdict.IMPOSSIBLE:
            return False
        if self.expected and self.expected.excuse:
            return False
        is_below_published = self.verdict is HeldVerdict.BELOW_PUBLISHED
        return is_below_published or self.acceptance is Acceptance.FAIL

    def to_json(self) -> dict[str, Any]:
        """Return the verdict as JSON has it, in SI units; absent values are None."""
        json = Held.to_json(self)
        for name in ("sources", "gpus", "libraries"):
            json[name] = [entry or None for entry in json[name] or ()]
        json["defects"] = [fit.to_json() for fit in self.defects]
        return json


def of_large_sizes(judged: Sequence[Judged]) -> list[Judged]:
    """Return the rows of the large sizes; ValueError if there are no rows."""
    least = max(judgement.row.requested_bytes for judgement in judged) / LARGEST
    return [judgement for judgement in judged if judgement.row.requested_bytes >= least]
