"""Schedules: who sends what to whom, as data. No MPI, no clock, no device."""

from hpccoll.schedule.collectives import (
    COLLECTIVES,
    Collective,
    Promise,
    all_gather,
    all_reduce,
    all_to_all,
    all_to_all_v,
    barrier,
    bidirectional,
    broadcast,
    collective,
    gather,
    reduce,
    reduce_scatter,
    scatter,
    send_recv,
)
from hpccoll.schedule.compose import nested, on_power_of_two, relabel, reverse, then, within
from hpccoll.schedule.count import Counts, count, crossings, wire_bytes
from hpccoll.schedule.cut import Cut
from hpccoll.schedule.layout import Layout
from hpccoll.schedule.match import Messages, Round, ScheduleError, match
from hpccoll.schedule.placement import out_of_place
from hpccoll.schedule.prove import prove
from hpccoll.schedule.reduction import DTYPES, REDUCTIONS, Reduction
from hpccoll.schedule.registry import Algorithm, Cost, Need, Parameter, at_least, power_of_two
from hpccoll.schedule.schedule import Schedule
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
    "Promise",
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
    "all_to_all",
    "all_to_all_v",
    "at_least",
    "barrier",
    "bidirectional",
    "broadcast",
    "collective",
    "count",
    "crossings",
    "dst",
    "gather",
    "match",
    "nested",
    "on_power_of_two",
    "only",
    "out_of_place",
    "power_of_two",
    "prove",
    "reduce",
    "reduce_scatter",
    "relabel",
    "reverse",
    "scatter",
    "send_recv",
    "src",
    "then",
    "tmp",
    "wire_bytes",
    "within",
]
