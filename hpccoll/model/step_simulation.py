"""The simulation of schedules for many ranks: all messages of a step at once, as arrays over the ranks.

It follows ``event_simulation`` with three simplifications. Messages that start at the same time share a resource until
all of them have passed; those that start later follow them, first come, first served. Lanes take turns, wave by wave,
by the times at which their waves begin. What passes a port at once after a pause (``burst_bytes``) is left out. Where
no messages share a resource, the result is the same.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from heapq import heappop, heappush
from itertools import islice, tee
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hpccoll.model.machine import Machine, Tier
from hpccoll.model.traffic import Ints, NotAlignedError, Traffic, Wave, kept_traffic, streamed_waves
from hpccoll.schedule import Cut, Layout, Schedule
from hpccoll.schedule.layout import TIERS

Floats = NDArray[np.floating]

SAME_TIME = 1e-9
"""The relative difference up to which messages start at the same time."""


def simulate_steps(
    schedules: Sequence[Schedule],
    cut: Cut,
    machine: Machine,
    window: int = 1,
    dtype: str = "float32",
    progress: Callable[[int], None] | None = None,
) -> float:
    """Return the seconds of one operation, from the start of all ranks to the end of the last one.

    Args:
        schedules: the schedules of the slices, which the lanes of ``cut`` take in turn.
        cut: the positions of the units.
        machine: the machine model, with all tiers that messages cross.
        window: the number of channels in flight at once, each with a lane for every slice.
        dtype: the type of the elements, which decides what a fold costs.
        progress: is called after every wave with the number of messages simulated so far.
    """
    sequences = max(1, min(window * len(schedules), cut.lanes))
    waves = _SharedWaves(schedules, cut.lanes, sequences)
    state = _State(schedules[0].layout, machine, machine.fold_s.get(dtype, 0.0), sequences)
    turns = [(0.0, lane, waves.of(lane)) for lane in range(sequences)]
    while turns:
        _, lane, left = heappop(turns)
        if wave := next(left, None):
            state.advance(wave, lane % sequences, _nbytes(wave, cut, lane))
            heappush(turns, (state.begin(lane % sequences, wave.ended), lane, left))
            if progress:
                progress(state.messages)
        elif lane + sequences < cut.lanes:
            heappush(turns, (float(state.ready[lane % sequences].min()), lane + sequences, waves.of(lane + sequences)))
    return float(state.ready.max(initial=0.0))


class _SharedWaves:
    """The waves of every slice: kept if they are few, else generated once for the lanes that are in flight together."""

    def __init__(self, schedules: Sequence[Schedule], lanes: int, sequences: int) -> None:
        self.schedules, self.lanes, self.sequences = schedules, lanes, sequences
        traffic = enumerate(map(kept_traffic, schedules))
        self.kept = {number: list(each.waves()) for number, each in traffic if each}
        self.shared: dict[tuple[int, int], list[Iterator[Wave]]] = {}

    def of(self, lane: int) -> Iterator[Wave]:
        """Return the waves of a lane; each lane asks once."""
        number, batch = lane % len(self.schedules), lane // self.sequences
        if number in self.kept:
            return iter(self.kept[number])
        if (number, batch) not in self.shared:
            together = [
                each
                for each in range(batch * self.sequences, min((batch + 1) * self.sequences, self.lanes))
                if each % len(self.schedules) == number
            ]
            self.shared[number, batch] = list(tee(self._generate(number), len(together)))
        return self.shared[number, batch].pop()

    def _generate(self, number: int) -> Iterator[Wave]:
        done = 0
        try:
            for wave in streamed_waves(self.schedules[number]):
                yield wave
                done += 1
        except NotAlignedError:
            yield from islice(Traffic.of(self.schedules[number]).waves(), done, None)


def _nbytes(wave: Wave, cut: Cut, lane: int) -> Ints:
    return wave.nbytes(cut, lane)


class _Clocks:
    """When each resource of one kind is free, and the last pause before that, into which earlier work fits.

    Lanes take turns wave by wave, so that a message may come after others that begin later; the waves of one lane come
    in order.
    """

    def __init__(self, count: int, *, in_order: bool) -> None:
        self.free, self.pause, self.pause_end = np.zeros(count), np.zeros(count), np.zeros(count)
        self.in_order = in_order

    def reserve(self, which: Ints, begin: Floats, work: Floats) -> Floats:
        """Return when each of some different resources has done a work that can begin at ``begin``."""
        if self.in_order:
            end: Floats = np.maximum(begin, self.free[which]) + work
            self.free[which] = end
            return end
        early = np.maximum(begin, self.pause[which]) + work
        fits = early <= self.pause_end[which]
        free = self.free[which]
        end = np.where(fits, early, np.maximum(begin, free) + work)
        idle = ~fits & (begin > free)
        self.pause_end[which] = np.where(idle, begin, self.pause_end[which])
        self.pause[which] = np.where(idle, free, np.where(fits, early, self.pause[which]))
        self.free[which] = np.where(fits, free, end)
        return end


class _Use(NamedTuple):
    """The use of one kind of resource by messages.

    Args:
        clocks: of the resources of the kind; are updated.
        which: the resource of each message.
        work: its seconds there.
        using: the indices of the messages that use one; None for all.
    """

    clocks: _Clocks
    which: Ints
    work: Floats
    using: Ints | None = None


class _State:
    """The time of every rank and sequence, and of every resource."""

    def __init__(self, layout: Layout, machine: Machine, fold_s: float, sequences: int) -> None:
        self.machine, self.fold_s, self.ranks, self.workers = machine, fold_s, layout.ranks, layout.workers
        self.node, rack, rail = (np.array(each) for each in (layout.node, layout.rack, layout.rail))
        rails = int(rail.max()) + 1
        self.rack, self.port, self.uplink = rack, self.node * rails + rail, rack * rails + rail
        self.below = np.isin(rack, rack[: layout.workers])  # aggregators of other racks are above the uplinks
        self.one_tier = "rack" if len(np.unique(self.node)) == self.ranks and not rack.any() else None
        self.ready = np.zeros((sequences, self.ranks))  # when each rank can begin its next step
        self.last = np.zeros((sequences, self.ranks))  # when the messages of its step have ended
        self.folded = np.zeros((sequences, self.ranks))  # bytes, in its step
        clocks = partial(_Clocks, in_order=sequences == 1)
        self.cpu, self.gaps, self.rank_out, self.rank_in = (clocks(self.ranks) for _ in range(4))
        self.port_out, self.port_in = (clocks(int(self.port.max()) + 1) for _ in range(2))
        self.uplink_out, self.uplink_in = (clocks(int(self.uplink.max()) + 1) for _ in range(2))
        self.memory, self.cores = (clocks(int(self.node.max()) + 1) for _ in range(2))
        self.share = self._cpu_share()
        self.messages = 0

    def _cpu_share(self) -> float:
        """Return how many times as long a work takes because ranks share CPUs."""
        cpus = self.machine.cpus
        if cpus is None:
            return 1.0
        sharing = self.ranks if cpus.of == "machine" else int(np.bincount(self.node).max())
        return max(1.0, sharing / cpus.cores)

    def begin(self, sequence: int, ranks: Ints) -> float:
        """Return when the first of some ranks begins its next step."""
        everyone = len(ranks) in (0, self.ranks)
        return float((self.ready[sequence] if everyone else self.ready[sequence, ranks]).min())

    def advance(self, wave: Wave, sequence: int, nbytes: Ints) -> None:
        """Let the messages of a wave pass, and end the steps that end with it."""
        some = slice(None) if nbytes.all() else np.flatnonzero(nbytes)
        source, target, nbytes = wave.source[some], wave.target[some], nbytes[some]
        if len(source):
            self._pass(source, target, sequence, nbytes)
            if self.fold_s:
                reduces = wave.reduces[some]
                self.folded[sequence] += np.bincount(target, nbytes * reduces, self.ranks)
        self._end(sequence, wave.ended)

    def _pass(self, source: Ints, target: Ints, sequence: int, nbytes: Ints) -> None:
        self.messages += len(source)
        ready, last = self.ready[sequence], self.last[sequence]
        latency, overhead, gap, byte_s, synchronous, tier = self._costs(source, target, nbytes)
        overhead = overhead * self.share
        start = _serve(_Use(self.cpu, source, overhead), ready[source])
        start = np.where(synchronous, np.maximum(start, ready[target]), start)
        if gap.any():
            start = _serve(_Use(self.gaps, source, gap), start) - gap
        end = start
        for use in self._uses(source, target, nbytes, byte_s, tier):
            if use.using is None:
                end = np.maximum(end, _serve(use, start))
            elif len(use.using):
                end = end.copy()
                end[use.using] = np.maximum(end[use.using], _serve(use, start[use.using]))
        _raise_to(last, source, end)
        _raise_to(last, target, _serve(_Use(self.cpu, target, overhead), end + latency))

    def _end(self, sequence: int, ended: Ints) -> None:
        """End the steps of some ranks: fold, and be ready for the next step."""
        of: Ints | slice = slice(None) if len(ended) == self.ranks else ended
        ready = np.maximum(self.ready[sequence, of], self.last[sequence, of])
        if self.fold_s:
            work = self.folded[sequence, of] * self.fold_s * self.share
            folding = np.flatnonzero(work)
            ready[folding] = self.cpu.reserve(ended[folding], ready[folding], work[folding])
            self.folded[sequence, of] = 0.0
        self.ready[sequence, of] = ready

    def _costs(self, source: Ints, target: Ints, nbytes: Ints) -> tuple[Floats, ...]:
        """Return latency, overhead, gap, seconds of a byte, whether it is synchronous, and the tier of each message.

        A column has one value if all messages have the same.
        """
        if self.one_tier:
            present = np.array([TIERS.index(self.one_tier)])
        else:
            same_node, same_rack = self.node[source] == self.node[target], self.rack[source] == self.rack[target]
            tier = np.where(same_node, 1, np.where(same_rack, 2, 3))
            present = np.flatnonzero(np.bincount(tier))
        if len(present) == 1:
            return *_segment_columns(self.machine.tiers[TIERS[present[0]]], nbytes), present.astype(float)
        columns = np.empty((5, len(source)))
        for number in present:
            of = np.flatnonzero(tier == number)
            columns[:, of] = _segment_columns(self.machine.tiers[TIERS[number]], nbytes[of])
        return *columns, tier.astype(float)

    def _uses(self, source: Ints, target: Ints, nbytes: Ints, byte_s: Floats, tier: Floats) -> Iterator[_Use]:
        """Yield what the messages use of each kind of resource."""
        machine = self.machine
        yield _Use(self.rank_out, source, nbytes * byte_s)
        yield _Use(self.rank_in, target, nbytes * byte_s)
        away = np.flatnonzero(np.broadcast_to(tier >= TIERS.index("rack"), len(source)))
        inside = np.flatnonzero(np.broadcast_to(tier < TIERS.index("rack"), len(source)))
        across = np.flatnonzero(np.broadcast_to(tier == TIERS.index("fabric"), len(source)))
        for ranks, port, uplink in (
            (source, self.port_out, self.uplink_out),
            (target, self.port_in, self.uplink_in),
        ):
            if machine.port_byte_s:
                metered = away
                if machine.switches or machine.unmetered_aggregators:
                    metered = away[ranks[away] < self.workers]
                yield _Use(port, self.port[ranks[metered]], nbytes[metered] * machine.port_byte_s, metered)
            if machine.uplink_byte_s:
                below = across[self.below[ranks[across]]]
                yield _Use(uplink, self.uplink[ranks[below]], nbytes[below] * machine.uplink_byte_s, below)
        if machine.memory_byte_s:
            yield _Use(self.memory, self.node[source[inside]], nbytes[inside] * machine.memory_byte_s, inside)
        if machine.cpus and machine.cpus.byte_s:
            work = nbytes * machine.cpus.byte_s / machine.cpus.cores
            if machine.cpus.of == "machine":
                yield _Use(self.cores, np.zeros_like(source), work)
            else:
                yield _Use(
                    self.cores, self.node[source], np.where(np.isin(np.arange(len(source)), away), work / 2, work)
                )
                yield _Use(self.cores, self.node[target[away]], work[away] / 2, away)


def _are_distinct(which: Ints) -> bool:
    return len(which) < 2 or int(np.bincount(which).max()) <= 1


def _raise_to(times: Floats, ranks: Ints, at_least: Floats) -> None:
    """Raise the times of ranks, which may be named several times."""
    if _are_distinct(ranks):
        times[ranks] = np.maximum(times[ranks], at_least)
    else:
        np.maximum.at(times, ranks, at_least)


def _serve(use: _Use, begin: Floats) -> Floats:
    """Return when each message has passed its resource: those that begin together share it, others follow.

    Args:
        use: what messages use.
        begin: when each can begin.
    """
    clocks, which = use.clocks, use.which
    if not use.work.any():
        return begin
    work = np.broadcast_to(use.work, len(which))
    if _are_distinct(which):
        return clocks.reserve(which, begin, work)
    order = np.lexsort((begin, which))
    of, begins, works = which[order], begin[order], work[order]
    scale = SAME_TIME * max(float(begins.max()), np.finfo(float).tiny)
    first = np.r_[True, (of[1:] != of[:-1]) | (np.diff(begins) > scale)]  # of those that begin together
    starts = np.flatnonzero(first)
    of, begins, works = of[starts], begins[starts], np.add.reduceat(works, starts)
    places = np.flatnonzero(np.r_[True, of[1:] != of[:-1]])
    turn = np.arange(len(of)) - np.repeat(places, np.diff(np.r_[places, len(of)]))
    ends = np.empty_like(begins)
    for each in range(int(turn.max()) + 1):
        now = np.flatnonzero(turn == each)
        ends[now] = clocks.reserve(of[now], begins[now], works[now])
    end = np.empty_like(begin)
    end[order] = ends[first.cumsum() - 1]
    return end


def _segment_columns(tier: Tier, nbytes: Ints) -> tuple[Floats, ...]:
    """Return latency, overhead, gap, seconds of a byte and whether it is synchronous, of messages of one tier."""
    starts, table = _table(tier)
    if len(starts) == 1:
        return tuple(table)
    first, last = np.searchsorted(starts, (nbytes.min(), nbytes.max()), side="right") - 1
    which = np.array([first]) if first == last else np.searchsorted(starts, nbytes, side="right") - 1
    return tuple(column[which] for column in table)


@lru_cache
def _table(tier: Tier) -> tuple[Ints, Floats]:
    """Return the smallest sizes of the segments, and their costs, [cost, segment]."""
    costs = [(s.latency_s, s.overhead_s, s.gap_s, s.byte_s, s.synchronous) for s in tier.segments]
    return np.array([segment.from_bytes for segment in tier.segments]), np.array(costs, float).T
