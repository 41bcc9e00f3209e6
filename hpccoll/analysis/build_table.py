"""Making of a tune table from raw files, with the warnings about its results."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from hpccoll.analysis.choice_table import TableEntry, TableRun, TuneTable, load_table
from hpccoll.analysis.load_findings import load_findings
from hpccoll.analysis.recommendations import Advice, lone_rank_reason, ranges_by_setting
from hpccoll.analysis.setting import Choice, Setting, machine_name, recorded_mpi_version
from hpccoll.analysis.size_ranges import RULE, ratio_noise
from hpccoll.cases.algorithm_registry import PLAN
from hpccoll.common.errors import BadInputError, UnusableError, file_error
from hpccoll.common.text import Finding
from hpccoll.common.units import format_count
from hpccoll.common.version import __version__
from hpccoll.schedule.collective import AUTO
from hpccoll.store.durable_files import replacing_file
from hpccoll.store.rows import Results, Row

NOISE_WARNING_PERCENT = 10
"""The uncertainty of the ratio of the two fastest choices, in per cent, from which on a warning is printed."""


def without_plans(results: Results) -> Results:
    """Return results without those of plans, which a table cannot name: they are algorithms of one command."""
    return replace(results, rows=tuple(row for row in results.rows if not row.algorithm.startswith(PLAN)))


def build_table(results: Results, advice: Advice | None = None) -> TuneTable:
    """Return the tune table of the measured choices; the ``advice`` of the results may be there already.

    Raises:
        BadInputError: if the results have no choices, or mix machines, MPI libraries or executors within a setting.
    """
    advice = advice or Advice(results)
    _ = advice.settings  # refuses mixed results
    recommendations = advice.placements
    if not recommendations:
        rows = results.rows
        statuses = Counter(map(_status, rows))
        counts = ", ".join(f"{count} {status}" for status, count in statuses.items()) or "no rows"
        if reason := lone_rank_reason(results.ours.rows):
            raise UnusableError("PATHS", reason)
        missing = "no complete and correct result of an algorithm (a floor, auto and training steps do not count)"
        raise UnusableError("PATHS", f"{missing}; results: {counts}")
    entries = tuple(
        TableEntry(
            setting=each.setting,
            runs=each.measured.runs,
            ranges=tuple(replace(of_range.sizes, strength=of_range.strength) for of_range in each.ranges),
            executor=each.measured.conditions.executor,
        )
        for each in recommendations
    )
    used = {run for entry in entries for run in entry.runs}
    runs = tuple(
        TableRun(
            run_id=run.run_id, job=run.job, created=run.created, kind=run.kind,
            machine=machine_name(run.machine, run.provenance), hosts=[*run.hosts] or None,
            mpi=recorded_mpi_version(run.provenance), path=run.path,
        )
        for run in results.runs
        if run.run_id in used
    )  # fmt: skip
    created = datetime.now(UTC).isoformat(timespec="seconds")
    return TuneTable(created=created, hpccoll_version=__version__, rule=RULE, runs=runs, entries=entries)


def table_load_findings(results: Results, advice: Advice | None = None) -> Iterator[Finding]:
    """Yield the findings on the choices of the table that ``build_table`` makes.

    Raises:
        BadInputError: if results mix machines, MPI libraries or executors within a setting.
    """
    advice = advice or Advice(results)
    ranges = ranges_by_setting(advice.placements)

    def chosen(setting: Setting, size: int) -> Choice | None:
        of_range = ranges.get((setting, size))
        return of_range.choice if of_range else None

    yield from load_findings(advice.settings, chosen)


def write_table(table: TuneTable, out: Path) -> None:
    """Write ``table`` to ``out``.

    Raises:
        BadInputError: if ``out`` cannot be written, or holds something other than a table.
    """
    write_over(out, json.dumps(table.to_json(), indent=1) + "\n", lambda: load_table(out, "--out"))


def check_over(out: Path, check: Callable[[], object]) -> None:
    """Raise BadInputError if a file at ``out`` must not be replaced, for which ``check`` raises one."""
    try:
        if out.is_file() and out.stat().st_size:  # it may be a raw file, even one from which the table is made
            check()
    except BadInputError:
        raise BadInputError("--out", str(out), "a new file, or a table: it holds something else") from None


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
    ranges = [of_range for each in advice.recommendations for of_range in each.ranges]
    unsure = sum(not of_range.is_advice for of_range in ranges)
    if unsure:
        yield (
            f"weak: in {unsure} of {format_count(len(ranges), 'range')} the evidence for the choice is weak or none; "
            f"{AUTO} follows the table there, too"
        )
    noise = {setting: 100 * ratio_noise(measured) for setting, measured in advice.settings.items()}
    noisy = [setting for setting in noise if noise[setting] >= NOISE_WARNING_PERCENT]
    if noisy:
        worst = max(noisy, key=lambda setting: noise[setting])
        yield (
            f"noise: in {len(noisy)} of {len(noise)} settings the ratio of the two fastest may be off by "
            f"{NOISE_WARNING_PERCENT} % or more (median over sizes; {noise[worst]:.0f} % in {worst.label}): either may "
            "be the faster. More time for each case helps, and so does a machine without other load."
        )


def _status(row: Row) -> str:
    """Return why a row makes no entry of a table, or its status."""
    if not row.ours:
        return row.kind
    return "wrong" if row.wrong else row.status
