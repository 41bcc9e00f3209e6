"""The comparison of two runs: each case of the old one with the same case of the new one, and a verdict.

| verdict | meaning |
| --- | --- |
| regression, improvement | the shift is no chance, and at least as large as the smallest change that matters |
| unchanged | the whole interval of the shift is smaller than that |
| undecided | neither: more rounds would tell |
| missing | the old run has a result, the new one has none |
| wrong | the new result is wrong, or failed |
| new | only the new run has a result |
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log1p
from typing import Any

from hpccoll.compare.shift import FALSE_DISCOVERIES, Shift, shifts
from hpccoll.errors import UnusableError
from hpccoll.store.host_load import busy_hosts, describe_busy
from hpccoll.store.rows import Results, Row, Run
from hpccoll.units import format_size

REGRESSION, IMPROVEMENT, UNCHANGED, UNDECIDED = "regression", "improvement", "unchanged", "undecided"
MISSING, WRONG, NEW = "missing", "wrong", "new"
VERDICTS = REGRESSION, WRONG, MISSING, IMPROVEMENT, UNDECIDED, UNCHANGED, NEW
"""The verdicts, in the order in which they are reported."""

BAD = "wrong", "failed"
"""The statuses of results that count as wrong."""

WORSE = REGRESSION, WRONG, MISSING

TOLERANCE = 0.05
"""The smallest change that matters, unless another one is requested."""

IDENTITY = (
    "collective", "algorithm", "transport", "device", "dtype", "op", "in_place", "root", "requested_bytes", "timing",
    "variant", "mapping", "ranks", "nodes", "ranks_per_node", "aggregators",
)  # fmt: skip
"""What two rows must share, besides parameters, to be one case: what was asked, and on how many ranks and nodes."""

VOLATILE = (
    "host_load", "launcher", "hosts", "ports", "testbed.calibrated", "testbed.calibration",
    "testbed.uplink_calibration", "testbed.wire_Bps", "testbed.uplink_Bps", "memory_bytes", "order_seed",
)  # fmt: skip
"""Keys of the provenance that differ between any two runs, or are compared by names of their own."""

VOLATILE_VARIABLES = "SLURM_JOB_", "SLURM_STEP_", "SLURM_TOPOLOGY_ADDR", "SLURM_NODE"
"""The beginnings of variables that name the job."""


@dataclass(frozen=True, slots=True)
class CaseComparison:
    """A case in both runs.

    Args:
        case_id: the id of the case, in the new run if it has one there.
        label: the case in words.
        verdict: one of VERDICTS.
        old_s: the median in the old run in seconds; None without a result.
        new_s: likewise in the new run.
        shift: the shift; None if it is unknown.
        reason: why the case is wrong or missing; or how many rounds would decide.
    """

    case_id: str
    label: str
    verdict: str
    old_s: float | None
    new_s: float | None
    shift: Shift | None
    reason: str | None = None

    def row(self) -> dict[str, Any]:
        """Return the comparison as JSON has it; absent values are None."""
        shift = self.shift
        return {
            "case_id": self.case_id, "case": self.label, "old_s": self.old_s, "new_s": self.new_s,
            "factor": shift.factor if shift else None, "low": shift.low if shift else None,
            "high": shift.high if shift else None, "p_value": shift.p_value if shift else None,
            "reason": self.reason,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs.

    Args:
        cases: the cases, worst first.
        changes: what else changed: its name, and its values before and now.
        loads: what disturbed each of the runs, in words: old, new; None if nothing did.
        tolerance: the smallest change that matters.
    """

    cases: Sequence[CaseComparison]
    changes: Mapping[str, tuple[str, str]]
    loads: tuple[str | None, str | None]
    tolerance: float

    @property
    def worse(self) -> bool:
        """Whether a case became slower or wrong, or disappeared."""
        return any(case.verdict in WORSE for case in self.cases)

    def of(self, verdict: str) -> list[CaseComparison]:
        """Return the cases of a verdict."""
        return [case for case in self.cases if case.verdict == verdict]


def compare(old: Results, new: Results, tolerance: float = TOLERANCE) -> Comparison:
    """Compare two runs.

    Args:
        old: the results of the old run.
        new: the results of the new run.
        tolerance: the smallest change that matters: 0.05 is five per cent.

    Raises:
        UnusableError: if the runs have no case in common.
    """
    before, after = _by_identity(old.rows), _by_identity(new.rows)
    common = [key for key in before if key in after and _timed(before[key]) and _timed(after[key])]
    if not before.keys() & after.keys():
        there, here = (next(map(_label, rows.values()), "nothing") for rows in (before, after))
        raise UnusableError("hpccoll compare", f"no case in common: the old run has {there}, the new one {here}")
    found = shifts([_rounds(before[key]) for key in common], [_rounds(after[key]) for key in common])
    moved = dict(zip(common, found, strict=True))
    cases = [
        _case(before.get(key), after.get(key), moved.get(key), new, tolerance)
        for key in before | after
        if _has_result(before.get(key)) or _has_result(after.get(key))  # what neither run could measure is no change
    ]
    cases.sort(key=lambda case: (VERDICTS.index(case.verdict), -(case.shift.factor if case.shift else 0.0), case.label))
    loads = _load(old.runs), _load(new.runs)
    return Comparison(cases, dict(_changes(old.runs, new.runs)), loads, tolerance)


