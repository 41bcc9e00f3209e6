"""The comparison of two runs: each case of the old one with the same case of the new one, and a verdict.

| verdict | meaning |
| --- | --- |
| regression, improvement | the shift is not by chance, and at least as large as the smallest change that matters |
| unchanged | the whole interval of the shift is smaller than that |
| undecided | neither: the rounds are too noisy to tell |
| missing | the old run has a result, the new one has none |
| wrong | the new result is wrong, or failed |
| new | only the new run has a result |
"""

import json
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from statistics import median
from typing import Any, ClassVar, TypedDict

from hpccoll.analysis.late_ranks import late_words
from hpccoll.analysis.setting import Choice
from hpccoll.analysis.shift import FALSE_DISCOVERIES, RunSpread, Shift, shifts
from hpccoll.common.decided_cases import DecidedCases
from hpccoll.common.errors import UnusableError
from hpccoll.common.json_schema import typed_dict
from hpccoll.common.text import Finding, first_few, info
from hpccoll.common.units import format_count, format_seconds, format_size
from hpccoll.evidence.defects import FittingDefectJson, Trouble
from hpccoll.judge.defects_of_runs import (
    NO_DEFECTS,
    CrossedDefects,
    called_collective,
    crossed_defects,
    facts_of_results,
    kind_of_failure,
)
from hpccoll.judge.held import EARLIER_RUN, REFERENCE, Acceptance, Expected, Held, HeldVerdict
from hpccoll.judge.provenance_changes import Facts, changes, facts_of_runs
from hpccoll.judge.side_by_side import SideBySide, SideBySideJson, side_by_side
from hpccoll.store.call_key import CallKey
from hpccoll.store.host_load import describe_disturbance
from hpccoll.store.rows import Results, Row, Run

PLURALS = {verdict: str(verdict) for verdict in HeldVerdict} | {
    HeldVerdict.SLOWER: "regressions",
    HeldVerdict.FASTER: "improvements",
}
"""The verdicts in the plural, the keys of the JSON, in the order in which they are reported."""

MAY_CHANGE = "racks", "machine", "executor", "kind"
"""What may differ between the results of one case in two runs; in one run, results that differ in it are two cases."""

COORDINATES = "collective", "algorithm", "requested_bytes", "in_place", "ranks", "nodes"
"""What charts group cases by."""

BAD = "wrong", "failed"
"""The statuses of results that count as wrong."""

MIN_COMMON = 10
"""The fewest cases whose median shift says something about all of them."""

TOLERANCE = 0.05
"""The smallest change that matters, unless another one is requested."""

MOST_NAMED = 3
"""The most cases that a sentence names."""

MAX_ROUNDS = 20
"""The most rounds of each run that a reason recommends: more do not help against noise."""


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
    # of a reference: the ends of what one more run is expected to take
    bounds: tuple[float, float] | None = None
    # of a training step, transfer and waiting in seconds, and which rank is late, in words
    waiting: tuple[float, float, str] | None = None
    order: str | None = None  # the digest of the order in which its sum is added, if known

    @property
    def timed(self) -> bool:
        """Whether it has a time, above 0."""
        return self.status in ("ok", "partial") and bool(self.seconds)

    @property
    def has_result(self) -> bool:
        """Whether it has a time, or a result that is not right."""
        return self.timed or self.status in BAD

    def differences(self, other: "ComparedCase") -> list[tuple[str, Any, Any]]:
        """Return the names and both values of what makes the cases different ones."""
        mine = json.loads(self.identity)
        theirs = json.loads(other.identity)
        different = []
        for name in mine | theirs:
            if mine.get(name) != theirs.get(name):
                different.append((name, mine.get(name), theirs.get(name)))
        return different


def cases_of_rows(rows: Iterable[Row], runs: Iterable[Run] = ()) -> dict[str, ComparedCase]:
    """Return the measured cases by what was asked; the last one if a case has several rows."""
    return {case.identity: case for _, case in compared_rows(rows, runs)}


