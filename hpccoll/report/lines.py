"""What is there and what is not, in lines for a terminal; the page says the same at length."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

from hpccoll.store.rows import Missing, Results

WHY = 5
"""Reasons that are printed after a sweep; the report has all of them."""


def grouped(gaps: Iterable[Missing]) -> Iterator[tuple[Missing, str]]:
    """Yield one of the neighbours that are missing from one job for one reason, and which cases they are in words."""
    for _, alike in groupby(gaps, key=lambda gap: (gap.job, gap.status, gap.reason)):
        cases = list(alike)
        yield cases[0], cases[0].case if len(cases) == 1 else f"{len(cases)} cases"


def outcome_lines(results: Results) -> Iterator[str]:
    """Yield how much of what was planned is there, and why the rest is not; what failed before what was not run."""
    missing = len(results.missing)
    yield f"{results.planned - missing} of {results.planned} cases" + (f", {missing} missing" if missing else "")
    reasons = list(grouped(sorted(results.missing, key=lambda gap: gap.status == "not run")))
    for gap, cases in reasons[:WHY]:
        yield f"  {gap.status} in {gap.job}: {cases}: {gap.reason}"
    if len(reasons) > WHY:
        yield f"  and more for {len(reasons) - WHY} other reasons, which the report lists"


def status_lines(results: Results, directory: Path) -> Iterator[str]:
    """Yield for each job of the sweep into ``directory`` what is done, its Slurm jobs and logs, and what is missing."""
    for job in dict.fromkeys([*(run.job for run in results.runs), *(gap.job for gap in results.missing)]):
        done = sum(row.job == job and row.status == "ok" for row in results.rows)
        gaps = [gap for gap in results.missing if gap.job == job]
        counts = sorted(Counter(gap.status for gap in gaps).items())
        yield ", ".join([f"{job}: {done} cases done", *(f"{count} {status}" for status, count in counts)])
        yield from (f"  {scheduled.words}" for scheduled in results.scheduled if scheduled.job == job)
        if (log := directory / "logs" / f"{job}.log").exists():
            yield f"  what its ranks printed: {log}"
        yield from (f"  {gap.status}: {cases}: {gap.reason}" for gap, cases in grouped(gaps))
