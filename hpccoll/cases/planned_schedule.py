"""The schedule that a transport lowers for a case, and the number of channels into which it cuts the buffer.

Both are known from the case and the layout, before there are ranks; it imports no MPI.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from hpccoll.cases.algorithm_registry import COLLECTIVES, is_workload
from hpccoll.cases.case import Case
from hpccoll.cases.catalogue import PROTOCOL, call_of, own_parameters
from hpccoll.cases.transport_table import TRANSPORTS, ChannelRule
from hpccoll.schedule import (
    Algorithm,
    Cut,
    Layout,
    Parameter,
    Schedule,
    crossings,
    itemsize,
    numbering,
    smallest_message_units,
)
from hpccoll.schedule.collective import CollectiveCall


@lru_cache
def cached_slices(
    call: CollectiveCall,
    algorithm: Algorithm,
    layout: Layout,
    parameters: tuple[tuple[str, Parameter], ...],
) -> tuple[Schedule, ...]:
    """Return the slices of an algorithm, shared by all sizes of a job, and with them the results cached for them."""
    return call.slices(algorithm, layout, **dict(parameters))


cached_crossings = lru_cache(1024)(crossings)
"""Counts the crossings of a schedule once for all sizes of a job: 4096 ranks take seconds."""


@lru_cache(8)
def mapped_layout(layout: Layout, mapping: str | None) -> Layout:
    """Return ``layout``, of the ranks as the launcher numbers them, with the ranks as ``mapping`` numbers them."""
    if mapping is None:
        return layout
    return layout.subset(numbering(layout, mapping))


class PlannedSchedule(NamedTuple):
    """All that a transport lowers to a plan, next to the call, its size and its buffers."""

    algorithm: Algorithm
    slices: tuple[Schedule, ...]
    channels: int
    window: int
    protocol: str | None  # how messages move; None if the transport has one way

    @property
    def lanes(self) -> int:
        return len(self.slices) * self.channels


def planned_schedule(case: Case, layout: Layout) -> PlannedSchedule | None:
    """Return the schedule of a case that can run on ``layout``; None if it has none: the library's own, and steps.

    The layout has the ranks as the mapping of the case numbers them.
    """
    if case.collective not in COLLECTIVES:
        return None
    algorithm = COLLECTIVES[case.collective].algorithms.get(case.algorithm)
    if algorithm is None:
        return None
    call = call_of(case, layout.workers)
    slices = cached_slices(call, algorithm, layout, tuple(own_parameters(case).items()))
    rule = TRANSPORTS[case.transport].channels
    size = itemsize(case.dtype)
    nbytes = call.bytes(call.collective.elements(case.bytes, size, layout.workers), size)
    protocol = None
    if TRANSPORTS[case.transport].protocols:
        protocol = chosen_protocol(case.params, nbytes)
    if call.collective.uncut or algorithm.floor:
        channels = int(case.params.get("channels", 1))
        window = int(case.params.get("window", 1))
    else:
        channels, window = choose_channels(
            case.params, nbytes, layout, slices, pipelined=algorithm.pipelined, rule=rule
        )
    return PlannedSchedule(algorithm, slices, channels, window, protocol)


def smallest_message(case: Case, layout: Layout) -> int | None:
    """Return the bytes of the smallest message of a case; None if its blocks are unequal, and for workloads.

    For the library's own calls this is the block of a rank, which is a message if they send blocks.
    Units that are smaller than others by rounding are not considered.
    """
    call = call_of(case, layout.workers)
    size = itemsize(case.dtype)
    if call.traffic is not None or is_workload(case.collective):
        return None
    count = call.collective.elements(case.bytes, size, layout.workers)
    planned = planned_schedule(case, layout)
    if planned is None or planned.algorithm.floor:
        return count * size
    messages = []
    for schedule in planned.slices:
        elements_of_unit = int(Cut(call, count, schedule.units, planned.lanes, size).edges(0)[1])
        messages.append(elements_of_unit * _smallest_message_units(schedule) * size)
    return min(messages)


_smallest_message_units = lru_cache(smallest_message_units)


CHANNEL_UNIT = 1 << 20
"""The bytes of a unit per further channel inside a node: the reduction of one channel then overlaps
the transfer of another, in cache.

64 MiB on 2 ranks of a node, over messages and in shared memory: with 16 or 32 channels and the best
window 4 to 10 % slower than the best of 1 to 256; with 128 channels 28 % slower and more.
"""

WIRE_UNIT, WIRE_CHANNELS = 1 << 15, 4
"""The bytes of a unit per additional channel between nodes, and the number of such channels: while
one channel waits for its next step, another transfers.

Times in ms with 4, 8 and 16 channels. 4 nodes of 1 Gbit/s, 16 MiB: ring 218, 217 and 215 (wire:
207), rabenseifner 236, 221 and 221; with 2 ranks per node hierarchical, tiered, 221, 216 and 217
(wire: 204). 8 nodes of 100 Mbit/s, 4 MiB: ring 610, 605 and 597 (wire: 594), rabenseifner 698, 673
and 633.
"""

WIRE_MESSAGE, WIRE_CHANNELS_MOST = 1 << 19, 16
"""The smallest message in bytes that more channels may leave, and the maximum number of channels:
UCX sends a message of up to 256 KiB over a single rail.

