"""The figures of a workload: in rows, and its timelines.

The extension that brings the workload names what makes them under ``figures``.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from hpccoll.common.extensions import contributed, contributions
from hpccoll.store.case_times import CaseTimes
from hpccoll.store.job_cases import JobCases
from hpccoll.store.raw_results import Outcome
from hpccoll.store.rows import Row, RowKey
from hpccoll.store.workload_timeline import WorkloadTimeline


class WorkloadFigures(Protocol):
    """Makes the fields of rows, and the timelines, of a workload."""

    def timeline(
        self, times: CaseTimes, program: str | None, workers: int
    ) -> WorkloadTimeline | None:
        """Return the timeline of a case with this program (JSON) on that many workers; None if none was recorded."""

    def row_fields(self, outcome: Outcome, workers: int) -> Mapping[str, Any]:
        """Return the fields of a row that follow from the times within iterations."""

    def completed(self, rows: Sequence[Row], machines: Mapping[str, str]) -> Iterable[Row]:
        """Return all rows, with the fields that follow from several of them.

        ``machines`` has the machine of each run by run_id.
        """


def workload_figures(name: str) -> WorkloadFigures | None:
    """Return what makes the figures of a workload; None if no extension brings it."""
    figures: WorkloadFigures | None = contributed("figures", name)
    return figures


def workload_fields(outcome: Outcome, workers: int) -> Mapping[str, Any]:
    """Return the fields of a row that only workloads have; empty for other cases."""
    if not outcome.program:
        return {}
    figures = workload_figures(outcome.case.collective)
    return {} if figures is None else figures.row_fields(outcome, workers)


def completed_rows(rows: Sequence[Row], machines: Mapping[str, str]) -> list[Row]:
    """Return rows with the fields of workloads that follow from several of them; see ``WorkloadFigures.completed``."""
    completed = list(rows)
    for figures in contributions("figures"):
        completed = list(figures.completed(completed, machines))
    return completed


class MedianTimelines(Mapping[RowKey, WorkloadTimeline]):
    """The timeline of one iteration of each workload: the one closest to its median over rounds.

    They are read when they are asked for.
    """

    def __init__(self, jobs: Iterable[JobCases]) -> None:
        # the outcome of each workload that was timed, and the number of its workers
        self._measured: dict[RowKey, tuple[Outcome, int]] = {}
        for cases in jobs:
            for case_id, history in cases.histories.items():
                attempt, outcome = history.attempt, history.outcome
                if outcome.times is not None and outcome.program:
                    workers = attempt.ranks - attempt.aggregators
                    key = cases.job.name, attempt.run_id, case_id
                    self._measured[key] = outcome, workers

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
