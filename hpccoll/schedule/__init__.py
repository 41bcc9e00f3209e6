"""Schedules: who sends what to whom, as data. No MPI, no clock, no device."""

from hpccoll.schedule.collectives import COLLECTIVES, Collective, all_gather, all_reduce, barrier, collective
from hpccoll.schedule.compose import out_of_place, relabel, reverse, then, within
from hpccoll.schedule.count import Counts, count, crossings, wire_bytes
from hpccoll.schedule.cut import Cut
from hpccoll.schedule.layout import Layout
from hpccoll.schedule.match import Messages, Round, ScheduleError, match
from hpccoll.schedule.prove import prove
from hpccoll.schedule.reduction import DTYPES, REDUCTIONS, Reduction
from hpccoll.schedule.registry import Algorithm, Cost, Need, Parameter, Schedule, at_least, power_of_two
from hpccoll.schedule.words import NONE, Copy, Index, Part, Receive, Reduce, Send, Step, dst, only, src, tmp

__all__ = [
    "COLLECTIVES",
    "DTYPES",
    "NONE",
    "REDUCTIONS",
    "Algorithm",
    "Collective",
    "Copy",
    "Cost",
    "Counts",
    "Cut",
    "Index",
    "Layout",
    "Messages",
    "Need",
    "Parameter",
    "Part",
    "Receive",
    "Reduce",
    "Reduction",
    "Round",
    "Schedule",
    "ScheduleError",
    "Send",
    "Step",
    "all_gather",
    "all_reduce",
    "at_least",
    "barrier",
    "collective",
    "count",
    "crossings",
    "dst",
    "match",
    "only",
    "out_of_place",
    "power_of_two",
    "prove",
    "relabel",
    "reverse",
    "src",
    "then",
    "tmp",
    "wire_bytes",
    "within",
]
