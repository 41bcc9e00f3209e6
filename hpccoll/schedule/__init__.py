"""Schedules: who sends what to whom, as data. No MPI, no clock, no device."""

from hpccoll.schedule.collectives import (
    COLLECTIVES,
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
from hpccoll.schedule.compose import relabel, reverse, then
from hpccoll.schedule.count import Counts, count, crossings, unequal_wire_bytes, wire_bytes
from hpccoll.schedule.cut import Cut
from hpccoll.schedule.groups import nested, on_power_of_two, within
from hpccoll.schedule.layout import Layout
from hpccoll.schedule.mapping import MAPPINGS, numbering
from hpccoll.schedule.match import Messages, Round, ScheduleError, match
from hpccoll.schedule.placement import out_of_place
from hpccoll.schedule.promise import Collective, Promise
from hpccoll.schedule.prove import prove
from hpccoll.schedule.reduction import DTYPES, REDUCTIONS, Reduction
from hpccoll.schedule.registry import Algorithm, Cost, Need, Parameter, at_least, power_of_two, summed
from hpccoll.schedule.schedule import Schedule
from hpccoll.schedule.words import (
    NONE,
    Copy,
    Index,
    Part,
    Receive,
    Reduce,
    Send,
    Step,
    doublings,
    dst,
    maximum,
    minimum,
    only,
    src,
    tmp,
)

__all__ = [
    "COLLECTIVES",
    "DTYPES",
    "MAPPINGS",
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
    "doublings",
    "dst",
    "gather",
    "match",
    "maximum",
    "minimum",
    "nested",
    "numbering",
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
    "summed",
    "then",
    "tmp",
    "unequal_wire_bytes",
    "wire_bytes",
    "within",
]