def compared_rows(rows: Iterable[Row], runs: Iterable[Run] = ()) -> list[tuple[Row, ComparedCase]]:
    """Return the measured rows, each with its case.

    Floors are left out: they measure the harness, and a change by a few ticks of its clock is not a
    regression.
    """
    machines = {run.run_id: run.machine for run in runs}
    # the calls that differ in what may change
    calls = defaultdict[tuple[Choice, CallKey], set[CallKey]](set)
    measured: list[tuple[Row, Choice, CallKey]] = []
    for row in rows:
        if row.predicted or row.floor:
            continue
        choice = Choice.of(row)
        key = CallKey.of(row, machines.get(row.run_id, ""))
        measured.append((row, choice, key))
        calls[choice, key.without(*MAY_CHANGE)].add(key)
    cases = []
    for row, choice, key in measured:
        alike = calls[choice, key.without(*MAY_CHANGE)]
        cases.append((row, _case_of_row(row, choice, key, alike)))
    return cases


def _case_of_row(
    row: Row, choice: Choice, key: CallKey, alike: Collection[CallKey]
) -> ComparedCase:
    """Return the case of a row; ``alike`` are the calls of its run that differ in what may change."""
    waiting = None
    if row.transfer_s is not None and row.waiting_s is not None:
        waiting = row.transfer_s, row.waiting_s, late_words(row)
    named = key
    if len(alike) == 1:
        named = key.without(*MAY_CHANGE)
    label = _label(row)
    difference = key.label(alike)
    if difference:
        label = f"{label}, {difference}"
    return ComparedCase(
        identity=_identity(choice, named),
        case_id=row.case_id,
        label=label,
        coordinates={name: getattr(row, name) for name in COORDINATES},
        status=row.status,
        reason=row.reason,
        seconds=row.median_s,
        samples=[seconds for seconds in row.round_medians_s if seconds],
        waiting=waiting,
        order=row.order,
    )


def _identity(choice: Choice, key: CallKey) -> str:
    """Return what was asked, as JSON with sorted keys."""
    request: dict[str, Any] = {}
    for name in _CALL_FIELDS:
        value = getattr(key, name)
        if value is not None:
            request[name] = value
    request |= {
        "algorithm": choice.algorithm,
        "transport": choice.transport,
        "params": dict(choice.params),
    }
    return json.dumps(request, sort_keys=True)


_CALL_FIELDS = tuple(field.name for field in fields(CallKey))


def _label(row: Row) -> str:
    how = [row.algorithm]
    how += [f"{name}={value}" for name, value in sorted(row.params.items())]
    if row.transport != "mpi":
        how.append(f"over {row.transport}")
    elements = f"{row.dtype} {row.op}" if row.op else row.dtype
    placement = "in place" if row.in_place else "out of place"
    words = [
        f"{row.collective} {format_size(row.requested_bytes)} {' '.join(how)}",
        f"{elements} {placement}",
        f"{format_count(row.ranks, 'rank')} on {format_count(row.nodes, 'node')}",
    ]
    if row.variant:
        words.append(row.variant)
    if row.imported:
        words.append(f"by {row.source}")
    return ", ".join(words)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseComparison(Held):
    """A case in both runs: the time in the new run, held against that in the old one, or against a reference."""

    KEYS: ClassVar[Mapping[str, str]] = {
        "case_id": "case.case_id",
        "case": "case.label",
        **{name: f"case.coordinates.{name}" for name in COORDINATES},
        "old_s": "expected.value",
        "new_s": "measured",
        "factor": "shift.factor",
        "low": "shift.low",
        "high": "shift.high",
        "p_value": "shift.p_value",
        "reason": "reason",
    }
    FURTHER: ClassVar[Mapping[str, Any]] = {
        "collective": str,
        "algorithm": str,
        "requested_bytes": int,
        "in_place": bool,
        "ranks": int,
        "nodes": int,
    }

    case: ComparedCase  # the case in the new run if it has it, else in the old one
    shift: Shift | None  # the shift; None if it is unknown

    def trouble(self) -> Trouble | None:
        """Return what is wrong with the slower run, for known defects; None if no run is slower or wrong."""
        identity = json.loads(self.case.identity)
        where = self.case.coordinates
        kind, share = "slow", None
        if self.verdict is HeldVerdict.WRONG:
            kind = kind_of_failure(self.case.status, self.reason)
        elif self.verdict not in (HeldVerdict.SLOWER, HeldVerdict.FASTER):
            return None
        elif self.shift:
            share = math.exp(-abs(math.log(self.shift.factor)))
        return Trouble(
            kind=kind,
            transport=identity["transport"],
            collective=called_collective(where["collective"], where["algorithm"]),
            nbytes=where["requested_bytes"],
            share=share,
            nodes=where["nodes"],
            ranks=where["ranks"],
            device=identity.get("device", ""),
            text=self.reason,
        )


