"""Out of place: a schedule that was written in place, for contributions that lie in src."""

from collections.abc import Callable, Iterable, Iterator
from operator import index
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hpccoll.schedule.cut import units_of_ranges
from hpccoll.schedule.schedule import NotVectorisedError, Schedule
from hpccoll.schedule.step import (
    NONE,
    Action,
    Buffer,
    Copy,
    CopyReduce,
    Index,
    Part,
    Range,
    RecvReduce,
    Send,
    Step,
    drop_null_peers,
)

if TYPE_CHECKING:
    from hpccoll.schedule.collective import CollectiveCall

MOST_UNITS = 1 << 26
"""The most units of all ranks together, a byte each, that are followed at once; beyond, ranks are followed singly."""


def out_of_place(call: "CollectiveCall", schedule: Schedule) -> Schedule:
    """Return ``schedule``, written in place, for a dst that starts undefined.

    A unit is read in src until it is written, so that no time goes into copies, but for units of
    the result that the schedule never writes, which are copied at the end. A part with both written
    and unwritten units lies in two buffers: it is completed by a copy before the step.
    """

    def steps(me: Index) -> Iterator[Step]:
        if isinstance(me, np.ndarray):
            yield from _AllRanks(call, schedule, me).steps()
            return
        rank = index(me)
        only_in_src = set(call.source(rank, schedule.units))
        for step in map(drop_null_peers, schedule.steps(rank)):
            while True:
                redirected, split = _read_from_src(step, only_in_src)
                if not split:
                    break
                yield Step(Copy(_part("src", split), _part("dst", split)))
                only_in_src -= split
            yield redirected
            for action in step.actions:
                only_in_src -= _units_landed(action)
        left = only_in_src.intersection(call.target(rank, schedule.units))
        if left:
            yield Step(Copy(_part("src", left), _part("dst", left)))

    return Schedule(schedule.layout, schedule.units, steps, schedule.vectorised)


