"""Small schedules that use what no algorithm of the suite uses yet, and what NumPy says that they come to."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hpccoll.algorithms.recursive_doubling import recursive_doubling
from hpccoll.algorithms.ring import ring
from hpccoll.schedule import (
    Collective,
    Copy,
    Index,
    Layout,
    Part,
    Receive,
    Reduce,
    Schedule,
    Send,
    Step,
    all_gather,
    all_reduce,
    barrier,
    dst,
    only,
    relabel,
    reverse,
    then,
    tmp,
    within,
)

# ---- collectives that the table does not have -----------------------------------------------------------------------

shift = Collective("shift", "free", "all", "all", lambda p, me, unit: {((me - 1) % p, unit)}, None)
broadcast = Collective("broadcast", "free", "all", "all", lambda _p, _me, unit: {(0, unit)}, None)
broadcast_from_last = replace(broadcast, promises=lambda p, _me, unit: {(p - 1, unit)})
unchanged = replace(all_reduce, promises=lambda _p, me, unit: {(me, unit)})


def _subtree(p: int, me: int) -> range:
    return range(me, min(p, me + (me & -me)) if me else p)


reduce = Collective(
    "reduce",
    "free",
    "all",
    "all",
    lambda p, me, unit: {(origin, unit) for origin in _subtree(p, me)},
    None,
    reduces=True,
)
"""To rank 0 along a binomial tree, which leaves at the others what their subtrees came to."""

# ---- schedules of one rank, or of all ranks at once -----------------------------------------------------------------


def two_way_ring(layout: Layout, me: Index) -> Iterator[Step]:
    """Both directions in one schedule: two messages a step, which at p = 2 go to the same neighbour."""
    p = layout.workers
    right, left = (me + 1) % p, (me - 1) % p
    for step in range(1, p):
        yield Step(
            Send(right, (me - step) % p),
            Send(left, p + (me + step) % p),
            Reduce(left, (me - step - 1) % p),
            Reduce(right, p + (me + step + 1) % p),
        )
    for step in range(p - 1):
        yield Step(
            Send(right, (me - step) % p),
            Send(left, p + (me + step) % p),
            Receive(left, (me - step - 1) % p),
            Receive(right, p + (me + step + 1) % p),
        )


def bruck(layout: Layout, me: Index) -> Iterator[Step]:
    """All-gather in tmp, where block j is that of rank me + j, and a rotation at the end."""
    p = layout.workers
    yield Step(Copy(dst[me], tmp[0]))
    for distance in _powers_of_two(p):
        n = min(distance, p - distance)
        yield Step(Send((me - distance) % p, tmp[0:n]), Receive((me + distance) % p, tmp[distance : distance + n]))
    yield Step(Copy(tmp[0:p], dst[me:p] + dst[0:me]))


def bruck_without_rotation(layout: Layout, me: Index) -> Iterator[Step]:
    """All-gather in dst: a message is up to two ranges, where it wraps round."""
    p = layout.workers

    def wrapped(first: Index, n: int) -> Part:
        first = first % p
        return dst[first : np.minimum(first + n, p)] + dst[0 : np.maximum(first + n - p, 0)]

    for distance in _powers_of_two(p):
        n = min(distance, p - distance)
        yield Step(Send((me - distance) % p, wrapped(me, n)), Receive((me + distance) % p, wrapped(me + distance, n)))


def direct(layout: Layout, me: Index) -> Iterator[Step]:
    """All-gather in one step with a message to everyone."""
    p = layout.workers
    sends = [Send((me + distance) % p, me) for distance in range(1, p)]
    yield Step(*sends, *(Receive((me - distance) % p, (me - distance) % p) for distance in range(1, p)))


def dissemination(layout: Layout, me: Index) -> Iterator[Step]:
    """Barrier: in round k tell the rank 2^k further on that all whom one has heard of have come."""
    p = layout.workers
    for distance in _powers_of_two(p):
        yield Step(Send((me + distance) % p, 0), Reduce((me - distance) % p, 0))


def one_switch(layout: Layout, me: int) -> Iterator[Step]:
    """All-reduce by the one aggregator: vectors go up, the sum comes down."""
    switch = layout.workers
    if me < switch:
        yield Step(Send(switch, 0))
        yield Step(Receive(switch, 0))
    else:
        yield Step(Receive(0, 0), *(Reduce(worker, 0) for worker in range(1, switch)))
        yield Step(*(Send(worker, 0) for worker in range(switch)))


def shift_by_one(layout: Layout, me: Index) -> Iterator[Step]:
    """Everyone's vector goes one to the right: each receive lands on what its own step sends."""
    p = layout.workers
    if p > 1:
        yield Step(Send((me + 1) % p, dst[0:2]), Receive((me - 1) % p, dst[0:2]))


