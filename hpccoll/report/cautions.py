"""What to be careful about in the rows of a group, and what to do about it."""

from collections.abc import Iterator

from hpccoll.report.chart_groups import ChartGroup, is_usable
from hpccoll.report.comparisons import mixed_hosts
from hpccoll.report.host_ranges import jobs_and_hosts
from hpccoll.report.series_names import format_count

NEARLY_ALL = 0.9
"""Part of the rows; where so many have something, it is the first thing to know of them."""


def unsure(group: ChartGroup) -> tuple[str, bool]:
    """Return that intervals did not become tight, and what to do about it; and whether that is so of nearly all rows.

    Nothing is said where all of them did.
    """
    results = [point.row for point in group.points if is_usable(point.row)]
    loose = [row for row in results if row.converged is False]
    if not loose:
        return "", False
    crowded = any(row.oversubscribed for row in loose)
    also = "so do fewer ranks, which wait for a core here" if crowded else "so does a machine that nobody else uses"
    rows = f"{len(loose)} of {format_count(len(results), 'row')}"
    says = f"the interval of {rows} did not become tight in time: {MORE_TIME}, and {also}."
    return says, len(loose) / len(results) >= NEARLY_ALL


MORE_TIME = "more time for each case helps (seconds and max_iterations of effort; --seconds of hpccoll run)"


def cautions(group: ChartGroup) -> Iterator[tuple[str, str]]:
    """Yield what weakens results, each as what it is about and a sentence."""
    rows = [point.row for point in group.points]
    results = [row for row in rows if is_usable(row)]
    wrong = [point for point in group.points if point.row.status == "wrong"]
    crowded = [row for row in results if row.oversubscribed]
    if wrong:
        names = ", ".join(sorted({point.series for point in wrong}))
        yield "Wrong", f"{format_count(len(wrong), 'row')} with a wrong result, not drawn: {names}."
    if crowded:
        *most, last = map(str, sorted({row.ranks for row in crowded}))
        ranks = f"{', '.join(most)} and {last}" if most else last
        beside = max(row.aggregators for row in crowded)
        also = f" and {format_count(beside, 'aggregator')}" if beside else ""
        says = f"with {ranks} ranks{also} there are more processes than cores: times include waiting for a core."
        yield "Oversubscribed", says
    if len(group.machines) > 1:
        yield "Several machines", "lines and comparisons are kept apart: " + "; ".join(group.machines) + "."
    if moved := sum(point.hosts_changed for point in group.usable):
        words = f"the rounds of {format_count(moved, 'case')} are of launches on different hosts"
        yield "Different hosts", f"{words}: an interrupted job went on elsewhere."
    if joined := mixed_hosts(group.points):
        words = "lines join launches that did not run on hosts of the largest one, and hosts differ"
        yield "Different hosts", f"{words}: {jobs_and_hosts(joined)}."
