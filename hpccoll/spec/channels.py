"""Channels: in how many pieces that advance independently a case moves what it moves, and how many at once.

It starts no MPI: what a plan takes of memory follows from them.
"""

from collections.abc import Mapping, Sequence

from hpccoll.schedule import Layout, Schedule

LANE_UNIT = 1 << 20
"""Bytes of a unit at which another channel pays: folding one then overlaps the transfer of another, in cache.

64 MiB on 2 ranks of a node, over messages and in shared memory: with 16 or 32 channels and the best window 4 to 10 %
slower than the best of 1 to 256, with 128 by 28 % and more.
"""

WIRE_UNIT, WIRE_CHANNELS = 1 << 15, 4
"""Between nodes another channel pays from smaller units on, up to so many: while one turns round, another transfers.

In 4, 8 and 16 channels, ms: on 4 nodes of 1 Gbit/s, 16 MiB, a ring takes 218, 217 and 215 (at the wire 207) and
rabenseifner 236, 221 and 221; with 2 ranks a node hierarchical, tiered, 221, 216 and 217 (at the wire 204). On 8 nodes
of 100 Mbit/s, 4 MiB, a ring 610, 605 and 597 (at the wire 594), rabenseifner 698, 673 and 633.
"""

WIRE_MESSAGE, WIRE_CHANNELS_MOST = 1 << 19, 16
"""More channels than those have to leave messages of so many bytes: UCX sends one of up to 256 KiB over a single rail.

4 MiB between 2 nodes with two rails of 100 Mbit/s: in 4 channels 187 ms, half over each rail; in 8 to 32 344 to 384.
"""

WINDOW = 4
"""Channels in flight at once. Of 16 channels of the same operations 2 instead of 4: a ring takes as long, rabenseifner,
whose messages differ in size, 715 ms for 633 and 228 for 221; of 4 channels hierarchical 223 for 221."""

SEGMENT, SEGMENTS = 1 << 17, 64
"""Bytes of a segment of a pipeline, and how many there are at most.

4 MiB on 4 nodes with wires of 100 Mbit/s, in one piece and in 32 segments: a chain takes 1025 ms and 362 (at the wire
341), a double binary tree 1549 and 717 (682); with a window of 1 the tree takes 1217 ms, with 4 as long as with 2.
"""

QUEUED_SEGMENT = 1 << 22
"""The same over NCCL, where a group takes some 10 us, and 4 MiB over NVLink."""


def plan_channels(
    asked: Mapping[str, int | str], nbytes: int, layout: Layout, schedules: Sequence[Schedule], *,
    pipelined: bool, queued: bool,
) -> tuple[int, int]:  # fmt: skip
    """Return the channels of a case, and how many of them are in flight at once.

    Args:
        asked: its parameters: ``channels`` or ``segment``, and ``window``, where it has them.
        nbytes: that are moved.
        layout: of the ranks.
        schedules: the slices of the algorithm.
        pipelined: whether channels follow one another.
        queued: whether they go over NCCL.
    """
    segment = asked.get("segment")
    by_default = default_channels_nccl if queued else default_channels
    default = (
        channels_of_segment(nbytes, schedules, int(segment), pipelined=pipelined)
        if segment
        else by_default(nbytes, layout, pipelined=pipelined)
    )
    channels = int(asked.get("channels", default))
    return channels, int(asked.get("window", min(channels, WINDOW)))


def default_channels(nbytes: int, layout: Layout, *, pipelined: bool = False) -> int:
    """Return the channels that ``nbytes`` are moved in unless a case says otherwise."""
    if pipelined:
        return max(1, min(SEGMENTS, nbytes // SEGMENT))
    unit = nbytes // layout.workers
    between = max(min(WIRE_CHANNELS, unit // WIRE_UNIT), min(WIRE_CHANNELS_MOST, unit // WIRE_MESSAGE))
    return max(1, min(64, unit // LANE_UNIT), between if layout.nodes > 1 else 1)


def default_channels_nccl(nbytes: int, layout: Layout, *, pipelined: bool = False) -> int:  # noqa: ARG001  as over MPI
    """Return the same over NCCL.

    Folds do not overlap messages on a stream, and NCCL cuts each message into channels of its own: only a pipeline has
    use for several.
    """
    return max(1, min(SEGMENTS, nbytes // QUEUED_SEGMENT)) if pipelined else 1


def channels_of_segment(nbytes: int, schedules: Sequence[Schedule], segment: int, *, pipelined: bool = False) -> int:
    """Return the channels in which no piece is larger than ``segment`` bytes, to a grain: of a unit, or a slice."""
    pieces = len(schedules) * (1 if pipelined else schedules[0].units)
    return max(1, -(-nbytes // (pieces * segment)))
