"""A plan of MSCCL++ whose order is proven, as schedules of ours that move what its first run moves, which is proven."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from hpccoll.common.errors import UnusableError
from hpccoll.extensions.plans.mscclpp_events import Cell, PlanEvent, PlanRun, fault_of
from hpccoll.schedule import Copy, Index, Part, Recv, RecvReduce, Schedule, ScheduleError, Send, Step
from hpccoll.schedule.prove import prove
from hpccoll.schedule.step import Action, Range

_Held = tuple[Cell, int]  # a chunk of ours, as an action left it; -1 as it was at the start


class _Lift:
    """The actions of a schedule of ours that move what the first run of a plan moves.

    What a plan puts into scratch is in flight until it is folded, copied or sent on; what is sent on lies in tmp. What
    a chunk of ours has is a set of contributions, as bits: of each rank, the chunks of the whole buffer.
    """

    def __init__(self, run: PlanRun) -> None:
        self.run = run
        self.where = ""  # the event that is added
        self.ran: set[int] = set()  # the ranks that have begun
        self.bits: dict[_Held, int] = {}
        self.actions: list[tuple[Cell, Cell, Cell | None]] = []  # from, to, and what it is folded with
        self.orders: list[tuple[int, int, int]] = []  # of two actions, and the steps between them at least
        self.version: dict[Cell, int] = {}  # the action that wrote a chunk of dst or tmp last
        self.readers: defaultdict[_Held, list[int]] = defaultdict(list)
        self.overwritten: dict[_Held, int] = {}
        self.held: dict[Cell, _Held] = {}  # what a chunk of the plan has

    def _where(self, cell: Cell) -> _Held:
        if cell not in self.held:
            raise fault_of(cell, f"{self.where} reads it, and nothing has defined it")
        return self.held[cell]

    def _bit(self, origin: int, number: int) -> int:
        return 1 << origin * self.run.units * self.run.lanes + number

    def _names(self, bits: int) -> str:
        numbers = [number for number in range(bits.bit_length()) if bits >> number & 1]
        names = []
        for number in numbers[:3]:
            origin, unit = divmod(number, self.run.units * self.run.lanes)
            names.append(f"rank {origin}'s unit {unit}")
        more = f" and {len(numbers) - 3} more" if len(numbers) > 3 else ""
        return ", ".join(names) + more

    def _read(self, number: int, what: _Held, steps: int) -> None:
        """An action reads a chunk, some steps after what wrote it at least: a fold reads at the end of its step."""
        self.orders.append((what[1], number, steps))
        self.readers[what].append(number)
        if what in self.overwritten:
            self.orders.append((number, self.overwritten[what], 1 - steps))

    def _act(self, source: _Held, target: Cell, operand: _Held | None = None) -> _Held:
        number, has = len(self.actions), self.bits[source]
        if operand:
            if twice := has & self.bits[operand]:
                raise fault_of(target, f"{self.where} counts twice {self._names(twice)}")
            has |= self.bits[operand]
        self.bits[target, number] = has
        self.actions.append((source[0], target, operand and operand[0]))
        self._read(number, source, 1)
        if operand:
            self._read(number, operand, 0)
        last = target, self.version.get(target, -1)
        self.orders += [(each, number, 0) for each in (last[1], *self.readers[last]) if each != number]
        self.overwritten[last] = self.version[target] = number
        return target, number

    def _at_its_rank(self, cell: Cell) -> _Held:
        if self._where(cell)[0][0] != cell[0]:
            self.held[cell] = self._act(self._where(cell), (cell[0], "tmp", self._where(cell)[0][2]))
        return self._where(cell)

    def program(self, event: PlanEvent) -> None:
        """Define what a program writes before the first run, or check what it reads after it: UnusableError."""
        lanes, me = self.run.lanes, event.program
        for cell in () if me in self.ran else event.writes[0]:
            self.held[cell] = (me, "dst", cell[2]), -1
            self.bits[self.held[cell]] = self._bit(me, cell[2])
        for cell in event.reads[0] if me in self.ran else ():
            unit, lane = divmod(cell[2], lanes)
            wanted = sum(self._bit(o, u * lanes + lane) for o, u in self.run.call.result(me, unit))
            found = self.bits[self.held[cell]] if cell in self.held else 0
            if missing := wanted & ~found:
                raise fault_of(cell, f"it ends without {self._names(missing)}")
            if found != wanted:
                raise fault_of(cell, f"it ends with {self._names(found & ~wanted)}")
        self.ran.add(me)

    def add(self, event: PlanEvent) -> None:
        """Add an operation of a plan; UnusableError if it reads what is undefined, or counts a contribution twice."""
        self.where = event.where
        for sources, targets in zip(zip(*event.reads, strict=True), zip(*event.writes, strict=True), strict=True):
            rank = targets[0][0]
            what = [self._where(one) if one[0] == rank else self._at_its_rank(one) for one in sources]
            mine = [one for one in what if one[0][0] == rank]
            if len(mine) > 1:
                raise UnusableError(event.where, "it folds two chunks of one rank, as no schedule of ours does")
            others = [one for one in what if one not in mine]
            now = (mine or others[:1])[0]
            if event.folds:
                home = targets[0] if targets[0][1] == "dst" else (rank, "tmp", now[0][2])
                now = now if mine else self._act(others.pop(0), home)
                for one in others:
                    now = self._act(one, home, now)
            for target in targets:
                self.held[target] = self._act(now, target) if target[1] == "dst" and target != now[0] else now

    def levels(self) -> list[int]:
        """Return the step of each action: the earliest one that what it reads and overwrites allows."""
        level = [0] * len(self.actions)
        for _ in range(len(level) + 1):
            grown = False
            for earlier, later, steps in self.orders:
                if earlier >= 0 and level[later] < level[earlier] + steps:
                    level[later], grown = level[earlier] + steps, True
            if not grown:
                return level
        raise UnusableError("plan", "it is right, but keeps more copies of a unit than a schedule of ours has room for")


def lifted(run: PlanRun, moves: Iterable[PlanEvent]) -> tuple[Schedule, ...]:
    """Return the schedules of ours, one for each chunk of a unit, of a plan.

    Raises:
        UnusableError: if its result is wrong, or no schedule of ours can say it.
    """
    lift, lanes = _Lift(run), run.lanes
    for event in moves:
        (lift.add if event.program < 0 else lift.program)(event)
    messages: dict[tuple[Any, ...], list[tuple[Cell, ...]]] = {}
    for level, (source, target, operand) in zip(lift.levels(), lift.actions, strict=True):
        ends = [(cell[:2], cell[2] % lanes) for cell in (source, target, operand or target)]
        messages.setdefault((level, *ends, operand is None), []).append((source, target, operand or target))
    programs: dict[tuple[int, int], dict[int, list[Action]]] = defaultdict(lambda: defaultdict(list))
    for (level, ((a, _), lane), ((b, _), _), _, replaces), cells in messages.items():
        sent, landed, folded = (_part(each, lanes) for each in zip(*cells, strict=True))
        if a == b:
            programs[lane, a][level].append(Copy(sent, landed))
            continue
        programs[lane, a][level].append(Send(b, sent))
        programs[lane, b][level].append(Recv(a, landed) if replaces else RecvReduce(a, landed, folded))

    steps = {key: tuple(Step(*actions) for _, actions in sorted(each.items())) for key, each in programs.items()}
    slices = tuple(
        Schedule(run.layout(), run.units, partial(_of_rank, [steps.get((lane, me), ()) for me in range(run.call.p)]))
        for lane in range(lanes)
    )
    try:
        prove(run.call, slices)
    except ScheduleError as error:
        raise UnusableError("plan", f"it is right, but a schedule of ours with its steps is not: {error}") from None
    return slices


def _of_rank(steps: Sequence[Sequence[Step]], me: Index) -> Iterator[Step]:
    """Return the steps of a rank; a function of this module, because rank 0 sends schedules to the others."""
    return iter(steps[int(me)])


def _part(cells: Iterable[Cell], lanes: int) -> Part:
    ranges: list[Range] = []
    for unit in (number // lanes for *_, number in cells):
        ranges[-1:] = (
            [Range(ranges[-1].first, unit + 1)]
            if ranges and ranges[-1].last == unit
            else [*ranges[-1:], Range(unit, unit + 1)]
        )
    return Part(next(iter(cells))[1], tuple(ranges))
