"""What the rows of a group say, in sentences and with the numbers; only what they say."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from hpccoll.report.compare import Contest, Stretch, contests, native_ratios, stretches
from hpccoll.report.groups import Group, Point, counted, usable
from hpccoll.units import format_size


class Finding(NamedTuple):
    """A sentence and what it is about."""

    about: str
    says: str


def findings(group: Group) -> list[Finding]:
    """Return the findings of ``group``: who is fastest where, the highest bandwidth, and what to be careful about."""
    found = contests(group.points)
    return [*_fastest(group, found), *_highest(group), *_cautions(group)]


def ratio_table(group: Group) -> tuple[list[str], list[list[str]]]:
    """Return header and body of a table: for each series and ranks the lowest and highest time over native's."""
    ratios = native_ratios(contests(group.points))
    ranks = sorted({ranks for _, ranks in ratios})
    names = dict.fromkeys(series for series, _ in ratios)
    body = [[name, *(_range(ratios.get((name, p), ())) for p in ranks)] for name in group.colours if name in names]
    return ["time over native's", *(counted(p, "rank") for p in ranks)], body


def _range(pairs: Sequence[tuple[int, float]]) -> str:
    if not pairs:
        return "not measured"
    ends = sorted(
        {min(pairs, key=lambda pair: pair[1]), max(pairs, key=lambda pair: pair[1])}, key=lambda pair: pair[1]
    )
    return " to ".join(f"{ratio:.2f}x ({format_size(nbytes)})" for nbytes, ratio in ends)


def _fastest(group: Group, found: Sequence[Contest]) -> Iterator[Finding]:
    def place(contest: Contest) -> tuple[int, str]:
        return contest.ranks, f" on {group.machine(contest.winner)}" if len(group.machines) > 1 else ""

    for (ranks, machine), run in groupby(sorted(found, key=place), key=place):
        if said := list(_by_leader(list(run))):
            yield Finding(counted(ranks, "rank") + machine, "; ".join(said) + ".")


def _by_leader(found: Sequence[Contest]) -> Iterator[str]:
    """One clause for each leader, in order of the first size that it leads at; then the sizes without one."""
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
    points = [p for p in group.usable if p.row.busbw_Bps and not p.row.floor]
    if points:
        best = max(points, key=lambda point: point.row.busbw_Bps or 0.0)
        busbw = f"{(best.row.busbw_Bps or 0.0) / 1e9:.3g} GB/s"
        yield Finding("Highest busbw", f"{busbw} by {best.series} with {_where(best)}.")


def _where(point: Point) -> str:
    row = point.row
    placement = "in place" if row.in_place else "out of place"
    return f"{counted(row.ranks, 'rank')} at {format_size(row.requested_bytes)}, {placement}"


def _cautions(group: Group) -> Iterator[Finding]:
    rows = [point.row for point in group.points]
    results = [row for row in rows if usable(row)]
    loose = sum(row.converged is False for row in results)
    wrong = [point for point in group.points if point.row.status == "wrong"]
    crowded = sorted({row.ranks for row in results if row.oversubscribed})
    if wrong:
        names = ", ".join(sorted({point.series for point in wrong}))
        yield Finding("Wrong", f"{counted(len(wrong), 'row')} with a wrong result, not drawn: {names}.")
    if loose:
        yield Finding("Not converged", f"the interval of {loose} of {len(results)} rows did not become tight in time.")
    yield Finding(
        "Between launches",
        "each job was launched once. An interval tells how sure the median is within its launch; another launch may "
        "differ by more, most of all on a shared machine. Being ahead by a few per cent is no reason to choose.",
    )
    if crowded:
        ranks = " and ".join(map(str, crowded))
        yield Finding(
            "Oversubscribed", f"with {ranks} ranks there are more ranks than cores: times include waiting for a core."
        )
    if len(group.machines) > 1:
        yield Finding("Several machines", "lines and comparisons are kept apart: " + "; ".join(group.machines) + ".")
