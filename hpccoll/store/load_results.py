"""Rows, runs and gaps from the raw files, journals and plans below some paths."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from hpccoll.common.memory import collector_paused
from hpccoll.store.case_states import case_states, failed_outcomes
from hpccoll.store.raw_results import CaseHistory, Outcome, RawResults
from hpccoll.store.result_files import ResultFiles, read_all
from hpccoll.store.row_orders import with_orders
from hpccoll.store.rows import Results, Row, RowKey
from hpccoll.store.statistics import make_row
from hpccoll.store.workload_figures import completed_rows, workload_figures
from hpccoll.store.workload_timeline import WorkloadTimeline


def read_results(paths: Iterable[Path], rule: str = "max") -> Results:
    """Read raw files and directories of them, whose plan.json names the planned cases.

    The ``rule`` for the time of an operation is ``max`` or ``span``; it is ``max`` of a case that
    has no span.

    Raises:
        BadInputError: for a path that does not exist, if none of the named files can be read, or if
            nothing is found. Any other unreadable file becomes a gap, and ``damaged`` names it.
    """
    paths = list(paths)
    with collector_paused():
        return to_results(read_all(paths), paths, rule)


def to_results(files: ResultFiles, paths: Collection[Path] = (), rule: str = "max") -> Results:
    """Return the results of files; directories among ``paths`` also have failure notes and Slurm's jobs."""
    states = case_states(files, paths)
    rows: list[Row] = []
    workloads: dict[RowKey, tuple[Outcome, int]] = {}
    for raw in files.raw_results:
        histories = list(raw.histories())
        rows += _to_rows(raw, histories, rule)
        workloads |= _measured_workloads(raw, histories)
    machines = {run.run_id: run.machine for run in states.runs}
    return Results(
        timelines=MedianTimelines(workloads),
        rows=tuple(with_orders(sorted(completed_rows(rows, machines), key=_row_order))),
        runs=states.runs,
        planned=states.planned,
        missing=states.missing,
        skipped=states.skipped,
        scheduled=states.scheduled,
        progress=states.progress,
        damaged=tuple(files.damaged),
        notes=tuple(files.notes),
    )


def _row_order(row: Row) -> tuple[object, ...]:
    """Return the sort key of a row; rows are measured in random order."""
    configuration = (
        row.collective,
        row.device,
        row.dtype,
        row.op or "",
        row.ranks,
        row.algorithm,
        str(row.params),
    )
    return *configuration, row.mapping, row.in_place, row.bytes, row.job, row.attempt


class MedianTimelines(Mapping[RowKey, WorkloadTimeline]):
    """The timeline of one iteration of each workload: the one closest to its median over rounds.

    They are read when they are asked for.
    """

    def __init__(self, measured: Mapping[RowKey, tuple[Outcome, int]]) -> None:
        self._measured = measured  # the outcome of each workload, and the number of its workers

    def __getitem__(self, key: RowKey) -> WorkloadTimeline:
        outcome, workers = self._measured[key]
        times = outcome.times
        if times is None:
            raise KeyError(key)
        figures = workload_figures(outcome.case.collective)
        timeline = figures.timeline(times, outcome.program, workers) if figures else None
        if timeline is None:
            raise KeyError(key)
        round_medians = [
            np.median(times.max_ns[times.round == number]) for number in np.unique(times.round)
        ]
        distance = np.abs(times.max_ns - np.median(round_medians))
        return timeline.iteration(int(distance.argmin()))

    def __iter__(self) -> Iterator[RowKey]:
        return iter(self._measured)

    def __len__(self) -> int:
        return len(self._measured)


def _measured_workloads(
    raw: RawResults, histories: Iterable[CaseHistory]
) -> Iterator[tuple[RowKey, tuple[Outcome, int]]]:
    """Yield the outcome of each workload that was timed, and the number of its workers."""
    for attempt, outcome, _ in histories:
        if outcome.times is not None and outcome.program:
            workers = attempt.ranks - attempt.aggregators
            yield (raw.job.name, attempt.run_id, outcome.case.id), (outcome, workers)


def _to_rows(raw: RawResults, histories: Iterable[CaseHistory], rule: str) -> Iterator[Row]:
    done = raw.done
    failures = raw.failure_reasons()
    for attempt, outcome, runs in histories:
        why_partial = None if outcome.case.id in done else failures.of(outcome.case.id)
        yield make_row(raw.job, attempt, _with_reason(outcome, why_partial), rule, runs)
    for outcome in failed_outcomes(raw, histories):
        yield make_row(raw.job, raw.attempts[-1][0], outcome, rule)


def _with_reason(outcome: Outcome, further: str | None) -> Outcome:
    """Return an outcome whose reason is followed by another one, if there is one."""
    reason = "; ".join(filter(None, (outcome.reason, further))) or None
    if reason == outcome.reason:
        return outcome
    return replace(outcome, reason=reason)
