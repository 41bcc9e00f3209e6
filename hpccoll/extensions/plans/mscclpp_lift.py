"""A plan of MSCCL++ whose order is proven, as schedules of ours that move what its first run moves, which is proven."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from hpccoll.common.errors import UnusableError
from hpccoll.extensions.plans.mscclpp_events import Cell, PlanEvent, PlanRun, fault_of
from hpccoll.schedule import (
    Copy,
    CopyReduce,
    Index,
    Part,
    Recv,
    RecvReduce,
    Schedule,
    ScheduleError,
    Send,
    Step,
)
from hpccoll.schedule.prove import prove
from hpccoll.schedule.step import Action, Range

_Held = tuple[Cell, int]  # a chunk of ours, as an action left it; -1 as it was at the start


class _Lift:
    """The actions of a schedule of ours that move what the first run of a plan moves.

    What a plan puts into scratch is in flight until it is folded, copied or sent on; what is sent
    on lies in tmp. What a chunk of ours has is a set of contributions, as bits: of each rank, the
    chunks of the whole buffer.
    """

    def __init__(self, run: PlanRun) -> None:
        self.run = run
        self.where = ""  # the event that is added
        self.ran: set[int] = set()  # the ranks that have begun
        self.bits: dict[_Held, int] = {}
        # from, to, and what it is folded with
        self.actions: list[tuple[Cell, Cell, Cell | None]] = []
        # of two actions, and the steps between them at least
        self.orders: list[tuple[int, int, int]] = []
        self.version: dict[Cell, int] = {}  # the action that wrote a chunk of dst or tmp last
        self.readers: defaultdict[_Held, list[int]] = defaultdict(list)
        self.overwritten: dict[_Held, int] = {}
        self.held: dict[Cell, _Held] = {}  # what a chunk of the plan has

    def _where(self, cell: Cell) -> _Held:
        if cell not in self.held:
            raise fault_of(cell, f"{self.where} reads it, and nothing has defined it")
        return self.held[cell]

    def _bit(self, origin: int, number: int) -> int:
        chunks = self.run.units * self.run.lanes
        return 1 << origin * chunks + number

    def _names(self, bits: int) -> str:
        numbers = [number for number in range(bits.bit_length()) if bits >> number & 1]
        names = []
        for number in numbers[:3]:
            origin, unit = divmod(number, self.run.units * self.run.lanes)
            names.append(f"rank {origin}'s unit {unit}")
        omitted = f" and {len(numbers) - 3} more" if len(numbers) > 3 else ""
        return ", ".join(names) + omitted

    def _read(self, number: int, held: _Held, steps: int) -> None:
        """An action reads a chunk, some steps after what wrote it at least: a fold reads at the end of its step."""
        self.orders.append((held[1], number, steps))
        self.readers[held].append(number)
        if held in self.overwritten:
            self.orders.append((number, self.overwritten[held], 1 - steps))

    def _act(self, source: _Held, target: Cell, operand: _Held | None = None) -> _Held:
        number = len(self.actions)
        contributions = self.bits[source]
        if operand:
            twice = contributions & self.bits[operand]
            if twice:
                raise fault_of(target, f"{self.where} counts twice {self._names(twice)}")
            contributions |= self.bits[operand]
        self.bits[target, number] = contributions
        self.actions.append((source[0], target, operand and operand[0]))
        self._read(number, source, 1)
        if operand:
            self._read(number, operand, 0)
        last = target, self.version.get(target, -1)
        for earlier in (last[1], *self.readers[last]):
            if earlier != number:
                self.orders.append((earlier, number, 0))
        self.overwritten[last] = number
        self.version[target] = number
        return target, number

    def _at_its_rank(self, cell: Cell) -> _Held:
        held = self._where(cell)
        rank = cell[0]
        held_rank, _, number = held[0]
        if held_rank != rank:
            held = self._act(held, (rank, "tmp", number))
            self.held[cell] = held
        return held

    def program(self, event: PlanEvent) -> None:
        """Define what a program writes before the first run, or check what it reads after it: UnusableError."""
        me = event.program
        if me in self.ran:
            for cell in event.reads[0]:
                self._check_result(me, cell)
        else:
            for cell in event.writes[0]:
                number = cell[2]
                self.held[cell] = (me, "dst", number), -1
                self.bits[self.held[cell]] = self._bit(me, number)
        self.ran.add(me)

    def _check_result(self, me: int, cell: Cell) -> None:
        """Check that a chunk of a result has exactly the contributions that the collective defines."""
        lanes = self.run.lanes
        unit, lane = divmod(cell[2], lanes)
        wanted = 0
        for origin, origin_unit in self.run.call.result(me, unit):
            wanted += self._bit(origin, origin_unit * lanes + lane)
        contributions = 0
        if cell in self.held:
            contributions = self.bits[self.held[cell]]
        missing = wanted & ~contributions
        if missing:
            raise fault_of(cell, f"it ends without {self._names(missing)}")
        if contributions != wanted:
            raise fault_of(cell, f"it ends with {self._names(contributions & ~wanted)}")

    def add(self, event: PlanEvent) -> None:
        """Add an operation of a plan; UnusableError if it reads what is undefined, or counts a contribution twice."""
        self.where = event.where
        for sources, targets in zip(
            zip(*event.reads, strict=True), zip(*event.writes, strict=True), strict=True
        ):
            rank = targets[0][0]
            read = [
                self._where(cell) if cell[0] == rank else self._at_its_rank(cell)
                for cell in sources
            ]
            own = [held for held in read if held[0][0] == rank]
            if len(own) > 1:
                raise UnusableError(
                    event.where, "it folds two chunks of one rank, as no schedule of ours does"
                )
            foreign = [held for held in read if held not in own]
            result = own[0] if own else foreign[0]
            if event.folds:
                if targets[0][1] == "dst":
                    home = targets[0]
                else:
                    home = (rank, "tmp", result[0][2])
                if not own:
                    result = self._act(foreign.pop(0), home)
                for operand in foreign:
                    result = self._act(operand, home, result)
            for target in targets:
                is_written = target[1] == "dst" and target != result[0]
                if is_written:
                    self.held[target] = self._act(result, target)
                else:
                    self.held[target] = result

    def levels(self) -> list[int]:
        """Return the step of each action: the earliest one that what it reads and overwrites allows."""
        level = [0] * len(self.actions)
        for _ in range(len(level) + 1):
            has_grown = False
            for earlier, later, steps in self.orders:
                if earlier >= 0 and level[later] < level[earlier] + steps:
                    level[later] = level[earlier] + steps
                    has_grown = True
            if not has_grown:
                return level
        raise UnusableError(
            "plan",
            "it is right, but keeps more copies of a unit than a schedule of ours has room for",
        )


def lifted(run: PlanRun, moves: Iterable[PlanEvent]) -> tuple[Schedule, ...]:
    """Return the schedules of ours, one for each chunk of a unit, of a plan.

    Raises:
        UnusableError: if its result is wrong, or no schedule of ours can say it.
    """
    lift = _Lift(run)
    for event in moves:
        if event.program < 0:
            lift.add(event)
        else:
            lift.program(event)
    steps: dict[tuple[int, int], tuple[Step, ...]] = {}  # by lane and rank
    for key, actions_of_level in _actions(lift, run.lanes).items():
        steps[key] = tuple(Step(*actions) for _, actions in sorted(actions_of_level.items()))
    schedules = []
    for lane in range(run.lanes):
        steps_of_ranks = [steps.get((lane, me), ()) for me in range(run.call.p)]
        schedules.append(Schedule(run.layout(), run.units, partial(_of_rank, steps_of_ranks)))
    slices = tuple(schedules)
    try:
        prove(run.call, slices)
    except ScheduleError as error:
        raise UnusableError(
            "plan", f"it is right, but a schedule of ours with its steps is not: {error}"
        ) from None
    return slices


def _actions(lift: _Lift, lanes: int) -> Mapping[tuple[int, int], Mapping[int, list[Action]]]:
    """Return the actions of each lane and rank by their step; chunks that go together are one message."""
    messages: dict[tuple[Any, ...], list[tuple[Cell, ...]]] = defaultdict(list)
    for level, (source, target, operand) in zip(lift.levels(), lift.actions, strict=True):
        cells = source, target, operand or target
        ends = [(cell[:2], cell[2] % lanes) for cell in cells]
        messages[(level, *ends, operand is None)].append(cells)
    programs: dict[tuple[int, int], dict[int, list[Action]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for (level, ((sender, _), lane), ((receiver, _), _), _, replaces), chunks in messages.items():
        sent, landed, folded = (_part(cells, lanes) for cells in zip(*chunks, strict=True))
        if sender == receiver:
            local = Copy(sent, landed) if replaces else CopyReduce(sent, landed, folded)
            programs[lane, sender][level].append(local)
            continue
        programs[lane, sender][level].append(Send(receiver, sent))
        receipt = Recv(sender, landed) if replaces else RecvReduce(sender, landed, folded)
        programs[lane, receiver][level].append(receipt)
    return programs


def _of_rank(steps: Sequence[Sequence[Step]], me: Index) -> Iterator[Step]:
    """Return the steps of a rank; a function of this module, because rank 0 sends schedules to the others."""
    return iter(steps[int(me)])


def _part(cells: Sequence[Cell], lanes: int) -> Part:
    """Return the units of chunks in one buffer; units that follow one another are one range."""
    ranges: list[Range] = []
    for _, _, number in cells:
        unit = number // lanes
        if ranges and ranges[-1].last == unit:
            ranges[-1] = Range(ranges[-1].first, unit + 1)
        else:
            ranges.append(Range(unit, unit + 1))
    buffer = cells[0][1]
    return Part(buffer, tuple(ranges))
