"""The verdict on results as a whole: that of all rows together, the row that decides it, and what is missing."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, TypeVar

from hpccoll.common.decided_cases import DecidedCases
from hpccoll.common.text import Finding
from hpccoll.evidence.defects import FittingDefect, surest_of_each
from hpccoll.judge.acceptance import Judged, of_large_sizes
from hpccoll.judge.causes import Cause
from hpccoll.judge.held import PUBLISHED, RATE, Acceptance, HeldVerdict
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
    # the least number of rows to be judged of each file; None: see ``is_undecided``
    required: int | None = None
    # the names of the files of runs, by run_id
    files: Mapping[str, str] = field(default_factory=dict)
    missing: int = 0  # the number of cases of the reference that the results lack
    geometries: Sequence[Finding] = ()  # the slow geometries, which change no verdict

    def of(self, *accepted: Acceptance) -> list[Judged]:
        """Return the rows that pass, fail or cannot be told."""
        return [judgement for judgement in self.judged if judgement.acceptance in accepted]

    @property
    def decided(self) -> Mapping[str, int]:
        """The numbers of rows that pass or fail, by file."""
        counts = dict.fromkeys(self.files.values() or [""], 0)
        for judgement in self.of(Acceptance.PASS, Acceptance.FAIL):
            file = self.files.get(judgement.row.run_id, "")
            counts[file] = counts.get(file, 0) + 1
        return counts

    @property
    def is_short(self) -> bool:
        """Whether fewer rows of a file are judged than required, or a reference has more cases."""
        least = self.required or 0
        return least > min(self.decided.values()) or bool(least and self.missing)

    @property
    def open(self) -> list[Judged]:
        """The large sizes of each collective, place, run and type of elements if none of them passes."""

        def curve(judgement: Judged) -> object:
            return CallKey.of(judgement.row).only(*PART, "dtype"), judgement.row.run_id

        still_open = []
        for rows in _grouped(self.judged, curve).values():
            large = of_large_sizes(rows)
            if not any(judgement.acceptance is Acceptance.PASS for judgement in large):
                still_open += large
        return still_open

    @property
    def verdict(self) -> Acceptance:
        """The verdict on all rows: one that fails decides; all pass if a large size of each curve does."""
        if self.of(Acceptance.FAIL):
            return Acceptance.FAIL
        if self.open or self.is_short or not self.judged:
            return Acceptance.CANNOT_TELL
        return Acceptance.PASS

    @property
    def is_refused(self) -> bool:
        """Whether a gate must not open: a row fails, rows are required and not all passes, or nothing is decided."""
        if self.required and self.verdict is not Acceptance.PASS:
            return True
        return self.verdict is Acceptance.FAIL or self.is_undecided

    @property
    def decided_rows(self) -> DecidedCases:
        """How many of all rows pass, fail, or are said to be as fast as something."""
        said = [judgement for judgement in self.judged if judgement.verdict.is_said]
        decided = sum(self.decided.values()) + len(said)
        return DecidedCases(decided, len(self.judged), "row", self.required)

    @property
    def is_undecided(self) -> bool:
        """Whether the whole cannot be told, and too few rows can, unless the user requires a number of them."""
        is_open = self.required is None and self.verdict is Acceptance.CANNOT_TELL
        return is_open and self.decided_rows.are_few

    @property
    def decisive(self) -> Judged | None:
        """The largest row that is wrong, or that fails, or of the verdict.

        Of rows of one size it is the one farthest below its range; None without rows.
        """
        failed = self.of(Acceptance.FAIL)
        if failed:
            wrong = [judgement for judgement in failed if judgement.verdict is HeldVerdict.WRONG]
            return min(wrong or failed, key=_weight)
        return min(self.open or self.of(Acceptance.PASS), key=_weight, default=None)

    @property
    def parts(self) -> "list[AcceptanceSummary]":
        """The rows of each collective, place and quantity, by size; those that fail first.

        Types of elements, placements and algorithms are several curves of a part.
        """

        def part_of(judgement: Judged) -> object:
            return CallKey.of(judgement.row).only(*PART), judgement.quantity

        by_size = sorted(self.judged, key=lambda judgement: judgement.row.bytes)
        groups = _grouped(by_size, part_of)
        parts = [
            replace(self, judged=rows, required=None, missing=0, geometries=())
            for rows in groups.values()
        ]
        return sorted(parts, key=lambda part: part.verdict is not Acceptance.FAIL)

    @property
    def causes(self) -> Mapping[str, Sequence[Cause]]:
        """The causes of low rows by what they follow from; those of the decisive row first, in their order.

        If rows fail, they are those of failed rows alone. Symptoms with the same causes, such as
        those of two collectives, are joined with semicolons.
        """
        low = self.of(Acceptance.FAIL)
        if not low:
            low = [judgement for judgement in self.judged if judgement.is_low]
        low.sort(key=_weight)
        causes = dict.fromkeys(cause for judgement in low for cause in judgement.causes)
        by_symptom = _grouped(causes, lambda cause: cause.because)

        def checks(symptom: str) -> object:
            return tuple((cause.what, cause.check) for cause in by_symptom[symptom])

        alike = _grouped(by_symptom, checks)
        return {"; ".join(symptoms): by_symptom[symptoms[0]] for symptoms in alike.values()}

    @property
    def defects(self) -> Sequence[FittingDefect]:
        """The known defects that fit failed rows, each as it fits best, the surest first."""
        fits = [fit for judgement in self.of(Acceptance.FAIL) for fit in judgement.defects]
        return surest_of_each(fits)

    @property
    def reasons(self) -> Mapping[str, Sequence[Judged]]:
        """The rows that cannot be told, by the reason."""
        return _grouped(self.of(Acceptance.CANNOT_TELL), lambda judgement: judgement.reason)

    @property
    def origins(self) -> Mapping[str, Sequence[Judged]]:
        """The rows with an expectation, by where that comes from."""
        origins: dict[str, list[Judged]] = defaultdict(list)
        for judgement in self.judged:
            if judgement.expected and judgement.expected.origin:
                origins[judgement.expected.origin].append(judgement)
        return origins

    @property
    def of_unnamed_gpus(self) -> Sequence[Judged]:
        """The rows that are held against figures of some GPUs, although the results do not say which GPUs ran."""
        published = self.origins.get(PUBLISHED, ())
        return [judgement for judgement in published if judgement.gpu_unnamed]

    def to_json(self) -> list[dict[str, Any]]:
        """Return the rows as JSON has them, in SI units; absent values are None."""
        return [
            judgement.to_json() | {"file": self.files.get(judgement.row.run_id)}
            for judgement in self.judged
        ]


def _grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> Mapping[Key, Sequence[Item]]:
    groups = defaultdict[Key, list[Item]](list)
    for item in items:
        groups[key(item)].append(item)
    return groups


def _weight(judged: Judged) -> tuple[float, float]:
    """Return the sort key of rows: the largest first; of one size that farthest below its range first.

    How far that is, is the measured rate over the lowest expected one, or the highest expected time
    over the measured.
    """
    return -judged.row.bytes, _margin(judged)


def _margin(judged: Judged) -> float:
    """Return how many times the lowest expected bandwidth a row has; infinity if nothing is expected."""
    expected = judged.expected
    if expected is None:
        return inf
    if judged.quantity == RATE:
        return judged.measured / (expected.low or expected.high)
    return expected.high / judged.measured
