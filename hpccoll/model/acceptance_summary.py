"""The verdict on results as a whole: that of all rows together, the row that decides it, and what is missing."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

from hpccoll.model.acceptance import RATE, Acceptance, Judged
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
    def parts(self) -> "dict[CallKey, AcceptanceSummary]":
        """The rows of each collective and shape, by size; those that fail first."""
        rows = defaultdict[CallKey, list[Judged]](list)
        for each in sorted(self.judged, key=lambda each: each.row.requested_bytes):
            rows[CallKey.of(each.row).only(*PART)].append(each)
        parts = {key: AcceptanceSummary(of_part, self.against, files=self.files) for key, of_part in rows.items()}
        return dict(sorted(parts.items(), key=lambda part: part[1].verdict is not Acceptance.FAIL))

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


def _margin(judged: Judged) -> float:
    """Return the measured rate over the lowest expected one, or the highest expected time over the measured one."""
    if judged.expected is None:
        return inf
    return judged.measured / judged.expected.low if judged.quantity == RATE else judged.expected.high / judged.measured