class _AllRanks:
    """The steps of all ranks at once, as long as all of them read a part in the same buffer."""

    def __init__(
        self, call: "CollectiveCall", schedule: Schedule, ranks: NDArray[np.integer]
    ) -> None:
        if len(ranks) * schedule.units > MOST_UNITS:
            raise NotVectorisedError
        self.call = call
        self.schedule = schedule
        self.ranks = ranks
        self.only_in_src = self._units_of_ranks(call.source)

    def steps(self) -> Iterator[Step]:
        """Yield the steps.

        Raises:
            NotVectorisedError: if ranks differ in where a part lies; before the first step, because
                a rank that is idle in some steps may leave them out, and so have another number of
                steps when it is followed singly.
        """
        for _ in self._steps():
            pass
        self.only_in_src = self._units_of_ranks(self.call.source)
        yield from self._steps()

    def _units_of_ranks(self, select: Callable[[int, int], range]) -> NDArray[np.bool]:
        """Return which units ``select`` returns of each rank, [rank, unit]."""
        chosen = np.zeros((len(self.ranks), self.schedule.units), bool)
        for row, me in enumerate(self.ranks.tolist()):
            units = select(me, self.schedule.units)
            chosen[row, units.start : units.stop] = True
        return chosen

    def _steps(self) -> Iterator[Step]:
        for step in self.schedule.steps(self.ranks):
            now = self.only_in_src
            if any(isinstance(action, RecvReduce | CopyReduce) for action in step.actions):
                now = now.copy()
            yield Step(*(self._redirected(action, now) for action in step.actions))
            for action in step.actions:
                self._mark_landed(action, self.only_in_src)
        left = self.only_in_src & self._units_of_ranks(self.call.target)
        if left.any():
            ranges = tuple(_columns_of(left))
            yield Step(Copy(Part("src", ranges), Part("dst", ranges)))

    def _redirected(self, action: Action, now: NDArray[np.bool]) -> Action:
        """Return an action that reads src where dst is not written yet; a fold reads what arrivals before it left."""
        if isinstance(action, Send):
            return Send(action.peer, self._read(action, action.part, self.only_in_src))
        redirected: Action = action
        if isinstance(action, CopyReduce):
            source = self._read(action, action.source, self.only_in_src)
            redirected = CopyReduce(source, action.target, self._read(action, action.operand, now))
        elif isinstance(action, Copy):
            redirected = Copy(self._read(action, action.source, self.only_in_src), action.target)
        elif isinstance(action, RecvReduce):
            redirected = RecvReduce(
                action.peer, action.part, self._read(action, action.operand, now)
            )
        if now is not self.only_in_src:
            self._mark_landed(action, now)
        return redirected

    def _read(self, action: Action, part: Part, only_in_src: NDArray[np.bool]) -> Part:
        if part.buffer != "dst":
            return part
        are_in_src = only_in_src[self._units(action, part)]
        if not are_in_src.any():
            return part
        if not are_in_src.all():
            raise NotVectorisedError
        return part.in_buffer("src")

    def _mark_landed(self, action: Action, only_in_src: NDArray[np.bool]) -> None:
        if isinstance(action, Send):
            return
        part = action.target if isinstance(action, Copy) else action.part
        if part.buffer == "dst":
            only_in_src[self._units(action, part)] = False

    def _units(self, action: Action, part: Part) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the units of a part at the ranks that have a peer, and before them the row of each."""
        count = len(self.ranks)
        acting = True if isinstance(action, Copy) else action.peer != NONE
        rows = np.flatnonzero(np.broadcast_to(acting, count))
        rows_of_units = [np.empty(0, np.int64)]
        units = [np.empty(0, np.int64)]
        for r in part.ranges:
            first, last = (np.broadcast_to(np.asarray(end, np.int64), count)[rows] for end in r)
            which, units_of_range = units_of_ranges(first, last)
            rows_of_units.append(rows[which])
            units.append(units_of_range)
        return np.concatenate(rows_of_units), np.concatenate(units)


def _columns_of(left: NDArray[np.bool]) -> Iterator[Range]:
    """Yield ranges of one unit each, or of none where a rank has fewer of them, that hold the units left at ranks."""
    counts = left.sum(axis=1)
    rows, units = np.nonzero(left)
    turn = np.arange(len(units)) - np.repeat(counts.cumsum() - counts, counts)
    for number in range(int(counts.max())):
        first = np.zeros(len(left), np.int64)
        chosen = turn == number
        first[rows[chosen]] = units[chosen]
        yield Range(first, first + (counts > number))


def _part(buffer: str, units: Iterable[int]) -> Part:
    return Buffer(buffer).units(sorted(units))


def _units(part: Part) -> set[int]:
    units: set[int] = set()
    for r in part.ranges:
        units.update(range(index(r.first), index(r.last)))
    return units


def _units_landed(action: Action) -> set[int]:
    if isinstance(action, Send):
        return set()
    part = action.target if isinstance(action, Copy) else action.part
    if part.buffer != "dst":
        return set()
    return _units(part)


def _read_from_src(step: Step, only_in_src: set[int]) -> tuple[Step, set[int]]:
    """Return ``step`` reading src where dst is not written yet, and the units that keep a part from lying in either.

    Sends and copies read what was there before the step; a fold reads what the arrivals before it
    have left.
    """
    split: set[int] = set()
    now = set(only_in_src)

    def read(part: Part, unwritten: set[int]) -> Part:
        units = _units(part)
        if part.buffer != "dst" or units.isdisjoint(unwritten):
            return part
        if not units <= unwritten:
            split.update(units & unwritten & only_in_src)
        return part.in_buffer("src")

    def redirect(action: Action) -> Action:
        if isinstance(action, Send):
            return Send(action.peer, read(action.part, only_in_src))
        redirected: Action = action
        if isinstance(action, CopyReduce):
            source = read(action.source, only_in_src)
            redirected = CopyReduce(source, action.target, read(action.operand, now))
        elif isinstance(action, Copy):
            redirected = Copy(read(action.source, only_in_src), action.target)
        elif isinstance(action, RecvReduce):
            redirected = RecvReduce(action.peer, action.part, read(action.operand, now))
        now.difference_update(_units_landed(action))
        return redirected

    return Step(*map(redirect, step.actions)), split
