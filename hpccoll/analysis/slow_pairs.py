"""Slow ones among pairs of ranks, and what explains them: hosts, groups of hosts such as racks, ranks, or few links.

The explanation is what the slow pairs have in common, without an estimate of its certainty: measure again without it.
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
    names: tuple[Names, ...] = ()  # of each group; of all members that explain them; of each slow pair


def slow_pairs(points: Sequence[SeriesPoint]) -> SlowPairs | None:
    """Return the slow ones of pairs, and what explains them; None if no pair is slow.

    A pair is slow if it takes at least SLOW times as long as the pair at the lower quartile, and is clearly slower than
    that. Unlike the median, that pair is not slow if one of three or more hosts is: the pairs of one host are two
    thirds of all pairs of three hosts, half of those of four.

    The first of these that holds is the explanation, for hosts and then for ranks:

    - racks: the slow pairs are exactly those between racks;
    - groups: they are exactly those between other groups, two of which have several members;
    - members: every slow pair contains one of the fewest members, at most MAX_NAMES and half of all; each is in several
      slow pairs, and more than half of its pairs are slow;
    - links: at most MAX_NAMES pairs are slow;
    - nothing.

    Args:
        points: of each pair the point of one series and size, on one number of ranks.
    """
    ordered = sorted(points, key=median_seconds)
    usual = ordered[(len(ordered) - 1) // 4] if ordered else None
    is_slow = [
        usual is not None
        and median_seconds(point) >= SLOW * median_seconds(usual)
        and clearly_faster_anywhere(usual.row, point.row)
        for point in ordered
    ]
    slow, others = ([p for p, each in zip(ordered, is_slow, strict=True) if each is wanted] for wanted in (True, False))
    if not slow:
        return None
    factor = median(map(median_seconds, slow)) / median(map(median_seconds, others))
    for name in _levels(ordered[0]):
        ends_of_slow, ends_of_others = ([_ends(point, name) for point in part] for part in (slow, others))
        if groups := _groups(ends_of_slow, ends_of_others):
            racks = set(_racks(ordered[0], {*chain.from_iterable(groups)}))
            return SlowPairs(len(slow), factor, "racks" if racks == {*groups} else "groups", _sorted_names(groups))
        if members := _members(ends_of_slow, ends_of_others):
            return SlowPairs(len(slow), factor, "members", _sorted_names([members]))
    if len(slow) <= MAX_NAMES:
        links = (_ends(point, SeriesPoint.rank_name) for point in slow)
        return SlowPairs(len(slow), factor, "links", _sorted_names(links))
    return SlowPairs(len(slow), factor, "nothing")


def _levels(point: SeriesPoint) -> list[Callable[[SeriesPoint, int], str]]:
    """Return what names the ends of pairs: their hosts if these have several ranks, then their ranks."""
    several = point.host_of(0) and point.row.ranks > point.row.nodes
    return [SeriesPoint.host_of, SeriesPoint.rank_name] if several else [SeriesPoint.rank_name]


def _ends(point: SeriesPoint, name: Callable[[SeriesPoint, int], str]) -> Ends:
    return frozenset(name(point, rank) for rank in rank_pair(point.row) or ())


def _racks(point: SeriesPoint, hosts: Collection[str]) -> Iterator[Ends]:
    """Yield the hosts of each rack, of some hosts."""
    by_rack = defaultdict[int, set[str]](set)
    for host, rack in zip(point.hosts, point.racks, strict=False):
        by_rack[rack].add(host)
    yield from (frozenset(members.intersection(hosts)) for members in by_rack.values())


def _sorted_names(groups: Iterable[Ends]) -> tuple[Names, ...]:
    """Return the names of groups: ``n2`` before ``n10``, and the group with the first name first."""
    return tuple(
        sorted((tuple(sorted(group, key=_by_number)) for group in groups), key=lambda names: _by_number(names[0]))
    )


def _by_number(name: str) -> tuple[int, str]:
    return len(name), name


def _groups(slow: Iterable[Ends], others: Iterable[Ends]) -> list[Ends]:
    """Return the groups that other pairs connect, if every slow pair is between two of them; else nothing."""
    groups: list[Ends] = []
    for connected in (*others, *(frozenset([end]) for end in chain.from_iterable(slow))):
        joined = [group for group in groups if group & connected]
        groups = [*(group for group in groups if not group & connected), connected.union(*joined)]
    within = any(ends <= group for ends in slow for group in groups)
    return [] if within or sum(len(group) > 1 for group in groups) < 2 else groups


def _members(slow: Sequence[Ends], others: Sequence[Ends]) -> Ends | None:
    """Return the fewest members that explain all slow pairs; None if none do."""
    of_slow, of_others = (Counter(chain.from_iterable(part)) for part in (slow, others))
    mostly_slow = [member for member, count in of_slow.most_common() if 1 < count > of_others[member]]
    most = min(MAX_NAMES, len({*of_slow, *of_others}) // 2)
    for number in range(1, most + 1):
        for members in map(frozenset, combinations(mostly_slow[:MAX_CANDIDATES], number)):
            if all(members & ends for ends in slow):
                return members
    return None
