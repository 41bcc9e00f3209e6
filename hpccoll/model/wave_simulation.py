"""The simulation of schedules for many ranks: all messages of a step at once, as arrays over the ranks.

It follows ``event_simulation`` with three simplifications. Messages that start at the same time share a resource until
all of them have passed; those that start later follow them, first come, first served. Lanes take turns, wave by wave,
by the times at which their waves begin; of those that begin together, the first. What passes a port at once after a
pause (``burst_bytes``) is left out. Where no messages share a resource, the result is the same.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import islice, tee

import numpy as np

from hpccoll.model.machine import Machine, Tier, shared_resources
from hpccoll.model.shared_clocks import Clocks, Floats, Ints, Sharing
from hpccoll.model.traffic import NotAlignedError, Traffic, Wave, kept_traffic, streamed_waves
from hpccoll.schedule import Cut, Layout, Schedule
from hpccoll.schedule.lanes import lane_sequences
from hpccoll.schedule.layout import TIERS

SAME_TIME = 1e-6
"""What begins within this part of the time of a message begins together."""

MAX_ROUTES = 64
"""The most ways of waves that are remembered: those of a ring are all the same."""


def simulate_waves(
    schedules: Sequence[Schedule], cut: Cut, machine: Machine, window: int = 1, dtype: str = "float32",
    progress: Callable[[int], None] | None = None,
) -> float:  # fmt: skip
    """Return the seconds of one operation, from the start of all ranks to the end of the last one: see ``simulate``."""
    sequences = len(lane_sequences(len(schedules), cut.lanes, window))
    waves = _SharedWaves(schedules, cut.lanes, sequences)
    instant_s = _instant(machine, cut)
    state = _State(schedules[0].layout, machine, machine.fold_s.get(dtype, 0.0), sequences, instant_s)
    turns = {lane: (float(state.ready[lane].min()), waves.of(lane)) for lane in range(sequences)}
    while turns:
        together = min(begin for begin, _ in turns.values()) + instant_s
        lane = min(lane for lane, (begin, _) in turns.items() if begin <= together)
        _, left = turns.pop(lane)
        if wave := next(left, None):
            state.advance(wave, lane % sequences, wave.nbytes(cut, lane))
            turns[lane] = state.begin(lane % sequences, wave.ended), left
            if progress:
                progress(state.messages)
        elif lane + sequences < cut.lanes:
            turns[lane + sequences] = float(state.ready[lane % sequences].min()), waves.of(lane + sequences)
    return float(state.ready.max(initial=0.0))


def _instant(machine: Machine, cut: Cut) -> float:
    """Return up to how many seconds apart times count as one: a small part of what a unit takes in the fastest tier."""
    nbytes = int(cut.edges(0)[-1]) * cut.itemsize / cut.units
    costs = [tier.of(nbytes) for tier in machine.tiers.values()]
    alone = [each.latency_s + each.overhead_s + each.gap_s + nbytes * each.byte_s for each in costs]
    return SAME_TIME * min(filter(None, alone), default=0.0)


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


class _State:
    """The time of every rank and sequence, and of every resource."""

    def __init__(self, layout: Layout, machine: Machine, fold_s: float, sequences: int, instant_s: float) -> None:
        self.machine, self.layout, self.fold_s, self.ranks = machine, layout, fold_s, layout.ranks
        self.ready = np.zeros((sequences, self.ranks))  # when each rank can begin its next step
        self.last = np.zeros((sequences, self.ranks))  # when the messages of its step have ended
        self.folded = np.zeros((sequences, self.ranks))  # bytes, in its step
        clocks = partial(Clocks, instant_s=instant_s, in_order=sequences == 1)
        self.cpu, self.gaps, self.rank_out, self.rank_in = (clocks(self.ranks) for _ in range(4))
        nodes, racks, rails = (max(each) + 1 for each in (layout.node, layout.rack, layout.rail))
        counts = {"port out": nodes * rails, "port in": nodes * rails, "uplink out": racks * rails,
                  "uplink in": racks * rails, "memory": nodes, "cpus": nodes}  # fmt: skip
        self.clocks = {kind: clocks(count) for kind, count in counts.items()}  # of what messages share
        is_switch = (np.arange(self.ranks) >= layout.workers) & machine.switches
        self.limited = np.where(is_switch, 0, 1)  # switches neither limit their messages nor take time to fold
        self.slowdown = machine.slowdown(layout)
        self.fold_of = self.limited * (fold_s * self.slowdown)
        self.routes: dict[tuple[int, int], _Route] = {}
        self.messages = 0  # those of no bytes among them

    def begin(self, sequence: int, ranks: Ints) -> float:
        """Return when the first of some ranks begins its next step."""
        everyone = len(ranks) in (0, self.ranks)
        return float((self.ready[sequence] if everyone else self.ready[sequence, ranks]).min())

    def advance(self, wave: Wave, sequence: int, nbytes: Ints) -> None:
        """Let the messages of a wave pass, and end the steps that end with it."""
        self.messages += len(wave.source)
        if nbytes.all():
            source, target, reduces = wave.source, wave.target, wave.reduces
        else:
            some = np.flatnonzero(nbytes)
            source, target, reduces, nbytes = wave.source[some], wave.target[some], wave.reduces[some], nbytes[some]
        if len(source):
            route = self._route(source, target)
            self._pass(route, sequence, nbytes)
            if self.fold_s and reduces.any():
                route.receive_cpu.add_to(self.folded[sequence], nbytes * reduces)
        self._end(sequence, wave.ended)

    def _route(self, source: Ints, target: Ints) -> "_Route":
        """Return the way of messages, which is that of all waves between the same ranks."""
        key = id(source), id(target)
        if key not in self.routes:
            if len(self.routes) == MAX_ROUTES:
                self.routes.clear()
            self.routes[key] = _Route(self, source, target)
        return self.routes[key]

    def _pass(self, route: "_Route", sequence: int, nbytes: Ints) -> None:
        ready, last = self.ready[sequence], self.last[sequence]
        latency, overhead, gap, byte_s, synchronous = route.costs(nbytes)
        overhead = overhead * self.slowdown
        start = route.send_cpu.queue(ready[route.send_cpu.which], overhead)
        if synchronous.any():
            start = np.where(synchronous, np.maximum(start, ready[route.target]), start)
        if gap.any():
            start = route.gaps.queue(start, gap) - gap
        out = into = nbytes * byte_s
        if self.machine.switches:
            out, into = out * route.limits_out, into * route.limits_in
        end = np.maximum(
            route.rank_out.serve(start, out) if route.rank_out else start + out, route.rank_in.serve(start, into)
        )
        for sharing, using, seconds in route.uses:
            if len(using) == len(nbytes):
                end = np.maximum(end, sharing.serve(start, nbytes * seconds))
            else:
                end[using] = np.maximum(end[using], sharing.serve(start[using], nbytes[using] * seconds))
        route.send_cpu.raise_to(last, end)
        route.receive_cpu.raise_to(last, route.receive_cpu.queue(end + latency, overhead))

    def _end(self, sequence: int, ended: Ints) -> None:
        """End the steps of some ranks: fold, and be ready for the next step."""
        of: Ints | slice = slice(None) if len(ended) == self.ranks else ended
        ready = np.maximum(self.ready[sequence, of], self.last[sequence, of])
        if self.fold_s:
            work = self.folded[sequence, of] * self.fold_of[of]
            if work.all():
                ready = self.cpu.reserve(of, ready, work)
            elif work.any():
                folding = np.flatnonzero(work)
                ready[folding] = self.cpu.reserve(ended[folding], ready[folding], work[folding])
            self.folded[sequence, of] = 0.0
        self.ready[sequence, of] = ready


class _Route:
    """The way of the messages of a wave, the same for all waves between the same ranks."""

    def __init__(self, state: _State, source: Ints, target: Ints) -> None:
        self.source, self.target = source, target
        tier = state.layout.tier(source, target)
        # the tiers that messages cross, each with the indices of these messages
        self.tiers = [
            (state.machine.tiers[TIERS[number]], np.flatnonzero(tier == number))
            for number in np.flatnonzero(np.bincount(tier))
        ]
        self.send_cpu, self.receive_cpu = Sharing(state.cpu, source), Sharing(state.cpu, target)
        self.gaps, self.rank_in = Sharing(state.gaps, source), Sharing(state.rank_in, target)
        alone = self.send_cpu.distinct and state.cpu.in_order  # no sender has another message in flight
        self.rank_out = None if alone else Sharing(state.rank_out, source)
        self.limits_out, self.limits_in = state.limited[source], state.limited[target]
        self.uses = [  # what else messages share: how, the indices of those that use it, and their seconds of a byte
            (Sharing(state.clocks[use.kind], use.owner), use.messages, use.byte_s)
            for use in shared_resources(state.machine, state.layout, source, target)
            if len(use.messages)
        ]
        # the costs by the sizes at which those of the tiers begin, as far as they are known
        self.known: dict[tuple[tuple[int, ...], ...], tuple[Floats, ...]] = {}

    def costs(self, nbytes: Ints) -> tuple[Floats, ...]:
        """Return latency, overhead, gap, seconds of a byte, and whether it is synchronous, of each message.

        A column has one value if all messages have the same. The columns are remembered where all messages of a tier
        are of one range of sizes, as those of a ring.
        """
        ends = int(nbytes.min()), int(nbytes.max())
        ranges = tuple(tuple(tier.of(end).from_bytes for end in ends) for tier, _ in self.tiers)
        if ranges in self.known:
            return self.known[ranges]
        if len(self.tiers) == 1:
            columns = _cost_columns(self.tiers[0][0], nbytes)
        else:
            table = np.empty((5, len(nbytes)))
            for tier, of in self.tiers:
                table[:, of] = np.broadcast_arrays(nbytes[of].astype(float), *_cost_columns(tier, nbytes[of]))[1:]
            columns = tuple(table)
        if all(first == last for first, last in ranges):
            self.known[ranges] = columns
        return columns


def _cost_columns(tier: Tier, nbytes: Ints) -> tuple[Floats, ...]:
    """Return latency, overhead, gap, seconds of a byte and whether it is synchronous, of messages of one tier."""
    starts, table = _table(tier)
    if len(starts) == 1:
        return tuple(table)
    first, last = np.searchsorted(starts, (nbytes.min(), nbytes.max()), side="right") - 1
    which = np.array([first]) if first == last else np.searchsorted(starts, nbytes, side="right") - 1
    return tuple(column[which] for column in table)


@lru_cache
def _table(tier: Tier) -> tuple[Ints, Floats]:
    """Return the sizes from which the costs of a tier hold, and these, [cost, range of sizes]."""
    costs = [(s.latency_s, s.overhead_s, s.gap_s, s.byte_s, s.synchronous) for s in tier.costs]
    return np.array([costs.from_bytes for costs in tier.costs]), np.array(costs, float).T
