"""In-network aggregation, emulated in software: ranks that play switches fold what comes up and send the sum down.

At 4 workers and one switch (rank 4), who has folded what:

    rank         0       1       2       3       4 (switch)
    start        a       b       c       d       .
    up           a       b       c       d       abcd      0 -> 4, 1 -> 4, 2 -> 4, 3 -> 4
    down         abcd    abcd    abcd    abcd    abcd      4 -> 0, 4 -> 1, 4 -> 2, 4 -> 3

Switches form a tree: each serves ``radix`` workers, or switches of the level below; the tree has as
many levels as that takes, but at least ``depth``. A worker sends its vector once and receives the
sum once; a ring sends nearly twice as much. The vector is streamed in segments (channels), with a
window of them in flight: a sum that arrives is a worker's credit for its next segment, which
prevents incast at a switch. The switches are processes with ports of their own, so this shows what
in-network aggregation does to the bytes; it does not measure switches.

Cost: with L levels 2 L alpha and, if a switch has the bandwidth for its radix, 2 L S beta in one
piece, about S beta up and down at once in many segments. Emulated, a switch is a rank with one port
that receives k vectors: the first of c segments takes 2 L alpha + 2 (sum of k) S/c beta + (sum of k
- 1) S/c gamma, and each further one what its busiest switch does: 2 alpha + (k + 1) S/c beta + (k -
1) S/c gamma, at the top 1 alpha and k S/c beta.

R. L. Graham et al.: Scalable hierarchical aggregation protocol (SHArP): a hardware architecture for
efficient data reduction, COMHPC (2016) 1-10.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated

from hpccoll.schedule import Cost, Emulation, Layout, Parameter, Requirement, all_reduce
from hpccoll.schedule.step import NONE, Index, Recv, RecvReduce, Send, Step, dst


def _levels(workers: int, radix: int, depth: int) -> list[range]:
    """Return the ranks of every level of the tree, the workers first, the one switch at the top last."""
    levels = [range(workers)]
    while len(levels[-1]) > 1 or len(levels) <= max(1, depth):
        first = levels[-1].stop
        levels.append(range(first, first + -(-len(levels[-1]) // radix)))
    return levels


def _enough(layout: Layout, parameters: Mapping[str, Parameter]) -> bool:
    radix = int(parameters["radix"])
    if radix < 2:
        return False
    levels = _levels(layout.workers, radix, int(parameters["depth"]))
    return levels[-1].stop <= layout.ranks


def _cost(p: int, channels: int = 1, radix: int = 32, depth: int = 1) -> Cost:
    # vectors, by a switch of each level
    inputs = [min(radix, len(level)) for level in _levels(p, radix, depth)[:-1]]
    further = channels - 1  # segments after the first
    *below_top, at_top = inputs
    steps_of_further = 2 if below_top else 1
    sent_of_further = max([at_top, *(vectors + 1 for vectors in below_top)])
    steps = 2 * len(inputs) + further * steps_of_further
    sent = 2 * sum(inputs) + further * sent_of_further
    reduced = sum(inputs) - len(inputs) + further * (max(inputs) - 1)
    return Cost(steps, sent / channels, reduced / channels)


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
    vectorised=False,
    emulation=Emulation(
        "software, switches played by ranks",
        "Software: ranks that play the switches of a reduction tree, one process each. It says what the algorithm "
        "does, and nothing of what a switch would take.",
    ),
)
def sharp_emulated(
    layout: Layout,
    me: Index,
    *,
    radix: Annotated[int, range(2, 1 << 16)] = 32,
    depth: Annotated[int, range(1, 17)] = 1,
) -> Iterator[Step]:
    levels = _levels(layout.workers, radix, depth)
    rank = int(me)
    if rank >= levels[-1].stop:  # more aggregators than the tree takes
        return
    own_level = next(number for number, level in enumerate(levels) if rank in level)
    position = rank - levels[own_level].start
    parent = NONE
    if own_level + 1 < len(levels):
        parent = levels[own_level + 1][position // radix]
    children = range(0)
    if own_level > 0:
        children = levels[own_level - 1][position * radix : (position + 1) * radix]
    first, *later = children or [NONE]
    yield Step(Recv(first, dst.all), *(RecvReduce(child, dst.all) for child in later))
    yield Step(Send(parent, dst.all))
    yield Step(Recv(parent, dst.all))
    yield Step(*(Send(child, dst.all) for child in children))
