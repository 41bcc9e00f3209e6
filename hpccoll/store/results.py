"""Results: the rows, runs and gaps below some paths, from raw files, journals and plans alone."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from hpccoll.case import Job, Plan
from hpccoll.errors import BadInputError
from hpccoll.store import hdf5
from hpccoll.store.journal import begun, journal_path, read_journal
from hpccoll.store.raw import Attempt, Outcome, Raw
from hpccoll.store.rows import Missing, Results, Row, Run
from hpccoll.store.summary import row

PLAN = "plan.json"


def find(paths: Iterable[Path]) -> list[Path]:
    """Return the raw files that the paths are or hold, each once; a journal stands for a file that is not complete.

    Raises:
        BadInputError: for a path that is not there.
    """
    found: dict[Path, Path] = {}
    for path in paths:
        if not path.exists():
            raise BadInputError("path", str(path), "a raw file or a directory that exists")
        for file in [path] if path.is_file() else sorted([*path.rglob("*.h5"), *path.rglob("*.h5.journal")]):
            best = _best(file.with_suffix("") if file.suffix == ".journal" else file)
            if best is not None:
                found.setdefault(best.resolve(), best)
    return list(found.values())


def _best(whole: Path) -> Path | None:
    """Return the raw file, or its journal where that holds more, or None where neither holds anything yet."""
    journal = journal_path(whole)
    if not journal.exists() or (whole.exists() and hdf5.complete(whole)):
        return whole
    return journal if begun(journal) else None


def read_raw(path: Path) -> Raw:
    """Read a raw file or a journal."""
    return read_journal(path) if path.suffix == ".journal" else hdf5.read(path)


def read_results(paths: Iterable[Path], timing: str = "max") -> Results:
    """Read everything below ``paths``.

    Args:
        paths: raw files, or directories of them; a directory's plan.json tells what else was planned.
        timing: the rule for the time of an operation, ``max`` or ``span``; where there is no span, max.

    Raises:
        BadInputError: for a path that is not there or cannot be read, or where nothing is found.
    """
    paths = list(paths)
    raws = [read_raw(path) for path in find(paths)]
    plans = [Plan.load(path / PLAN) for path in paths if (path / PLAN).is_file()]
    if not raws and not plans:
        raise BadInputError("path", ", ".join(map(str, paths)), "raw files (*.h5) or a directory that holds some")
    seen = {raw.job.sha256 for raw in raws}
    unstarted = [job for plan in plans for job in plan.jobs if job.sha256 not in seen]
    gaps = [gap for raw in raws for gap in _gaps(raw)] + [gap for job in unstarted for gap in _all_missing(job)]
    skips = [Missing(case=s.case, job=s.job, status="skipped", reason=s.reason) for p in plans for s in p.skips]
    return Results(
        rows=tuple(row for raw in raws for row in _rows(raw, timing)),
        runs=tuple(_run(raw, attempt) for raw in raws for attempt, _ in raw.attempts),
        planned=sum(len(job.cases) for job in [*(raw.job for raw in raws), *unstarted]),
        missing=tuple(gap for gap in gaps if gap.status != "skipped"),
        skipped=(*skips, *(gap for gap in gaps if gap.status == "skipped")),
    )


def _all_missing(job: Job) -> Iterator[Missing]:
    for case in job.cases:
        yield Missing(case=case.id, job=job.name, status="not run", reason="its job left no result")


def _gaps(raw: Raw) -> Iterator[Missing]:
    """Yield the cases of a job without a usable result."""
    outcomes = {outcome.case.id: outcome for _, done in raw.attempts for outcome in done}
    for case in raw.job.cases:
        outcome = outcomes.get(case.id)
        if outcome is None:
            failure = raw.failure(case.id)
            status, reason = ("failed", failure) if failure else ("not run", "the job ended before it")
        else:
            status, reason = outcome.status, outcome.reason or ""
        if status != "ok":
            yield Missing(case=case.id, job=raw.job.name, status=status, reason=reason)


def _run(raw: Raw, attempt: Attempt) -> Run:
    return Run(
        run_id=attempt.run_id,
        job=raw.job.name,
        attempt=attempt.number,
        created=attempt.created,
        status="complete" if raw.complete else "partial",
        kind=attempt.kind,
        machine=attempt.machine,
        path=str(raw.path),
        provenance=attempt.provenance,
    )


def _rows(raw: Raw, timing: str) -> Iterator[Row]:
    for attempt, outcomes in raw.attempts:
        for outcome in outcomes:
            yield row(raw.job, attempt, outcome, timing)
    if raw.attempts:
        last = raw.attempts[-1][0]
        for case in raw.job.cases:
            failure = raw.failure(case.id)
            if case.id not in raw.done and failure:
                yield row(raw.job, last, Outcome(case=case, status="failed", reason=failure), timing)
