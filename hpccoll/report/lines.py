"""What is there and what is not, in lines for a terminal; the page says the same at length."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

from hpccoll.report.alarms import alarms, made_good
from hpccoll.store.rows import Missing, Results

WHY = 5
"""Reasons that are printed after a sweep; the report has all of them."""


def grouped(gaps: Iterable[Missing]) -> Iterator[tuple[Missing, str]]:
    """Yield one of the neighbours that are missing from one job for one reason, and which cases they are in words."""
    for _, alike in groupby(gaps, key=lambda gap: (gap.job, gap.status, gap.reason)):
        cases = list(alike)
        yield cases[0], cases[0].case if len(cases) == 1 else f"{len(cases)} cases"


def _alike(gap: Missing) -> tuple[str, str]:
    """Bring together what was skipped for one reason: cases of one reason need not be neighbours."""
    return gap.job, gap.reason


def outcome_lines(results: Results) -> Iterator[str]:
    """Yield what is alarming, how much of what was planned is there, and why the rest is not."""
    yield from (*alarms(results), *made_good(results))
    if results.skipped and not (results.measured or results.missing):
        yield "nothing was measured: every case is skipped"
    missing, skipped = len(results.missing), len(results.skipped)
    counts = (f"{missing} missing" * bool(missing), f"{skipped} skipped on purpose" * bool(skipped))
    yield ", ".join(filter(None, (f"{results.planned - missing} of {results.planned} cases", *counts)))
    reasons = [
        *grouped(sorted(results.missing, key=lambda gap: gap.status == "not run")),
        *grouped(sorted(results.skipped, key=_alike)),
    ]
    for gap, cases in reasons[:WHY]:
        yield f"  {gap.status} in {gap.job}: {cases}: {gap.reason}"
    if len(reasons) > WHY:
        yield f"  and more for {len(reasons) - WHY} other reasons, which the report lists"


def status_lines(results: Results, directory: Path) -> Iterator[str]:
    """Yield for each job of the sweep into ``directory`` what is done, its Slurm jobs and logs, and what is missing."""
    for job in dict.fromkeys([*(run.job for run in results.runs), *(gap.job for gap in results.missing)]):
        fewer = {run.run_id for run in results.runs if run.left_behind}  # ranks than were asked
        fine = [row.run_id in fewer for row in results.rows if row.job == job and row.status == "ok"]
        gaps = [gap for gap in results.missing if gap.job == job]
        counts = sorted(Counter(gap.status for gap in gaps).items())
        beside = [f"{sum(fine)} beside them on fewer ranks"] if any(fine) else []
        said = [f"{len(fine) - sum(fine)} cases done", *(f"{count} {status}" for status, count in counts), *beside]
        yield f"{job}: {', '.join(said)}"
        yield from (f"  {scheduled.words}" for scheduled in results.scheduled if scheduled.job == job)
        if (log := directory / "logs" / f"{job}.log").exists():
            yield f"  what its ranks printed: {log}"
        skips = [gap for gap in results.skipped if gap.job == job]
        yield from (
            f"  {gap.status}: {cases}: {gap.reason}" for gap, cases in grouped([*gaps, *sorted(skips, key=_alike)])
        )
