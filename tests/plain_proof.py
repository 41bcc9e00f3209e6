"""A second prover, as plain as one can be written: message by message, with a set of pairs in each unit.

Tests hold ``hpccoll.schedule.prove`` to it on small schedules; it takes the fourth power of the
number of ranks.
"""

from collections import defaultdict

from hpccoll.schedule import ScheduleError
from hpccoll.schedule.prove import UnmetPostconditionError
from hpccoll.schedule.walk import trace_schedule, walk


def prove_plainly(call, schedules, *, in_place=True) -> None:
    """Check the slices of an algorithm against the postcondition of a call, or raise what ``prove`` raises."""
    for schedule in schedules:
        trace = trace_schedule(schedule)
        memory = _Sets(call, schedule, in_place=in_place)
        walk(trace, memory)
        memory.check(trace.steps)


class _Sets:
    """The contributions folded in each unit of each buffer of each rank."""

    def __init__(self, call, schedule, *, in_place) -> None:
        self.call, self.schedule = call, schedule
        self.sets = defaultdict(frozenset)  # by rank, buffer and unit
        for me in range(schedule.layout.workers):
            for unit in call.source(me, schedule.units):
                self.sets[me, "dst" if in_place else "src", unit] = frozenset([(me, unit)])

    def _defined(self, number, me, part):
        for unit in part.units:
            if not self.sets[me, part.buffer, unit]:
                raise ScheduleError(
                    f"step {number + 1}: rank {me} reads {part.buffer}[{unit}], which nothing has"
                )
        return [self.sets[me, part.buffer, unit] for unit in part.units]

    def read(self, message):
        return self._defined(message.departs, message.source, message.sent)

    def land(self, message, arrival) -> None:
        me, units, number = message.target, message.landed.units, message.lands
        if self.call.collective.units == "divisible" and units != message.sent.units:
            raise ScheduleError(f"step {number + 1}: rank {me} puts divisible units elsewhere")
        if message.operand is not None:
            mine = self._defined(number, me, message.operand)
            for held, arriving, unit in zip(mine, arrival, units, strict=True):
                if held & arriving and not self.call.collective.idempotent:
                    raise ScheduleError(f"step {number + 1}: rank {me} counts twice in unit {unit}")
            arrival = [held | arriving for held, arriving in zip(mine, arrival, strict=True)]
        for unit, contributions in zip(units, arrival, strict=True):
            self.sets[me, message.landed.buffer, unit] = contributions

    def check(self, steps) -> None:
        for me in range(self.schedule.layout.workers):
            for unit in self.call.target(me, self.schedule.units):
                if self.sets[me, "dst", unit] != self.call.result(me, unit):
                    raise UnmetPostconditionError(f"after step {steps}: rank {me}, unit {unit}")
