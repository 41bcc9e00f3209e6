"""Slow ones among pairs of ranks, and what explains them: hosts, groups of hosts such as racks, ranks, or few links.

The explanation is what the slow pairs have in common, without an estimate of its certainty: measure
again without it.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from statistics import median
from typing import Literal, TypeAlias

from hpccoll.analysis.round_comparison import clearly_faster_anywhere
from hpccoll.analysis.series_points import SeriesPoint, median_seconds
from hpccoll.store.call_key import rank_pair

SLOW = 1.25
"""How many times as long as the pair at the lower quartile a slow pair takes, at least."""

MAX_NAMES = 3
"""The most hosts, ranks or pairs that are an explanation."""

MAX_CANDIDATES = 12
"""The most hosts or ranks whose combinations are tried, those in the most slow pairs."""

Explanation: TypeAlias = Literal["racks", "groups", "members", "links", "nothing"]
Names: TypeAlias = tuple[str, ...]
Ends: TypeAlias = frozenset[str]
"""The hosts, or ranks, of a pair."""


@dataclass(frozen=True, slots=True)
class SlowPairs:
    """The slow ones of some pairs."""

    count: int  # how many are slow
    factor: float  # their median time over that of the other pairs
    explanation: Explanation
    # of each group; of all members that explain them; of each slow pair
    names: tuple[Names, ...] = ()


def slow_pairs(points: Sequence[SeriesPoint]) -> SlowPairs | None:
    """Return the slow ones of pairs, and what explains them; None if no pair is slow.

    A pair is slow if it takes at least SLOW times as long as the pair at the lower quartile, and is
    clearly slower than that. Unlike the median, that pair is not slow if one of three or more hosts
    is: the pairs of one host are two thirds of all pairs of three hosts, half of those of four.

    The first explanation that holds is the one returned, for hosts and then for ranks:

    - racks: the slow pairs are exactly those between racks;
    - groups: they are exactly those between other groups, and at least two groups have several
      members;
    - members: every slow pair contains one of the fewest members, at most MAX_NAMES and half of
      all; each is in several slow pairs, and more than half of its pairs are slow;
    - links: at most MAX_NAMES pairs are slow;
    - nothing.

    Args:
        points: of each pair the point of one series and size, on one number of ranks.
    """
    ordered = sorted(points, key=median_seconds)
    slow, faster = _slow_and_others(ordered)
    if not slow:
        return None
    count = len(slow)
    factor = median(map(median_seconds, slow)) / median(map(median_seconds, faster))
    for name in _levels(ordered[0]):
        ends_of_slow = [_ends(point, name) for point in slow]
        ends_of_others = [_ends(point, name) for point in faster]
        groups = _groups(ends_of_slow, ends_of_others)
        if groups:
            hosts = set(chain.from_iterable(groups))
            are_racks = set(_racks(ordered[0], hosts)) == set(groups)
            return SlowPairs(
                count, factor, "racks" if are_racks else "groups", _sorted_names(groups)
            )
        members = _members(ends_of_slow, ends_of_others)
        if members:
            return SlowPairs(count, factor, "members", _sorted_names([members]))
    if count <= MAX_NAMES:
        links = (_ends(point, SeriesPoint.rank_name) for point in slow)
        return SlowPairs(count, factor, "links", _sorted_names(links))
    return SlowPairs(count, factor, "nothing")


def _slow_and_others(ordered: Sequence[SeriesPoint]) -> tuple[list[SeriesPoint], list[SeriesPoint]]:
    """Return the slow pairs, and all other pairs, each in the order of their times."""
    slow: list[SeriesPoint] = []
    faster: list[SeriesPoint] = []
    if not ordered:
        return slow, faster
    usual = ordered[(len(ordered) - 1) // 4]
    least = SLOW * median_seconds(usual)
    for point in ordered:
        is_slow = median_seconds(point) >= least and clearly_faster_anywhere(usual.row, point.row)
        part = slow if is_slow else faster
        part.append(point)
    return slow, faster


def _levels(point: SeriesPoint) -> list[Callable[[SeriesPoint, int], str]]:
    """Return what names the ends of pairs: their hosts if these have several ranks, then their ranks."""
    if point.host_of(0) and point.row.ranks > point.row.nodes:
        return [SeriesPoint.host_of, SeriesPoint.rank_name]
    return [SeriesPoint.rank_name]


def _ends(point: SeriesPoint, name: Callable[[SeriesPoint, int], str]) -> Ends:
    pair = rank_pair(point.row) or ()
    return frozenset(name(point, rank) for rank in pair)


def _racks(point: SeriesPoint, hosts: Collection[str]) -> Iterator[Ends]:
    """Yield the hosts of each rack, of some hosts."""
    by_rack = defaultdict[int, set[str]](set)
    for host, rack in zip(point.hosts, point.racks, strict=False):
        by_rack[rack].add(host)
    for members in by_rack.values():
        yield frozenset(members.intersection(hosts))


def _sorted_names(groups: Iterable[Ends]) -> tuple[Names, ...]:
    """Return the names of groups: ``n2`` before ``n10``, and the group with the first name first."""
    names_of_groups = [tuple(sorted(group, key=_by_number)) for group in groups]
    names_of_groups.sort(key=lambda names: _by_number(names[0]))
    return tuple(names_of_groups)


def _by_number(name: str) -> tuple[int, str]:
    return len(name), name


def _groups(slow: Iterable[Ends], faster: Iterable[Ends]) -> list[Ends]:
    """Return the groups that other pairs connect, if every slow pair is between two of them; else nothing."""
    single_ends = [frozenset([end]) for end in chain.from_iterable(slow)]
    groups: list[Ends] = []
    for connected in (*faster, *single_ends):
        joined = connected
        separate = []
        for group in groups:
            if group & connected:
                joined = joined.union(group)
            else:
                separate.append(group)
        groups = [*separate, joined]
    for ends in slow:
        if any(ends <= group for group in groups):
            return []
    several_members = [group for group in groups if len(group) > 1]
    return groups if len(several_members) > 1 else []


def _members(slow: Sequence[Ends], faster: Sequence[Ends]) -> Ends | None:
    """Return the fewest members that explain all slow pairs; None if none do."""
    slow_counts = Counter(chain.from_iterable(slow))
    other_counts = Counter(chain.from_iterable(faster))
    mostly_slow = [
        member for member, count in slow_counts.most_common() if 1 < count > other_counts[member]
    ]
    all_members = {*slow_counts, *other_counts}
    most = min(MAX_NAMES, len(all_members) // 2)
    for number in range(1, most + 1):
        for members in map(frozenset, combinations(mostly_slow[:MAX_CANDIDATES], number)):
            if all(members & ends for ends in slow):
                return members
    return None
