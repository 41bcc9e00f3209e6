"""The quality of results: agreement of rounds and launches, what weakens results, and the noise in figures."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from statistics import median
from typing import Any

from hpccoll.analysis.chart_groups import ChartGroup
from hpccoll.analysis.round_comparison import round_statistics
from hpccoll.analysis.series_points import SeriesPoint
from hpccoll.analysis.speedups import repeated_points
from hpccoll.cases.case import LEAST_ITERATIONS
from hpccoll.common.text import Finding, info, join_words, warning
from hpccoll.common.units import format_count, format_factor
from hpccoll.store.gpu_throttling import limits_of_rounds
from hpccoll.store.host_names import jobs_and_hosts
from hpccoll.store.rows import MEAN, Results, Row

LAUNCHES = "Between launches"


def quality_findings(group: ChartGroup) -> Iterator[Finding]:
    """Yield how far rounds and launches agree, what weakens results, and whether intervals are narrow enough."""
    yield from _between_rounds(group)
    yield _between_launches(group)
    yield from _weaknesses(group)
    yield from _wide_intervals(group)


def _wide_intervals(group: ChartGroup) -> Iterator[Finding]:
    rows = [point.row for point in group.usable]
    all_rows = f"of {format_count(len(rows), 'row')}"
    bare = sum(row.ours and row.interval is None and row.rule != MEAN for row in rows)
    if bare:
        text = (
            f"{bare} {all_rows} have no 95 % interval, which takes {LEAST_ITERATIONS} iterations in each round: "
            "nothing is clearly faster than these."
        )
        yield info("no_interval", text, title="No intervals", bare=bare, rows=len(rows))
    loose = [row for row in rows if row.converged is False and row.interval]
    if loose:
        oversubscribed = any(row.oversubscribed for row in loose)
        fewer = (
            "start fewer ranks, which wait for a core here"
            if oversubscribed
            else "take an idle machine"
        )
        text = f"the 95 % interval of {len(loose)} {all_rows} did not become narrow enough in time."
        remedy = (
            f"Give each case more time (seconds and max_iterations of effort; "
            f"--seconds of hpccoll run), or {fewer}."
        )
        yield info(
            "not_converged",
            text,
            title="Wide intervals",
            remedy=remedy,
            loose=len(loose),
            rows=len(rows),
            oversubscribed=oversubscribed,
        )


def _between_launches(group: ChartGroup) -> Finding:
    repeats = repeated_points(group.points)
    if not repeats:
        return _measured_once(group)
    disagreeing = sorted(
        (repeat for repeat in repeats if repeat.disagrees), key=lambda repeat: -repeat.time_ratio
    )
    text = (
        f"{format_count(len(repeats), 'point')} measured more than once, {len(disagreeing)} of them with disjoint "
        "intervals"
    )
    values: dict[str, Any] = {}
    if disagreeing:
        worst = disagreeing[0]
        where = f"{worst.fastest.series} with {group.place(worst.fastest)}"
        text += f"; the largest difference is {worst.time_ratio:.2f}x: {where}"
        values = {"max_ratio": worst.time_ratio, **group.coordinates(worst.fastest)}
    return info(
        "repeated_points",
        f"{text}.",
        title=LAUNCHES,
        points=len(repeats),
        disagreeing=len(disagreeing),
        **values,
    )


def _measured_once(group: ChartGroup) -> Finding:
    resumed = 0
    for point in group.usable:
        runs = {run for run, _ in round_statistics(point.row)}
        resumed += len(runs) > 1
    text = "each case was measured in one launch."
    if resumed:
        text = (
            f"each case was measured once, the rounds of {format_count(resumed, 'case')} in several launches: an "
            "interrupted job was resumed."
        )
    remedy = (
        "An interval bounds the median within its launch; another launch may differ by more, most of all on a shared "
        "machine. Do not choose by a lead of a few per cent."
    )
    return info("measured_once", text, title=LAUNCHES, remedy=remedy, resumed_cases=resumed)


def _between_rounds(group: ChartGroup) -> Iterator[Finding]:
    ratios = list[tuple[float, SeriesPoint]]()
    for point in group.usable:
        times = [stats.median for stats in round_statistics(point.row).values()]
        if len(times) > 1 and not point.row.floor:
            ratios.append((max(times) / min(times), point))
    if not ratios:
        return
    largest, point = max(ratios, key=lambda entry: entry[0])
    typical = median(ratio for ratio, _ in ratios)
    text = (
        f"the slowest round of a case takes {typical:.2f} times as long as its fastest round (median of "
        f"{format_count(len(ratios), 'case')}); at most {largest:.2f} times: {point.series} with {group.place(point)}."
    )
    yield info(
        "between_rounds",
        text,
        title="Between rounds",
        median_ratio=typical,
        cases=len(ratios),
        max_ratio=largest,
        **group.coordinates(point),
    )


def _weaknesses(group: ChartGroup) -> Iterator[Finding]:
    wrong = [point for point in group.points if point.row.status == "wrong"]
    if wrong:
        series = sorted({point.series for point in wrong})
        text = f"{format_count(len(wrong), 'row')} with a wrong result, not drawn: {', '.join(series)}."
        yield warning("wrong_results", text, title="Wrong", rows=len(wrong), series=tuple(series))
    oversubscribed = [point.row for point in group.usable if point.row.oversubscribed]
    if oversubscribed:
        ranks = sorted({row.ranks for row in oversubscribed})
        aggregators = max(row.aggregators for row in oversubscribed)
        processes = f"{join_words(ranks)} ranks"
        if aggregators:
            processes += f" and {format_count(aggregators, 'aggregator')}"
        text = f"with {processes} there are more processes than cores: times include waiting for a core."
        yield warning(
            "oversubscribed",
            text,
            title="Oversubscribed",
            ranks=tuple(ranks),
            aggregators=aggregators,
        )
    if len(group.machines) > 1:
        text = f"lines and comparisons are separate for each of {'; '.join(group.machines)}."
        yield warning("several_machines", text, title="Several machines", machines=group.machines)
    yield from _different_hosts(group)


def _different_hosts(group: ChartGroup) -> Iterator[Finding]:
    cases = sum(point.hosts_changed for point in group.usable)
    if cases:
        text = (
            f"the rounds of {format_count(cases, 'case')} were measured on different hosts: an interrupted job was "
            "resumed elsewhere."
        )
        yield warning("rounds_on_different_hosts", text, title="Different hosts", cases=cases)
    launches = group.mixed_hosts
    if launches:
        text = (
            "lines join launches whose hosts are not all among those of the largest launch: "
            f"{jobs_and_hosts(launches)}."
        )
        yield warning("mixed_hosts", text, title="Different hosts", launches=launches)


def gpu_time_findings(results: Results) -> Iterator[Finding]:
    """Yield in how many rounds the clock of a GPU fell, and how much of the times by events the events take."""
    yield from lowered_clocks(results)
    floors = []
    for row in results.rows:
        if row.device_floor_s is not None:
            floors.append(row.device_floor_s * (row.operations or 1))
    if floors:
        floor_us = max(floors) * 1e6
        text = (
            f"Times by GPU events include the {floor_us:.2f} us between two events in a row; a time that is not longer "
            "is shown as <= this floor."
        )
        yield info("event_floor", text, floor_us=floor_us)


def lowered_clocks(results: Results) -> Iterator[Finding]:
    """Yield in how many rounds a limit lowered the clock of a GPU: such rounds are slower than others."""
    counts: Counter[str] = Counter()
    lowered = measured = 0
    for row in results.rows:
        rounds = limits_of_rounds(row.lowered_rounds)
        lowered += len(rounds)
        measured += row.rounds
        counts.update(chain.from_iterable(rounds.values()))
    if not lowered:
        return
    limits = ", ".join(
        f"{limit} in {format_count(count, 'round')}" for limit, count in counts.most_common()
    )
    text = f"A limit lowered the clock of a GPU in {lowered} of {format_count(measured, 'round')} of cases: {limits}."
    remedy = "Such rounds are slower: compare rounds (lowered_rounds), or set clocks that hold (nvidia-smi -lgc)."
    yield info(
        "clocks_lowered", text, remedy=remedy, rounds=lowered, limits=tuple(counts.most_common())
    )


def noise_note(results: Results) -> str:
    """Return one sentence on how far the rounds of a case differ, and how many intervals are wide; empty without rows.

    Floors, rows without a correct time and rows of single ranks, from which nothing follows, are
    left out.
    """
    measured = results.ours.rows
    rows = [row for row in measured if row.may_answer]
    if not rows:
        return ""
    spreads = []
    for row in rows:
        times = [time for time in row.round_medians_s if time]
        if len(times) > 1:
            spreads.append(max(times) / min(times))
    floors = sorted({row.algorithm for row in measured if row.floor})
    intervals = _interval_clauses(results, rows, floors)
    if not spreads:
        return f"Noise: each case was measured in one round, and noise is therefore unknown{intervals}."
    return (
        f"Noise: the slowest round of a case takes {format_factor(median(spreads))} as long as its fastest (median), "
        f"at most {format_factor(max(spreads))}{intervals}."
    )


def _interval_clauses(results: Results, rows: Sequence[Row], floors: Sequence[str]) -> str:
    """Return how many rows have wide intervals, and how many have none, as the end of a sentence."""
    bare = sum(row.interval is None for row in rows)
    wide = [row for row in rows if row.converged is False and row.interval is not None]
    without = f" ({' and '.join(floors)} left out)" if floors else ""
    clauses = ""
    if wide:
        than = _requested_widths(results, wide)
        clauses += f"; {len(wide)} of {len(rows)} intervals{without} are wider than {than}"
    if bare:
        needed = f"which takes {LEAST_ITERATIONS} iterations in each round"
        clauses += f"; {bare} of {len(rows)} times{without} have no 95 % interval, {needed}"
    return clauses


def _requested_widths(results: Results, rows: Iterable[Row]) -> str:
    """Return the widths of intervals that the runs of rows requested, in words."""
    precisions = {run.run_id: run.precision for run in results.runs}
    requested = {precisions.get(row.run_id) for row in rows}
    widths = [f"+-{100 * precision:g} %" for precision in sorted(filter(None, requested))]
    return f"the requested {' or '.join(widths)}" if widths else "requested"
