"""Summaries of results for a terminal: opening findings, counts of cases, and reasons for missing ones."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from hpccoll.analysis.measurement_quality import noise_note
from hpccoll.analysis.recommendations import Recommendation, recommend
from hpccoll.analysis.sweep_status import SweepStatus
from hpccoll.common.text import in_brackets
from hpccoll.common.units import format_count, format_wait
from hpccoll.render.answers import Answers, conclusion_lines
from hpccoll.render.measured_summary import gpu_machines
from hpccoll.render.report_findings import report_findings
from hpccoll.store.rows import NOT_PLANNED, CaseStates, Gap, JobProgress, Results

MAX_REASONS = 5
"""Reasons that are printed after a sweep, or one more if that is all; the report has all of them."""
MAX_JOBS_NAMED = 6
"""Maximum number of jobs that are named with a reason."""
UNFINISHED = "not run", "partial"
"""The statuses of cases that a running job has yet to measure."""


def _reason_lines(gaps: Iterable[Gap], *, named: bool = False) -> Iterator[str]:
    """Yield one line for each status and reason; ``named``: an earlier line names the job of the gaps."""
    by_reason: defaultdict[tuple[str, str], list[Gap]] = defaultdict(list)
    for gap in gaps:
        by_reason[gap.status, gap.reason].append(gap)
    for (status, reason), alike in by_reason.items():
        where = "" if named else f" in {_job_names(alike)}"
        cases = alike[0].case if len(alike) == 1 else f"{len(alike)} cases"
        yield f"  {status}{where}: {cases}: {reason}"


def _job_names(gaps: Iterable[Gap]) -> str:
    jobs = dict.fromkeys(gap.job for gap in gaps)
    return ", ".join(jobs) if len(jobs) <= MAX_JOBS_NAMED else f"{len(jobs)} jobs"


def case_counts(results: CaseStates) -> str:
    """Return the number of planned cases that are done, and the numbers of the others by status."""
    done, on_fewer_ranks = results.done
    counted = []
    predicted = sum(row.predicted for row in results.rows)
    if predicted:
        counted.append(f"{predicted} predicted")
    imported = sum(row.imported for row in results.rows)
    if imported:
        counted.append(f"{imported} imported")
    parts = [f"{done} of {results.planned} cases{in_brackets(*counted)}"]
    statuses = Counter(gap.status for gap in (*results.missing, *results.skipped))
    not_planned = statuses.pop(NOT_PLANNED, 0)
    parts += [f"{count} {status}" for status, count in sorted(statuses.items())]
    if on_fewer_ranks:
        parts.append(f"{on_fewer_ranks} more on fewer ranks")
    counts = ", ".join(parts)
    return f"{counts}; {not_planned} left out of the plan" if not_planned else counts


def measurement_progress(progress: Iterable[JobProgress]) -> str:
    """Return the number of measurements that are done, and the remaining time at the current rate."""
    jobs = list(progress)
    done = sum(job.done for job in jobs)
    total = sum(job.total for job in jobs)
    rate = sum(job.rate or 0.0 for job in jobs)
    text = f"{done} of {total} measurements"
    if rate and done < total:
        text += f", about {format_wait((total - done) / rate)} left"
    return text


def outcome_lines(
    results: Results, recommendations: Sequence[Recommendation] | None = None
) -> Iterator[str]:
    """Yield critical findings, GPUs, counts of cases, why some are missing, what to use, the noise, other findings.

    The ``recommendations`` of the results may be there already.
    """
    if recommendations is None:
        recommendations = recommend(results)
    findings = report_findings(results)
    yield from (finding.with_remedy for finding in findings if finding.severity == "critical")
    yield from gpu_machines(results)
    if results.skipped and not (results.measured or results.missing):
        yield "nothing was measured: every case is skipped"
    yield case_counts(results)
    missing = sorted(results.missing, key=lambda gap: gap.status == "not run")
    reasons = list(_reason_lines((*missing, *results.skipped)))
    shown = reasons if len(reasons) <= MAX_REASONS + 1 else reasons[:MAX_REASONS]
    yield from shown
    if hidden := len(reasons) - len(shown):
        yield f"  and more for {hidden} other reasons, which the report lists"
    yield from conclusion_lines(results, Answers(recommendations))
    if noise := noise_note(results):
        yield noise
    yield from (finding.with_remedy for finding in findings if finding.severity != "critical")


def status_lines(status: SweepStatus) -> Iterator[str]:
    """Yield the progress of a sweep, and each job: its state, Slurm jobs, log and missing cases.

    Cases that are not part of the plan come last. Raw files that belong to no sweep have their
    lines only.
    """
    if status.directory:
        running = f"{'a' if status.is_running else 'no'} sweep is running"
        yield f"{status.directory}: {running}: {measurement_progress(status.progress)}"
    for job in status.jobs:
        results, state = job.results, job.state
        if state == "complete" and results.missing:
            state = "ended"  # every case has an outcome, and some are wrong or failed
        if state == "running":
            state = f"running ({measurement_progress(results.progress)})"
        attempts = [format_count(len(results.runs), "attempt")] if results.runs else []
        yield f"{job.name}: {', '.join([state, case_counts(results), *attempts])}"
        yield from (f"  {scheduled.description}" for scheduled in results.scheduled)
        if job.log:
            yield f"  output of its ranks: {job.log}"
        gaps = (
            gap
            for gap in results.missing
            if not (job.state == "running" and gap.status in UNFINISHED)
        )
        yield from _reason_lines((*gaps, *results.skipped), named=True)
    yield from _reason_lines(status.left_out)
