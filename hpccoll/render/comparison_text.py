"""A comparison of two runs in sentences and tables, which a terminal and the page share."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from hpccoll.analysis.machine_names import machine_names
from hpccoll.analysis.shift import Shift
from hpccoll.common.text import (
    Columns,
    filled_columns,
    in_brackets,
    join_ends,
    table_lines,
    table_of,
    titled_lines,
)
from hpccoll.common.units import format_count, format_factor, format_seconds
from hpccoll.evidence.defects import defect_sentences
from hpccoll.judge.held import HeldVerdict
from hpccoll.judge.run_comparison import PLURALS, CaseComparison, Comparison
from hpccoll.judge.side_by_side import SideBySide, operation_label, side_by_side
from hpccoll.render.colours import GREY
from hpccoll.render.geometry_text import geometry_lines
from hpccoll.store.rows import Results
from hpccoll.store.sources import source_named


class VerdictStyle(NamedTuple):
    """How the cases of a verdict are shown."""

    listed: int | None  # how many a terminal lists; None for all
    meaning: str
    colour: str = ""  # in the chart; empty for cases without a shift
    folded: bool = False  # on the page
    changed: bool = False  # whether its factors are named
    name: str = ""  # in sentences and the chart; empty: the verdict, or its plural


VERDICT_STYLES = {
    HeldVerdict.SLOWER: VerdictStyle(
        None, "slower by more than chance, and at least by the smallest change that matters", "#c8443f", changed=True
    ),
    HeldVerdict.WRONG: VerdictStyle(None, "the new result is wrong, or failed"),
    HeldVerdict.MISSING: VerdictStyle(20, "the old run has a result, the new one has none"),
    HeldVerdict.FASTER: VerdictStyle(
        20, "faster by more than chance, and at least by the smallest change that matters", "#2f9467", changed=True
    ),
    HeldVerdict.CANNOT_TELL: VerdictStyle(
        10, "the rounds scatter so much that a change may or may not matter", "#a9811a", folded=True,
        name="too noisy to tell",
    ),
    HeldVerdict.AS_EXPECTED: VerdictStyle(
        0, "the whole 95 % interval is below the smallest change that matters", GREY, folded=True
    ),
    HeldVerdict.NEW: VerdictStyle(0, "only the new run has a result", folded=True),
}  # fmt: skip
"""The verdicts, in the order in which they are reported."""

CASE_COLUMNS: Columns[CaseComparison] = (
    ("new / old by round", lambda held: format_factor(held.shift.factor) if held.shift else ""),
    ("case", lambda held: held.case.label),
    ("95 % interval", lambda held: shift_interval_label(held.shift) if held.shift else ""),
    ("old", lambda held: format_seconds(held.expected.value) if held.expected else ""),
    ("new", lambda held: format_seconds(held.measured) if held.measured else ""),
    ("why", lambda held: held.reason),
)

SIDE_BY_SIDE_COLUMNS: Columns[SideBySide] = (
    ("operation", lambda pair: operation_label(pair.theirs)),
    ("theirs", lambda pair: format_seconds(pair.theirs.median_s or 0)),
    ("by", lambda pair: pair.theirs.source or ""),
    ("their timing", lambda pair: pair.theirs.timing),
    (
        "ours",
        lambda pair: (
            format_seconds(pair.ours.median_s) if pair.ours and pair.ours.median_s else "none"
        ),
    ),
    ("our timing", lambda pair: pair.ours.timing if pair.ours else ""),
    ("theirs / ours", lambda pair: format_factor(pair.factor) if pair.factor else ""),
)
OUR_MEANING = "hpccoll: the median over iterations and rounds of the longest duration over ranks, after its barrier."


def case_table(cases: Sequence[CaseComparison]) -> tuple[list[str], list[list[str]]]:
    """Return headings and cells of cases, without columns that are empty."""
    return filled_columns(*table_of(CASE_COLUMNS, cases))


def other_programs(results: Results) -> Mapping[str, object]:
    """Return the section of a report: their times beside ours of the same operation; empty without imported rows."""
    imported = [row for row in results.rows if row.imported]
    pairs = side_by_side(imported, results.ours.rows)
    if not pairs:
        return {}
    both = [pair for pair in pairs if pair.factor]
    table = None
    if both:
        columns = *SIDE_BY_SIDE_COLUMNS, *_machine_columns(both, machine_names(results.runs))
        table = table_of(columns, both)
    return {"table": table, "meanings": side_by_side_meanings(pairs)}


def _machine_columns(
    pairs: Iterable[SideBySide], machine_of_run: Mapping[str, str]
) -> Columns[SideBySide]:
    """Return the columns of the machine of each side, if they are from several machines; else none."""

    def their_machine(pair: SideBySide) -> str:
        return machine_of_run.get(pair.theirs.run_id, "")

    def our_machine(pair: SideBySide) -> str:
        return machine_of_run.get(pair.ours.run_id, "") if pair.ours else ""

    named: set[str] = set()
    for pair in pairs:
        named |= {their_machine(pair), our_machine(pair)} - {""}
    if len(named) < 2:
        return ()
    return ("their machine", their_machine), ("our machine", our_machine)


def side_by_side_meanings(pairs: Sequence[SideBySide]) -> list[str]:
    """Return what the numbers of other programs, and ours, mean."""
    meanings = []
    for name in dict.fromkeys(pair.theirs.source or "" for pair in pairs):
        source = source_named(name)
        meanings.append(f"{source.title}: {source.meaning}.")
    if any(pair.ours for pair in pairs):
        meanings.append(OUR_MEANING)
    return meanings


def comparison_lines(comparison: Comparison) -> Iterator[str]:
    """Yield the comparison: a summary, what disturbed the runs, the cases by verdict, what else changed."""
    if comparison.cases:
        yield f"{what_changed(comparison)}; {what_matters(comparison)}"
    for which, load in zip(("old", "new"), comparison.loads, strict=True):
        if load:
            yield f"the {which} run was disturbed: {load}"
    yield from geometry_lines(comparison.geometries)
    for finding in comparison.orders:
        yield str(finding)
    for verdict, style in VERDICT_STYLES.items():
        lines = _case_lines(comparison.of(verdict), style.listed)
        yield from titled_lines(verdict_count(verdict, comparison), lines)
    yield from titled_lines(
        "timed differently, and therefore not ranked", _beside_lines(comparison.beside)
    )
    yield from titled_lines(DEFECTS_TITLE, crossed_sentences(comparison))
    changes = [f"{name}: {old} before, {new} now" for name, old, new in changed_facts(comparison)]
    yield from titled_lines("what else changed", changes)


DEFECTS_TITLE = "known defects that fit the changed cases"
"""The title of the defects that one of the runs has."""


def crossed_sentences(comparison: Comparison) -> list[str]:
    """Return the known defects that the new run has and the old one had not, and those that are gone."""
    defects = comparison.defects
    begun = defect_sentences(defects.begun, "the new run: this ")
    ended = defect_sentences(defects.ended, "only the old run: this ")
    return [*begun, *ended]


def _case_lines(cases: Sequence[CaseComparison], most: int | None) -> Iterator[str]:
    """Yield a table of the first ``most`` cases, of all if it is None; a single case more is listed, too."""
    shown = cases
    if most is not None and (most == 0 or len(cases) > most + 1):
        shown = cases[:most]
    if not shown:
        return
    yield from table_lines(*case_table(shown), indent="")
    if len(shown) < len(cases):
        yield f"{len(cases) - len(shown)} more cases"


def _beside_lines(pairs: Sequence[SideBySide]) -> Iterator[str]:
    """Yield what the numbers of other programs mean, and a table of them beside ours; nothing without any."""
    if not pairs:
        return
    yield from side_by_side_meanings(pairs)
    both = [pair for pair in pairs if pair.factor]
    yield from table_lines(*table_of(SIDE_BY_SIDE_COLUMNS, both), indent="")


FACTS = {
    "cpu": "CPU",
    "cpu_quota": "quota of CPUs",
    "cpus": "CPUs of a host",
    "cuda_aware_mpi": "whether MPI reads GPU memory",
    "executor": "executor of our schedules",
    "git_commit": "commit of hpccoll",
    "gpus": "GPUs",
    "gpu_of_rank": "GPUs of ranks",
    "hpccoll": "version of hpccoll",
    "kernel": "operating system",
    "kind": "kind of measurement",
    "mpi.path": "file of the MPI library",
    "mpi.threads": "thread level of MPI (multiple is the slowest)",
    "mpi.version": "MPI library",
    "nccl": "NCCL",
    "network": "expected network",
    "waiting": "what a waiting rank does",
}
"""Facts of provenance in words, by their names."""

FACT_GROUPS = {"testbed.": "testbed: {}", "variables.": "variable {}", "versions.": "version of {}"}
"""Likewise, those of a group, by the beginnings of their names."""


def fact_words(name: str) -> str:
    """Return a fact of provenance in words; its name if it has none, such as ``hosts``."""
    if name in FACTS:
        return FACTS[name]
    for begin, words in FACT_GROUPS.items():
        if name.startswith(begin):
            return words.format(name.removeprefix(begin))
    return name


def changed_facts(comparison: Comparison) -> list[tuple[str, str, str]]:
    """Return what else changed, in words, with its values before and now."""
    return [(fact_words(name), *values) for name, values in comparison.changes.items()]


def what_changed(comparison: Comparison) -> str:
    """Return the numbers of cases by verdict, with the factors of those that changed.

    For example ``40 cases: 14 regressions (1.07x to 1.14x as long, the median 1.10x), 26
    unchanged``.
    """
    counts = []
    for verdict, style in VERDICT_STYLES.items():
        if comparison.of(verdict):
            factors = factors_label(comparison.factors(verdict)) if style.changed else ""
            counts.append(f"{verdict_count(verdict, comparison)}{in_brackets(factors)}")
    return f"{format_count(len(comparison.cases), 'case')}: {', '.join(counts)}"


def what_matters(comparison: Comparison) -> str:
    """Return the smallest change that matters, and the median of all changes if there are many cases."""
    slower = format_factor(1 + comparison.tolerance)
    faster = format_factor(1 / (1 + comparison.tolerance))
    sentence = f"a change matters if a case takes at least {slower} or at most {faster} as long"
    if comparison.common_factor:
        sentence += (
            f"; the median of all cases takes {format_factor(comparison.common_factor)} as long"
        )
    return sentence


def verdict_count(verdict: HeldVerdict, comparison: Comparison) -> str:
    """Return the number of cases of a verdict in words: ``2 regressions``."""
    count = len(comparison.of(verdict))
    name = verdict if count == 1 else PLURALS[verdict]
    return f"{count} {VERDICT_STYLES[verdict].name or name}"


def factors_label(factors: Sequence[float]) -> str:
    """Return sorted factors in words: ``1.07x to 1.14x as long, the median 1.10x``."""
    ends = join_ends(map(format_factor, factors))
    if len(factors) <= 2:
        return f"{ends} as long"
    return f"{ends} as long, the median {format_factor(median(factors))}"


def shift_interval_label(shift: Shift) -> str:
    """Return the 95 % interval of a change: ``1.08x to 1.16x``."""
    return f"{format_factor(shift.low)} to {format_factor(shift.high)}"
