"""Findings about the quality of measurements: agreement of rounds and launches, and what weakens results."""

from collections.abc import Iterator
from statistics import median

from hpccoll.cases.case import LEAST_ITERATIONS
from hpccoll.render.chart_groups import ChartGroup, SeriesPoint
from hpccoll.render.comparisons import mixed_hosts, repeated_points
from hpccoll.render.report_finding import ReportFinding, info, warning
from hpccoll.render.round_statistics import round_stats


def convergence_findings(group: ChartGroup) -> Iterator[ReportFinding]:
    """Yield a finding if intervals did not become narrow enough in time, and one if rows have none."""
    rows = [point.row for point in group.usable]
    if bare := sum(row.ours and row.ci_low_s is None for row in rows):
        yield info("no_interval", bare=bare, rows=len(rows), least=LEAST_ITERATIONS)
    loose = [row for row in rows if row.converged is False and row.ci_low_s is not None]
    if loose:
        oversubscribed = any(row.oversubscribed for row in loose)
        yield info("not_converged", loose=len(loose), rows=len(rows), oversubscribed=oversubscribed)


def agreement_findings(group: ChartGroup) -> Iterator[ReportFinding]:
    """Yield how far rounds differ, and how far launches that measured the same points differ, if any did."""
    yield from _between_rounds(group)
    repeats = repeated_points(group.points)
    if not repeats:
        resumed = sum(len({run for run, _ in round_stats(point)}) > 1 for point in group.usable)
        yield info("measured_once", resumed_cases=resumed)
        return
    disagreeing = sorted((repeat for repeat in repeats if repeat.disagrees), key=lambda repeat: -repeat.time_ratio)
    worst = disagreeing[0] if disagreeing else None
    coordinates = group.coordinates(worst.fastest) if worst else {}
    ratio = worst.time_ratio if worst else None
    yield info("repeated_points", points=len(repeats), disagreeing=len(disagreeing), max_ratio=ratio, **coordinates)


def _between_rounds(group: ChartGroup) -> Iterator[ReportFinding]:
    """Yield the ratio of the slowest to the fastest round of cases."""
    ratios: list[tuple[float, SeriesPoint]] = []
    for point in group.usable:
        times = [stats.median for stats in round_stats(point).values()]
        if len(times) > 1 and not point.row.floor:
            ratios.append((max(times) / min(times), point))
    if ratios:
        largest, point = max(ratios, key=lambda entry: entry[0])
        yield info(
            "between_rounds",
            median_ratio=median(ratio for ratio, _ in ratios),
            cases=len(ratios),
            max_ratio=largest,
            **group.coordinates(point),
        )


def weakness_findings(group: ChartGroup) -> Iterator[ReportFinding]:
    """Yield what weakens results: wrong rows, oversubscription, several machines, different hosts."""
    wrong = [point for point in group.points if point.row.status == "wrong"]
    if wrong:
        yield warning("wrong_results", rows=len(wrong), series=tuple(sorted({point.series for point in wrong})))
    oversubscribed = [point.row for point in group.usable if point.row.oversubscribed]
    if oversubscribed:
        yield warning(
            "oversubscribed",
            ranks=tuple(sorted({row.ranks for row in oversubscribed})),
            aggregators=max(row.aggregators for row in oversubscribed),
        )
    if len(group.machines) > 1:
        yield warning("several_machines", machines=group.machines)
    if cases := sum(point.hosts_changed for point in group.usable):
        yield warning("rounds_on_different_hosts", cases=cases)
    if launches := mixed_hosts(group.points):
        yield warning("mixed_hosts", launches=launches)
