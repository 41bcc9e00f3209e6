"""The comparison of two runs: each case of the old one with the same case of the new one, and a verdict.

| verdict | meaning |
| --- | --- |
| regression, improvement | the shift is no chance, and at least as large as the smallest change that matters |
| unchanged | the whole interval of the shift is smaller than that |
| undecided | neither: the rounds are too noisy to tell |
| missing | the old run has a result, the new one has none |
| wrong | the new result is wrong, or failed |
| new | only the new run has a result |
"""

import json
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from statistics import median
from typing import Any

from hpccoll.analysis.setting import Choice
from hpccoll.analysis.shift import FALSE_DISCOVERIES, RunSpread, Shift, shifts
from hpccoll.analysis.step_comparison import late_words
from hpccoll.common.decided_cases import DecidedCases
from hpccoll.common.errors import UnusableError
from hpccoll.common.units import format_count, format_seconds, format_size
from hpccoll.judge.provenance_changes import Facts, changes, facts_of_runs
from hpccoll.judge.side_by_side import SideBySide, side_by_side
from hpccoll.store.call_key import CallKey
from hpccoll.store.host_load import busy_hosts, describe_busy
from hpccoll.store.rows import Results, Row, Run

REGRESSION, IMPROVEMENT, UNCHANGED, UNDECIDED = "regression", "improvement", "unchanged", "undecided"
MISSING, WRONG, NEW = "missing", "wrong", "new"
PLURALS = {
    REGRESSION: "regressions", WRONG: "wrong", MISSING: "missing", IMPROVEMENT: "improvements", UNDECIDED: "undecided",
    UNCHANGED: "unchanged", NEW: "new",
}  # fmt: skip
"""The verdicts in the plural, the keys of the JSON, in the order in which they are reported."""
VERDICTS = tuple(PLURALS)

MAY_CHANGE = "racks", "machine", "executor", "kind"
"""What may differ between the results of one case in two runs; in one run, results that differ in it are two cases."""

COORDINATES = "collective", "algorithm", "requested_bytes", "in_place", "ranks", "nodes"
"""What charts group cases by."""

BAD = "wrong", "failed"
"""The statuses of results that count as wrong."""

WORSE = REGRESSION, WRONG, MISSING

MIN_COMMON = 10
"""The fewest cases whose median shift says something about all of them."""

TOLERANCE = 0.05
"""The smallest change that matters, unless another one is requested."""

