"""Findings that launches, not wires, set the time: as a graph, the same cases take clearly less."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from hpccoll.analysis.measured_choices import setting_of
from hpccoll.analysis.round_comparison import clearly_faster, paired_rounds
from hpccoll.cases.case import SINGLE
from hpccoll.cases.catalogue import GRAPH
from hpccoll.render.call_arguments import algorithm_params, has_size, placement_label
from hpccoll.render.chart_groups import is_ranked, is_usable
from hpccoll.render.report_finding import ReportFinding, info
from hpccoll.store.rows import Results, Row
from hpccoll.store.statistics import median_ratio

MIN_RATIO = 1.25
"""The least ratio of the times with and without launches at which launches set the time: a fifth of it is theirs."""


@dataclass(frozen=True, slots=True)
class _Launches:
    """A case of single operations, and the same case with fewer launches in its time."""

    row: Row
    twin: Row

    @property
    def ratio(self) -> float:
        """The time of the case over that of its twin: the median over the rounds that measured both."""
        return median_ratio(mine.median / theirs.median for mine, theirs in paired_rounds(self.row, self.twin))

    @property
    def set_the_time(self) -> bool:
        return clearly_faster(self.twin, self.row) and self.ratio >= MIN_RATIO


def find_launch_cost(results: Results) -> tuple[ReportFinding, ...]:
    """Return a finding for each collective with cases whose time launches set, by graphs.

    Its values are the numbers of such cases and of all compared ones, the largest size of the former, and of the case
    in which launches cost the most its coordinates and both times.
    """
    rows = [row for row in results.rows if is_usable(row) and is_ranked(row)]
    return tuple(_findings(_as_graphs(rows)))


def _as_graphs(rows: Sequence[Row]) -> Iterator[_Launches]:
    """Yield single operations that were measured with and without a graph, by one launch."""
    single = [row for row in rows if row.timing == SINGLE]
    graphs = {_case_key(replace(row, params=_without_graph(row))): row for row in single if row.params.get(GRAPH)}
    for row in single:
        twin = None if row.params.get(GRAPH) else graphs.get(_case_key(replace(row, params=_without_graph(row))))
        if twin is not None and paired_rounds(row, twin):
            yield _Launches(row, twin)


def _without_graph(row: Row) -> dict[str, int | str]:
    return {name: value for name, value in row.params.items() if name != GRAPH}


def _case_key(row: Row) -> tuple[object, ...]:
    """Return what identifies a case of a launch."""
    params = tuple(sorted(row.params.items()))
    return (
        row.run_id,
        setting_of(row),
        row.algorithm,
        row.transport,
        params,
        row.dtype,
        row.op,
        row.root,
        row.requested_bytes,
    )


def _findings(compared: Iterator[_Launches]) -> Iterator[ReportFinding]:
    by_collective: dict[str, list[_Launches]] = defaultdict(list)
    for launches in compared:
        by_collective[launches.row.collective].append(launches)
    for collective, every in by_collective.items():
        bound = [launches for launches in every if launches.set_the_time]
        if bound:
            worst = max(bound, key=lambda launches: launches.ratio)
            row, sized = worst.row, has_size(collective)
            yield info(
                "launch_cost",
                collective=collective,
                cases=len(bound),
                compared=len(every),
                largest=max(launches.row.requested_bytes for launches in bound) if sized else None,
                choice=" ".join((row.algorithm, *(f"{key}={value}" for key, value in algorithm_params(row).items()))),
                shape=setting_of(row).shape_label,
                nbytes=row.requested_bytes if sized else None,
                pair="",
                placement=placement_label(row),
                seconds=row.median_s,
                without_launches=worst.twin.median_s,
            )
