"""Schedules as data: the messages of collectives, without MPI, clock or device.

This has the names that ranks need. Proofs (``prove``), comparisons (``same_steps``) and the shapes of trees (``tree``)
are imported from their own modules: thousands of ranks import this package at once.
"""

from hpccoll.schedule.collective import Collective, CollectiveCall
from hpccoll.schedule.collective_table import (
    COLLECTIVES,
    WORKLOADS,
    all_gather,
    all_reduce,
    all_to_all,
    all_to_all_v,
    barrier,
    bidirectional,
    broadcast,
    collective,
    gather,
    is_workload,
    multi_pair,
    reduce,
    reduce_scatter,
    scatter,
    send_recv,
)
from hpccoll.schedule.compose import relabel, reverse, then
from hpccoll.schedule.count import Counts, count, crossings, smallest_message_units, unequal_wire_bytes, wire_bytes
from hpccoll.schedule.cut import Cut
from hpccoll.schedule.group_composition import in_groups, on_power_of_two, on_some_workers
from hpccoll.schedule.layout import Layout
from hpccoll.schedule.match import Messages, Round, ScheduleError, match
from hpccoll.schedule.out_of_place import out_of_place
from hpccoll.schedule.rank_mapping import MAPPINGS, numbering
from hpccoll.schedule.reduction import (
    BFLOAT16,
    DTYPE,
    DTYPES,
    NCCL_TESTS_NAMES,
    REDUCTIONS,
    Reduction,
    dtype_of,
    itemsize,
)
from hpccoll.schedule.registry import (
    Algorithm,
    Cost,
    Emulation,
    Parameter,
    Requirement,
    at_least,
    power_of_two,
    total_cost,
)
from hpccoll.schedule.regularity import Regularity
from hpccoll.schedule.schedule import NotVectorisedError, Schedule
from hpccoll.schedule.step import (
    NONE,
    Copy,
    Index,
    Part,
    Recv,
    RecvReduce,
    Send,
    Step,
    ceil_log2,
    dst,
    floor_log2,
    is_power_of_two,
    maximum,
    minimum,
    peer_if,
    src,
    tmp,
)

__all__ = [
    "BFLOAT16", "COLLECTIVES", "DTYPE", "DTYPES", "MAPPINGS", "NCCL_TESTS_NAMES", "NONE", "REDUCTIONS", "WORKLOADS",
    "Algorithm", "Collective", "CollectiveCall", "Copy", "Cost", "Counts", "Cut", "Emulation", "Index", "Layout",
    "Messages", "NotVectorisedError", "Parameter", "Part", "Recv", "RecvReduce", "Reduction", "Regularity",
    "Requirement", "Round", "Schedule", "ScheduleError", "Send", "Step", "all_gather", "all_reduce", "all_to_all",
    "all_to_all_v", "at_least", "barrier", "bidirectional", "broadcast", "ceil_log2", "collective", "count",
    "crossings", "dst", "dtype_of", "floor_log2", "gather", "in_groups", "is_power_of_two",
    "is_workload", "itemsize", "match", "maximum", "minimum", "multi_pair", "numbering", "on_power_of_two",
    "on_some_workers", "out_of_place", "peer_if", "power_of_two", "reduce", "reduce_scatter", "relabel", "reverse",
    "scatter", "send_recv", "smallest_message_units", "src", "then", "tmp", "total_cost", "unequal_wire_bytes",
    "wire_bytes",
]  # fmt: skip
