"""The overview of several collectives: a line for each, with what is fastest at both ends of its sizes."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import groupby

from hpccoll.report.calls import BETWEEN_NODES, ON_ONE_NODE, tier
from hpccoll.report.compare import Contest, contests
from hpccoll.report.groups import SOFTWARE, Group, Point
from hpccoll.report.pairs import middles
from hpccoll.report.rounds import ahead, ratio, ratios, seconds
from hpccoll.report.tables import plain_table
from hpccoll.report.wires import format_rate
from hpccoll.schedule.collectives import COLLECTIVES
from hpccoll.store.rows import Results
from hpccoll.units import format_seconds, format_size

HEAD = (
    "collective", "cases", "sizes", "ranks", "fastest at the smallest size", "over native's", "at the largest size",
    "over native's",
)  # fmt: skip
BAD = ("wrong", "missing")
"""Columns that are there where they count something."""
NOTE = (
    "Fastest on the most ranks that were measured, by its median; a tie: not clearly so in every round. Over native's: "
    "its time over the library's own of the same run, the median of the ratios of their rounds, or the least to the "
    "greatest where it is not clearly faster in every round. Of several settings, that with the most points; of pairs "
    "of ranks, the median pair, between nodes where there are several."
)


def overview(results: Results, groups: Sequence[Group]) -> str:
    """Return the table as HTML; each collective links to its own part of the page."""
    names = [name for name, _ in groupby(groups, key=lambda group: group.collective)]
    members = {name: [group for group in groups if group.collective == name] for name in names}
    unmeasured = sorted({gap.case.partition(".")[0] for gap in results.missing} & COLLECTIVES.keys() - members.keys())
    head, body = list(HEAD), [_line(found) for found in members.values()]
    body += [[name, "0", "", "", "nothing was measured", "", "", ""] for name in unmeasured]
    bad = [_bad(results, name, members.get(name, [])) for name in (*members, *unmeasured)]
    for place, name in enumerate(BAD):
        if any(counts[place] for counts in bad):
            head.append(name)
            body = [[*line, str(counts[place] or "")] for line, counts in zip(body, bad, strict=True)]
    return plain_table(head, body, names)


def missing_of(results: Results, collective: str) -> int:
    """Return how many cases of a collective are without a usable result."""
    return sum(gap.case.startswith(f"{collective}.") for gap in results.missing)


def _bad(results: Results, collective: str, groups: Iterable[Group]) -> tuple[int, int]:
    wrong = sum(point.row.status == "wrong" for group in groups for point in group.points)
    return wrong, missing_of(results, collective)


def _line(groups: Sequence[Group]) -> list[str]:
    rows = [point.row for group in groups for point in group.points]
    best = max(groups, key=lambda group: len(group.usable))
    found = contests(_middles(best) if best.many_pairs else best.points)
    least, most = (_end(found, choose) for choose in (min, max))
    other = f" ({best.words_beside(groups)})" if len(groups) > 1 else ""
    return [
        best.collective,
        str(len(rows)),
        " to ".join(dict.fromkeys(_ends(row.requested_bytes for row in rows))) if best.sized else "",
        ", ".join(map(str, sorted({row.ranks for row in rows}))),
        *(_fastest(best, least, other) if least else ("", "")),
        *(_fastest(best, most, other, bandwidth=True) if most and best.sized else ("", "")),
    ]


def _middles(group: Group) -> list[Point]:
    """Return the median pair of every line, as if all were of one pair: lines are compared by it, the far ones."""
    far = max((tier(point.row) for point in group.usable), key=(ON_ONE_NODE, BETWEEN_NODES).index, default="")
    points = (middle.point for middle in middles(group.usable) if tier(middle.point.row) == far)
    return [replace(point, row=replace(point.row, root=0, params={**point.row.params, "peer": -1})) for point in points]


def _ends(sizes: Iterable[int]) -> list[str]:
    sizes = list(sizes)
    return [format_size(min(sizes)), format_size(max(sizes))]


def _end(found: Sequence[Contest], choose: Callable[[Iterable[int]], int]) -> Contest | None:
    """Return the contest at one end of the sizes on the most ranks; of several machines, the one in the middle."""
    if not found:
        return None
    ranks = max(contest.ranks for contest in found)
    nbytes = choose(contest.nbytes for contest in found if contest.ranks == ranks)
    there = [contest for contest in found if (contest.ranks, contest.nbytes) == (ranks, nbytes)]
    return sorted(there, key=lambda contest: seconds(contest.winner))[(len(there) - 1) // 2]


def _fastest(group: Group, contest: Contest, other: str, *, bandwidth: bool = False) -> tuple[str, str]:
    winner, native = contest.winner, contest.native
    tie = ", a tie" if contest.lead and not contest.leader else ""
    name = f"{winner.series} (software)" if winner.row.algorithm in SOFTWARE else winner.series
    size = f"{size}: " if (size := group.size(contest.nbytes)) else ""
    rate = f", {format_rate(winner.row.busbw_Bps)}" if bandwidth and winner.row.busbw_Bps else ""
    said = f"{size}{name}, {format_seconds(seconds(winner))}{rate}{tie}{other}"
    return said, _over(winner, native) if native else "no native"


def _over(winner: Point, native: Point) -> str:
    """Return its time over native's: of a tie the range, whose middle may seem to contradict that it is the fastest."""
    if winner is native or ahead(winner, native):
        return f"{ratio(winner, native):.2f}x"
    found = ratios(winner, native)
    return " to ".join(dict.fromkeys(f"{end:.2f}x" for end in (min(found), max(found))))
