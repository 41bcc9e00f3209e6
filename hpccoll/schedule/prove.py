"""The prover: runs a schedule on sets of contributions, and checks the postcondition of its collective.

A unit of a buffer holds the set of contributions folded into it, as the bits of an int; the empty set is undefined.
For every rank it checks that nothing undefined is sent or folded, that no contribution is counted twice, and that dst
ends as the postcondition requires.
"""

from collections import defaultdict
from collections.abc import Iterable

from hpccoll.schedule.collective import CollectiveCall, Contribution
from hpccoll.schedule.match import ScheduleError
from hpccoll.schedule.schedule import Schedule
from hpccoll.schedule.step import Part
from hpccoll.schedule.walk import Message, trace_schedule, walk


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
        trace = trace_schedule(schedule)
        contributions = _Contributions(call, schedule, in_place=in_place)
        walk(trace, contributions)
        contributions.check(trace.rounds)


class _Contributions:
    """What is folded in the units of all ranks."""

    def __init__(self, call: CollectiveCall, schedule: Schedule, *, in_place: bool) -> None:
        self.call, self.schedule = call, schedule
        self.cells: defaultdict[tuple[int, str, int], int] = defaultdict(int)  # by rank, buffer and unit
        for me in range(schedule.layout.workers):
            for unit in call.source(me, schedule.units):
                self.cells[me, "dst" if in_place else "src", unit] = self._bit((me, unit))

    def _bit(self, contribution: Contribution) -> int:
        origin, unit = contribution
        return 1 << (origin * self.schedule.units + unit)

    def _names(self, bits: int) -> str:
        contributions = (divmod(bit, self.schedule.units) for bit in range(bits.bit_length()) if bits >> bit & 1)
        return ", ".join(f"rank {origin}'s unit {unit}" for origin, unit in contributions)

    def _defined(self, number: int, me: int, part: Part) -> list[int]:
        """Return what a rank has in a part that it reads in round ``number``."""
        cells = [self.cells[me, part.buffer, unit] for unit in part.units]
        for unit, cell in zip(part.units, cells, strict=True):
            if not cell:
                raise _fault(number, f"rank {me} reads {part.buffer}[{unit}], which nothing has defined")
        return cells

    def read(self, message: Message) -> list[int]:
        return self._defined(message.departs, message.source, message.sent)

    def land(self, message: Message, arrival: list[int]) -> None:
        me, units = message.target, message.landed.units
        if self.call.collective.units == "divisible" and units != message.sent.units:
            moved = f"divisible units {[*message.sent.units]} in the place of {[*units]}"
            raise _fault(message.lands, f"rank {me} puts {moved}")
        if message.operand is not None:
            operand = self._defined(message.lands, me, message.operand)
            for mine, its, unit in zip(operand, arrival, units, strict=True):
                if mine & its and not self.call.collective.idempotent:
                    twice = f"counts twice in unit {unit}: {self._names(mine & its)}"
                    raise _fault(message.lands, f"rank {me} {twice}")
            arrival = [mine | its for mine, its in zip(operand, arrival, strict=True)]
        for unit, bits in zip(units, arrival, strict=True):
            self.cells[me, message.landed.buffer, unit] = bits

    def check(self, rounds: int) -> None:
        """Check the postcondition after that many rounds."""
        after = f"after round {rounds}, the last one, " if rounds else ""
        for me in range(self.schedule.layout.workers):
            for unit in self.call.target(me, self.schedule.units):
                required, found = sum(map(self._bit, self.call.result(me, unit))), self.cells[me, "dst", unit]
                if missing := required & ~found:
                    raise UnmetPostconditionError(
                        f"{after}rank {me} ends without {self._names(missing)} in unit {unit}"
                    )
                if strange := found & ~required:
                    raise UnmetPostconditionError(f"{after}rank {me} ends with {self._names(strange)} in unit {unit}")


def _fault(number: int, what: str) -> ScheduleError:
    return ScheduleError(f"round {number + 1}: {what}")
