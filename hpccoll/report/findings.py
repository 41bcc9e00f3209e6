"""What the rows of a group say, in sentences and with the numbers; only what they say."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from statistics import median
from typing import NamedTuple

from hpccoll.report import drift
from hpccoll.report.calls import placement
from hpccoll.report.cautions import cautions, unsure
from hpccoll.report.compare import (
    Contest,
    Stretch,
    best_placements,
    contests,
    native_ratios,
    repeats,
    stretches,
)
from hpccoll.report.executed import offloaded
from hpccoll.report.groups import Group, Point, competes
from hpccoll.report.mappings import mapping_findings
from hpccoll.report.naming import counted
from hpccoll.report.natives import fallback_findings, library_findings, model_findings
from hpccoll.report.pairs import pair_findings, pair_words
from hpccoll.report.rails import rail_findings
from hpccoll.report.rounds import interval, rounds, seconds
from hpccoll.report.wires import ceiling, format_rate, limit, share, wire_words
from hpccoll.schedule.promise import AUTO
from hpccoll.units import format_size

MAINLY = 0.5
"""The part of the variance between rounds that all have in common, from which on it is said to be the machine's."""


class Finding(NamedTuple):
    """A sentence and what it is about."""

    about: str
    says: str


def findings(group: Group) -> list[Finding]:
    """Return the findings of ``group``: who is fastest where, the highest bandwidth, and what to be careful about.

    Where nearly no row is sure, that comes first.
    """
    found = [] if group.many_pairs else contests(group.points)
    natives = (*fallback_findings(group), *library_findings(group), *model_findings(group))
    own = (Finding(*said) for said in natives)
    more = (Finding(*said) for said in (*mapping_findings(group), *pair_findings(group)))
    wire = (*_shares(group), *(Finding(*said) for said in rail_findings(group)))
    careful = (Finding(*said) for said in cautions(group))
    said = [*_fastest(group, found), *own, *more, *_highest(group), *wire, *_between(group), *careful]
    sentence, nearly_all = unsure(group)
    loose = [Finding("Not converged", sentence)] if sentence else []
    return [*loose, *said] if nearly_all else [*said, *loose]


def ratio_table(group: Group) -> tuple[list[str], list[list[str]]]:
    """Return header and body of a table: for each series and ranks the lowest and highest time over native's."""
    ratios = native_ratios(contests(group.points))
    places = {point.row.ranks: group.place(point.row) for point in group.usable}
    ranks = sorted({ranks for _, ranks in ratios})
    names = dict.fromkeys(series for series, _ in ratios)
    body = [[n, *(_range(group, ratios.get((n, p), ())) for p in ranks)] for n in group.colours if n in names]
    return ["time over native's", *(places[p] for p in ranks)], body


def _range(group: Group, pairs: Sequence[tuple[int, float]]) -> str:
    if not pairs:
        return "not measured"
    if not group.sized:
        return " to ".join(f"{ratio:.2f}x" for ratio in sorted({ratio for _, ratio in pairs}))
    ends = sorted(
        {min(pairs, key=lambda pair: pair[1]), max(pairs, key=lambda pair: pair[1])}, key=lambda pair: pair[1]
    )
    return " to ".join(f"{ratio:.2f}x ({format_size(nbytes)})" for nbytes, ratio in ends)


def _fastest(group: Group, found: Sequence[Contest]) -> Iterator[Finding]:
    def place(contest: Contest) -> tuple[int, str]:
        machine = f" on {group.machine(contest.winner)}" if len(group.machines) > 1 else ""
        variant = f", {contest.variant}" if contest.variant else ""
        mapping = f", {contest.mapping}" if group.several_mappings else ""
        return contest.ranks, group.place(contest.winner.row) + machine + variant + mapping

    for (_, about), run in groupby(sorted(found, key=place), key=place):
        if said := list(_by_leader(group, list(run))):
            yield Finding(about, "; ".join(said) + ".")


def _by_leader(group: Group, found: Sequence[Contest]) -> Iterator[str]:
    """One clause for each leader, in order of the first size that it leads at; then the sizes without one."""
    if not group.sized:
        yield from (
            f"{contest.leader} is fastest ({contest.lead:.2f}x ahead)" if contest.leader else "no clear winner"
            for contest in found
            if contest.lead
        )
        return
    leaders: dict[str | None, list[Stretch]] = defaultdict(list)
    for stretch in stretches(found):
        leaders[stretch.leader].append(stretch)
    undecided = leaders.pop(None, [])
    for leader, led in leaders.items():
        leads = [lead for stretch in led for lead in stretch.leads]
        low, high = f"{min(leads):.2f}x", f"{max(leads):.2f}x"
        yield f"{leader} is fastest {_sizes(led)} ({low if low == high else f'{low} to {high}'} ahead)"
    if undecided:
        count = sum(len(stretch.sizes) for stretch in undecided)
        others = f"at the other {counted(count, 'size')}" if len(undecided) > 1 else _sizes(undecided)
        yield f"no clear winner {others}"


def _sizes(led: Iterable[Stretch]) -> str:
    ends = [(format_size(stretch.sizes[0]), format_size(stretch.sizes[-1])) for stretch in led]
    return ", ".join(f"at {first}" if first == last else f"from {first} to {last}" for first, last in ends)


