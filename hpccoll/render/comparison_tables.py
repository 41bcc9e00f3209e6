"""A comparison of two runs in sentences and tables, which a terminal and the page share."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hpccoll.analysis import run_comparison
from hpccoll.analysis.run_comparison import PLURALS, CaseComparison, Comparison
from hpccoll.analysis.shift import Shift
from hpccoll.analysis.side_by_side import SideBySide, operation_label
from hpccoll.common.text import Columns, table_lines, table_of
from hpccoll.common.units import format_count, format_seconds
from hpccoll.render.colours import GREY
from hpccoll.store.sources import SOURCES


class VerdictStyle(NamedTuple):
    """How the cases of a verdict are shown."""

    listed: int | None  # how many a terminal lists; None for all
    meaning: str
    colour: str = ""  # in the chart; empty for cases without a shift
    folded: bool = False  # on the page


VERDICT_STYLES = {
    run_comparison.REGRESSION: VerdictStyle(None, "the shift is no chance, and at least the tolerance", "#c8443f"),
    run_comparison.WRONG: VerdictStyle(None, "the new result is wrong, or failed"),
    run_comparison.MISSING: VerdictStyle(20, "the old run has a result, the new one has none"),
    run_comparison.IMPROVEMENT: VerdictStyle(20, "likewise, and faster", "#2f9467"),
    run_comparison.UNDECIDED: VerdictStyle(
        10, "neither a change nor its absence is known: more rounds would tell", "#a9811a"
    ),
    run_comparison.UNCHANGED: VerdictStyle(
        0, "the whole 95 % interval of the shift is within the tolerance", GREY, folded=True
    ),
    run_comparison.NEW: VerdictStyle(0, "only the new run has a result", folded=True),
}
"""The verdicts, in the order in which they are reported."""

CASE_COLUMNS: Columns[CaseComparison] = (
    ("case", lambda case: case.label),
    ("old", lambda case: format_seconds(case.old_s) if case.old_s else ""),
    ("new", lambda case: format_seconds(case.new_s) if case.new_s else ""),
    ("change", lambda case: change_label(case.shift.factor) if case.shift else ""),
    ("95 % interval", lambda case: shift_interval_label(case.shift) if case.shift else ""),
    ("why", lambda case: case.reason or ""),
)

SIDE_BY_SIDE_COLUMNS: Columns[SideBySide] = (
    ("operation", lambda pair: operation_label(pair.theirs)),
    ("theirs", lambda pair: format_seconds(pair.theirs.median_s or 0)),
    ("by", lambda pair: pair.theirs.source or ""),
    ("their timing", lambda pair: pair.theirs.timing),
    ("ours", lambda pair: format_seconds(pair.ours.median_s) if pair.ours and pair.ours.median_s else "none"),
    ("our timing", lambda pair: pair.ours.timing if pair.ours else ""),
    ("theirs / ours", lambda pair: f"{pair.factor:.2f}" if pair.factor else ""),
)
OUR_MEANING = "hpccoll: the median over iterations and rounds of the longest duration over ranks, after its barrier."


def case_table(cases: Sequence[CaseComparison]) -> tuple[list[str], list[list[str]]]:
    """Return headings and cells of cases, without columns that are empty."""
    head, body = table_of(CASE_COLUMNS, cases)
    used = [number for number in range(len(head)) if any(cells[number] for cells in body)]
    return [head[number] for number in used], [[cells[number] for number in used] for cells in body]


def side_by_side_meanings(pairs: Sequence[SideBySide]) -> list[str]:
    """Return what the numbers of other programs, and ours, mean."""
    sources = dict.fromkeys(pair.theirs.source or "" for pair in pairs)
    return [*(f"{SOURCES[each].title}: {SOURCES[each].meaning}." for each in sources), OUR_MEANING]


def comparison_lines(comparison: Comparison) -> Iterator[str]:
    """Yield the comparison: a summary, what disturbed the runs, the cases by verdict, what else changed."""
    if comparison.cases:
        yield summary(comparison)
    for which, load in zip(("old", "new"), comparison.loads, strict=True):
        if load:
            yield f"the {which} run was disturbed: {load}"
    for verdict, style in VERDICT_STYLES.items():
        cases, most = comparison.of(verdict), style.listed
        shown = cases if most is None or (most and len(cases) == most + 1) else cases[:most]
        if shown:
            yield f"{verdict}:"
            yield from table_lines(*case_table(shown))
            more = len(cases) - len(shown)
            yield from [f"  {more} more cases"] * bool(more)
    if comparison.beside:
        yield "timed differently, and therefore not ranked:"
        yield from (f"  {meaning}" for meaning in side_by_side_meanings(comparison.beside))
        yield from table_lines(*table_of(SIDE_BY_SIDE_COLUMNS, (pair for pair in comparison.beside if pair.factor)))
    if comparison.changes:
        yield "what else changed:"
        for name, (old, new) in comparison.changes.items():
            yield f"  {name}: {old} before, {new} now"


def summary(comparison: Comparison) -> str:
    """Return the numbers of cases by verdict in one sentence."""
    counts = [verdict_count(verdict, comparison) for verdict in PLURALS if comparison.of(verdict)]
    cases = format_count(len(comparison.cases), "case")
    together = comparison.common_factor
    median = f"; the median of all changes is {change_label(together)}" if together else ""
    return f"{cases}: {', '.join(counts)}; changes from {comparison.tolerance:.0%} on matter{median}"


def verdict_count(verdict: str, comparison: Comparison) -> str:
    """Return the number of cases of a verdict in words: ``2 regressions``."""
    count = len(comparison.of(verdict))
    return f"{count} {verdict if count == 1 else PLURALS[verdict]}"


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


def shift_interval_label(shift: Shift) -> str:
    """Return the 95 % interval of a change: ``+8.1 to +16.2 %``, ``+95.0 % to 2.4 times as long``."""
    low, high = change_label(shift.low), change_label(shift.high)
    units = " %", " times as long", " times as fast"
    unit = next((unit for unit in units if low.endswith(unit) and high.endswith(unit)), "")
    return f"{low.removesuffix(unit)} to {high}"
