"""A comparison as text and as JSON."""

from collections.abc import Iterator
from typing import Any

from hpccoll.compare.comparison import (
    IMPROVEMENT,
    MISSING,
    NEW,
    REGRESSION,
    UNCHANGED,
    UNDECIDED,
    VERDICTS,
    WRONG,
    CaseComparison,
    Comparison,
)
from hpccoll.units import format_seconds

LISTED = {REGRESSION: None, WRONG: None, MISSING: 20, IMPROVEMENT: 20, UNDECIDED: 10, UNCHANGED: 0, NEW: 0}
"""How many cases of each verdict are listed; None for all."""

KEYS = {
    REGRESSION: "regressions", IMPROVEMENT: "improvements", UNCHANGED: "unchanged", UNDECIDED: "undecided",
    MISSING: "missing", WRONG: "wrong", NEW: "new",
}  # fmt: skip
"""The keys of the JSON."""


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """Return the comparison as JSON: a list of cases for each verdict, changes and loads."""
    return {
        **{key: [case.row() for case in comparison.of(verdict)] for verdict, key in KEYS.items()},
        "changes": {name: {"old": old, "new": new} for name, (old, new) in comparison.changes.items()},
        "loads": {"old": comparison.loads[0], "new": comparison.loads[1]},
        "tolerance": comparison.tolerance,
    }  # fmt: skip


def comparison_lines(comparison: Comparison) -> Iterator[str]:
    """Yield the comparison: a summary, the cases by verdict, what else changed, and how busy the machine was."""
    counts = [f"{len(comparison.of(verdict))} {verdict}" for verdict in VERDICTS if comparison.of(verdict)]
    yield f"{len(comparison.cases)} cases: {', '.join(counts)}; changes from {comparison.tolerance:.0%} on matter"
    for verdict, most in LISTED.items():
        cases = comparison.of(verdict)
        if not cases or most == 0:
            continue
        yield f"{verdict}:"
        for case in cases[:most]:
            yield f"  {_line(case)}"
        if most is not None and len(cases) > most:
            yield f"  and {len(cases) - most} more"
    if comparison.changes:
        yield "what else changed:"
        for name, (old, new) in comparison.changes.items():
            yield f"  {name}: {old} before, {new} now"
    for which, load in zip(("old", "new"), comparison.loads, strict=True):
        if load:
            yield f"the {which} run was disturbed: {load}"


def _line(case: CaseComparison) -> str:
    times = [format_seconds(seconds) if seconds else "none" for seconds in (case.old_s, case.new_s)]
    reason = f"; {case.reason}" if case.reason else ""
    if case.shift is None:
        return f"{case.label}: {times[0]} before, {times[1]} now{reason}"
    low, high = (100 * (factor - 1) for factor in (case.shift.low, case.shift.high))
    change = 100 * (case.shift.factor - 1)
    return f"{change:+.1f} % ({low:+.1f} to {high:+.1f}) {case.label}: {times[0]} before, {times[1]} now{reason}"
