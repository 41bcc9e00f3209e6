"""The prover: runs a schedule on sets of contributions, and checks the postcondition of its collective.

A unit of a buffer holds the set of contributions folded into it, as the bits of an int; the empty set is undefined.
For every rank it checks that nothing undefined is sent or folded, that no contribution is counted twice, and that dst
ends as the postcondition requires.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from hpccoll.schedule.collective import CollectiveCall, Contribution
from hpccoll.schedule.match import Messages, ScheduleError, match
from hpccoll.schedule.schedule import Schedule
from hpccoll.schedule.step import Part

_Units = NDArray[np.int64]


class UnmetPostconditionError(ScheduleError):
    """A schedule is valid, but it leaves a rank without the result of its collective."""


def prove(call: CollectiveCall, schedules: Iterable[Schedule], *, in_place: bool = True) -> None:
    """Check each schedule (slice) of an algorithm against the postcondition of a call.

    Args:
        call: the call of a collective.
        schedules: the slices, each of which is checked over its own units.
        in_place: whether dst starts with the contributions and src is undefined, or the other way round.

    Raises:
        ScheduleError: if something undefined is read, or a contribution is counted twice; names round, rank and unit.
        UnmetPostconditionError: if a contribution is missing or misplaced at the end; names rank and unit.
    """
    for schedule in schedules:
        state = _State(call, schedule, in_place=in_place)
        staged: dict[Messages, list[NDArray[np.object_]]] = {}
        for state.round, round_ in enumerate(match(schedule), 1):
            for messages in round_.sent:
                staged[messages] = [state.read(messages, i) for i in range(len(messages.source))]
            for messages in round_.landed:
                for i, arrival in enumerate(staged.pop(messages)):
                    state.land(messages, i, arrival)
        state.check()


def units_of(part: Part, i: int) -> _Units:
    """Return the units of message ``i`` in the order in which they lie in it."""
    units = [unit for r in part.ranges for unit in range(np.asarray(r.first)[i], np.asarray(r.last)[i])]
    return np.array(units, np.int64)


class _State:
    def __init__(self, call: CollectiveCall, schedule: Schedule, *, in_place: bool) -> None:
        self.call, self.schedule = call, schedule
        self.round = 0  # the current round, from 1: one step of every rank that has not waited
        ranks, units = schedule.layout.ranks, schedule.units
        self.buffers = {name: np.zeros((ranks, units), object) for name in ("src", "dst", "tmp")}
        contributed = self.buffers["dst" if in_place else "src"]
        for me in range(schedule.layout.workers):
            for unit in call.source(me, units):
                contributed[me, unit] = self._bit((me, unit))

    def _bit(self, contribution: Contribution) -> int:
        origin, unit = contribution
        return 1 << (origin * self.schedule.units + unit)

    def _names(self, bits: int) -> str:
        contributions = (divmod(bit, self.schedule.units) for bit in range(bits.bit_length()) if bits >> bit & 1)
        return ", ".join(f"rank {origin}'s unit {unit}" for origin, unit in contributions)

    def _cells(self, part: Part, me: int, i: int) -> tuple[NDArray[np.object_], _Units]:
        units = units_of(part, i)
        buffer = self.buffers[part.buffer]
        if part.buffer == "tmp" and len(units) and units.max() >= buffer.shape[1]:
            buffer = np.hstack([buffer, np.zeros((len(buffer), int(units.max()) + 1), object)])
            self.buffers["tmp"] = buffer
        return buffer[me], units

    def _defined(self, part: Part, me: int, i: int) -> NDArray[np.object_]:
        cells, units = self._cells(part, me, i)
        for unit in units:
            if not cells[unit]:
                raise self._error(f"rank {me} reads {part.buffer}[{unit}], which nothing has defined")
        return cells[units]

    def read(self, messages: Messages, i: int) -> NDArray[np.object_]:
        return self._defined(messages.sent, int(messages.source[i]), i)

    def land(self, messages: Messages, i: int, arrival: NDArray[np.object_]) -> None:
        me = int(messages.target[i])
        cells, units = self._cells(messages.landed, me, i)
        if self.call.collective.units == "divisible" and list(units) != list(units_of(messages.sent, i)):
            raise self._error(f"rank {me} puts divisible units {units_of(messages.sent, i)} in the place of {units}")
        if messages.operand is not None:
            operand = self._defined(messages.operand, me, i)
            for mine, its, unit in zip(operand, arrival, units, strict=True):
                if mine & its and not self.call.collective.idempotent:
                    raise self._error(f"rank {me} counts twice in unit {unit}: {self._names(mine & its)}")
            arrival = operand | arrival
        cells[units] = arrival

    def _error(self, fault: str) -> ScheduleError:
        return ScheduleError(f"round {self.round}: {fault}")

    def check(self) -> None:
        layout, units, dst = self.schedule.layout, self.schedule.units, self.buffers["dst"]
        for me in range(layout.workers):
            for unit in self.call.target(me, units):
                required = sum(map(self._bit, self.call.result(me, unit)))
                if missing := required & ~dst[me, unit]:
                    raise self._unmet(f"rank {me} ends without {self._names(missing)} in unit {unit}")
                if strange := dst[me, unit] & ~required:
                    raise self._unmet(f"rank {me} ends with {self._names(strange)} in unit {unit}")

    def _unmet(self, fault: str) -> "UnmetPostconditionError":
        return UnmetPostconditionError(f"after round {self.round}, the last one, {fault}" if self.round else fault)