4 MiB between 2 nodes with two rails of 100 Mbit/s: 187 ms in 4 channels, half over each rail; 344
to 384 ms in 8 to 32 channels.
"""

BLOCK_UNIT, BLOCKS = 1 << 14, 32
"""The bytes of a unit per block of the peer kernel, which a block loads at once (fold.py: THREADS x
UNROLL x VECTOR_BYTES), and the maximum number of blocks by default. Each slice of a channel in
flight has a block of its own.

32 blocks have 512 KiB under way. At 450 GB/s and 1 us for a load from a peer, NVLink of an H100 has
as much in flight. Not measured yet.
"""

LL_BYTES, LL_BLOCK_UNIT = 1 << 18, 1 << 10
"""The size S in bytes up to which messages over peer move in words with flags by default, and the bytes
of a unit per block then: a word of 4 bytes for each thread. A word takes 8 bytes on the wire, and
saves a flag and a fence. Not measured yet; NCCL's all-reduce within a node changes protocol at
sizes of this order.
"""

WINDOW = 4
"""The default number of channels in flight. Of 16 channels, for the cases above, 2 instead of 4 in
flight: the ring takes the same time; rabenseifner, whose messages differ in size, 715 ms instead of
633, and 228 instead of 221. Of 4 channels, hierarchical 223 ms instead of 221."""

WINDOWS = {"messages": WINDOW, "groups": WINDOW, "blocks": BLOCKS}
"""The default number of channels in flight by the rule of the transport; over peer that of blocks,
which the slices share."""

SEGMENT, SEGMENTS = 1 << 17, 64
"""The bytes of a segment of a pipeline, and the maximum number of segments.

4 MiB on 4 nodes of 100 Mbit/s, in one piece and in 32 segments: a chain takes 1025 and 362 ms
(wire: 341), a double binary tree 1549 and 717 ms (682). With a window of 1 the tree takes 1217 ms;
with 4 as long as with 2.
"""

QUEUED_SEGMENT = 1 << 22
"""The bytes of a segment over NCCL: a group takes about 10 us, as long as 4 MiB over NVLink."""


def choose_channels(
    requested: Mapping[str, int | str],
    nbytes: int,
    layout: Layout,
    schedules: Sequence[Schedule],
    *,
    pipelined: bool,
    rule: ChannelRule,
) -> tuple[int, int]:
    """Return the number of channels of a case that moves ``nbytes``, and the number of channels in flight.

    ``pipelined`` channels are segments of one pipeline; ``rule`` is that of the transport.
    """
    slices = len(schedules)
    default = default_channels(
        nbytes,
        layout,
        slices=slices,
        pipelined=pipelined,
        rule=rule,
        protocol=chosen_protocol(requested, nbytes),
    )
    if segment := requested.get("segment"):  # the largest piece, of a unit or of a slice
        pieces = slices
        if not pipelined:
            pieces *= schedules[0].units
        default = max(1, -(-nbytes // (pieces * int(segment))))
    channels = int(requested.get("channels", default))
    in_flight = WINDOWS[rule]
    if rule == "blocks":
        in_flight = max(1, in_flight // slices)
    return channels, int(requested.get("window", min(channels, in_flight)))


def chosen_protocol(requested: Mapping[str, int | str], nbytes: int) -> str:
    """Return how messages of a case over peer move that moves ``nbytes``."""
    return str(requested.get(PROTOCOL, "ll" if nbytes <= LL_BYTES else "simple"))


def default_channels(
    nbytes: int,
    layout: Layout,
    *,
    slices: int = 1,
    pipelined: bool = False,
    rule: ChannelRule = "messages",
    protocol: str = "simple",
) -> int:
    """Return the default number of channels for ``nbytes``; in NCCL's groups one, unless the algorithm is pipelined.

    Over NCCL a second channel lets folds overlap messages, at twice the number of groups; whether
    that gains anything is unknown, because it has not run on several GPUs. NCCL cuts each message
    into channels of its own.
    """
    if pipelined:
        segment = QUEUED_SEGMENT if rule == "groups" else SEGMENT
        return max(1, min(SEGMENTS, nbytes // segment))
    if rule == "groups":
        return 1
    unit = nbytes // layout.workers
    if rule == "blocks":
        block_unit = LL_BLOCK_UNIT if protocol == "ll" else BLOCK_UNIT
        return max(1, min(BLOCKS, unit // block_unit) // slices)
    in_a_node = max(1, min(64, unit // CHANNEL_UNIT))
    if layout.nodes == 1:
        return in_a_node
    return max(
        in_a_node,
        min(WIRE_CHANNELS, unit // WIRE_UNIT),
        min(WIRE_CHANNELS_MOST, unit // WIRE_MESSAGE),
    )
