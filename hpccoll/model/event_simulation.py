"""The exact simulation of schedules: every message is an event.

A step begins at a rank when the step before it in its sequence has ended there. The rank's CPU then
issues the sends, one overhead after another, in listed order. Messages from one rank to another
pass one after the other, as on one connection. A message flows at the rate that the resources on
its way leave it, as ``machine`` describes them: the rate of each message is max-min fair among
those that share resources with it, and changes when one of them starts or ends. The last byte is
there a latency later; the receiver's CPU takes an overhead, and folds when all messages of the step
have arrived. The step ends with its last message, or its fold.

Lanes are dealt to sequences as the MPI transport deals them: those of a sequence follow one
another, sequences share only the resources and the CPU of the rank.

D. Bertsekas, R. Gallager: Data networks (1992), section 6.5.2: max-min fair rates by progressive
filling.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count as numbers
from typing import Any, TypeAlias

import numpy as np

from hpccoll.model.machine import Ints, Machine, MessageCosts, shared_resources
from hpccoll.model.traffic import Traffic, kept_traffic
from hpccoll.schedule import Cut, Layout, Schedule
from hpccoll.schedule.lanes import lane_sequences
from hpccoll.schedule.layout import TIERS

Resource: TypeAlias = tuple[str, int]
"""What messages share: its kind, and its number."""
Path: TypeAlias = tuple[tuple[Resource, float], ...]
"""The resources that a message passes, each with its seconds for a byte."""

BURSTY = "port", "rank"
"""The beginnings of the kinds of resources that bytes of a burst pass at once; uplinks, memory and CPUs they take."""

PROGRESS = 1000
"""The number of messages after which progress is reported."""

SIMULTANEOUS = 1e-12
"""The relative difference up to which times, and rates, are equal: sums in another order differ by rounding."""


@dataclass(slots=True)
class _Step:
    """A step of one rank in one lane, and its progress."""

    rank: int
    sequence: int
    sends: list["_Message"] = field(default_factory=list)
    arriving: list["_Message"] = field(default_factory=list)
    left: int = 0  # messages that have not ended
    folded: int = 0  # bytes
    begun: bool = False


@dataclass(slots=True, eq=False)
class _Message:
    source: _Step
    target: _Step
    nbytes: int
    tier: str
    costs: MessageCosts
    path: Path
    issued: bool = False
    left: float = 0.0  # bytes that have not passed
    rate: float = 0.0
    since: float = 0.0  # when ``left`` was right
    version: int = 0  # of the event of its end


def simulate_events(
    schedules: Sequence[Schedule],
    cut: Cut,
    machine: Machine,
    window: int = 1,
    dtype: str = "float32",
    progress: Callable[[int], None] | None = None,
) -> float:
    """Return the seconds of one operation, from the start of all ranks to the end of the last one: see ``simulate``."""
    traffic = [kept_traffic(schedule) or Traffic.of(schedule) for schedule in schedules]
    simulator = _Simulator(schedules[0].layout, machine, machine.fold_byte_s(dtype), progress)
    for sequence, lanes in enumerate(lane_sequences(len(schedules), cut.lanes, window)):
        for lane in lanes:
            simulator.add(traffic[lane % len(traffic)], cut, lane, sequence)
    return simulator.run()


class _Simulator:
    """The remaining steps of every rank and sequence, the messages in flight, and the time of every CPU."""

    def __init__(
        self,
        layout: Layout,
        machine: Machine,
        fold_s: float,
        progress: Callable[[int], None] | None,
    ) -> None:
        self.layout, self.machine = layout, machine
        self.fold_s = fold_s
        self.progress = progress
        self.todo: dict[tuple[int, int], list[_Step]] = defaultdict(list)
        self.events: list[tuple[float, int, Callable[[float, Any], None], object]] = []
        self.order = numbers()
        self.cpu = [0.0] * layout.ranks  # when the CPU of each rank is free
        self.slowdown = machine.slowdown(layout)
        # of a rank's messages, for their gaps
        self.next_start: dict[tuple[int, str], float] = defaultdict(float)
        # the first message flows
        self.connections: dict[tuple[int, int], deque[_Message]] = defaultdict(deque)
        self.flows: dict[Resource, dict[_Message, float]] = defaultdict(dict)
        # of a port: bytes, and when they were right
        self.credit: dict[Resource, tuple[float, float]] = {}
        # whose messages have started or ended since rates were right; in order
        self.changed: dict[Resource, None] = {}
        self.latest = 0.0
        self.passed = 0  # messages

    def add(self, traffic: Traffic, cut: Cut, lane: int, sequence: int) -> None:
        """Add the steps and messages of a lane, which follow those of its sequence that were added before."""
        ended = np.concatenate([[], *traffic.ended]).astype(int)
        lengths = np.bincount(ended, minlength=self.layout.ranks)
        steps = []
        for me, length in enumerate(lengths.tolist()):
            steps.append([_Step(me, sequence) for _ in range(length)])
        sizes = traffic.nbytes(cut, lane).tolist()
        crossed = self.layout.tier(traffic.source, traffic.target)
        tiers = [TIERS[tier] for tier in crossed.tolist()]
        costs = [
            self.machine.tiers[tier].of(nbytes) for tier, nbytes in zip(tiers, sizes, strict=True)
        ]
        paths = self.paths(traffic, costs, crossed)
        arrays = (
            traffic.source,
            traffic.target,
            traffic.send_step,
            traffic.receive_step,
            traffic.reduces,
        )
        columns = [array.tolist() for array in arrays]
        messages = zip(sizes, tiers, costs, paths, *columns, strict=True)
        for nbytes, tier, cost, path, source, target, sends, receives, reduces in messages:
            if nbytes:
                start = steps[source][sends]
                end = steps[target][receives]
                message = _Message(start, end, nbytes, tier, cost, path)
                start.sends.append(message)
                end.arriving.append(message)
                end.folded += nbytes * reduces
                start.left += 1
                end.left += 1
        for me, program in enumerate(steps):
            self.todo[me, sequence] += [step for step in program if step.left]

    def paths(self, traffic: Traffic, costs: Sequence[MessageCosts], tier: Ints) -> list[Path]:
        """Return the resources that each message passes, with their seconds for each of its bytes."""
        paths: list[list[tuple[Resource, float]]] = [[] for _ in costs]
        for direction, ranks in (("out", traffic.source), ("in", traffic.target)):
            kind = f"rank {direction}"
            for path, me, cost in zip(paths, ranks.tolist(), costs, strict=True):
                if cost.byte_s and not self.is_switch(me):
                    path.append(((kind, me), cost.byte_s))
        for use in shared_resources(
            self.machine, self.layout, traffic.source, traffic.target, tier
        ):
            for message, owner in zip(use.messages.tolist(), use.owner.tolist(), strict=True):
                paths[message].append(((use.kind, owner), use.byte_s))
        return [tuple(path) for path in paths]

    def is_switch(self, me: int) -> bool:
        """Return whether a rank is a switch, which neither limits its messages nor takes time to fold."""
        return self.machine.switches and me >= self.layout.workers

    def run(self) -> float:
        for (rank, sequence), steps in self.todo.items():
            steps.reverse()
            self.at(0.0, self.begin, (rank, sequence))
        while self.events:
            now, _, action, argument = heappop(self.events)
            action(now, argument)
            if self.changed and (not self.events or self.events[0][0] > now * (1 + SIMULTANEOUS)):
                self.share(now)
        return self.latest

    def at(self, when: float, action: Callable[[float, Any], None], argument: object) -> None:
        heappush(self.events, (when, next(self.order), action, argument))

    def begin(self, now: float, key: tuple[int, int]) -> None:
        """Begin the next step of a rank in a sequence, if it has any left."""
        steps = self.todo[key]
        if not steps:
            return
        step = steps.pop()
        step.begun = True
        for message in step.arriving:
            if message.issued and message.costs.synchronous:
                self.release(now, message)
        for message in step.sends:
            self.at(self.compute(step.rank, now, message.costs.overhead_s), self.issue, message)

    def issue(self, now: float, message: _Message) -> None:
        message.issued = True
        if message.target.begun or not message.costs.synchronous:
            self.release(now, message)

    def release(self, now: float, message: _Message) -> None:
        """Let a message flow as soon as the gap after the message before it is over."""
        key = message.source.rank, message.tier
        start = max(now, self.next_start[key])
        self.next_start[key] = start + message.costs.gap_s
        self.at(start, self.start, message)

    def compute(self, rank: int, now: float, seconds: float) -> float:
        """Return when the CPU of a rank has done a work that it can begin now, one work after another."""
        if not seconds:
            return now
        self.cpu[rank] = max(now, self.cpu[rank]) + seconds * self.slowdown
        return self.cpu[rank]

    def start(self, now: float, message: _Message) -> None:
        """Let a message flow as soon as those before it from the same rank to the same other one have passed."""
        connection = self.connections[message.source.rank, message.target.rank]
        connection.append(message)
        if len(connection) == 1:
            self.flow(now, message)

    def flow(self, now: float, message: _Message) -> None:
        """Let a message share the resources on its way; what a burst lets pass at once needs no time of them."""
        message.left, message.since = message.nbytes, now
        spent = self.spend_credit(message, now)
        if spent:
            message.path = _after_burst(message.path, 1 - spent / message.nbytes)
        for resource, seconds in message.path:
            self.flows[resource][message] = seconds
            self.changed[resource] = None
        if not message.path:
            self.at(now, self.end_flow, (message, message.version))

    def spend_credit(self, message: _Message, now: float) -> float:
        """Return the bytes of a message that pass its idle ports at once, and take them off what these let pass."""
        burst = self.machine.burst_bytes
        seconds = self.machine.port_byte_s
        ports = [resource for resource, _ in message.path if resource[0].startswith("port")]
        if not (burst and ports and seconds) or any(self.flows[port] for port in ports):
            return 0.0
        available = []
        for port in ports:
            saved, since = self.credit.get(port, (0.0, 0.0))
            available.append(min(burst, saved + (now - since) / seconds))
        spent = min(float(message.nbytes), *available)
        for port, saved in zip(ports, available, strict=True):
            self.credit[port] = saved - spent, now
        return spent

    def end_flow(self, now: float, message_and_version: tuple[_Message, int]) -> None:
        """End the flow of a message, unless its rate has changed meanwhile; its last byte arrives a latency later."""
        message, version = message_and_version
        if version != message.version:
            return
        self.passed += 1
        if self.progress and not self.passed % PROGRESS:
            self.progress(self.passed)
        for resource, _ in message.path:
            del self.flows[resource][message]
            if resource in self.credit:
                self.credit[resource] = self.credit[resource][0], now
            self.changed[resource] = None
        connection = self.connections[message.source.rank, message.target.rank]
        connection.popleft()
        if connection:
            self.flow(now, connection[0])
        self.at(now + message.costs.latency_s, self.arrive, message)
        self.land(now, message.source)

    def arrive(self, now: float, message: _Message) -> None:
        self.at(
            self.compute(message.target.rank, now, message.costs.overhead_s),
            self.land,
            message.target,
        )

    def share(self, now: float) -> None:
        """Share resources anew among all messages that the changes since the last time have to do with."""
        group: dict[_Message, None] = {}
        queue, queued = list(self.changed), set(self.changed)
        self.changed = {}
        while queue:
            for message in self.flows[queue.pop()]:
                if message not in group:
                    group[message] = None
                    fresh = [resource for resource, _ in message.path if resource not in queued]
                    queued.update(fresh)
                    queue += fresh
        messages = list(group)
        for message, rate in zip(
            messages, fair_rates([message.path for message in messages]), strict=True
        ):
            if rate != message.rate:
                message.left = max(0.0, message.left - message.rate * (now - message.since))
                message.rate, message.since = rate, now
                message.version += 1
                self.at(now + message.left / rate, self.end_flow, (message, message.version))

    def land(self, now: float, step: _Step) -> None:
        """Count an ended message of a step; after the last one fold, and begin the next step."""
        step.left -= 1
        if not step.left:
            end = (
                now
                if self.is_switch(step.rank)
                else self.compute(step.rank, now, step.folded * self.fold_s)
            )
            self.latest = max(self.latest, end)
            self.at(end, self.begin, (step.rank, step.sequence))


def _after_burst(path: Path, rest: float) -> Path:
    """Return the way of a message if a burst leaves only a part of its bytes, ``rest``, at ports and ranks."""
    left = []
    for resource, seconds in path:
        needed = seconds * rest if resource[0].startswith(BURSTY) else seconds
        if needed:
            left.append((resource, needed))
    return tuple(left)


def fair_rates(paths: Sequence[Sequence[tuple[Resource, float]]]) -> list[float]:
    """Return the max-min fair rates of messages that share resources, in bytes a second.

    In every pass, messages get the rate of a resource that leaves them no more than any other on
    their ways leaves those that pass it, too.
    """
    if len(paths) == 1:
        return [1 / max(seconds for _, seconds in paths[0])]
    numbers_of: dict[Resource, int] = {}
    # by use: the number of the resource, the seconds of a byte there, and the number of the message
    resource = np.array(
        [numbers_of.setdefault(passed, len(numbers_of)) for path in paths for passed, _ in path]
    )
    seconds = np.array([byte_s for path in paths for _, byte_s in path])
    message = np.repeat(np.arange(len(paths)), [len(path) for path in paths])
    rates = np.zeros(len(paths))
    free = np.ones(len(numbers_of))  # the part of each resource that is left
    while len(message):
        # the rate that each resource leaves its messages, and the least of those on the way of each
        # message
        level = free / np.bincount(resource, seconds, len(free)).clip(np.finfo(float).tiny)
        least = np.full(len(paths), np.inf)
        np.minimum.at(least, message, level[resource])
        # for another resource of the message
        waits = least[message] < level[resource] * (1 - SIMULTANEOUS)
        waiting = np.zeros(len(free), bool)
        waiting[resource[waits]] = True
        settled = np.zeros(len(paths), bool)
        settled[message[~waiting[resource]]] = True
        rates = np.where(settled, least, rates)
        done = settled[message]
        free -= np.bincount(resource[done], (seconds * rates[message])[done], len(free))
        resource = resource[~done]
        seconds = seconds[~done]
        message = message[~done]
    return [float(rate) for rate in rates]