def binomial_broadcast(layout: Layout, me: Index) -> Iterator[Step]:
    p = layout.workers
    for distance in reversed(_powers_of_two(p)):
        has, gets = me % (2 * distance) == 0, me % (2 * distance) == distance
        yield Step(Send(only(has & (me + distance < p), me + distance), 0), Receive(only(gets, me - distance), 0))


def chain(layout: Layout, me: int) -> Iterator[Step]:
    """Broadcast down a line of ranks, five units one after the other: step i of a rank meets step i - 1 of the next."""
    p, units = layout.workers, 5
    for step in range(units + 1):
        down = only(me + 1 < p and 0 < step + (me == 0) <= units, me + 1)
        up = only(me > 0 and step < units, me - 1)
        if down != -1 or up != -1:
            yield Step(Send(down, step - (me > 0)), Receive(up, step))


def ring_reduce_scatter(layout: Layout, me: Index) -> Iterator[Step]:
    p = layout.workers
    for step in range(1, p):
        yield Step(Send((me + 1) % p, (me - step) % p), Reduce((me - 1) % p, (me - step - 1) % p))


def ring_all_gather(layout: Layout, me: Index) -> Iterator[Step]:
    p = layout.workers
    for step in range(p - 1):
        yield Step(Send((me + 1) % p, (me - step) % p), Receive((me - 1) % p, (me - step - 1) % p))


def halves_then_whole(layout: Layout, me: Index) -> Iterator[Step]:
    """All-gather that sends its own block with one that has just come: half of the part lies in src, half in dst."""
    p = layout.workers
    if p > 1:
        yield Step(Send((me + 1) % p, me), Receive((me - 1) % p, (me - 1) % p))
    for step in range(1, p - 1):
        new = (me - step) % p
        yield Step(
            Send((me + 1) % p, dst[me] + dst[new]), Receive((me - 1) % p, dst[(me - 1) % p] + dst[(new - 1) % p])
        )


def _powers_of_two(p: int) -> list[int]:
    """Return the powers of two below ``p``."""
    return [1 << k for k in range((p - 1).bit_length())]


# ---- compositions ---------------------------------------------------------------------------------------------------


def of(
    program: Callable[[Layout, Index], Iterator[Step]], units: Callable[[int], int] | None = None
) -> Callable[[Layout], Schedule]:
    """Return the function that makes a schedule of ``program``, cut into p units unless ``units`` says otherwise."""

    def make(layout: Layout) -> Schedule:
        p = layout.workers
        return Schedule(layout, p if units is None else units(p), lambda me: program(layout, me))

    return make


def ring_of(layout: Layout) -> Schedule:
    return ring.slices(layout)[0]


def recursive_doubling_of(layout: Layout) -> Schedule:
    return recursive_doubling.slices(layout)[0]


def two_slices(layout: Layout) -> tuple[Schedule, ...]:
    """A ring each way, each over half of the buffer."""
    return ring_of(layout), relabel(ring_of(layout), [-me % layout.workers for me in range(layout.ranks)])


def binomial_reduce(layout: Layout) -> Schedule:
    return reverse(of(binomial_broadcast, lambda _p: 1)(layout), Reduce)


def reduce_then_broadcast(layout: Layout) -> Schedule:
    return then(binomial_reduce(layout), of(binomial_broadcast, lambda _p: 1)(layout))


def broadcast_from_the_last(layout: Layout) -> Schedule:
    p = layout.workers
    return relabel(of(binomial_broadcast, lambda _p: 1)(layout), [(me + p - 1) % p for me in range(p)])


def rings_of_nodes(layout: Layout) -> Schedule:
    """Hierarchical all-reduce on nodes of one size: scatter inside, all-reduce across, gather inside."""
    homes = [[me for me in range(layout.ranks) if layout.node[me] == node] for node in sorted(set(layout.node))]
    n, m = len(homes), len(homes[0])
    across = [list(peers) for peers in zip(*homes, strict=True)]

    def block(_node: int, unit: Index) -> Index:
        return unit * n

    def piece(local: int, unit: Index) -> Index:
        return local * n + unit

    return then(
        within(layout, n * m, homes, of(ring_reduce_scatter), block),
        within(layout, n * m, across, ring_of, piece),
        within(layout, n * m, homes, of(ring_all_gather), block),
    )


