"""The verdict on results as a whole: that of all rows together, the row that decides it, and what is missing."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from hpccoll.model.acceptance import RATE, TIME, Acceptance, Judged
from hpccoll.model.causes import Cause
from hpccoll.store.call_key import CallKey

PART = "collective", "nodes", "ranks"
"""What the rows of one curve share; types of elements, placements and algorithms are several curves of a chart."""


@dataclass(frozen=True, slots=True)
class AcceptanceSummary:
    """Rows of results with their verdicts, held against one machine or one reference."""

    judged: Sequence[Judged]
    against: str  # the name of the machine, or the file of the reference
    required: int = 0  # the least number of rows to be judged
    files: Mapping[str, str] = field(default_factory=dict)  # the names of the files of runs, by run_id

    def of(self, verdict: Acceptance) -> list[Judged]:
        """Return the rows of a verdict."""
        return [each for each in self.judged if each.verdict is verdict]

    @property
    def counts(self) -> Mapping[Acceptance, int]:
        """The number of rows of each verdict."""
        found = Counter(each.verdict for each in self.judged)
        return {verdict: found[verdict] for verdict in Acceptance}

    @property
    def decided(self) -> int:
        """The number of rows that pass or fail."""
        return self.counts[Acceptance.PASS] + self.counts[Acceptance.FAIL]

    @property
    def verdict(self) -> Acceptance:
        """The verdict on all rows: one that fails decides; too few that are judged decide nothing."""
        if self.counts[Acceptance.FAIL]:
            return Acceptance.FAIL
        return Acceptance.PASS if self.decided >= max(1, self.required) else Acceptance.CANNOT_TELL

    @property
    def is_refused(self) -> bool:
        """Whether a gate must not open: a row fails, or fewer rows than required are judged."""
        return self.verdict is Acceptance.FAIL or self.decided < self.required

    @property
    def decisive(self) -> Judged | None:
        """The row that is nearest to failing, or the farthest below; None if no row is judged."""
        judged = self.of(Acceptance.FAIL) or self.of(Acceptance.PASS)
        return min(judged, key=_margin, default=None)

    @property
    def parts(self) -> "list[AcceptanceSummary]":
        """The rows of each collective, shape and quantity, by size; parts that fail first.

        Rows of which nothing is expected have the quantity of the others.
        """
        judged = sorted(self.judged, key=lambda each: (each.expected is None, each.row.requested_bytes))
        quantities: dict[CallKey, str] = {}
        rows = defaultdict[tuple[CallKey, str], list[Judged]](list)
        for each in judged:
            key = CallKey.of(each.row).only(*PART)
            usual = quantities.setdefault(key, each.quantity)
            shown = each if each.expected else _in_quantity(each, usual)
            rows[key, shown.quantity].append(shown)
        parts = [
            replace(self, judged=sorted(of_part, key=lambda each: each.row.requested_bytes), required=0)
            for of_part in rows.values()
        ]
        return sorted(parts, key=lambda part: part.verdict is not Acceptance.FAIL)

    @property
    def causes(self) -> Mapping[Cause, Sequence[Judged]]:
        """The rows that each cause explains; the causes of the decisive row first, in their order."""
        explained = defaultdict[Cause, list[Judged]](list)
        for each in sorted(self.of(Acceptance.FAIL), key=_margin):
            for cause in each.causes:
                explained[cause].append(each)
        return explained

    @property
    def reasons(self) -> Mapping[str, Sequence[Judged]]:
        """The rows of which nothing can be told by the reason, the most frequent first."""
        unknown = defaultdict[str, list[Judged]](list)
        for each in self.of(Acceptance.CANNOT_TELL):
            unknown[each.reason].append(each)
        return dict(sorted(unknown.items(), key=lambda reason: -len(reason[1])))

    @property
    def origins(self) -> Mapping[tuple[str, tuple[str, ...]], Sequence[Judged]]:
        """The rows with an expectation, by its origin and its sources."""
        expected = defaultdict[tuple[str, tuple[str, ...]], list[Judged]](list)
        for each in self.judged:
            if each.expected:
                expected[each.expected.origin, each.expected.sources].append(each)
        return expected

    def to_json(self) -> list[dict[str, Any]]:
        """Return the rows as JSON has them, in SI units; absent values are None."""
        return [each.to_json() | {"file": self.files.get(each.row.run_id)} for each in self.judged]


def _in_quantity(judged: Judged, quantity: str) -> Judged:
    """Return a row with its time or its bandwidth as what was measured, if it has that."""
    measured = judged.row.median_s if quantity == TIME else judged.row.busbw_Bps
    return replace(judged, quantity=quantity, measured=measured) if measured else judged


def _margin(judged: Judged) -> float:
    """Return the measured rate over the lowest expected one, or the highest expected time over the measured one.

    Results that are wrong come first: nothing is expected of them.
    """
    if judged.expected is None:
        return -inf
    return judged.measured / judged.expected.low if judged.quantity == RATE else judged.expected.high / judged.measured
