"""A comparison of two runs in words."""

from collections.abc import Iterator, Sequence

from hpccoll.analysis.run_comparison import (
    IMPROVEMENT,
    MISSING,
    NEW,
    PLURALS,
    REGRESSION,
    UNCHANGED,
    UNDECIDED,
    VERDICTS,
    WRONG,
    CaseComparison,
    Comparison,
)
from hpccoll.analysis.shift import Shift
from hpccoll.analysis.side_by_side import SideBySide, operation_label
from hpccoll.common.text import first_few
from hpccoll.common.units import format_count, format_seconds
from hpccoll.store.sources import SOURCES

LISTED = {REGRESSION: None, WRONG: None, MISSING: 20, IMPROVEMENT: 20, UNDECIDED: 10, UNCHANGED: 0, NEW: 0}
"""How many cases of each verdict are listed; None for all."""


def comparison_lines(comparison: Comparison) -> Iterator[str]:
    """Yield the comparison: a summary, what disturbed the runs, the cases by verdict, what else changed."""
    if comparison.cases:
        yield summary(comparison)
    for which, load in zip(("old", "new"), comparison.loads, strict=True):
        if load:
            yield f"the {which} run was disturbed: {load}"
    for verdict, most in LISTED.items():
        cases = comparison.of(verdict)
        if cases and most != 0:
            shown = first_few(map(_line, cases), len(cases) if most is None else most, "case")
            yield from (f"{verdict}:", *(f"  {line}" for line in shown))
    if comparison.beside:
        yield from side_by_side_lines(comparison.beside)
    if comparison.changes:
        yield "what else changed:"
        for name, (old, new) in comparison.changes.items():
            yield f"  {name}: {old} before, {new} now"


def summary(comparison: Comparison) -> str:
    """Return the numbers of cases by verdict in one sentence."""
    counts = [count_cases(verdict, comparison) for verdict in VERDICTS if comparison.of(verdict)]
    cases = format_count(len(comparison.cases), "case")
    together = comparison.common_factor
    median = f"; the median of all changes is {change_label(together)}" if together else ""
    return f"{cases}: {', '.join(counts)}; changes from {comparison.tolerance:.0%} on matter{median}"


def count_cases(verdict: str, comparison: Comparison) -> str:
    """Return the number of cases of a verdict in words: ``2 regressions``."""
    count = len(comparison.of(verdict))
    return f"{count} {verdict if count == 1 else PLURALS[verdict]}"


def side_by_side_lines(pairs: Sequence[SideBySide]) -> Iterator[str]:
    """Yield results of other programs next to ours, and what their numbers mean."""
    yield "timed differently, and therefore not ranked:"
    for source in dict.fromkeys(pair.theirs.source or "" for pair in pairs):
        yield f"  {SOURCES[source].title}: {SOURCES[source].meaning}"
    for pair in pairs:
        if pair.ours and pair.factor:
            theirs, ours = pair.theirs, pair.ours
            yield (
                f"  {operation_label(theirs)}: {format_seconds(theirs.median_s or 0)} by {theirs.source} "
                f"({theirs.timing}), {format_seconds(ours.median_s or 0)} by hpccoll ({ours.timing}): "
                f"{pair.factor:.2f} times"
            )


def _line(case: CaseComparison) -> str:
    times = [format_seconds(seconds) if seconds else "none" for seconds in (case.old_s, case.new_s)]
    reason = f"; {case.reason}" if case.reason else ""
    if case.shift is None:
        return f"{case.label}: {times[0]} before, {times[1]} now{reason}"
    change, interval = change_label(case.shift.factor), interval_label(case.shift)
    return f"{change} ({interval}) {case.label}: {times[0]} before, {times[1]} now{reason}"


def change_label(factor: float) -> str:
    """Return a change of time in words.

    It is a percentage, such as ``+12.0 %``, or from twice and half the time on a factor: ``2.4 times as long``,
    ``8,425 times as fast``.
    """
    percent = round(100 * (factor - 1), 1)
    if -50 < percent < 100:
        return f"{percent:+.1f} %"
    times, how = (factor, "long") if factor > 1 else (1 / factor, "fast")
    return f"{times:.1f} times as {how}" if times < 10 else f"{times:,.0f} times as {how}"


def interval_label(shift: Shift) -> str:
    """Return the 95 % interval of a change: ``+8.1 to +16.2 %``, ``+95.0 % to 2.4 times as long``."""
    low, high = change_label(shift.low), change_label(shift.high)
    units = " %", " times as long", " times as fast"
    unit = next((unit for unit in units if low.endswith(unit) and high.endswith(unit)), "")
    return f"{low.removesuffix(unit)} to {high}"