class OldAndNew(TypedDict):
    """What was and what is, in words."""

    old: str | None
    new: str | None


class GeometryJson(TypedDict):
    """A finding on a geometry; further keys are its values, which its kind decides."""

    kind: str
    text: str


class OrderChangeJson(TypedDict):
    """That cases add in another order than before."""

    kind: str
    text: str
    cases: list[str]


class _ComparisonKeys(TypedDict):
    changes: dict[str, OldAndNew]
    loads: OldAndNew
    tolerance: float
    beside: list[SideBySideJson]
    geometries: list[GeometryJson]
    orders: list[OrderChangeJson]
    defects: list[FittingDefectJson]
    ended_defects: list[FittingDefectJson]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs."""

    cases: Sequence[CaseComparison]  # the cases by verdict, the largest change first
    # what else changed: its name, and its values before and now
    changes: Mapping[str, tuple[str, str]]
    # what disturbed each of the runs, in words: old, new; None if nothing did
    loads: tuple[str | None, str | None]
    tolerance: float  # the smallest change that matters
    # results of other programs in one run, next to ours in the other one
    beside: Sequence[SideBySide] = ()
    unit: str = "round"  # what a sample is: a ``round`` of a run, or a ``run`` of a reference
    # the geometries that became slower while others did not; they change no verdict
    geometries: Sequence[Finding] = ()
    # that cases add in another order than before, and so have other bits; it changes no verdict
    orders: Sequence[Finding] = ()
    defects: CrossedDefects = (
        NO_DEFECTS  # known ones that the change from run to run began or ended
    )

    @staticmethod
    def json_record() -> Any:
        """Return the type of its JSON."""
        case = CaseComparison.json_record()
        cases: Any = list[case]  # type: ignore[valid-type]  # made of its keys
        by_verdict = dict.fromkeys(PLURALS.values(), cases)
        return typed_dict("ComparisonJson", by_verdict, _ComparisonKeys)

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as JSON: a list of cases for each verdict, changes and loads."""
        content: dict[str, Any] = {key: [] for key in PLURALS.values()}
        for held in self.cases:
            content[PLURALS[held.verdict]].append(held.to_json())
        changed = {}
        for name, (old, new) in self.changes.items():
            changed[name] = {"old": old, "new": new}
        old_load, new_load = self.loads
        content["changes"] = changed
        content["loads"] = {"old": old_load, "new": new_load}
        content["tolerance"] = self.tolerance
        content["beside"] = [pair.to_json() for pair in self.beside]
        content["geometries"] = [_finding_json(finding) for finding in self.geometries]
        content["orders"] = [_finding_json(finding) for finding in self.orders]
        content["defects"] = [fit.to_json() for fit in self.defects.begun]
        content["ended_defects"] = [fit.to_json() for fit in self.defects.ended]
        return content

    @property
    def common_factor(self) -> float | None:
        """The median of all factors: what a change that slows everything moves; None with few cases."""
        factors = self.factors(*HeldVerdict)
        return median(factors) if len(factors) >= MIN_COMMON else None

    @property
    def by_call(self) -> "dict[tuple[str, int, int], Comparison]":
        """The comparison of each collective, number of ranks and number of nodes; those that became worse first."""
        by_call = defaultdict[tuple[str, int, int], list[CaseComparison]](list)
        for held in self.cases:
            where = held.case.coordinates
            call = where["collective"], where["ranks"], where["nodes"]
            by_call[call].append(held)
        parts = {
            call: replace(self, cases=by_call[call], beside=(), geometries=(), orders=())
            for call in sorted(by_call)
        }
        worst_first = sorted(parts, key=lambda call: not parts[call].worse)
        return {call: parts[call] for call in worst_first}

    def factors(self, *verdicts: HeldVerdict) -> list[float]:
        """Return the times of the new run over those of the old one, ascending, of the cases of some verdicts."""
        return sorted(
            held.shift.factor for held in self.cases if held.shift and held.verdict in verdicts
        )

    @property
    def worse(self) -> bool:
        return any(held.acceptance is Acceptance.FAIL for held in self.cases)

    def decided_cases(self, required: int | None = None) -> DecidedCases:
        """Return how many cases are decided, of those that the old run has; ``required`` of them must be [half]."""
        cases = len(self.cases) - len(self.of(HeldVerdict.NEW))
        undecided = len(self.of(HeldVerdict.CANNOT_TELL))
        return DecidedCases(cases - undecided, cases, "case", required)

    def of(self, verdict: HeldVerdict) -> list[CaseComparison]:
        """Return the cases of a verdict."""
        return [held for held in self.cases if held.verdict is verdict]


