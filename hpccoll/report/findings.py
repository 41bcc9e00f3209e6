"""What the rows of a group say, in sentences and with the numbers; only what they say."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from statistics import median
from typing import NamedTuple

from hpccoll.report import shared_variance
from hpccoll.report.call_labels import placement_label
from hpccoll.report.cautions import cautions, unsure
from hpccoll.report.chart_groups import ChartGroup, SeriesPoint, is_ranked
from hpccoll.report.comparisons import (
    Comparison,
    SizeInterval,
    best_placements,
    find_comparisons,
    native_ratios,
    repeated_points,
    size_intervals,
)
from hpccoll.report.executed_labels import offloaded
from hpccoll.report.mapping_comparison import mapping_findings
from hpccoll.report.rail_usage import rail_findings
from hpccoll.report.rank_pairs import pair_findings, pair_label
from hpccoll.report.round_statistics import median_interval, median_seconds, round_stats
from hpccoll.report.series_names import format_count
from hpccoll.report.vendor_findings import fallback_findings, library_findings, model_findings
from hpccoll.report.wire_bandwidth import format_rate, wire_ceiling, wire_label, wire_limit, wire_share
from hpccoll.schedule.collective import AUTO
from hpccoll.units import format_size

MACHINE_SHARE = 0.5
"""The part of the variance between rounds that all have in common, from which on it is said to be the machine's."""


class Finding(NamedTuple):
    """A sentence and what it is about."""

    about: str
    says: str


def findings(group: ChartGroup) -> list[Finding]:
    """Return the findings of ``group``: who is fastest where, the highest bandwidth, and what to be careful about.

    Where nearly no row is sure, that comes first.
    """
    found = [] if group.many_pairs else find_comparisons(group.points)
    natives = (*fallback_findings(group), *library_findings(group), *model_findings(group))
    own = (Finding(*said) for said in natives)
    more = (Finding(*said) for said in (*mapping_findings(group), *pair_findings(group)))
    wire = (*_shares(group), *(Finding(*said) for said in rail_findings(group)))
    careful = (Finding(*said) for said in cautions(group))
    said = [*_fastest(group, found), *own, *more, *_highest(group), *wire, *_between(group), *careful]
    sentence, nearly_all = unsure(group)
    loose = [Finding("Not converged", sentence)] if sentence else []
    return [*loose, *said] if nearly_all else [*said, *loose]


def ratio_table(group: ChartGroup) -> tuple[list[str], list[list[str]]]:
    """Return header and body of a table: for each series and ranks the lowest and highest time over native's."""
    ratios = native_ratios(find_comparisons(group.points))
    places = {point.row.ranks: group.place_label(point.row) for point in group.usable}
    ranks = sorted({ranks for _, ranks in ratios})
    names = dict.fromkeys(series for series, _ in ratios)
    body = [[n, *(_range(group, ratios.get((n, p), ())) for p in ranks)] for n in group.colours if n in names]
    return ["time over native's", *(places[p] for p in ranks)], body


def _range(group: ChartGroup, pairs: Sequence[tuple[int, float]]) -> str:
    if not pairs:
        return "not measured"
    if not group.has_size:
        return " to ".join(f"{ratio:.2f}x" for ratio in sorted({ratio for _, ratio in pairs}))
    ends = sorted(
        {min(pairs, key=lambda pair: pair[1]), max(pairs, key=lambda pair: pair[1])}, key=lambda pair: pair[1]
    )
    return " to ".join(f"{ratio:.2f}x ({format_size(nbytes)})" for nbytes, ratio in ends)


def _fastest(group: ChartGroup, found: Sequence[Comparison]) -> Iterator[Finding]:
    def place(comparison: Comparison) -> tuple[int, str]:
        machine = f" on {group.machine_label(comparison.fastest)}" if len(group.machines) > 1 else ""
        variant = f", {comparison.variant}" if comparison.variant else ""
        mapping = f", {comparison.mapping}" if group.several_mappings else ""
        return comparison.ranks, group.place_label(comparison.fastest.row) + machine + variant + mapping

    for (_, about), run in groupby(sorted(found, key=place), key=place):
        if said := list(_by_leader(group, list(run))):
            yield Finding(about, "; ".join(said) + ".")