def _by_identity(rows: Iterable[Row]) -> dict[str, Row]:
    """Return the measured rows by what was asked; of several of one case the last one."""
    return {_identity(row): row for row in rows if not row.predicted}


def _identity(row: Row) -> str:
    return json.dumps([*(getattr(row, name) for name in IDENTITY), dict(row.params)], sort_keys=True)


def _timed(row: Row) -> bool:
    return row.status in ("ok", "partial") and row.median_s is not None


def _has_result(row: Row | None) -> bool:
    """Return whether a row says anything: skipped cases do not."""
    return row is not None and (_timed(row) or row.status in BAD)


def _rounds(row: Row) -> list[float]:
    return [median for median in row.round_medians_s if median]


def _label(row: Row) -> str:
    """Return the case in words: what it does, how, and where."""
    params = " ".join(f"{name}={value}" for name, value in sorted(row.params.items()))
    how = " ".join(filter(None, (row.algorithm, params, "" if row.transport == "mpi" else f"over {row.transport}")))
    op = f" {row.op}" if row.op else ""
    where = f"{row.ranks} ranks on {row.nodes} node{'s' * (row.nodes > 1)}"
    place = "in place" if row.in_place else "out of place"
    variant = f", {row.variant}" if row.variant else ""
    return f"{row.collective} {format_size(row.requested_bytes)} {how}, {row.dtype}{op} {place}, {where}{variant}"


def _case(
    before: Row | None, after: Row | None, shift: Shift | None, new: Results, tolerance: float
) -> CaseComparison:  # fmt: skip
    row = after or before
    assert row  # noqa: S101  a key is of one of both
    times = [one.median_s if one and _timed(one) else None for one in (before, after)]
    verdict, reason = _verdict(before, after, shift, new, tolerance)
    return CaseComparison(row.case_id, _label(row), verdict, times[0], times[1], shift, reason)


def _verdict(
    before: Row | None, after: Row | None, shift: Shift | None, new: Results, tolerance: float
) -> tuple[str, str | None]:
    """Return the verdict on a case, and its reason if it needs one."""
    if after is not None and after.status in BAD:
        return WRONG, after.reason
    if after is not None and _timed(after) and (before is None or not _timed(before)):
        return NEW, None
    if before is None or after is None or not _timed(after):
        gaps = (gap.reason for gap in (*new.missing, *new.skipped) if before and gap.case == before.case_id)
        return MISSING, (after.reason if after else None) or next(gaps, "the new run does not have it")
    return verdict_on_shift(shift, min(len(_rounds(before)), len(_rounds(after))), tolerance)


def verdict_on_shift(shift: Shift | None, rounds: int, tolerance: float) -> tuple[str, str | None]:
    """Return the verdict on two results, and its reason if it needs one.

    Args:
        shift: the shift.
        rounds: the rounds of the run with fewer of them.
        tolerance: the smallest change that matters.
    """
    if shift is None:
        return UNDECIDED, "the rounds of both runs are too few: measure at least two"
    low, high = 1 / (1 + tolerance), 1 + tolerance
    if shift.p_value <= FALSE_DISCOVERIES and not low < shift.factor < high:
        return (REGRESSION if shift.factor > 1 else IMPROVEMENT), None
    if low < shift.low and shift.high < high:
        return UNCHANGED, None
    needed = max(shift.rounds_to_decide(tolerance), rounds + 1)
    return UNDECIDED, f"about {needed} rounds of each run would decide"


def _load(runs: Iterable[Run]) -> str | None:
    busy = [load for run in runs for load in busy_hosts(run.provenance)]
    return describe_busy(busy) if busy else None


def _changes(old: Iterable[Run], new: Iterable[Run]) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield what else changed: each value of the provenance that all runs of one side have and the other's do not."""
    sides = [[dict(_flat(run)) for run in runs] for runs in (old, new)]
    for name in sorted({name for side in sides for run in side for name in run}):
        values = [sorted({run.get(name, "none") for run in side}) for side in sides]
        if values[0] != values[1]:
            yield name, (", ".join(values[0]), ", ".join(values[1]))


def _flat(run: Run) -> Iterator[tuple[str, str]]:
    """Yield the names and values of what a run was measured with."""
    hosts = run.provenance.get("hosts")
    yield "hosts", ", ".join(sorted(map(str, hosts))) if isinstance(hosts, list) else str(hosts)
    yield "kind", run.kind
    yield from _flat_values("", run.provenance)


def _flat_values(prefix: str, values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        name = f"{prefix}{key}"
        if name in VOLATILE or (prefix == "variables." and key.startswith(VOLATILE_VARIABLES)):
            continue
        if isinstance(value, Mapping):
            yield from _flat_values(f"{name}.", value)
        else:
            yield name, value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def check_tolerance(tolerance: float) -> None:
    """Check that a tolerance is a share above 0.

    Raises:
        UnusableError: if it is not.
    """
    if not 0 < log1p(tolerance) < 1:
        raise UnusableError("--tolerance", f"{tolerance:g} is no share above 0, such as 0.05")