def _finding_json(finding: Finding) -> dict[str, Any]:
    return {"kind": finding.kind, "text": finding.with_remedy, **finding.values}


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a comparison."""

    cases: Mapping[str, ComparedCase]  # its cases by what was asked
    facts: Facts  # what its runs were measured with
    load: str | None = None  # what disturbed its runs, in words; None if nothing did
    # why cases have no result, by the id of the case
    gaps: Mapping[str, str] = field(default_factory=dict)
    # whether samples are times of runs, not of rounds: the side is a reference
    is_reference: bool = False
    runs: Sequence[str] = ()  # of a reference: its runs, in words

    @property
    def unit(self) -> str:
        """What a sample is."""
        return "run" if self.is_reference else "round"

    def expectation(self, case: ComparedCase | None, tolerance: float) -> Expected | None:
        """Return the time that a case has on this side, and the times that do not differ from it by what matters."""
        if case is None or not case.timed or not case.seconds:
            return None
        if case.bounds:
            low_s, high_s = case.bounds
            return Expected(low_s, case.seconds, high_s, REFERENCE, tuple(self.runs))
        return Expected(
            case.seconds / (1 + tolerance),
            case.seconds,
            case.seconds * (1 + tolerance),
            EARLIER_RUN,
        )

    @classmethod
    def of(cls, results: Results, sources: Collection[str | None] | None = None) -> "Side":
        """Return the side of a run, with the results of the programs ``sources`` [all]."""
        load = describe_disturbance(run.provenance for run in results.runs)
        gaps = {gap.case: gap.reason for gap in (*results.skipped, *results.missing)}
        rows = results.rows
        if sources is not None:
            rows = tuple(row for row in rows if row.source in sources)
        cases = cases_of_rows(rows, results.runs)
        return cls(cases, facts_of_runs(results.runs), load or None, gaps)


def compare(old: Results, new: Results, tolerance: float = TOLERANCE) -> Comparison:
    """Compare two runs; a change of less than the tolerance does not matter.

    Raises:
        UnusableError: if the runs have no case in common.
    """
    beside = [*_pairs_with_ours(old, new), *_pairs_with_ours(new, old)]
    old_programs = {row.source for row in old.rows}
    new_programs = {row.source for row in new.rows}
    common_programs = old_programs & new_programs
    before, after = Side.of(old, common_programs), Side.of(new, common_programs)
    if before.cases.keys() & after.cases.keys():
        return replace(compare_sides(before, after, tolerance), beside=beside)
    if beside and not common_programs:
        return Comparison((), {}, (before.load, after.load), tolerance, beside)
    names = [
        ", ".join(sorted(map(str, programs))) or "nothing"
        for programs in (old_programs, new_programs)
    ]
    why = _nearest_cases(before.cases, after.cases) or f"the results are of {' and '.join(names)}"
    raise UnusableError("compare", f"no case in common: {why}")


def _pairs_with_ours(theirs: Results, ours: Results) -> list[SideBySide]:
    """Return the results of other programs in one run that the other run has results of ours for."""
    imported = [row for row in theirs.rows if row.imported]
    pairs = side_by_side(imported, ours.ours.rows)
    return [pair for pair in pairs if pair.ours]


def _nearest_cases(old: Mapping[str, ComparedCase], new: Mapping[str, ComparedCase]) -> str | None:
    """Return how the first case of the old run differs from the nearest new one; None without cases."""
    if not old or not new:
        return None
    first = next(iter(old.values()))
    nearest = min(new.values(), key=lambda case: len(first.differences(case)))
    differences = [
        f"{name} {before}, now {now}" for name, before, now in first.differences(nearest)
    ]
    return f"{first.label} is nearest to {nearest.label}; they differ in {', '.join(differences)}"


def compare_sides(old: Side, new: Side, tolerance: float) -> Comparison:
    """Compare two sides: two runs, or a reference and a run."""
    shift_of = _shifts_of_common(old, new)
    cases = []
    for key in {**old.cases, **new.cases}:
        before, after = old.cases.get(key), new.cases.get(key)
        sides = [case for case in (after, before) if case]
        if not any(case.has_result for case in sides):
            continue
        shift = shift_of.get(key)
        verdict, reason = _verdict(before, after, shift, old, new, tolerance)
        held = CaseComparison(
            case=sides[0],
            measured=after.seconds if after and after.timed else None,
            expected=old.expectation(before, tolerance),
            verdict=verdict,
            reason=reason,
            shift=shift,
        )
        cases.append(held)
    cases.sort(key=_rank)
    return Comparison(
        cases,
        dict(changes(old.facts, new.facts)),
        (old.load, new.load),
        tolerance,
        unit=old.unit,
        orders=tuple(_order_findings(old, new)),
        defects=_crossed_defects(old, new, cases),
    )


def _order_findings(old: Side, new: Side) -> Iterator[Finding]:
    """Yield that cases add in another order, if both sides know theirs."""
    changed = []
    for key, before in old.cases.items():
        after = new.cases.get(key)
        if after is None or not before.order or not after.order:
            continue
        if before.order != after.order:
            changed.append(after.label)
    if not changed:
        return
    cases = format_count(len(changed), "case")
    names = ", ".join(first_few(changed, MOST_NAMED, "case"))
    text = f"{cases} add in another order than before, with other bits: {names}"
    yield info("order_changed", text, cases=changed)


def _crossed_defects(old: Side, new: Side, cases: Iterable[CaseComparison]) -> CrossedDefects:
    """Return the known defects that fit changed cases of one side and not of the other."""
    worse: list[Trouble] = []
    better: list[Trouble] = []
    for held in cases:
        trouble = held.trouble()
        if trouble is None:
            continue
        if held.verdict is HeldVerdict.FASTER:
            better.append(trouble)
        else:
            worse.append(trouble)
    if not worse and not better:
        return NO_DEFECTS
    return crossed_defects(facts_of_results(old.facts), facts_of_results(new.facts), worse, better)


def _shifts_of_common(old: Side, new: Side) -> dict[str, Shift | None]:
    """Return the shifts of the cases that have times on both sides, by what was asked."""
    pairs: dict[str, tuple[ComparedCase, ComparedCase]] = {}
    for key, before in old.cases.items():
        after = new.cases.get(key)
        if after and before.timed and after.timed:
            pairs[key] = before, after
    if not pairs:
        return {}
    old_samples = [before.samples for before, _ in pairs.values()]
    shifts_of_pairs: Sequence[Shift | None]
    if old.is_reference:
        sizes = [before.coordinates["requested_bytes"] for before, _ in pairs.values()]
        new_seconds = [after.seconds or 0.0 for _, after in pairs.values()]
        shifts_of_pairs = RunSpread.of(old_samples, sizes).shifts(new_seconds)
    else:
        shifts_of_pairs = shifts(old_samples, [after.samples for _, after in pairs.values()])
    return dict(zip(pairs, shifts_of_pairs, strict=True))


def _rank(held: CaseComparison) -> tuple[int, float, str]:
    """Return the sort key of a case: by verdict, the largest change first."""
    change = 0.0
    if held.shift:
        change = abs(math.log(held.shift.factor))
    return _ORDER[held.verdict], -change, held.case.label


_ORDER = {verdict: place for place, verdict in enumerate(HeldVerdict)}


def _verdict(
    before: ComparedCase | None,
    after: ComparedCase | None,
    shift: Shift | None,
    old: Side,
    new: Side,
    tolerance: float,
) -> tuple[HeldVerdict, str]:
    if after is not None and after.status in BAD:
        return HeldVerdict.WRONG, after.reason or ""
    if after is not None and after.timed and (before is None or not before.timed):
        return HeldVerdict.NEW, ""
    if before is None or after is None or not after.timed:
        reason = after.reason if after else None
        gap = new.gaps.get(before.case_id) if before else None
        return HeldVerdict.MISSING, reason or gap or "the new run does not have it"
    rounds = 1 if old.is_reference else min(len(before.samples), len(after.samples))
    verdict, reason = verdict_on_shift(shift, rounds, tolerance)
    if verdict is HeldVerdict.CANNOT_TELL and old.is_reference:
        return verdict, "the runs of the reference differ by more than the tolerance"
    if verdict in (HeldVerdict.SLOWER, HeldVerdict.FASTER) and before.waiting and after.waiting:
        return verdict, _waiting_words(before.waiting, after.waiting)
    return verdict, reason


def _waiting_words(before: tuple[float, float, str], after: tuple[float, float, str]) -> str:
    """Return the transfer and the waiting of a training step in both runs, and which rank is late now."""
    old_transfer, old_waiting, _ = before
    transfer, waiting, late = after
    parts = [
        f"transfer {format_seconds(transfer)}, was {format_seconds(old_transfer)}",
        f"waiting up to {format_seconds(waiting)}, was {format_seconds(old_waiting)}",
        late,
    ]
    return "; ".join(filter(None, parts))


def verdict_on_shift(shift: Shift | None, rounds: int, tolerance: float) -> tuple[HeldVerdict, str]:
    """Return the verdict on a shift, and its reason if it needs one; ``rounds`` are those of the run with fewer."""
    if shift is None:
        return HeldVerdict.CANNOT_TELL, "the rounds of both runs are too few: measure at least two"
    low, high = 1 / (1 + tolerance), 1 + tolerance
    if shift.p_value <= FALSE_DISCOVERIES and not low < shift.factor < high:
        return (HeldVerdict.SLOWER if shift.factor > 1 else HeldVerdict.FASTER), ""
    if low < shift.low and shift.high < high:
        return HeldVerdict.AS_EXPECTED, ""
    needed = max(shift.rounds_to_decide(tolerance), rounds + 1)
    if needed > MAX_ROUNDS:
        return (
            HeldVerdict.CANNOT_TELL,
            f"even {max(MAX_ROUNDS, rounds)} rounds of each run would not decide",
        )
    return HeldVerdict.CANNOT_TELL, f"about {needed} rounds of each run would decide"


def check_tolerance(tolerance: float, key: str = "--tolerance") -> None:
    """Check that a tolerance, which the option or argument ``key`` names, is a share between 0 and 1.

    Raises:
        UnusableError: if it is not.
    """
    if not 0 < tolerance < 1:
        raise UnusableError(key, f"{tolerance:g} is not a share between 0 and 1, such as 0.05")