MAX_ROUNDS = 20
"""The most rounds of each run that a reason recommends: more are no remedy for noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedCase:
    """A case of a run, or of a reference."""

    identity: str  # what was asked, as JSON; equal for equal cases of both sides
    case_id: str  # the id of the case
    label: str  # the case in words
    coordinates: Mapping[str, Any]  # its COORDINATES
    status: str  # the status of its row; ``ok`` in a reference
    reason: str | None  # why the status is not ok
    seconds: float | None  # the time; None without one
    samples: Sequence[float]  # the times that its spread is known from, in seconds
    # of a training step, transfer and waiting in seconds, and which rank is late, in words
    waiting: tuple[float, float, str] | None = None

    @property
    def timed(self) -> bool:
        """Whether it has a time, above 0."""
        return self.status in ("ok", "partial") and bool(self.seconds)

    def differences(self, other: "ComparedCase") -> list[tuple[str, Any, Any]]:
        """Return the names and both values of what makes the cases different ones."""
        mine, others = json.loads(self.identity), json.loads(other.identity)
        names = dict.fromkeys((*mine, *others))
        return [(name, mine.get(name), others.get(name)) for name in names if mine.get(name) != others.get(name)]


def cases_of_rows(rows: Iterable[Row], runs: Iterable[Run] = ()) -> dict[str, ComparedCase]:
    """Return the measured cases by what was asked; of several rows of one case the last one."""
    return {case.identity: case for _, case in compared_rows(rows, runs)}


def compared_rows(rows: Iterable[Row], runs: Iterable[Run] = ()) -> list[tuple[Row, ComparedCase]]:
    """Return the measured rows, each with its case.

    Floors are left out: what the harness takes is no operation, and a few clock ticks of it are no regression.
    """
    machines = {run.run_id: run.machine for run in runs}
    measured = [
        (row, Choice.of(row), CallKey.of(row, machines.get(row.run_id, "")))
        for row in rows
        if not (row.predicted or row.floor)
    ]
    alike = defaultdict[tuple[Choice, CallKey], set[CallKey]](set)
    for _, choice, key in measured:
        alike[choice, key.without(*MAY_CHANGE)].add(key)
    return [(each[0], _case_of_row(*each, alike[each[1], each[2].without(*MAY_CHANGE)])) for each in measured]


def _case_of_row(row: Row, choice: Choice, key: CallKey, alike: Collection[CallKey]) -> ComparedCase:
    """Return the case of a row; ``alike`` are the calls of its run that differ in what may change."""
    named = key if len(alike) > 1 else key.without(*MAY_CHANGE)
    values = {name: getattr(named, name) for name in _CALL_FIELDS}
    known = {name: value for name, value in values.items() if value is not None}
    identity = {**known, "algorithm": choice.algorithm, "transport": choice.transport, "params": dict(choice.params)}
    return ComparedCase(
        identity=json.dumps(identity, sort_keys=True), case_id=row.case_id,
        label=", ".join(filter(None, (_label(row), key.label(alike)))),
        coordinates={name: getattr(row, name) for name in COORDINATES}, status=row.status, reason=row.reason,
        seconds=row.median_s, samples=[median for median in row.round_medians_s if median],
        waiting=None if row.transfer_s is None or row.waiting_s is None
        else (row.transfer_s, row.waiting_s, late_words(row)),
    )  # fmt: skip


_CALL_FIELDS = tuple(field.name for field in fields(CallKey))


def _label(row: Row) -> str:
    params = " ".join(f"{name}={value}" for name, value in sorted(row.params.items()))
    how = " ".join(filter(None, (row.algorithm, params, "" if row.transport == "mpi" else f"over {row.transport}")))
    op = f" {row.op}" if row.op else ""
    where = f"{format_count(row.ranks, 'rank')} on {format_count(row.nodes, 'node')}"
    place = "in place" if row.in_place else "out of place"
    variant = f", {row.variant}" if row.variant else ""
    source = f", by {row.source}" if row.imported else ""
    return (
        f"{row.collective} {format_size(row.requested_bytes)} {how}, {row.dtype}{op} {place}, {where}{variant}{source}"
    )


@dataclass(frozen=True, slots=True)
class CaseComparison:
    """A case in both runs."""

    identity: str  # as that of a ``ComparedCase``
    case_id: str  # the id of the case, in the new run if it has one there
    label: str  # the case in words
    coordinates: Mapping[str, Any]  # its COORDINATES
    verdict: str  # one of VERDICTS
    old_s: float | None  # the median in the old run in seconds; None without a result
    new_s: float | None  # likewise in the new run
    shift: Shift | None  # the shift; None if it is unknown
    reason: str | None = None  # why the case is wrong, missing or undecided

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as JSON has it; absent values are None."""
        return {
            "case_id": self.case_id, "case": self.label, **self.coordinates, "old_s": self.old_s, "new_s": self.new_s,
            **{name: getattr(self.shift, name, None) for name in ("factor", "low", "high", "p_value")},
            "reason": self.reason,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs."""

    cases: Sequence[CaseComparison]  # the cases by verdict, the largest change first
    changes: Mapping[str, tuple[str, str]]  # what else changed: its name, and its values before and now
    loads: tuple[str | None, str | None]  # what disturbed each of the runs, in words: old, new; None if nothing did
    tolerance: float  # the smallest change that matters
    beside: Sequence[SideBySide] = ()  # results of other programs in one run, next to ours in the other one
    unit: str = "round"  # what a sample is: a ``round`` of a run, or a ``run`` of a reference

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as JSON: a list of cases for each verdict, changes and loads."""
        return {
            **{key: [case.to_json() for case in self.of(verdict)] for verdict, key in PLURALS.items()},
            "changes": {name: {"old": old, "new": new} for name, (old, new) in self.changes.items()},
            "loads": {"old": self.loads[0], "new": self.loads[1]},
            "tolerance": self.tolerance,
            "beside": [pair.to_json() for pair in self.beside],
        }

    @property
    def common_factor(self) -> float | None:
        """The median of all factors: what a change that slows everything moves; None with few cases."""
        factors = self.factors(*VERDICTS)
        return median(factors) if len(factors) >= MIN_COMMON else None

    @property
    def by_call(self) -> "dict[tuple[str, int, int], Comparison]":
        """The comparison of each collective, number of ranks and number of nodes; those that became worse first."""
        cases = defaultdict[tuple[str, int, int], list[CaseComparison]](list)
        for case in self.cases:
            where = case.coordinates
            cases[where["collective"], where["ranks"], where["nodes"]].append(case)
        parts = {call: replace(self, cases=of_call, beside=()) for call, of_call in sorted(cases.items())}
        return dict(sorted(parts.items(), key=lambda part: not part[1].worse))

    def factors(self, *verdicts: str) -> list[float]:
        """Return the times of the new run over those of the old one, ascending, of the cases of some verdicts."""
        return sorted(case.shift.factor for case in self.cases if case.shift and case.verdict in verdicts)

    @property
    def worse(self) -> bool:
        return any(case.verdict in WORSE for case in self.cases)

    def decided_cases(self, required: int | None = None) -> DecidedCases:
        """Return how many cases are decided, of those that the old run has; ``required`` of them must be [half]."""
        cases = len(self.cases) - len(self.of(NEW))
        return DecidedCases(cases - len(self.of(UNDECIDED)), cases, "case", required)

    def of(self, verdict: str) -> list[CaseComparison]:
        """Return the cases of a verdict."""
        return [case for case in self.cases if case.verdict == verdict]


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a comparison."""

    cases: Mapping[str, ComparedCase]  # its cases by what was asked
    facts: Facts  # what its runs were measured with
    load: str | None = None  # what disturbed its runs, in words; None if nothing did
    gaps: Mapping[str, str] = field(default_factory=dict)  # why cases have no result, by the id of the case
    of_runs: bool = False  # whether samples are times of runs, not of rounds: the side is a reference

    @classmethod
    def of(cls, results: Results, sources: Collection[str | None] | None = None) -> "Side":
        """Return the side of a run, with the results of the programs ``sources`` [all]."""
        busy = [load for run in results.runs for load in busy_hosts(run.provenance)]
        load = describe_busy(busy) if busy else None
        gaps = {gap.case: gap.reason for gap in (*results.skipped, *results.missing)}
        rows = (row for row in results.rows if sources is None or row.source in sources)
        return cls(cases_of_rows(rows, results.runs), facts_of_runs(results.runs), load, gaps)


def compare(old: Results, new: Results, tolerance: float = TOLERANCE) -> Comparison:
    """Compare two runs; a change of less than the tolerance does not matter.

    Raises:
        UnusableError: if the runs have no case in common.
    """
    beside = [
        pair
        for theirs, ours in ((old, new), (new, old))
        for pair in side_by_side((row for row in theirs.rows if row.imported), ours.ours.rows)
        if pair.ours
    ]
    programs = [{row.source for row in results.rows} for results in (old, new)]
    sources = programs[0] & programs[1]
    sides = Side.of(old, sources), Side.of(new, sources)
    if not sides[0].cases.keys() & sides[1].cases.keys():
        if beside and not sources:
            return Comparison((), {}, (sides[0].load, sides[1].load), tolerance, beside)
        of_programs = " and ".join(", ".join(sorted(map(str, each))) or "nothing" for each in programs)
        why = _nearest_cases(*(side.cases for side in sides)) or f"the results are of {of_programs}"
        raise UnusableError("hpccoll compare", f"no case in common: {why}")
    return replace(compare_sides(*sides, tolerance), beside=beside)


def _nearest_cases(old: Mapping[str, ComparedCase], new: Mapping[str, ComparedCase]) -> str | None:
    """Return how the first case of the old run differs from the nearest new one; None without cases."""
    if not old or not new:
        return None
    first = next(iter(old.values()))
    nearest = min(new.values(), key=lambda case: len(first.differences(case)))
    differences = ", ".join(f"{name} {before}, now {now}" for name, before, now in first.differences(nearest))
    return f"{first.label} is nearest to {nearest.label}; they differ in {differences}"


def compare_sides(old: Side, new: Side, tolerance: float) -> Comparison:
    """Compare two sides: two runs, or a reference and a run."""
    before, after = old.cases, new.cases
    if old.of_runs:  # the unit of a reference is the run
        after = {key: replace(case, samples=[case.seconds] if case.seconds else []) for key, case in after.items()}
    common = [key for key in before if key in after and before[key].timed and after[key].timed]
    samples, of_new = ([side[key].samples for key in common] for side in (before, after))
    found: Sequence[Shift | None] = []
    if common and old.of_runs:
        sizes = [before[key].coordinates["requested_bytes"] for key in common]
        found = RunSpread.of(samples, sizes).shifts([each for (each,) in of_new])
    elif common:
        found = shifts(samples, of_new)
    moved = dict(zip(common, found, strict=True))
    pairs = {key: (before.get(key), after.get(key)) for key in {**before, **after}}
    cases = []
    for key, pair in pairs.items():
        case, shift = pair[1] or pair[0], moved.get(key)
        if case and any(each and (each.timed or each.status in BAD) for each in pair):  # else neither could measure it
            verdict, reason = _verdict(*pair, shift, old, new, tolerance)
            old_s, new_s = (each.seconds if each and each.timed else None for each in pair)
            about = case.identity, case.case_id, case.label, case.coordinates
            cases.append(CaseComparison(*about, verdict, old_s, new_s, shift, reason))
    cases.sort(key=_rank)
    unit = "run" if old.of_runs else "round"
    return Comparison(cases, dict(changes(old.facts, new.facts)), (old.load, new.load), tolerance, unit=unit)


def _rank(case: CaseComparison) -> tuple[int, float, str]:
    """Return the sort key of a case: by verdict, the largest change first."""
    change = abs(math.log(case.shift.factor)) if case.shift else 0.0
    return VERDICTS.index(case.verdict), -change, case.label


def _verdict(
    before: ComparedCase | None, after: ComparedCase | None, shift: Shift | None, old: Side, new: Side,
    tolerance: float,
) -> tuple[str, str | None]:  # fmt: skip
    if after is not None and after.status in BAD:
        return WRONG, after.reason
    if after is not None and after.timed and (before is None or not before.timed):
        return NEW, None
    if before is None or after is None or not after.timed:
        gap = new.gaps.get(before.case_id) if before else None
        return MISSING, (after.reason if after else None) or gap or "the new run does not have it"
    verdict, reason = verdict_on_shift(shift, min(len(before.samples), len(after.samples)), tolerance)
    if verdict == UNDECIDED and old.of_runs:
        return verdict, "the runs of the reference differ by more than the tolerance"
    if verdict in (REGRESSION, IMPROVEMENT) and before.waiting and after.waiting:
        transfer, waiting, late = after.waiting
        earlier = [format_seconds(each) for each in before.waiting[:2]]
        what = f"transfer {format_seconds(transfer)}, was {earlier[0]}; waiting up to {format_seconds(waiting)}, was"
        return verdict, "; ".join(filter(None, (f"{what} {earlier[1]}", late)))
    return verdict, reason


def verdict_on_shift(shift: Shift | None, rounds: int, tolerance: float) -> tuple[str, str | None]:
    """Return the verdict on a shift, and its reason if it needs one; ``rounds`` are those of the run with fewer."""
    if shift is None:
        return UNDECIDED, "the rounds of both runs are too few: measure at least two"
    low, high = 1 / (1 + tolerance), 1 + tolerance
    if shift.p_value <= FALSE_DISCOVERIES and not low < shift.factor < high:
        return (REGRESSION if shift.factor > 1 else IMPROVEMENT), None
    if low < shift.low and shift.high < high:
        return UNCHANGED, None
    needed = max(shift.rounds_to_decide(tolerance), rounds + 1)
    if needed > MAX_ROUNDS:
        return UNDECIDED, f"even {max(MAX_ROUNDS, rounds)} rounds of each run would not decide"
    return UNDECIDED, f"about {needed} rounds of each run would decide"


def check_tolerance(tolerance: float, key: str = "--tolerance") -> None:
    """Check that a tolerance, which the option or argument ``key`` names, is a share between 0 and 1.

    Raises:
        UnusableError: if it is not.
    """
    if not 0 < tolerance < 1:
        raise UnusableError(key, f"{tolerance:g} is no share between 0 and 1, such as 0.05")
