"""Packets that are lost on the way to or from a node: times hardly show them, because TCP soon sends them again.

The count of a node is compared with those of all others. Healthy nodes lose packets, too, some more than others: the
share that a node loses is taken to be distributed exponentially, as widely as its mean. Given the sum of the counts,
all ways to divide it among the nodes are then equally likely (Bose and Einstein), whatever the mean is. Counts that
scatter less, down to those of Poisson, alarm less often.

TCP loses segments in bursts, such as when a queue is full. A burst is of one pair: a node is named only for what it
loses with several partners, and no pair counts for more than those.

What nearly all nodes of a rack lose, and only when they transfer to other racks, is not theirs: it is of the uplink.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from hpccoll.common.records import from_builtins
from hpccoll.common.text import Finding, critical, in_brackets, join_words, rack_text, warning
from hpccoll.diagnosis.records import LEAST_RACK, Booleans, Integers
from hpccoll.diagnosis.robust_statistics import QUARTILE
from hpccoll.store.host_names import host_ranges

LOSSES = "losses"
"""The key of the provenance of a diagnosis with HostLosses of all hosts."""

FALSE_ALARM = 1e-3
"""The chance that any node of a healthy machine is named for its segments, and again for its ports."""

PARTNERS = 4
"""With how many partners a node must lose segments to be named (with all, if it has fewer): none of its pairs counts
for more than the pair in this place."""

LONGEST_BURST = 64
"""The segments that a burst loses at most; a path is named only for more."""

MUCH = 5e-4
"""The share from which on losses of a node are critical: at 0.1 % a connection of 10 Gbit/s has lost half of its
rate."""

MOST_FAULTY = 0.25
"""The part of the nodes that may be named at most; of few, one."""

DIRECTIONS = "sent", "received"
SEGMENTS, PACKETS = "segments", "packets"
MILLION = 1e6
"""Errors of ports are given for as many packets: not each of them is a packet, nor is each packet of the diagnosis."""


@dataclass(slots=True)
class HostLosses:
    """What a host lost during a diagnosis; lists have what it sent, then what it received."""

    host: str
    segments: dict[str, list[int]]  # of TCP, by the host that they were for: those sent, and those sent again
    packets: list[int] = field(default_factory=lambda: [0, 0])  # of its ports
    errors: list[dict[str, int]] = field(default_factory=lambda: [{}, {}])  # of its ports, by their counters


class _Lossy(NamedTuple):
    """A node that loses more than others, in one direction."""

    where: tuple[int, ...]  # the node; if its losses are with one other, the sender and the receiver
    direction: int  # of DIRECTIONS; that of the sender for such a path
    share: float  # that is lost
    usual: float  # of what other nodes send to others


class _LossyUplink(NamedTuple):
    """An uplink that loses segments in one direction; of two racks it may be either of theirs."""

    racks: tuple[tuple[int, int], ...]  # the number of a rack, and of DIRECTIONS
    share: float  # that is lost
    usual: float  # of what other racks send to one another; if there are only two, of what nodes of the other send


@dataclass(frozen=True, slots=True)
class _Losses:
    """What pairs of nodes lost; the events of a port have its node at both ends."""

    ends: Integers  # [2, pairs]: the sender and the receiver
    sizes: Integers  # [2, pairs]: what the sender sent, and the receiver received
    lost: Integers  # [2, pairs]: of that
    nodes: int

    def outliers(self) -> Iterator[_Lossy]:
        """Yield what loses more than others beyond chance."""
        counts = [[np.bincount(self.ends[d], each[d], self.nodes) for d in (0, 1)] for each in (self.lost, self.sizes)]
        order = np.argsort(-np.max(counts[0] / np.maximum(counts[1], 1), axis=0), kind="stable")
        most = max(1, int(MOST_FAULTY * self.nodes))
        found = [k for k in range(most) if any(self._find(int(order[k]), order[k + 1 :]))]
        first = max(found, default=-1) + 1  # the second one of two may hide the first
        for node in order[:first].tolist():
            yield from self._find(node, order[first:])

    def of_uplinks(self, rack: Integers) -> Iterator[tuple[_LossyUplink, Booleans]]:
        """Yield the uplinks that lose more than other nodes do, and which pairs [pairs] those losses are of.

        Three quarters of the nodes of a rack lose segments when they transfer to others, and hardly any within it.

        Args:
            rack: [nodes]: the number of the rack of each.
        """
        left, of_ends = np.ones(self.ends.shape[1], bool), rack[self.ends]
        across = of_ends[0] != of_ends[1]
        size = np.bincount(rack)
        tested = [*product(np.flatnonzero((size >= LEAST_RACK) & (size < self.nodes)).tolist(), (0, 1))]
        while tested:
            found: dict[tuple[int, int], tuple[float, float, Booleans]] = {}
            for name, direction in tested:
                own = left & across & (of_ends[direction] == name)
                within, elsewhere = left & (of_ends == name).all(0), left & (of_ends != name).all(0)
                alike = elsewhere & across if size.size > 2 else elsewhere  # what stays in a rack crosses no uplink
                sizes, lost = self.sizes[direction], self.lost[direction]
                share, near, usual, of_all = (
                    float(lost[some].sum() / max(sizes[some].sum(), 1)) for some in (own, within, alike, elsewhere)
                )
                of_members = np.bincount(self.ends[direction, own], lost[own], self.nodes)[rack == name]
                others = self.nodes - size[name]
                most = of_all * sizes[own].sum() / size[name] * others  # what others lose of as many as a member sends
                count = float(np.quantile(of_members, QUARTILE, method="lower"))
                is_more = 2 * size.size * chance_of(count, most, others + 1) < FALSE_ALARM
                if is_more and share > 2 * max(near, usual):
                    found[name, direction] = share, usual, own
            if not found:
                return
            share, usual, own = max(found.values(), key=lambda each: each[0])
            same = [key for key, (*_, pairs) in found.items() if (pairs == own).all()]  # of two racks: either uplink
            yield _LossyUplink(tuple(same), share, usual), own
            left &= ~own
            tested = [key for key in tested if key not in same]

    def _find(self, node: int, others: Integers) -> Iterator[_Lossy]:
        """Yield what a node loses to and from others, if that is more than they lose among themselves."""
        is_usual = np.isin(np.arange(self.nodes), others)
        is_among = is_usual[self.ends].all(0)
        is_with = is_usual | (np.arange(self.nodes) == node)
        for direction, (sizes, lost) in enumerate(zip(self.sizes, self.lost, strict=True)):
            own = np.flatnonzero((self.ends[direction] == node) & is_with[self.ends[1 - direction]])
            if not (sizes[own].sum() and sizes[is_among].sum()):
                continue
            size, among = sizes[own].sum() * len(others) / sizes[is_among].sum(), lost[is_among]
            usual = float(among.sum() / sizes[is_among].sum())

            def is_more(events: int, of_others: Integers, size: float = size) -> bool:
                chance = chance_of(events, float(of_others.sum()) * size, len(others) + 1)
                return 2 * self.nodes * chance < FALSE_ALARM

            counted = np.minimum(lost[own], np.sort(lost[own])[-PARTNERS:][0])
            if is_more(int(counted.sum()), among):
                yield _Lossy((node,), direction, float(lost[own].sum() / sizes[own].sum()), usual)
                continue
            for pair in own if len(own) > 1 else ():
                if is_more(int(lost[pair] // LONGEST_BURST), among // LONGEST_BURST):
                    sender, receiver = self.ends[:, pair].tolist()
                    yield _Lossy((sender, receiver), 0, float(lost[pair] / sizes[pair]), usual)


def chance_of(count: float, others: float, nodes: int) -> float:
    """Return the chance that one of several nodes has at least ``count`` of the events, and all ``others`` the rest."""
    every = count + others
    ways = (math.lgamma(each + nodes) - math.lgamma(each + 1) for each in (others, every))
    return math.exp(next(ways) - next(ways))


def findings_of_losses(provenance: Mapping[str, object], rack_of: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the nodes, the paths between two nodes, and the uplinks that lose packets when others do not.

    Args:
        provenance: of a diagnosis.
        rack_of: the rack of each host; empty if racks are unknown.
    """
    hosts = from_builtins(provenance.get(LOSSES, []), list[HostLosses])
    number = {each.host: node for node, each in enumerate(hosts)}
    of_pairs = {
        (node, number[peer]): ([sent, sent], [again, again])
        for node, each in enumerate(hosts)
        for peer, (sent, again) in each.segments.items()
    }
    of_ports = {
        (node, node): (each.packets, [sum(errors.values()) for errors in each.errors])
        for node, each in enumerate(hosts)
    }
    for unit, lost in ((SEGMENTS, of_pairs), (PACKETS, of_ports)):
        if lost:
            ends, counts = np.array([*lost]).T, np.array([*lost.values()])
            losses = _Losses(ends, counts[:, 0].T, counts[:, 1].T, len(hosts))
            if unit == SEGMENTS and all(each.host in rack_of for each in hosts):
                names, rack = np.unique([rack_of[each.host] for each in hosts], return_inverse=True)
                for uplink, pairs in losses.of_uplinks(rack):
                    losses = replace(losses, lost=np.where(pairs, 0, losses.lost))
                    yield _finding_of_uplink(uplink, names.tolist(), rack, hosts)
            yield from _findings(hosts, losses.outliers(), unit)


