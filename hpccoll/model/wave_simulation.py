"""The simulation of schedules for many ranks: all messages of a step at once, as arrays over the ranks.

It follows ``event_simulation`` with three simplifications. Messages that start at the same time
share a resource until all of them have passed; those that start later follow them, first come,
first served. Lanes take turns, wave by wave, by the times at which their waves begin; of those that
begin together, the first. What passes a port at once after a pause (``burst_bytes``) is left out.
Where no messages share a resource, the result is the same.

Equal blocks of ranks are simulated once (``equal_waves``), and equal steps are left out (``leap``):
both are exact.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

import numpy as np

from hpccoll.model.leap_over_equal_steps import advance
from hpccoll.model.machine import Machine, Tier, cost_columns, shared_resources
from hpccoll.model.shared_clocks import Clocks, Floats, Ints, Sharing
from hpccoll.model.traffic import LaneWave, Waves
from hpccoll.schedule import Cut, Layout
from hpccoll.schedule.layout import TIERS

MAX_ROUTES = 64
"""The most ways of waves that are remembered: those of a ring are all the same."""

SAME_TIME = 1e-6
"""What begins within this part of the time of a message begins together."""


def simulate_runs(
    waves: Waves,
    machine: Machine,
    sequences: int,
    fold_s: float,
    progress: Callable[[int], None] | None = None,
) -> float:
    """Return the seconds of one operation, from the start of all ranks to the end of the last one.

    Args:
        waves: the waves of the operation.
        machine: the machine.
        sequences: the number of lanes that run side by side: lane i is followed by lane i +
            sequences.
        fold_s: the seconds of a folded byte.
        progress: is called now and then with the number of messages so far, those that are left out
            among them.
    """
    state = State(
        waves.layout, waves.block, machine, fold_s, sequences, _instant(machine, waves.cut)
    )
    advance_lanes = _one_after_another if sequences == 1 else _in_turns
    messages = 0
    for passed in advance_lanes(state, waves):
        messages += state.blocks * passed
        if progress:
            progress(messages)
    return float(state.ready.max(initial=0.0))


def _one_after_another(state: "State", waves: Waves) -> Iterator[int]:
    """Advance by lanes that follow one another; yield how many messages have passed since the last time."""
    for run in chain.from_iterable(map(waves.of, range(waves.cut.lanes))):
        compiled = [CompiledWave(state, wave, 0) for wave in run.waves]
        messages = sum(wave.messages for wave in compiled)
        linear = all(wave.linear for wave in compiled)
        cycle = compiled[0].advance if len(compiled) == 1 else partial(_advance_all, compiled)
        for passed in advance(state.times, state.ranks, cycle, run.repeats, linear=linear):
            yield passed * messages


def _advance_all(waves: Sequence["CompiledWave"]) -> None:
    for wave in waves:
        wave.advance()


def _in_turns(state: "State", waves: Waves) -> Iterator[int]:
    """Advance by lanes side by side; yield how many messages have passed after each wave."""
    sequences = len(state.ready)

    def compiled_waves(lane: int) -> Iterator["CompiledWave"]:
        for run in waves.of(lane):
            compiled = [CompiledWave(state, wave, lane % sequences) for wave in run.waves]
            for _ in range(run.repeats):
                yield from compiled

    turns = {
        lane: (float(state.ready[lane].min()), compiled_waves(lane)) for lane in range(sequences)
    }
    while turns:
        together = min(begin for begin, _ in turns.values()) + state.instant_s
        lane = min(lane for lane, (begin, _) in turns.items() if begin <= together)
        _, waves_left = turns.pop(lane)
        wave = next(waves_left, None)
        if wave:
            wave.advance()
            turns[lane] = state.begin(lane % sequences, wave.ended), waves_left
            yield wave.messages
        elif lane + sequences < waves.cut.lanes:
            following = lane + sequences
            turns[following] = float(state.ready[lane % sequences].min()), compiled_waves(following)


def _instant(machine: Machine, cut: Cut) -> float:
    """Return up to how many seconds apart times count as one: a small part of what a unit takes in the fastest tier."""
    nbytes = int(cut.edges(0)[-1]) * cut.itemsize / cut.units
    alone = []
    for tier in machine.tiers.values():
        costs = tier.of(nbytes)
        alone.append(costs.latency_s + costs.overhead_s + costs.gap_s + nbytes * costs.byte_s)
    return SAME_TIME * min(filter(None, alone), default=0.0)


class State:
    """The times of ranks and resources, in seconds.

    Args:
        layout: the layout of all ranks.
        ranks: how many of them, the first ones, stand for all.
        machine: the machine.
        fold_s: the seconds of a folded byte.
        sequences: the lanes that run side by side.
        instant_s: up to how many seconds apart times count as one.
    """

    def __init__(
        self,
        layout: Layout,
        ranks: int,
        machine: Machine,
        fold_s: float,
        sequences: int,
        instant_s: float,
    ) -> None:
        self.ranks = ranks
        self.blocks = layout.ranks // ranks
        self.instant_s, self.fold_s = instant_s, fold_s
        self.slowdown = machine.slowdown(layout)
        if machine.cpus and machine.cpus.of == "machine":  # each block has its part of them
            machine = replace(
                machine, cpus=replace(machine.cpus, cores=machine.cpus.cores / self.blocks)
            )
        self.machine = machine
        # those that stand for all, and another block for messages that leave theirs
        self.layout = layout
        if self.blocks != 1:
            self.layout = layout.subset(range(2 * ranks))
        counts = _resource_counts(self.layout, ranks)
        sizes = [sequences * ranks, sequences * ranks, *counts.values()]
        self.times = np.zeros(sum(sizes))  # all others are views of it
        ends = np.cumsum(sizes)[:-1]
        ready, last, *free = np.split(self.times, ends)
        self.ready = ready.reshape(sequences, ranks)  # when each rank can begin its next step
        self.last = last.reshape(sequences, ranks)  # when the messages of its step have ended
        in_order = sequences == 1
        self.clocks: dict[str, Clocks] = {}
        for kind, free_of_kind in zip(counts, free, strict=True):
            self.clocks[kind] = Clocks(free_of_kind, instant_s, in_order=in_order)
        # bytes that steps which have not ended are going to fold
        self.folded = np.zeros((sequences, ranks))
        is_switch = (np.arange(ranks) >= layout.workers) & machine.switches
        # switches neither limit their messages nor take time to fold
        self.limited = np.where(is_switch, 0, 1)
        self.fold_of = self.limited * (fold_s * self.slowdown)
        self.routes: dict[tuple[int, int], Route] = {}

    def begin(self, sequence: int, ranks: Ints) -> float:
        """Return when the first of some ranks begins its next step; the first of all, if none are given."""
        everyone = len(ranks) in (0, self.ranks)
        ready = self.ready[sequence] if everyone else self.ready[sequence, ranks]
        return float(ready.min())

    def route(self, source: Ints, target: Ints) -> "Route":
        """Return the way of messages, which is that of all waves between the same ranks."""
        key = id(source), id(target)
        if key not in self.routes:
            if len(self.routes) == MAX_ROUTES:
                self.routes.clear()
            self.routes[key] = Route(self, source, target)
        return self.routes[key]


def _resource_counts(layout: Layout, ranks: int) -> dict[str, int]:
    """Return how many resources there are of each kind, for ``ranks`` ranks of a layout."""
    nodes, racks, rails = (max(places) + 1 for places in (layout.node, layout.rack, layout.rail))
    counts = dict.fromkeys(("cpu", "gaps", "rank out", "rank in"), ranks)
    counts |= dict.fromkeys(("port out", "port in"), nodes * rails)
    counts |= dict.fromkeys(("uplink out", "uplink in"), racks * rails)
    counts |= dict.fromkeys(("memory", "cpus"), nodes)
    return counts


class Route:
    """The way of the messages of a wave, the same for all waves between the same ranks."""

    def __init__(self, state: State, source: Ints, target: Ints) -> None:
        self.key = source, target  # kept, so that no other arrays get their identities
        tier = state.layout.tier(source, target)
        self.source = source
        self.target = target % state.ranks
        # the tiers that messages cross, each with the indices of the messages that cross it
        self.tiers: list[tuple[Tier, Ints]] = []
        for number in np.flatnonzero(np.bincount(tier)):
            costs = state.machine.tiers[TIERS[number]]
            self.tiers.append((costs, np.flatnonzero(tier == number)))
        clocks = state.clocks
        self.send_cpu = Sharing(clocks["cpu"], source)
        self.receive_cpu = Sharing(clocks["cpu"], self.target)
        self.gaps = Sharing(clocks["gaps"], source)
        # no sender has another message in flight
        alone = self.send_cpu.distinct and clocks["cpu"].in_order
        self.rank_out: Sharing | None = None
        if not alone:
            self.rank_out = Sharing(clocks["rank out"], source)
        self.rank_in = Sharing(clocks["rank in"], self.target)
        self.limits_out = state.limited[source]
        self.limits_in = state.limited[self.target]
        # what else messages share: how, the indices of those that use it, and their seconds of a
        # byte
        self.uses: list[tuple[Sharing, Ints, float]] = []
        for use in shared_resources(state.machine, state.layout, source, self.target, tier):
            if len(use.messages):
                sharing = Sharing(clocks[use.kind], use.owner)
                self.uses.append((sharing, use.messages, use.byte_s))
        # the costs of messages whose sizes are of one range of each tier, by where these ranges
        # begin and end
        self.added_columns: dict[tuple[tuple[int, ...], ...], tuple[Floats, ...]] = {}

    def costs(self, nbytes: Ints) -> tuple[Floats, ...]:
        """Return latency, overhead, gap, seconds of a byte, and whether it is synchronous, of each message.

        A column has one value if all messages have the same. The columns are remembered where all
        messages of a tier are of one range of sizes, as those of a ring.
        """
        ends = int(nbytes.min()), int(nbytes.max())
        ranges = tuple(tuple(tier.of(end).from_bytes for end in ends) for tier, _ in self.tiers)
        if ranges in self.added_columns:
            return self.added_columns[ranges]
        if len(self.tiers) == 1:
            columns = cost_columns(self.tiers[0][0], nbytes)
        else:
            table = np.empty((5, len(nbytes)))
            for tier, indices in self.tiers:
                sizes = nbytes[indices]
                table[:, indices] = np.broadcast_arrays(
                    sizes.astype(float), *cost_columns(tier, sizes)
                )[1:]
            columns = tuple(table)
        if all(first == last for first, last in ranges):
            self.added_columns[ranges] = columns
        return columns


class CompiledWave:
    """A wave of a sequence, with all that is the same each time that it passes: what its messages need, for how long.

    Those of a sequence are compiled in the order in which they pass: some of what a step folds
    comes before its end.
    """

    def __init__(self, state: "State", wave: LaneWave, sequence: int) -> None:
        self.messages = len(wave.source)
        self.ended = wave.ended
        self.ready, self.last = state.ready[sequence], state.last[sequence]
        # whether its messages share nothing: times are then maxima of sums of earlier ones
        self.linear = True
        if self.messages:
            self._compile_messages(state, wave)
        self._compile_folds(state, wave, state.folded[sequence])

    def _compile_messages(self, state: "State", wave: LaneWave) -> None:
        route = self.route = state.route(wave.source, wave.target)
        self.latency, overhead, self.gap, byte_s, synchronous = route.costs(wave.nbytes)
        self.waits = synchronous.astype(bool) if synchronous.any() else None
        self.out = into = wave.nbytes * byte_s
        if state.machine.switches:
            self.out = self.out * route.limits_out
            into = into * route.limits_in
        overhead = overhead * state.slowdown
        self.issue = self._service(route.send_cpu, overhead, queue=True)
        self.pause = self._service(route.gaps, self.gap, queue=True)
        self.leave = route.rank_out and self._service(route.rank_out, self.out)
        self.enter = self._service(route.rank_in, into)
        # what else messages use: their indices, None for all, and how they pass
        self.uses: list[tuple[Ints | None, Callable[[Floats], Floats]]] = []
        for sharing, indices, byte_s_there in route.uses:
            service = self._service(sharing, wave.nbytes[indices] * byte_s_there)
            if service:
                are_all = len(indices) == self.messages
                self.uses.append((None if are_all else indices, service))
        self.receive = self._service(route.receive_cpu, overhead, queue=True)

    def _service(
        self, sharing: Sharing, work: Floats, *, queue: bool = False
    ) -> Callable[[Floats], Floats] | None:
        if not work.any():
            return None
        self.linear &= sharing.distinct
        return sharing.service(work, queue=queue)

    def _compile_folds(self, state: "State", wave: LaneWave, folded: Floats) -> None:
        everyone = len(wave.ended) == state.ranks
        self.of: Ints | slice = slice(None) if everyone else wave.ended
        work = np.zeros(len(wave.ended))
        if state.fold_s:
            if wave.reduces.any():
                folded += np.bincount(self.route.target, wave.nbytes * wave.reduces, state.ranks)
            work = folded[self.of] * state.fold_of[self.of]
            folded[self.of] = 0.0
        # those of the ranks whose steps end that fold
        self.folding: Ints | slice = np.flatnonzero(work)
        self.folding_ranks: Ints | slice = wave.ended[self.folding]
        self.cpu = state.clocks["cpu"]
        self.work = work[self.folding]
        if everyone and len(self.work) == state.ranks:
            self.folding = self.folding_ranks = slice(None)

    def advance(self) -> None:
        """Let the messages pass, and end the steps that end with the wave."""
        if self.messages:
            self._pass()
        ended = np.maximum(self.ready[self.of], self.last[self.of])
        if len(self.work):
            ended[self.folding] = self.cpu.reserve(
                self.folding_ranks, ended[self.folding], self.work
            )
        self.ready[self.of] = ended

    def _pass(self) -> None:
        route = self.route
        start = self.ready[route.send_cpu.which]
        if self.issue:
            start = self.issue(start)
        if self.waits is not None:
            start = np.where(self.waits, np.maximum(start, self.ready[route.target]), start)
        if self.pause:
            start = self.pause(start) - self.gap
        end = self.leave(start) if self.leave else start + self.out
        if self.enter:
            end = np.maximum(end, self.enter(start))
        for indices, use in self.uses:
            if indices is None:
                end = np.maximum(end, use(start))
            else:
                end[indices] = np.maximum(end[indices], use(start[indices]))
        route.send_cpu.raise_to(self.last, end)
        arrived = end + self.latency
        route.receive_cpu.raise_to(self.last, self.receive(arrived) if self.receive else arrived)