def _by_leader(group: ChartGroup, found: Sequence[Comparison]) -> Iterator[str]:
    """One clause for each leader, in order of the first size that it leads at; then the sizes without one."""
    if not group.has_size:
        yield from (
            f"{comparison.clear_winner} is fastest ({comparison.runner_up_ratio:.2f}x ahead)"
            if comparison.clear_winner
            else "no clear winner"
            for comparison in found
            if comparison.runner_up_ratio
        )
        return
    leaders: dict[str | None, list[SizeInterval]] = defaultdict(list)
    for interval in size_intervals(found):
        leaders[interval.clear_winner].append(interval)
    undecided = leaders.pop(None, [])
    for leader, led in leaders.items():
        leads = [lead for interval in led for lead in interval.runner_up_ratios]
        low, high = f"{min(leads):.2f}x", f"{max(leads):.2f}x"
        yield f"{leader} is fastest {_sizes(led)} ({low if low == high else f'{low} to {high}'} ahead)"
    if undecided:
        count = sum(len(interval.sizes) for interval in undecided)
        others = f"at the other {format_count(count, 'size')}" if len(undecided) > 1 else _sizes(undecided)
        yield f"no clear winner {others}"


def _sizes(led: Iterable[SizeInterval]) -> str:
    ends = [(format_size(interval.sizes[0]), format_size(interval.sizes[-1])) for interval in led]
    return ", ".join(f"at {first}" if first == last else f"from {first} to {last}" for first, last in ends)


def _highest(group: ChartGroup) -> Iterator[Finding]:
    points = [p for p in group.usable if p.row.busbw_Bps and is_ranked(p.row)]
    if points:
        best = max(points, key=lambda point: point.row.busbw_Bps or 0.0)
        busbw = format_rate(best.row.busbw_Bps or 0.0)
        notional = f", algbw {format_rate(best.row.algbw_Bps or 0.0)}: {NOTIONAL}" if offloaded(best.row) else ""
        where = f"{_where(group, best)}{_burst(best)}{notional}"
        chosen = max((p.row.busbw_Bps or 0.0 for p in group.usable if p.row.algorithm == AUTO), default=0.0)
        auto = f" auto, which chooses among these and is left out, reached {format_rate(chosen)}." if chosen else ""
        yield Finding("Highest busbw", f"{busbw}{_sure(best)} by {best.series} with {where}.{auto}")


def _sure(point: SeriesPoint) -> str:
    """Return between what the busbw of a point lies, by the interval of its time; nothing where that is no more."""
    ends, busbw = median_interval(point), point.row.busbw_Bps or 0.0
    if ends is None or not ends[0]:
        return ""
    low, high = (format_rate(busbw * median_seconds(point) / end) for end in reversed(ends))
    return "" if low == high else f" ({low} to {high} by its 95 % interval)"


NOTIONAL = "where switches reduce, busbw supposes bytes that no link carries"


def _burst(point: SeriesPoint) -> str:
    """Say that a message was small enough to pass faster than the wire carries; nothing where busbw may do so."""
    row, wire = point.row, point.wire
    most = wire_ceiling(row, wire)
    if most is None or wire_limit(row, wire) or (row.busbw_Bps or 0.0) <= most:
        return ""
    return f": a burst, above {wire_label(row, wire)} ({format_rate(most)})"


def _where(group: ChartGroup, point: SeriesPoint) -> str:
    row = point.row
    at = (
        f"{group.place_label(row)} at {group.size_label(row.requested_bytes)}"
        if group.has_size
        else group.place_label(row)
    )
    return ", ".join(filter(None, (at, pair_label(point), placement_label(row))))