def _highest(group: Group) -> Iterator[Finding]:
    points = [p for p in group.usable if p.row.busbw_Bps and competes(p.row)]
    if points:
        best = max(points, key=lambda point: point.row.busbw_Bps or 0.0)
        busbw = format_rate(best.row.busbw_Bps or 0.0)
        notional = f", algbw {format_rate(best.row.algbw_Bps or 0.0)}: {NOTIONAL}" if offloaded(best.row) else ""
        where = f"{_where(group, best)}{_burst(best)}{notional}"
        chosen = max((p.row.busbw_Bps or 0.0 for p in group.usable if p.row.algorithm == AUTO), default=0.0)
        auto = f" auto, which chooses among these and is left out, reached {format_rate(chosen)}." if chosen else ""
        yield Finding("Highest busbw", f"{busbw}{_sure(best)} by {best.series} with {where}.{auto}")


def _sure(point: Point) -> str:
    """Return between what the busbw of a point lies, by the interval of its time; nothing where that is no more."""
    ends, busbw = interval(point), point.row.busbw_Bps or 0.0
    if ends is None or not ends[0]:
        return ""
    low, high = (format_rate(busbw * seconds(point) / end) for end in reversed(ends))
    return "" if low == high else f" ({low} to {high} by its 95 % interval)"


NOTIONAL = "where switches reduce, busbw supposes bytes that no link carries"


def _burst(point: Point) -> str:
    """Say that a message was small enough to pass faster than the wire carries; nothing where busbw may do so."""
    row, wire = point.row, point.wire
    most = ceiling(row, wire)
    if most is None or limit(row, wire) or (row.busbw_Bps or 0.0) <= most:
        return ""
    return f": a burst, above {wire_words(row, wire)} ({format_rate(most)})"


def _where(group: Group, point: Point) -> str:
    row = point.row
    at = f"{group.place(row)} at {group.size(row.requested_bytes)}" if group.sized else group.place(row)
    return ", ".join(filter(None, (at, pair_words(point), placement(row))))


def _shares(group: Group) -> Iterator[Finding]:
    """Say how much of the wires in use the best reaches at the largest size, on every number of nodes; or why not.

    A wire that misses its rate was calibrated on a busy machine: a per cent of that would flatter.
    """
    best: dict[tuple[str, int, float], tuple[int, float, Point]] = {}
    for point in best_placements(group.points):
        if reached := share(point.row, point.wire):
            key = point.machine, point.row.ranks, limit(point.row, point.wire) or 0.0
            entry = (point.row.requested_bytes, reached, point)
            best[key] = max(best.get(key, entry), entry, key=lambda entry: entry[:2])
    clauses = [
        f"{point.series} reaches {100 * reached:.0f} % of {wire_words(point.row, point.wire)} at "
        f"{format_size(nbytes)} on {group.place(point.row)}"
        for _, (nbytes, reached, point) in sorted(best.items(), key=lambda item: item[0])
    ]
    if clauses:
        yield Finding("Per cent of wire", "; ".join(clauses) + ".")
    wires = [point.wire for point in group.usable if point.row.nodes > 1]
    for words, kept in sorted({(wire.words, wire.kept) for wire in wires if wire.kept}):
        seen = f"a wire carried {100 * kept:.1f} % of what TCP should get of {words}"
        yield Finding("No per cent of wire", f"{seen} when the testbed came up: bring it up while the machine is idle.")


def _between(group: Group) -> Iterator[Finding]:
    """Say what launches agree on, where some measured the same; else that none did."""
    yield from _between_rounds(group)
    again = repeats(group.points)
    if not again:
        yield Finding(
            "Between launches",
            f"{_once(group)}. An interval tells how sure the median is within its launch; another "
            "launch may differ by more, most of all on a shared machine. Being ahead by a few per cent is no reason to "
            "choose.",
        )
        return
    apart = sorted((repeat for repeat in again if repeat.disagrees), key=lambda repeat: -repeat.apart)
    says = (
        f"{counted(len(again), 'point')} measured more than once, {len(apart)} of them with intervals that do not touch"
    )
    if apart:
        worst = apart[0]
        says += f"; at most {worst.apart:.2f}x apart: {worst.fastest.series} with {_where(group, worst.fastest)}"
    yield Finding("Between launches", says + ".")


def _once(group: Group) -> str:
    resumed = sum(len({run for run, _ in rounds(point)}) > 1 for point in group.usable)
    several = f"each case was measured once, the rounds of {counted(resumed, 'case')} in several launches"
    return f"{several}: an interrupted job went on" if resumed else "each case was measured in one launch"


def _between_rounds(group: Group) -> Iterator[Finding]:
    """Say how far the rounds of a case are apart, where there are several, and how much of it all have in common."""
    apart: list[tuple[float, Point]] = []
    for point in group.usable:
        times = [taken.median for taken in rounds(point).values()]
        if len(times) > 1 and not point.row.floor:
            apart.append((max(times) / min(times), point))
    if apart:
        worst, point = max(apart, key=lambda entry: entry[0])
        middle = median(times for times, _ in apart)
        yield Finding(
            "Between rounds",
            f"the slowest round of a case takes {middle:.2f} times as long as the fastest one, "
            f"the median of {counted(len(apart), 'case')}; at most {worst:.2f} times: {point.series} with "
            f"{_where(group, point)}." + _in_common(group),
        )


def _in_common(group: Group) -> str:
    part = drift.shared(group.usable)
    if part is None:
        return ""
    says = f" All ways to do a call share {100 * part:.0f} % of the variance between rounds"
    why = "it is the machine that changes: others use it, or the host of a virtual one moves its CPUs"
    return f"{says}: {why}. Ratios are then surer than times." if part >= MAINLY else f"{says}."
