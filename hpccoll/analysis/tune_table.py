"""Making of a tune table from raw files, with the warnings about its results."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

from hpccoll.analysis.choice_table import ChoiceRange, TableEntry, TableRun, TuneTable, load_table
from hpccoll.analysis.load_findings import load_findings
from hpccoll.analysis.measured_choices import MeasuredSetting
from hpccoll.analysis.recommendations import (
    Advice,
    Recommendation,
    lone_rank_reason,
    ranges_by_setting,
)
from hpccoll.analysis.same_bits import algorithms_whose_ranks_disagree
from hpccoll.analysis.setting import Choice, Setting, machine_name, recorded_mpi_version
from hpccoll.analysis.size_ranges import RULE, ratio_noise
from hpccoll.analysis.unmeasured import are_smaller_unmeasured
from hpccoll.cases.algorithm_registry import PLAN
from hpccoll.common.errors import BadInputError, UnusableError, file_error
from hpccoll.common.text import Finding
from hpccoll.common.units import format_count, format_size
from hpccoll.common.version import __version__
from hpccoll.schedule.collective import AUTO
from hpccoll.store.durable_files import replacing_file
from hpccoll.store.rows import Results, Row, Run

NOISE_WARNING_PERCENT = 10
"""The uncertainty of the ratio of the two fastest choices, in per cent, from which on a warning is printed."""


def without_plans(results: Results) -> Results:
    """Return results without those of plans, which a table cannot name: they are algorithms of one command."""
    rows = tuple(row for row in results.rows if not row.algorithm.startswith(PLAN))
    return replace(results, rows=rows)


def build_table(
    results: Results, advice: Advice | None = None, *, native_below: bool = True
) -> TuneTable:
    """Return the tune table of the measured choices.

    Args:
        results: the results to choose among.
        advice: that of the results, if it was computed already.
        native_below: whether native may take the calls below the measured sizes; it may not if
            all choices must add in one order, which is unknown there.

    Raises:
        BadInputError: if the results have no choices, or mix machines, MPI libraries or executors
            within a setting.
    """
    advice = advice or Advice(results)
    _ = advice.settings  # refuses mixed results
    recommendations = advice.placements
    if not recommendations:
        raise _no_choices(results)
    entries = tuple(
        _table_entry(recommendation, native_below=native_below)
        for recommendation in recommendations
    )
    used: set[str] = set()
    for entry in entries:
        used.update(entry.runs)
    runs = tuple(_table_run(run) for run in results.runs if run.run_id in used)
    created = datetime.now(UTC).isoformat(timespec="seconds")
    return TuneTable(
        created=created, hpccoll_version=__version__, rule=RULE, runs=runs, entries=entries
    )


def _no_choices(results: Results) -> UnusableError:
    """Return the error for results from which no table can be made."""
    reason = lone_rank_reason(results.ours.rows)
    if reason:
        return UnusableError("PATHS", reason)
    statuses = Counter(map(_status, results.rows))
    counts = ", ".join(f"{count} {status}" for status, count in statuses.items()) or "no rows"
    missing = "no complete and correct result of an algorithm (a floor, auto and training steps do not count)"
    return UnusableError("PATHS", f"{missing}; results: {counts}")


def _table_entry(recommendation: Recommendation, *, native_below: bool) -> TableEntry:
    ranges = []
    for recommended in recommendation.ranges:
        ranges.append(replace(recommended.sizes, strength=recommended.strength))
    setting = recommendation.setting
    measured = recommendation.measured
    if native_below and _reaches_below(setting, ranges):
        ranges = _with_native_below(ranges, measured)
    return TableEntry(
        setting=setting,
        runs=measured.runs,
        ranges=tuple(ranges),
        executor=measured.conditions.executor,
    )


def _reaches_below(setting: Setting, ranges: Sequence[ChoiceRange]) -> bool:
    """Return whether the first range chooses another algorithm than native for sizes that were not measured."""
    first = ranges[0]
    if first.choice.is_native or not first.sizes:
        return False
    return are_smaller_unmeasured(setting.collective, setting.ranks, first.sizes[0])


def _with_native_below(
    ranges: Sequence[ChoiceRange], measured: MeasuredSetting
) -> list[ChoiceRange]:
    """Return ranges with one of native below the smallest measured size; as they are if native was not measured."""
    native_seconds = {}
    for choice, curve in measured.curves.items():
        if choice.is_native:
            native_seconds[choice] = curve[min(curve)].seconds
    if not native_seconds:
        return list(ranges)
    native = min(native_seconds, key=native_seconds.__getitem__)
    first, *later = ranges
    smallest = first.sizes[0]
    below = ChoiceRange(first=0, below=smallest, choice=native, sizes=(), over_best=1.0)
    return [below, replace(first, first=smallest), *later]


def unmeasured_lines(table: TuneTable) -> Iterator[str]:
    """Yield which choice ``auto`` takes below the measured sizes, where that is not the choice of the smallest one."""
    counts: Counter[str] = Counter()
    for entry in table.entries:
        counts[_unmeasured_line(entry)] += 1
    for line, count in counts.items():
        if not line:
            continue
        where = ""
        if count < len(table.entries):
            where = f" ({count} of {format_count(len(table.entries), 'setting')})"
        yield f"not measured{where}: {line}"


def _unmeasured_line(entry: TableEntry) -> str:
    """Return what an entry chooses below its measured sizes, if that needs a word; else an empty text."""
    smallest, _ = entry.measured_limits
    first = entry.ranges[0]
    if not first.sizes:
        return f"below {format_size(smallest)} {AUTO} takes {first.choice.label}"
    if not _reaches_below(entry.setting, entry.ranges):
        return ""
    remedy = "do: measure smaller sizes"
    return f"below {format_size(smallest)} {AUTO} takes {first.choice.label} there, too; {remedy}"


def _table_run(run: Run) -> TableRun:
    return TableRun(
        run_id=run.run_id,
        job=run.job,
        created=run.created,
        kind=run.kind,
        machine=machine_name(run.machine, run.provenance),
        hosts=list(run.hosts) or None,
        mpi=recorded_mpi_version(run.provenance),
        path=run.path,
    )


def table_load_findings(results: Results, advice: Advice | None = None) -> Iterator[Finding]:
    """Yield the findings on the choices of the table that ``build_table`` makes.

    Raises:
        BadInputError: if results mix machines, MPI libraries or executors within a setting.
    """
    advice = advice or Advice(results)
    ranges = ranges_by_setting(advice.placements)

    def chosen(setting: Setting, size: int) -> Choice | None:
        recommended = ranges.get((setting, size))
        return recommended.choice if recommended else None

    yield from load_findings(advice.settings, chosen)


def write_table(table: TuneTable, out: Path) -> None:
    """Write ``table`` to ``out``.

    Raises:
        BadInputError: if ``out`` cannot be written, or holds something other than a table.
    """
    text = json.dumps(table.to_json(), indent=1) + "\n"
    write_over(out, text, lambda: load_table(out, "--out"))


def check_over(out: Path, check: Callable[[], object]) -> None:
    """Raise BadInputError if a file at ``out`` must not be replaced, for which ``check`` raises one."""
    try:
        # it may be a raw file, even one from which the table is made
        if out.is_file() and out.stat().st_size:
            check()
    except BadInputError:
        raise BadInputError(
            "--out", str(out), "a new file, or a table: it holds something else"
        ) from None


def write_over(out: Path, text: str, check: Callable[[], object]) -> None:
    """Write ``text`` to ``out``; ``check`` raises BadInputError if a file there must not be replaced.

    Raises:
        BadInputError: if ``out`` cannot be written, or holds something other than a table.
    """
    check_over(out, check)
    try:
        with replacing_file(out.resolve()) as unfinished:
            unfinished.write_text(text)
    except OSError as error:
        raise file_error("--out", out, error, "written") from None


def table_warnings(results: Results, advice: Advice | None = None) -> Iterator[str]:
    """Yield warnings about a table made from ``results``: missing cases, weak evidence, and noise."""
    advice = advice or Advice(results)
    if results.missing:
        cases = f"{len(results.missing)} of {results.planned} cases"
        yield f"partial: {cases} are missing, and the table does not consider them"
    ranges = list(
        chain.from_iterable(recommendation.ranges for recommendation in advice.recommendations)
    )
    unsure = sum(not recommended.is_advice for recommended in ranges)
    if unsure:
        yield (
            f"weak: in {unsure} of {format_count(len(ranges), 'range')} the evidence for the choice is weak or none; "
            f"{AUTO} follows the table there, too"
        )
    chosen = {recommended.choice.algorithm for recommended in ranges}
    for name in algorithms_whose_ranks_disagree(results.rows):
        if name not in chosen:
            continue
        yield f"bits: with {name}, which is chosen, ranks add in different orders, and may differ in the last bits"
    noise_percent: dict[Setting, float] = {}
    for setting, measured in advice.settings.items():
        noise_percent[setting] = 100 * ratio_noise(measured)
    noisy = [
        setting for setting, percent in noise_percent.items() if percent >= NOISE_WARNING_PERCENT
    ]
    if noisy:
        worst = max(noisy, key=noise_percent.__getitem__)
        yield (
            f"noise: in {len(noisy)} of {len(noise_percent)} settings the ratio of the two fastest may be off by "
            f"{NOISE_WARNING_PERCENT} % or more (median over sizes; {noise_percent[worst]:.0f} % in {worst.label}): "
            "either may be the faster. More time for each case helps, and so does a machine without other load."
        )


def _status(row: Row) -> str:
    """Return why a row makes no entry of a table, or its status."""
    if not row.ours:
        return row.kind
    return "wrong" if row.wrong else row.status