def _shares(group: ChartGroup) -> Iterator[Finding]:
    """Say how much of the wires in use the best reaches at the largest size, on every number of nodes; or why not.

    A wire that misses its rate was calibrated on a busy machine: a per cent of that would flatter.
    """
    best: dict[tuple[str, int, float], tuple[int, float, SeriesPoint]] = {}
    for point in best_placements(group.points):
        if reached := wire_share(point.row, point.wire):
            key = point.machine, point.row.ranks, wire_limit(point.row, point.wire) or 0.0
            entry = (point.row.requested_bytes, reached, point)
            best[key] = max(best.get(key, entry), entry, key=lambda entry: entry[:2])
    clauses = [
        f"{point.series} reaches {100 * reached:.0f} % of {wire_label(point.row, point.wire)} at "
        f"{format_size(nbytes)} on {group.place_label(point.row)}"
        for _, (nbytes, reached, point) in sorted(best.items(), key=lambda item: item[0])
    ]
    if clauses:
        yield Finding("Per cent of wire", "; ".join(clauses) + ".")
    wires = [point.wire for point in group.usable if point.row.nodes > 1]
    for words, kept in sorted({(wire.rate_label, wire.rate_ratio) for wire in wires if wire.rate_ratio}):
        seen = f"a wire carried {100 * kept:.1f} % of what TCP should get of {words}"
        yield Finding("No per cent of wire", f"{seen} when the testbed came up: bring it up while the machine is idle.")


def _between(group: ChartGroup) -> Iterator[Finding]:
    """Say what launches agree on, where some measured the same; else that none did."""
    yield from _between_rounds(group)
    again = repeated_points(group.points)
    if not again:
        yield Finding(
            "Between launches",
            f"{_once(group)}. An interval tells how sure the median is within its launch; another "
            "launch may differ by more, most of all on a shared machine. Being ahead by a few per cent is no reason to "
            "choose.",
        )
        return
    apart = sorted((repeat for repeat in again if repeat.disagrees), key=lambda repeat: -repeat.time_ratio)
    points = format_count(len(again), "point")
    says = f"{points} measured more than once, {len(apart)} of them with intervals that do not touch"
    if apart:
        worst = apart[0]
        says += f"; at most {worst.time_ratio:.2f}x apart: {worst.fastest.series} with {_where(group, worst.fastest)}"
    yield Finding("Between launches", says + ".")


def _once(group: ChartGroup) -> str:
    resumed = sum(len({run for run, _ in round_stats(point)}) > 1 for point in group.usable)
    several = f"each case was measured once, the rounds of {format_count(resumed, 'case')} in several launches"
    return f"{several}: an interrupted job went on" if resumed else "each case was measured in one launch"


def _between_rounds(group: ChartGroup) -> Iterator[Finding]:
    """Say how far the rounds of a case are apart, where there are several, and how much of it all have in common."""
    apart: list[tuple[float, SeriesPoint]] = []
    for point in group.usable:
        times = [taken.median for taken in round_stats(point).values()]
        if len(times) > 1 and not point.row.floor:
            apart.append((max(times) / min(times), point))
    if apart:
        worst, point = max(apart, key=lambda entry: entry[0])
        middle = median(times for times, _ in apart)
        yield Finding(
            "Between rounds",
            f"the slowest round of a case takes {middle:.2f} times as long as the fastest one, "
            f"the median of {format_count(len(apart), 'case')}; at most {worst:.2f} times: {point.series} with "
            f"{_where(group, point)}." + _in_common(group),
        )


def _in_common(group: ChartGroup) -> str:
    part = shared_variance.shared_variance(group.usable)
    if part is None:
        return ""
    says = f" All ways to do a call share {100 * part:.0f} % of the variance between rounds"
    why = "it is the machine that changes: others use it, or the host of a virtual one moves its CPUs"
    return f"{says}: {why}. Ratios are then surer than times." if part >= MACHINE_SHARE else f"{says}."
