"""How a workload is shown. The extension that brings the workload names it under ``pages``."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from hpccoll.common.extensions import contributed

if TYPE_CHECKING:
    from hpccoll.analysis.chart_groups import ChartGroup
    from hpccoll.common.text import Finding
    from hpccoll.render.answer_lines import Answer
    from hpccoll.render.figure import Figure
    from hpccoll.store.rows import Results

Table: TypeAlias = tuple[Sequence[str], Sequence[Sequence[str]]]
"""The headings and the lines of a table."""


class WorkloadPage(Protocol):
    """What reports and terminals show of a workload; a group has the rows of one setting."""

    figures: "Sequence[Figure]"
    """The charts, instead of those of collectives."""

    def answers(self, results: "Results") -> "list[Answer]":
        """Return what the workload takes, and with which choices."""

    def remarks(self, results: "Results") -> "Iterable[Finding]":
        """Return what a terminal says after the measurements, besides the answers."""

    def choices(self, group: "ChartGroup") -> Table:
        """Return the table of choices."""

    def tables(self, group: "ChartGroup") -> Sequence[tuple[Table, str]]:
        """Return further tables, each with a note on how to read it."""


def workload_page(name: str) -> WorkloadPage | None:
    """Return how a workload is shown; None of a collective, or if no extension brings the page."""
    page: WorkloadPage | None = contributed("pages", name)
    return page


def workload_pages(names: Iterable[str]) -> list[WorkloadPage]:
    """Return how the workloads among these names are shown, each page once."""
    pages = map(workload_page, dict.fromkeys(names))
    return [page for page in pages if page is not None]


def workload_answers(results: "Results") -> "dict[str, list[Answer]]":
    """Return the answers of each workload that was measured and has one."""
    answers = {}
    for name in dict.fromkeys(row.collective for row in results.rows):
        page = workload_page(name)
        if page is None:
            continue
        own_answers = page.answers(results)
        if own_answers:
            answers[name] = own_answers
    return answers
