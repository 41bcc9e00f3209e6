"""The verdict on results as a whole: that of all rows together, the row that decides it, and what is missing."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, TypeVar

from hpccoll.model.acceptance import RATE, Acceptance, Judged
from hpccoll.model.causes import Cause
from hpccoll.store.call_key import CallKey

PART = "collective", "nodes", "ranks"
"""What the rows of a part share, besides the quantity."""

Item = TypeVar("Item")
Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class AcceptanceSummary:
    """Rows of results with their verdicts, held against one machine or one reference."""

    judged: Sequence[Judged]
    against: str  # the name of the machine, or the file of the reference
    required: int = 0  # the least number of rows to be judged
    files: Mapping[str, str] = field(default_factory=dict)  # the names of the files of runs, by run_id

    def of(self, *verdicts: Acceptance) -> list[Judged]:
        """Return the rows of some verdicts."""
        return [each for each in self.judged if each.verdict in verdicts]

    @property
    def decided(self) -> int:
        """The number of rows that pass or fail."""
        return len(self.of(Acceptance.PASS, Acceptance.FAIL))

    @property
    def verdict(self) -> Acceptance:
        """The verdict on all rows: one that fails decides; too few that are judged decide nothing."""
        if self.of(Acceptance.FAIL):
            return Acceptance.FAIL
        return Acceptance.PASS if self.decided >= max(1, self.required) else Acceptance.CANNOT_TELL

    @property
    def is_refused(self) -> bool:
        """Whether a gate must not open: a row fails, or fewer rows than required are judged."""
        return self.verdict is Acceptance.FAIL or self.decided < self.required

    @property
    def decisive(self) -> Judged | None:
        """The failed row that is farthest below its range, or else the largest that passes; None if none is judged."""
        if failed := self.of(Acceptance.FAIL):
            return min(failed, key=_margin)
        return max(self.of(Acceptance.PASS), key=lambda each: (each.row.bytes, -_margin(each)), default=None)

    @property
    def parts(self) -> "list[AcceptanceSummary]":
        """The rows of each collective, place and quantity, by size; those that fail first.

        Types of elements, placements and algorithms are several curves of a part.
        """
        by_size = sorted(self.judged, key=lambda each: each.row.bytes)
        groups = _grouped(by_size, lambda each: (CallKey.of(each.row).only(*PART), each.quantity))
        parts = [replace(self, judged=rows, required=0) for rows in groups.values()]
        return sorted(parts, key=lambda part: part.verdict is not Acceptance.FAIL)

    @property
    def causes(self) -> Mapping[str, Sequence[Cause]]:
        """The causes of failed rows by what they follow from; those of the decisive row first, in their order."""
        failed = sorted(self.of(Acceptance.FAIL), key=_margin)
        return _grouped(dict.fromkeys(cause for each in failed for cause in each.causes), lambda cause: cause.because)

    @property
    def reasons(self) -> Mapping[str, Sequence[Judged]]:
        """The rows of which nothing can be told, by the reason."""
        return _grouped(self.of(Acceptance.CANNOT_TELL), lambda each: each.reason)

    @property
    def origins(self) -> Mapping[str, Sequence[Judged]]:
        """The rows of which something is expected, by where that comes from."""
        by_origin = _grouped(self.judged, lambda each: each.expected.origin if each.expected else "")
        return {origin: rows for origin, rows in by_origin.items() if origin}

    def to_json(self) -> list[dict[str, Any]]:
        """Return the rows as JSON has them, in SI units; absent values are None."""
        return [each.to_json() | {"file": self.files.get(each.row.run_id)} for each in self.judged]


def _grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> Mapping[Key, Sequence[Item]]:
    groups = defaultdict[Key, list[Item]](list)
    for each in items:
        groups[key(each)].append(each)
    return groups


def _margin(judged: Judged) -> float:
    """Return the measured rate over the lowest expected one, or the highest expected time over the measured one.

    Results that are wrong come first: nothing is expected of them.
    """
    if judged.expected is None:
        return -inf
    return judged.measured / judged.expected.low if judged.quantity == RATE else judged.expected.high / judged.measured
