"""Packets that are lost on the way to or from a node: times hardly show them, because TCP soon sends them again.

The count of a node is compared with those of all others. Healthy nodes lose packets, too, some more
than others: the share that a node loses is taken to be distributed exponentially, as widely as its
mean. Given the sum of the counts, all ways to divide it among the nodes are then equally likely
(Bose and Einstein), whatever the mean is. Counts that scatter less, down to those of Poisson, alarm
less often.

TCP loses segments in bursts, such as when a queue is full. A burst is of one pair: a node is named
only for what it loses with several partners, and no pair counts for more than those.

What nearly all nodes of a rack lose, and only when they transfer to other racks, is not theirs: it
is of the uplink.
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
from hpccoll.diagnosis.robust_statistics import QUARTILE
from hpccoll.diagnosis.slot_records import LEAST_RACK, Booleans, Integers
from hpccoll.store.host_names import host_ranges

LOSSES = "losses"
"""The key of the provenance of a diagnosis with HostLosses of all hosts."""

FALSE_ALARM = 1e-3
"""The chance that any node of a healthy machine is named for its segments, and again for its ports."""

PARTNERS = 4
"""With how many partners a node must lose segments to be named (with all, if it has fewer): none of
its pairs counts for more than the pair in this place."""

LONGEST_BURST = 64
"""The segments that a burst loses at most; a path is named only for more."""

MUCH = 5e-4
"""The share from which on losses of a node are critical: at 0.1 % a connection of 10 Gbit/s has
lost half of its rate."""

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
    # of TCP, by the host that they were for: those sent, and those sent again
    segments: dict[str, list[int]]
    packets: list[int] = field(default_factory=lambda: [0, 0])  # of its ports
    # of its ports, by their counters
    errors: list[dict[str, int]] = field(default_factory=lambda: [{}, {}])


class _Lossy(NamedTuple):
    """A node, or a path, that loses more than others in one direction."""

    # the node; if its losses are with one other, the sender and the receiver
    where: tuple[int, ...]
    direction: int  # of DIRECTIONS; that of the sender for such a path
    share: float  # that is lost
    usual: float  # of what other nodes send to others


class _LossyUplink(NamedTuple):
    """An uplink that loses segments in one direction; of two racks it may be either of theirs."""

    racks: tuple[tuple[int, int], ...]  # the number of a rack, and of DIRECTIONS
    share: float  # that is lost
    # of what other racks send to one another; if there are only two, of what nodes of the other
    # send
    usual: float


class _UplinkShares(NamedTuple):
    """What the members of a rack lose when they transfer to other racks, in one direction, beside other transfers."""

    across: Booleans  # [pairs]: those that cross the uplink
    share: float  # that is lost across
    within: float  # that is lost within the rack
    usual: float  # that is lost elsewhere by transfers that are alike
    is_unlikely: bool  # whether most members lose more than chance explains

    @property
    def is_lossy(self) -> bool:
        return self.is_unlikely and self.share > 2 * max(self.within, self.usual)


@dataclass(frozen=True, slots=True)
class _Losses:
    """What pairs of nodes lost; the events of a port have its node at both ends."""

    ends: Integers  # [2, pairs]: the sender and the receiver
    sizes: Integers  # [2, pairs]: what the sender sent, and the receiver received
    lost: Integers  # [2, pairs]: of that
    nodes: int

    def outliers(self) -> Iterator[_Lossy]:
        """Yield what loses more than others beyond chance."""
        order = self._most_lossy_first()
        last = -1
        for position in range(max(1, int(MOST_FAULTY * self.nodes))):
            if any(self._find(int(order[position]), order[position + 1 :])):
                last = position
        suspects = order[: last + 1]  # the second one of two may hide the first
        unsuspected = order[last + 1 :]
        for node in suspects.tolist():
            yield from self._find(node, unsuspected)

    def _most_lossy_first(self) -> Integers:
        """Return the nodes by the share that each loses in its worse direction."""
        shares = []
        for ends, sizes, lost in zip(self.ends, self.sizes, self.lost, strict=True):
            sizes_of_nodes = np.bincount(ends, sizes, self.nodes)
            lost_of_nodes = np.bincount(ends, lost, self.nodes)
            shares.append(lost_of_nodes / np.maximum(sizes_of_nodes, 1))
        return np.argsort(-np.max(shares, axis=0), kind="stable")

    def of_uplinks(self, rack: Integers) -> Iterator[tuple[_LossyUplink, Booleans]]:
        """Yield the uplinks that lose more than other nodes do, and the pairs [pairs] that the losses belong to.

        Three quarters of the nodes of a rack lose segments when they transfer to others, and hardly
        any within it.

        Args:
            rack: [nodes]: the number of the rack of each.
        """
        left = np.ones(self.ends.shape[1], bool)
        size = np.bincount(rack)
        racks = np.flatnonzero((size >= LEAST_RACK) & (size < self.nodes)).tolist()
        tested = list(product(racks, (0, 1)))
        while tested:
            lossy: dict[tuple[int, int], _UplinkShares] = {}
            for number, direction in tested:
                shares = self._uplink_shares(number, direction, rack, left)
                if shares.is_lossy:
                    lossy[number, direction] = shares
            if not lossy:
                return
            worst = max(lossy.values(), key=lambda shares: shares.share)
            # Of two racks it may be either uplink.
            same = [
                uplink for uplink, shares in lossy.items() if (shares.across == worst.across).all()
            ]
            yield _LossyUplink(tuple(same), worst.share, worst.usual), worst.across
            left &= ~worst.across
            tested = [uplink for uplink in tested if uplink not in same]

    def _uplink_shares(
        self, number: int, direction: int, rack: Integers, left: Booleans
    ) -> _UplinkShares:
        """Return what a rack loses in one direction.

        Args:
            number: that of the rack.
            direction: of DIRECTIONS.
            rack: [nodes]: the number of the rack of each.
            left: [pairs]: those whose losses no other uplink explains.
        """
        rack_of_ends = rack[self.ends]
        is_across = rack_of_ends[0] != rack_of_ends[1]
        size = np.bincount(rack)
        in_rack = rack_of_ends == number
        across = left & is_across & in_rack[direction]
        within = left & in_rack.all(0)
        elsewhere = left & (~in_rack).all(0)
        alike = elsewhere
        if size.size > 2:
            alike = elsewhere & is_across  # what stays in a rack crosses no uplink

        nodes_elsewhere = self.nodes - size[number]
        size_across = self.sizes[direction, across].sum()
        # What the others would lose if each of them sent as much as a member of the rack.
        lost_by_others = (
            self._share(direction, elsewhere) * size_across / size[number] * nodes_elsewhere
        )
        end_of_lost = self.ends[direction, across]
        lost_by_nodes = np.bincount(end_of_lost, self.lost[direction, across], self.nodes)
        lost_by_members = lost_by_nodes[rack == number]
        lost_by_most = float(np.quantile(lost_by_members, QUARTILE, method="lower"))
        chance = chance_of(lost_by_most, lost_by_others, nodes_elsewhere + 1)
        return _UplinkShares(
            across,
            share=self._share(direction, across),
            within=self._share(direction, within),
            usual=self._share(direction, alike),
            is_unlikely=2 * size.size * chance < FALSE_ALARM,
        )

    def _share(self, direction: int, pairs: Booleans) -> float:
        """Return the share that pairs [pairs] lose in a direction."""
        lost = self.lost[direction, pairs].sum()
        size = self.sizes[direction, pairs].sum()
        return float(lost / max(size, 1))

    def _find(self, node: int, references: Integers) -> Iterator[_Lossy]:
        """Yield what a node loses to and from others, if that is more than they lose among themselves."""
        is_other = np.isin(np.arange(self.nodes), references)
        is_among = is_other[self.ends].all(0)
        is_compared = is_other | (np.arange(self.nodes) == node)
        for direction, (sizes, lost) in enumerate(zip(self.sizes, self.lost, strict=True)):
            own = np.flatnonzero(
                (self.ends[direction] == node) & is_compared[self.ends[1 - direction]]
            )
            own_size = sizes[own].sum()
            size_among = sizes[is_among].sum()
            if not own_size or not size_among:
                continue
            lost_among = lost[is_among]
            usual = float(lost_among.sum() / size_among)
            # the size of all others, if each had as much as the node
            scale = own_size * len(references) / size_among

            def is_more(events: int, lost_by_references: Integers, scale: float = scale) -> bool:
                chance = chance_of(
                    events, float(lost_by_references.sum()) * scale, len(references) + 1
                )
                return 2 * self.nodes * chance < FALSE_ALARM

            most_of_a_pair = np.sort(lost[own])[-PARTNERS:][0]
            counted = np.minimum(lost[own], most_of_a_pair)
            if is_more(int(counted.sum()), lost_among):
                yield _Lossy((node,), direction, float(lost[own].sum() / own_size), usual)
                continue
            if len(own) == 1:
                continue
            for pair in own:
                bursts = int(lost[pair] // LONGEST_BURST)
                if is_more(bursts, lost_among // LONGEST_BURST):
                    sender, receiver = self.ends[:, pair].tolist()
                    yield _Lossy((sender, receiver), 0, float(lost[pair] / sizes[pair]), usual)


def chance_of(count: float, events_elsewhere: float, nodes: int) -> float:
    """Return the chance that a given one of ``nodes`` has at least ``count`` of all events, the others elsewhere."""
    log_ways_of_others = math.lgamma(events_elsewhere + nodes) - math.lgamma(events_elsewhere + 1)
    log_ways = math.lgamma(count + events_elsewhere + nodes) - math.lgamma(
        count + events_elsewhere + 1
    )
    return math.exp(log_ways_of_others - log_ways)


def findings_of_losses(
    provenance: Mapping[str, object], rack_of: Mapping[str, str]
) -> Iterator[Finding]:
    """Yield the nodes, the paths between two nodes, and the uplinks that lose packets when others do not.

    Args:
        provenance: of a diagnosis.
        rack_of: the rack of each host; empty if racks are unknown.
    """
    hosts = from_builtins(provenance.get(LOSSES, []), list[HostLosses])
    segments = _segment_losses(hosts)
    if segments is not None:
        if all(losses.host in rack_of for losses in hosts):
            names, rack = np.unique([rack_of[losses.host] for losses in hosts], return_inverse=True)
            for uplink, pairs in segments.of_uplinks(rack):
                segments = replace(segments, lost=np.where(pairs, 0, segments.lost))
                yield _finding_of_uplink(uplink, names.tolist(), rack, hosts)
        yield from _findings(hosts, segments.outliers(), SEGMENTS)
    if hosts:
        yield from _findings(hosts, _port_losses(hosts).outliers(), PACKETS)


def _segment_losses(hosts: Sequence[HostLosses]) -> _Losses | None:
    """Return the segments of TCP that pairs of hosts lost; None if no host has sent any."""
    number = {losses.host: node for node, losses in enumerate(hosts)}
    ends = []
    sizes = []
    lost = []
    for sender, losses in enumerate(hosts):
        for peer, (sent, sent_again) in losses.segments.items():
            ends.append((sender, number[peer]))
            sizes.append(sent)
            lost.append(sent_again)
    if not ends:
        return None
    return _Losses(np.array(ends).T, np.array([sizes, sizes]), np.array([lost, lost]), len(hosts))


def _port_losses(hosts: Sequence[HostLosses]) -> _Losses:
    """Return the errors of the ports of hosts."""
    nodes = np.arange(len(hosts))
    sizes = np.array([losses.packets for losses in hosts]).T
    errors = []
    for losses in hosts:
        errors.append([sum(counters.values()) for counters in losses.errors])
    ends = np.array([nodes, nodes])
    return _Losses(ends, sizes, np.array(errors).T, len(hosts))


def _finding_of_uplink(
    uplink: _LossyUplink, names: Sequence[str], rack: Integers, hosts: Sequence[HostLosses]
) -> Finding:
    numbers = [number for number, _ in uplink.racks]
    racks = [names[number] for number in numbers]
    is_member = np.isin(rack, numbers)
    places = []
    values: dict[str, Any] = {}
    for number, direction in uplink.racks:
        verb = ("left", "came to")[direction]
        members = host_ranges(_hosts_where(rack == number, hosts))
        places.append(f"{verb} {rack_text(names[number])}{in_brackets(members)}")
        values[DIRECTIONS[direction]] = uplink.share
    is_compared = len(names) > 2  # with what other racks lose among themselves
    elsewhere = "within racks, where no uplink is crossed,"
    if is_compared:
        elsewhere = "between other racks"
    share = _per_cent(uplink.share)
    usual = _per_cent(uplink.usual)
    text = f"{share} of the segments that {join_words(places)} had to be sent again, of those {elsewhere} {usual}."
    accused = join_words(map(rack_text, racks), "or")
    remedy = f"Do: look at the uplink of {accused}; most of the nodes lose alike."
    severity = critical if is_compared and uplink.share >= MUCH else warning
    values |= {
        "racks": racks,
        "hosts": _hosts_where(is_member, hosts),
        "unit": SEGMENTS,
        "usual": uplink.usual,
    }
    return severity("uplink_losses", text, remedy=remedy, **values)


def _hosts_where(chosen: Booleans, hosts: Sequence[HostLosses]) -> list[str]:
    return [hosts[node].host for node in np.flatnonzero(chosen).tolist()]


def _findings(
    hosts: Sequence[HostLosses], outliers: Iterable[_Lossy], unit: str
) -> Iterator[Finding]:
    by_place = defaultdict[tuple[int, ...], list[_Lossy]](list)
    for lossy in outliers:
        by_place[lossy.where].append(lossy)
    for where, directions in by_place.items():
        names = [hosts[node].host for node in where]
        usual = max(lossy.usual for lossy in directions)
        if unit == PACKETS:
            text = _port_text(hosts[where[0]], directions, usual)
        else:
            text = _segment_text(names, directions, usual)
        place = f"the cable and the ports of {names[0]}"
        if len(where) > 1:
            place = f"the path from {names[0]} to {names[1]}"
        is_much = len(where) == 1 and max(lossy.share for lossy in directions) >= MUCH
        severity = critical if is_much else warning
        values: dict[str, Any] = {DIRECTIONS[lossy.direction]: lossy.share for lossy in directions}
        values |= {"hosts": names, "unit": unit, "usual": usual}
        yield severity("losses", text, remedy=f"Do: look at {place}.", **values)


def _port_text(losses: HostLosses, directions: Iterable[_Lossy], usual: float) -> str:
    """Return which errors the ports of a host counted, beside the usual share of other nodes."""
    counts = []
    for lossy in directions:
        rate = (
            f"{MILLION * lossy.share:.2g} errors per million packets {DIRECTIONS[lossy.direction]}"
        )
        counters = [f"{name} {count}" for name, count in losses.errors[lossy.direction].items()]
        counts.append(rate + in_brackets(*counters))
    ports = f"The ports of {losses.host} counted {join_words(counts)}, of whatever traffic"
    return f"{ports}; those of other nodes {MILLION * usual:.2g}."


def _segment_text(names: Sequence[str], directions: Sequence[_Lossy], usual: float) -> str:
    """Return which segments of a node, or from one node to another, were lost, beside the usual share of others."""
    parts = []
    if len(names) > 1:
        share = _per_cent(directions[0].share)
        parts.append(f"{share} of the {SEGMENTS} from {names[0]} to {names[1]}")
    else:
        for lossy in directions:
            share = _per_cent(lossy.share)
            parts.append(f"{share} of the {SEGMENTS} that {names[0]} {DIRECTIONS[lossy.direction]}")
    return f"{join_words(parts)} had to be sent again, of those of other nodes {_per_cent(usual)}."


def _per_cent(share: float) -> str:
    return f"{100 * share:.2g} %"
