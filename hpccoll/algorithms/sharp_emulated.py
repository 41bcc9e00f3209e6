"""In-network aggregation, emulated in software: ranks that play switches fold what comes up and send the sum down.

At 4 workers and one switch (rank 4), who has folded what:

    rank         0       1       2       3       4 (switch)
    start        a       b       c       d       .
    up           a       b       c       d       abcd      0 -> 4, 1 -> 4, 2 -> 4, 3 -> 4
    down         abcd    abcd    abcd    abcd    abcd      4 -> 0, 4 -> 1, 4 -> 2, 4 -> 3

Switches form a tree: each takes in ``radix`` workers, or switches of the level below, and there are as many levels as
that takes, ``depth`` at least. A worker sends its vector once and receives the sum once, where a ring sends nearly
twice as much. The vector is streamed in segments (channels), of which a window is on its way at once: the sum of one
that arrives is a worker's credit for sending the next, so that incast at a switch does not collapse.

This is software: the ranks that play switches are processes with ports of their own. It shows what aggregation in the
network does to the bytes; it is no measurement of switches that do it.

Cost: with L levels 2 L alpha and, where a switch has the bandwidth for its radix, 2 L S beta in one piece, about S beta
up and down at once in many segments. Emulated, a switch is a rank with one port, which takes in k vectors below the
level of k: 2 L alpha + 2 (sum of k) S/c beta + (sum of k - 1) S/c gamma for the first of c segments, and for each
further one what the busiest switch has to do for it: 2 alpha + (k + 1) S/c beta + (k - 1) S/c gamma, at the top 1 alpha
and k S/c beta.

R. L. Graham et al.: Scalable hierarchical aggregation protocol (SHArP): a hardware architecture for efficient data
reduction, COMHPC (2016) 1-10.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated

from hpccoll.schedule import (
    NONE,
    Cost,
    Emulation,
    Index,
    Layout,
    Parameter,
    Recv,
    RecvReduce,
    Requirement,
    Send,
    Step,
    all_reduce,
    dst,
)


def _levels(workers: int, radix: int, depth: int) -> list[range]:
    """Return the ranks of every level of the tree, the workers first, the one switch at the top last."""
    levels = [range(workers)]
    while len(levels[-1]) > 1 or len(levels) <= max(1, depth):
        first = levels[-1].stop
        levels.append(range(first, first + -(-len(levels[-1]) // radix)))
    return levels


def _enough(layout: Layout, parameters: Mapping[str, Parameter]) -> bool:
    radix, depth = int(parameters["radix"]), int(parameters["depth"])
    return radix > 1 and _levels(layout.workers, radix, depth)[-1].stop <= layout.ranks


def _cost(p: int, channels: int = 1, radix: int = 32, depth: int = 1) -> Cost:
    taken = [min(radix, len(level)) for level in _levels(p, radix, depth)[:-1]]  # vectors, by a switch of each level
    top = len(taken) - 1
    more = channels - 1
    return Cost(
        rounds=2 * len(taken) + more * (1 + (top > 0)),
        sent=(2 * sum(taken) + more * max(k + (level < top) for level, k in enumerate(taken))) / channels,
        reduced=sum((k - 1) for k in taken) / channels + more / channels * (max(taken) - 1),
    )


@all_reduce(
    "sharp_emulated",
    cost=_cost,
    needs=[
        Requirement(
            "an aggregator for every `radix` (2 or more) workers, and for every `radix` of those, up to one "
            "(`aggregators` says how many there are)",
            _enough,
        )
    ],
    aggregates=True,
    pipelined=True,
    emulation=Emulation(
        label="software, switches played by ranks",
        definition="Software: ranks that play the switches of a reduction tree, one process each. It says what the "
        "algorithm does, and nothing of what a switch would take.",
    ),
)
def sharp_emulated(
    layout: Layout, me: Index, *, radix: Annotated[int, range(2, 1 << 16)] = 32, depth: Annotated[int, range(1, 17)] = 1
) -> Iterator[Step]:
    everything = dst[0 : layout.workers]
    levels = _levels(layout.workers, radix, depth)
    mine = next((number for number, level in enumerate(levels) if int(me) in level), None)
    if mine is None:  # more aggregators than the tree takes
        return
    place = int(me) - levels[mine].start
    parent = levels[mine + 1][place // radix] if mine + 1 < len(levels) else NONE
    children = levels[mine - 1][place * radix : (place + 1) * radix] if mine else range(0)
    first, *others = children or [NONE]
    yield Step(Recv(first, everything), *(RecvReduce(child, everything) for child in others))
    yield Step(Send(parent, everything))
    yield Step(Recv(parent, everything))
    yield Step(*(Send(child, everything) for child in children))