def _finding_of_uplink(
    uplink: _LossyUplink, names: Sequence[str], rack: Integers, hosts: Sequence[HostLosses]
) -> Finding:
    of_racks = [names[number] for number, _ in uplink.racks]
    is_member = np.isin(rack, [number for number, _ in uplink.racks]).tolist()
    members = [each.host for each, its in zip(hosts, is_member, strict=True) if its]
    parts = [
        f"{('left', 'came to')[direction]} {rack_text(names[number])}"
        + in_brackets(host_ranges([each.host for each, its in zip(hosts, rack, strict=True) if its == number]))
        for number, direction in uplink.racks
    ]
    share, usual = _per_cent(uplink.share), _per_cent(uplink.usual)
    is_compared = len(names) > 2  # with what other racks lose among themselves
    elsewhere = "between other racks" if is_compared else "within racks, where no uplink is crossed,"
    text = f"{share} of the segments that {join_words(parts)} had to be sent again, of those {elsewhere} {usual}."
    remedy = f"Do: look at the uplink of {join_words(map(rack_text, of_racks), 'or')}; most of the nodes lose alike."
    severity = critical if is_compared and uplink.share >= MUCH else warning
    values: dict[str, Any] = {DIRECTIONS[direction]: uplink.share for _, direction in uplink.racks}
    values |= {"racks": of_racks, "hosts": members, "unit": SEGMENTS, "usual": uplink.usual}
    return severity("uplink_losses", text, remedy=remedy, **values)


