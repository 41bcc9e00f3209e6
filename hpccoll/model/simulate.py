"""The simulation of a schedule, on a machine whose ports carry one message at a time.

A step begins at a rank when its last one has ended there; a message can go when the steps at both of its ends have
begun. It keeps the port that it leaves by, and the port that it comes in by, for alpha + n beta each, as soon as that
one is free, first come, first served; of the messages that leave, or come, in one step only the first costs an alpha.
Inside a node a rank has ports of its own; the ports between nodes are those of a node's rail, for all ranks on it. A
rank folds, gamma a byte, when all messages of the step have ended, one step at a time. Lanes are dealt to sequences as
the MPI transport deals them: those of a sequence follow one another, sequences share only the ports and the rank.

Ports: J. Bruck, C.-T. Ho, S. Kipnis, E. Upfal, D. Weathersby, IEEE TPDS 8 (1997) 1143-1156, with one port each way.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count as numbers
from typing import TypeAlias

import numpy as np

from hpccoll.model.machine import MachineModel
from hpccoll.schedule import Cut, Layout, Messages, Schedule, match
from hpccoll.schedule.layout import TIERS

Port: TypeAlias = tuple[str, int, int, bool]
"""The owner (``rank`` or ``node``), its number, the rail, and whether the port sends."""


@dataclass(slots=True)
class _Step:
    """A step of one rank in one lane, and its progress."""

    rank: int
    lane: int
    sequence: int
    messages: list["_Message"] = field(default_factory=list)
    ended: int = 0  # messages that have ended
    folded: int = 0  # bytes
    last_s: float = 0.0  # when the last message ended, and then the fold
    paid: set[bool] = field(
        default_factory=set
    )  # directions that have paid their alpha: sends (True), receives (False)


@dataclass(slots=True)
class _Message:
    source: _Step
    target: _Step
    nbytes: int
    tier: str
    position: int  # among those that its sender sends in the step, in listed order
    begun: int = 0  # of its two steps

    def port(self, layout: Layout, *, out: bool) -> Port:
        me = (self.source if out else self.target).rank
        return ("rank", me, 0, out) if self.tier == "node" else ("node", layout.node[me], layout.rail[me], out)


def simulate(schedules: Sequence[Schedule], cut: Cut, machine: MachineModel, window: int = 1) -> float:
    """Return the seconds of one operation, from the start of all ranks to the end of the last one.

    Args:
        schedules: the schedules of the slices, which the lanes of ``cut`` take in turn.
        cut: the positions of the units.
        machine: the machine model, with all tiers that messages cross.
        window: the number of channels in flight at once, each with a lane for every slice.
    """
    todo: dict[tuple[int, int], list[_Step]] = defaultdict(list)
    for lane in range(cut.lanes):
        for step in _steps(schedules[lane % len(schedules)], cut, lane, lane % (window * len(schedules))):
            todo[step.rank, step.sequence].append(step)
    return _Simulator(schedules[0].layout, machine, todo).run()


class _Simulator:
    """The remaining steps of every rank and sequence, and the time from which each port and rank is free."""

    def __init__(self, layout: Layout, machine: MachineModel, todo: Mapping[tuple[int, int], Sequence[_Step]]) -> None:
        self.layout, self.machine = layout, machine
        self.left = {key: iter(steps) for key, steps in todo.items()}
        self.ready: list[tuple[float, int, int, int, _Message]] = []
        self.order = numbers()
        self.free_at: dict[Port, float] = defaultdict(float)
        self.idle_at = [0.0] * layout.ranks
        self.latest = 0.0

    def run(self) -> float:
        for key in self.left:
            self.begin(*key, 0.0)
        while self.ready:
            now, *_, message = heappop(self.ready)
            free_at = self.free_at[message.port(self.layout, out=True)]
            if free_at > now:
                self.wait(message, free_at)
            else:
                end = self.carry(message, now)
                for step in (message.source, message.target):
                    self.land(step, end)
        return self.latest

    def begin(self, rank: int, sequence: int, now: float) -> None:
        """Begin the next step of a rank and sequence, if any; messages whose other step has begun can then start."""
        step = next(self.left[rank, sequence], None)
        for message in step.messages if step else ():
            message.begun += 1
            if message.begun == 2:
                self.wait(message, now)

    def wait(self, message: _Message, until: float) -> None:
        """Queue a message that can start: ordered by time, then by lane, then in listed order."""
        heappush(self.ready, (until, message.source.lane, message.position, next(self.order), message))

    def carry(self, message: _Message, now: float) -> float:
        """Return the end of a message that starts now."""
        link = self.machine.links[message.tier]
        duration = message.nbytes * link.beta_s
        if True not in message.source.paid and False not in message.target.paid:
            duration += link.alpha_s
        message.source.paid.add(True)
        message.target.paid.add(False)
        out, into = message.port(self.layout, out=True), message.port(self.layout, out=False)
        self.free_at[out] = now + duration
        self.free_at[into] = max(now, self.free_at[into]) + duration
        return self.free_at[into]

    def land(self, step: _Step, end: float) -> None:
        """Count an ended message of a step; fold after the last one."""
        step.ended += 1
        step.last_s = max(step.last_s, end)
        if step.ended == len(step.messages):
            if step.folded:
                step.last_s = max(step.last_s, self.idle_at[step.rank]) + step.folded * self.machine.gamma_s
                self.idle_at[step.rank] = step.last_s
            self.latest = max(self.latest, step.last_s)
            self.begin(step.rank, step.sequence, step.last_s)


def _steps(schedule: Schedule, cut: Cut, lane: int, sequence: int) -> list[_Step]:
    """Return the steps of a lane that have messages with bytes in them, those of a rank in order."""
    now = [_Step(me, lane, sequence) for me in range(schedule.layout.ranks)]
    steps: list[_Step] = []
    away: dict[tuple[Messages, int], tuple[_Step, int, str, int]] = {}
    sent = [0] * schedule.layout.ranks  # messages, in its step
    for round_ in match(schedule):
        for m in round_.sent:
            sizes = cut.lengths(lane, m.sent, m.source) * cut.itemsize
            tiers = schedule.layout.tier(m.source, m.target)
            for i in map(int, np.flatnonzero((sizes > 0) & (tiers > 0))):
                me = int(m.source[i])
                away[m, i] = now[me], int(sizes[i]), TIERS[tiers[i]], sent[me]
                sent[me] += 1
        for m in round_.landed:
            for i, me in enumerate(m.target):
                if (m, i) in away:
                    source, nbytes, tier, position = away.pop((m, i))
                    message = _Message(source, now[me], nbytes, tier, position)
                    source.messages.append(message)
                    now[me].messages.append(message)
                    now[me].folded += nbytes * (m.operand is not None)
        for me in round_.ended:
            steps.append(now[me])
            now[me], sent[me] = _Step(int(me), lane, sequence), 0
    return [step for step in steps if step.messages]  # a message lands, at times, when its sender's step has ended