def leaders_of_nodes(layout: Layout) -> Schedule:
    """Hierarchical all-reduce on nodes of any sizes: reduce to a leader, all-reduce the leaders, broadcast."""
    homes = [[me for me in range(layout.ranks) if layout.node[me] == node] for node in sorted(set(layout.node))]
    n = len(homes)

    def whole(_node: int, unit: Index) -> Index:
        return unit * n

    return then(
        within(layout, n, homes, binomial_reduce, whole),
        within(layout, n, [[home[0] for home in homes]], ring_of),
        within(layout, n, homes, of(binomial_broadcast, lambda _p: 1), whole),
    )


# ---- the list -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Example:
    """A schedule for tests: ``make`` gives one or one for each slice, on the layout for so many ranks."""

    name: str
    collective: Collective
    make: Callable[[Layout], Schedule | tuple[Schedule, ...]]
    layout: Callable[[int], Layout] = Layout.of

    def slices(self, ranks: int) -> tuple[Schedule, ...]:
        made = self.make(self.layout(ranks))
        return made if isinstance(made, tuple) else (made,)


def _pairs(ranks: int) -> Layout:
    return Layout.of(ranks, 2 if ranks % 2 == 0 else 1)


def _uneven(ranks: int) -> Layout:
    """One node of one rank, one of two, ... as far as they go, dealt so that consecutive ranks are apart."""
    sizes = [node for node in range(ranks) for _ in range(node + 1)][:ranks]
    return Layout(tuple(sizes[me * 2 % ranks] if ranks % 2 else sizes[me] for me in range(ranks)))


def _switched(ranks: int) -> Layout:
    return Layout.of(ranks - 1, aggregators=1)


def _two(_p: int) -> int:
    return 2


EXAMPLES = {
    example.name: example
    for example in (
        Example("two_slices", all_reduce, two_slices),
        Example("two_way_ring", all_reduce, of(two_way_ring, lambda p: 2 * p)),
        Example("bruck", all_gather, of(bruck)),
        Example("bruck_without_rotation", all_gather, of(bruck_without_rotation)),
        Example("direct", all_gather, of(direct)),
        Example("halves_then_whole", all_gather, of(halves_then_whole)),
        Example("dissemination", barrier, of(dissemination, lambda _p: 1)),
        Example("one_switch", all_reduce, of(one_switch, lambda _p: 1), _switched),
        Example("shift_by_one", shift, of(shift_by_one, _two)),
        Example("binomial_broadcast", broadcast, of(binomial_broadcast, lambda _p: 1)),
        Example("broadcast_from_the_last", broadcast_from_last, broadcast_from_the_last),
        Example("chain", broadcast, of(chain, lambda _p: 5)),
        Example("binomial_reduce", reduce, binomial_reduce),
        Example("reduce_then_broadcast", all_reduce, reduce_then_broadcast),
        Example("rings_of_nodes", all_reduce, rings_of_nodes, _pairs),
        Example("leaders_of_nodes", all_reduce, leaders_of_nodes, _uneven),
    )
}
LEAST_RANKS = {"one_switch": 2}

# ---- data, and what NumPy says --------------------------------------------------------------------------------------

Array = np.ndarray
_NUMPY = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum, "avg": np.add}


def contributions(p: int, elements: int, dtype: np.dtype, op: str, *, exact: bool = True) -> list[Array]:
    """Return what each worker contributes: small integers (powers of two for prod), or any numbers if not ``exact``."""
    values = np.random.default_rng(1).integers(0, 7, (p, elements))
    if op == "prod":
        values = 2 ** (values % 2)
    if not exact and dtype.kind == "f":
        values = values / 3 + 0.1
    return list(values.astype(dtype))


def result(collective: Collective, inputs: Sequence[Array], me: int, op: str) -> Array:
    """Return what ``collective`` promises rank ``me``, by NumPy's own reduction."""
    p = len(inputs)
    if collective.units == "owned":
        return np.concatenate(inputs)
    origins = sorted(origin for origin, _ in collective.promises(p, me, 0))
    folded = _NUMPY[op].reduce([inputs[origin] for origin in origins], dtype=inputs[0].dtype)
    if op != "avg":
        return folded
    return folded // p if folded.dtype.kind == "i" else folded / np.array(p, folded.dtype)
