"""The figures of a workload in rows. The extension that brings the workload names what makes them under ``figures``."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from hpccoll.common.extensions import contributed, contributions
from hpccoll.store.workload_timeline import WorkloadTimeline

if TYPE_CHECKING:
    from hpccoll.store.case_times import CaseTimes
    from hpccoll.store.raw_results import Outcome
    from hpccoll.store.rows import Row


class WorkloadFigures(Protocol):
    """Makes the fields of rows, and the timelines, of a workload."""

    def timeline(
        self, times: "CaseTimes", program: str | None, workers: int
    ) -> WorkloadTimeline | None:
        """Return the timeline of a case with this program (JSON) on that many workers; None if none was recorded."""

    def row_fields(self, outcome: "Outcome", workers: int) -> Mapping[str, Any]:
        """Return the fields of a row that follow from the times within iterations."""

    def completed(self, rows: Sequence["Row"], machines: Mapping[str, str]) -> Iterable["Row"]:
        """Return all rows, with the fields that follow from several of them.

        ``machines`` has the machine of each run by run_id.
        """


def workload_figures(name: str) -> WorkloadFigures | None:
    """Return what makes the figures of a workload; None if no extension brings it."""
    figures: WorkloadFigures | None = contributed("figures", name)
    return figures


def completed_rows(rows: Sequence["Row"], machines: Mapping[str, str]) -> list["Row"]:
    """Return rows with the fields of workloads that follow from several of them; see ``WorkloadFigures.completed``."""
    completed = list(rows)
    for figures in contributions("figures"):
        completed = list(figures.completed(completed, machines))
    return completed
