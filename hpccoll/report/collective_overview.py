"""The overview table: one line for each collective, with the fastest series at its smallest and largest size."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import groupby

from hpccoll.report.call_arguments import BETWEEN_NODES, ON_ONE_NODE, tier_label
from hpccoll.report.chart_groups import ChartGroup, SeriesPoint
from hpccoll.report.comparisons import Comparison, find_comparisons
from hpccoll.report.html_tables import plain_table
from hpccoll.report.rank_pairs import median_pairs
from hpccoll.report.round_statistics import clearly_faster, median_seconds, round_ratios, time_ratio
from hpccoll.report.wire_bandwidth import format_rate
from hpccoll.spec.algorithm_registry import COLLECTIVES, EMULATIONS
from hpccoll.store.rows import Results
from hpccoll.units import format_seconds, format_size

HEADINGS = (
    "collective", "cases", "sizes", "ranks", "fastest at the smallest size", "over native's", "at the largest size",
    "over native's",
)  # fmt: skip
PROBLEM_HEADINGS = ("wrong", "missing")
"""Headings of columns that are left out if all their counts are 0."""
OVERVIEW_NOTE = (
    "Fastest: the series with the lowest median on the most ranks; a tie: it is not clearly faster in every round. "
    "Over native's: its time over that of the library's own collective in the same run, as the median of the ratios "
    "of their rounds, or as their range if it is not clearly faster in every round. With several settings: the "
    "setting with the most points. With pairs of ranks: the median pair, between nodes if there are several."
)


def overview_table(results: Results, groups: Sequence[ChartGroup]) -> str:
    """Return the table as HTML; each collective links to its tab."""
    names = [name for name, _ in groupby(groups, key=lambda group: group.collective)]
    members = {name: [group for group in groups if group.collective == name] for name in names}
    unmeasured = sorted({gap.case.partition(".")[0] for gap in results.missing} & COLLECTIVES.keys() - members.keys())
    head, body = list(HEADINGS), [_table_line(of_collective) for of_collective in members.values()]
    body += [[name, "0", "", "", "nothing was measured", "", "", ""] for name in unmeasured]
    bad = [_count_problems(results, name, members.get(name, [])) for name in (*members, *unmeasured)]
    for column, name in enumerate(PROBLEM_HEADINGS):
        if any(counts[column] for counts in bad):
            head.append(name)
            body = [[*line, str(counts[column] or "")] for line, counts in zip(body, bad, strict=True)]
    return plain_table(head, body, names)


def count_missing(results: Results, collective: str) -> int:
    """Return the number of planned cases of a collective without a usable result."""
    return sum(gap.case.startswith(f"{collective}.") for gap in results.missing)


def _count_problems(results: Results, collective: str, groups: Iterable[ChartGroup]) -> tuple[int, int]:
    wrong = sum(point.row.status == "wrong" for group in groups for point in group.points)
    return wrong, count_missing(results, collective)


def _table_line(groups: Sequence[ChartGroup]) -> list[str]:
    rows = [point.row for group in groups for point in group.points]
    best = max(groups, key=lambda group: len(group.usable))
    comparisons = find_comparisons(_median_pairs(best) if best.many_pairs else best.points)
    least, most = (_comparison_at(comparisons, choose) for choose in (min, max))
    other = f" ({best.distinguishing_setting(groups)})" if len(groups) > 1 else ""
    return [
        best.collective,
        str(len(rows)),
        " to ".join(dict.fromkeys(_size_range(row.requested_bytes for row in rows))) if best.has_size else "",
        ", ".join(map(str, sorted({row.ranks for row in rows}))),
        *(_fastest(best, least, other) if least else ("", "")),
        *(_fastest(best, most, other, bandwidth=True) if most and best.has_size else ("", "")),
    ]


def _median_pairs(group: ChartGroup) -> list[SeriesPoint]:
    """Return the median pair of every series, between nodes if any is, with one peer: so that series are compared."""
    far = max((tier_label(point.row) for point in group.usable), key=(ON_ONE_NODE, BETWEEN_NODES).index, default="")
    points = (middle.point for middle in median_pairs(group.usable) if tier_label(middle.point.row) == far)
    return [replace(point, row=replace(point.row, root=0, params={**point.row.params, "peer": -1})) for point in points]


def _size_range(sizes: Iterable[int]) -> list[str]:
    sizes = list(sizes)
    return [format_size(min(sizes)), format_size(max(sizes))]


def _comparison_at(comparisons: Sequence[Comparison], choose: Callable[[Iterable[int]], int]) -> Comparison | None:
    """Return the comparison at the size that ``choose`` picks, on the most ranks; of several machines, the median."""
    if not comparisons:
        return None
    ranks = max(comparison.ranks for comparison in comparisons)
    nbytes = choose(comparison.nbytes for comparison in comparisons if comparison.ranks == ranks)
    at_size = [comparison for comparison in comparisons if (comparison.ranks, comparison.nbytes) == (ranks, nbytes)]
    return sorted(at_size, key=lambda comparison: median_seconds(comparison.fastest))[(len(at_size) - 1) // 2]


def _fastest(group: ChartGroup, comparison: Comparison, other: str, *, bandwidth: bool = False) -> tuple[str, str]:
    winner, native = comparison.fastest, comparison.native
    tie = ", a tie" if comparison.runner_up_ratio and not comparison.clear_winner else ""
    name = f"{winner.series} (software)" if winner.row.algorithm in EMULATIONS else winner.series
    size = f"{size}: " if (size := group.size_label(comparison.nbytes)) else ""
    rate = f", {format_rate(winner.row.busbw_Bps)}" if bandwidth and winner.row.busbw_Bps else ""
    text = f"{size}{name}, {format_seconds(median_seconds(winner))}{rate}{tie}{other}"
    return text, _ratio_to_native(winner, native) if native else "no native"


def _ratio_to_native(winner: SeriesPoint, native: SeriesPoint) -> str:
    """Return the ratio of the time to native's; its range over the rounds if the winner is not clearly faster."""
    if winner is native or clearly_faster(winner, native):
        return f"{time_ratio(winner, native):.2f}x"
    ratios = round_ratios(winner, native)
    return " to ".join(dict.fromkeys(f"{end:.2f}x" for end in (min(ratios), max(ratios))))