def _findings(hosts: Sequence[HostLosses], found: Iterable[_Lossy], unit: str) -> Iterator[Finding]:
    by_place = defaultdict[tuple[int, ...], list[_Lossy]](list)
    for each in found:
        by_place[each.where].append(each)
    for where, several in by_place.items():
        names = [hosts[node].host for node in where]
        usual = max(each.usual for each in several)
        place = f"the cable and the ports of {names[0]}"
        if unit == PACKETS:
            parts = [
                f"{MILLION * each.share:.2g} errors per million packets {DIRECTIONS[each.direction]}"
                + in_brackets(*_counters(hosts[where[0]].errors[each.direction]))
                for each in several
            ]
            text = f"The ports of {names[0]} counted {join_words(parts)}, of whatever traffic; those of other nodes "
            text += f"{MILLION * usual:.2g}."
        else:
            parts = [
                f"{_per_cent(each.share)} of the {unit} that {names[0]} {DIRECTIONS[each.direction]}"
                for each in several
            ]
            if len(where) > 1:
                path = f"from {names[0]} to {names[1]}"
                parts, place = [f"{_per_cent(several[0].share)} of the {unit} {path}"], f"the path {path}"
            text = f"{join_words(parts)} had to be sent again, of those of other nodes {_per_cent(usual)}."
        is_much = len(where) == 1 and max(each.share for each in several) >= MUCH
        severity = critical if is_much else warning
        values: dict[str, Any] = {DIRECTIONS[each.direction]: each.share for each in several}
        values |= {"hosts": names, "unit": unit, "usual": usual}
        yield severity("losses", text, remedy=f"Do: look at {place}.", **values)


def _counters(errors: Mapping[str, int]) -> Iterator[str]:
    return (f"{name} {count}" for name, count in errors.items())


def _per_cent(share: float) -> str:
    return f"{100 * share:.2g} %"
