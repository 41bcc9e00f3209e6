"""Schedules for tests, every call of every algorithm of the suite, and what NumPy says that they come to."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from functools import reduce as fold
from itertools import product

import numpy as np

from hpccoll.algorithms.binomial import binomial_broadcast, binomial_reduce
from hpccoll.algorithms.ring import ring
from hpccoll.cases.algorithm_registry import COLLECTIVES
from hpccoll.common.errors import BadInputError
from hpccoll.schedule import (
    REDUCTIONS,
    Algorithm,
    Layout,
    Parameter,
    Schedule,
    in_groups,
    out_of_place,
    then,
)
from hpccoll.schedule.collective import (
    Collective,
    CollectiveCall,
    check_parameters,
    parameter_choices,
)
from hpccoll.schedule.collective_table import all_gather, all_reduce, broadcast
from hpccoll.schedule.lazy_table import LazyTable
from hpccoll.schedule.operation import Operation
from hpccoll.schedule.prove import prove
from hpccoll.schedule.step import Copy, Index, Recv, RecvReduce, Send, Step, dst, peer_if, tmp
from hpccoll.schedule.unequal_blocks import PATTERNS

Array = np.ndarray

# ---- a schedule, and the call whose postcondition it meets
# -----------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """The slices of an algorithm or an example, and the postcondition that they are held to."""

    call: CollectiveCall
    slices: tuple[Schedule, ...]

    @property
    def layout(self) -> Layout:
        return self.slices[0].layout

    @property
    def placements(self) -> tuple[bool, ...]:
        """In place and out of place, as far as contribution and result can share a buffer."""
        return (True, False) if self.call.collective.in_place else (False,)

    def prove(self, turn: int | None = None) -> None:
        """Prove the postcondition in place and out of place, or one of the two in turn."""
        placements = (
            self.placements if turn is None else [self.placements[turn % len(self.placements)]]
        )
        for in_place in placements:
            placed = (
                self.slices if in_place else [out_of_place(self.call, each) for each in self.slices]
            )
            prove(self.call, placed, in_place=in_place)

    def operation(
        self, count: int, dtype="int64", op="sum", *, in_place=None, channels=1, window=1
    ) -> Operation:
        """Return the case as an operation; a token is one byte a unit, and is not cut."""
        token, idempotent = self.call.collective.token, self.call.collective.idempotent
        in_place = self.placements[0] if in_place is None else in_place and self.placements[0]
        count, dtype, channels = (self.call.p, "uint8", 1) if token else (count, dtype, channels)
        reduction = REDUCTIONS["max" if idempotent else op]
        return Operation(
            self.call,
            self.layout,
            self.slices,
            count,
            np.dtype(dtype),
            reduction,
            in_place=in_place,
            channels=channels,
            window=window,
        )


# ---- every call of every algorithm
# ----------------------------------------------------------------------------------

ALGORITHMS = {
    f"{collective.name}-{algorithm.name}": (collective, algorithm)
    for collective in COLLECTIVES.values()
    for algorithm in collective.algorithms.values()
}
AGGREGATORS = 8
"""More than any algorithm takes for 32 workers at the defaults of its parameters, so that some have nothing to do."""


def held(collective: Collective, algorithm: Algorithm) -> Collective:
    """Return what an algorithm is held to: a floor leaves the buffer unchanged."""
    if not algorithm.floor:
        return collective
    # equal blocks
    arguments = {name: value for name, value in collective.arguments.items() if name != "traffic"}
    unchanged = {"target": collective.source, "result": lambda _call, me, unit: (me, unit)}
    return replace(collective, **unchanged, arguments=arguments)


def calls_of(collective: Collective, p: int) -> Iterator[CollectiveCall]:
    """Yield the calls on ``p`` workers: the roots 0, 1 and p - 1, the peers 0, 1 and p - 1, every traffic."""
    some = sorted({0, 1, p - 1} & set(range(p)))
    for root in some if collective.rooted else [None]:
        pairs = range(p // 2 + 1 if p > 1 else 0)
        values = {
            "peer": [peer for peer in some if peer != root],
            "traffic": list(PATTERNS),
            "concurrent": pairs,
        }
        for chosen in product(*(values[name] for name in collective.arguments)):
            yield collective.call(p, root, **dict(zip(collective.arguments, chosen, strict=True)))


def places(algorithm: Algorithm, p: int) -> Layout:
    """Return the layout of ``p`` workers, with aggregators where the algorithm speaks for them."""
    return Layout.of(p, aggregators=AGGREGATORS if algorithm.aggregates else 0)


def cases(
    collective: Collective, algorithm: Algorithm, layout: Layout, **parameters: Parameter
) -> Iterator[Case]:
    """Yield the calls of an algorithm on a layout, none where it does not meet the needs."""
    if algorithm.unmet(layout, **parameters):
        return
    row = held(collective, algorithm)
    for call in calls_of(row, layout.workers):
        yield Case(call, call.slices(algorithm, layout, **parameters))


def variants(algorithm: Algorithm, layout: Layout) -> Iterator[Mapping[str, Parameter]]:
    """Yield the parameters that an algorithm takes on ``layout``: a text is any name of an algorithm, a number small.

    It may raise BadInputError for a name that it cannot use, or else says what it needs.
    """
    names = sorted({name for collective in COLLECTIVES.values() for name in collective.algorithms})
    words = parameter_choices(algorithm)
    values = {}
    for parameter, default in algorithm.parameters.items():
        if isinstance(default, str):
            candidates = sorted({*names, *words[parameter].split(", ")})
        else:
            candidates = sorted({default, -1, 0, 1, 2, 3})
        values[parameter] = [
            value for value in candidates if is_valid(algorithm, {parameter: value})
        ]
    for chosen in product(*values.values()):
        parameters = dict(zip(values, chosen, strict=True))
        if not is_valid(algorithm, parameters):
            continue
        try:
            reason = algorithm.unmet(layout, **parameters)
        except BadInputError:
            continue
        if reason is None:
            yield parameters


def is_valid(algorithm: Algorithm, parameters: Mapping[str, Parameter]) -> bool:
    """Return whether an algorithm has these parameters with these values, on some layout."""
    try:
        check_parameters(algorithm, parameters)
    except BadInputError:
        return False
    return True


# ---- small schedules that use what no algorithm of the suite uses
# ---------------------------------------------------


def two_way_ring(layout: Layout, me: Index) -> Iterator[Step]:
    """Both directions in one schedule: two messages a step, which at p = 2 go to the same neighbour."""
    p = layout.workers
    right, left = (me + 1) % p, (me - 1) % p
    for arrive, first in ((RecvReduce, 1), (Recv, 0)):
        for step in range(first, p - 1 + first):
            sends = Send(right, (me - step) % p), Send(left, p + (me + step) % p)
            yield Step(
                *sends, arrive(left, (me - step - 1) % p), arrive(right, p + (me + step + 1) % p)
            )


def all_at_once(layout: Layout, me: Index) -> Iterator[Step]:
    """All-gather in one step with a message to everyone."""
    p = layout.workers
    sends = [Send((me + distance) % p, me) for distance in range(1, p)]
    yield Step(
        *sends, *(Recv((me - distance) % p, (me - distance) % p) for distance in range(1, p))
    )


def shift_by_one(layout: Layout, me: Index) -> Iterator[Step]:
    """Everyone's vector goes one to the right: each receive lands on what its own step sends."""
    p = layout.workers
    if p > 1:
        yield Step(Send((me + 1) % p, dst[0:2]), Recv((me - 1) % p, dst[0:2]))


shift = replace(
    all_reduce,
    name="shift",
    result=lambda call, me, unit: ((me - 1) % call.p, unit),
    reduces=False,
    _algorithms=LazyTable(),
)
shift("shift_by_one")(shift_by_one)


def line(layout: Layout, me: int) -> Iterator[Step]:
    """Broadcast down a line of ranks, five units one after the other: step i of a rank meets step i - 1 of the next."""
    p, units = layout.workers, 5
    for step in range(units + 1):
        down = peer_if(me + 1 < p and 0 < step + (me == 0) <= units, me + 1)
        up = peer_if(me > 0 and step < units, me - 1)
        if down != -1 or up != -1:
            yield Step(Send(down, step - (me > 0)), Recv(up, step))


def halves_then_whole(layout: Layout, me: Index) -> Iterator[Step]:
    """All-gather that sends its own block with one that has just come: half of the part lies in src, half in dst."""
    p = layout.workers
    if p > 1:
        yield Step(Send((me + 1) % p, me), Recv((me - 1) % p, (me - 1) % p))
    for step in range(1, p - 1):
        new = (me - step) % p
        yield Step(
            Send((me + 1) % p, dst[me] + dst[new]),
            Recv((me - 1) % p, dst[(me - 1) % p] + dst[(new - 1) % p]),
        )


def of(
    program: Callable[[Layout, Index], Iterator[Step]],
    units: Callable[[int], int] | None = None,
    *,
    vectorised: bool = False,
) -> Callable[[Layout], Schedule]:
    """Return the function that makes a schedule of ``program``, cut into p units unless ``units`` says otherwise."""

    def make(layout: Layout) -> Schedule:
        p = layout.workers
        return Schedule(
            layout, p if units is None else units(p), lambda me: program(layout, me), vectorised
        )

    return make


def of_lists(*programs: list[Step], units: int = 1, aggregators: int = 0) -> Schedule:
    """Return the schedule in which rank r does ``programs[r]``."""
    layout = Layout.of(len(programs) - aggregators, aggregators=aggregators)
    return Schedule(layout, units, lambda me: iter(programs[me]))


def leaders_of_nodes(layout: Layout) -> Schedule:
    """Hierarchical all-reduce on nodes of any sizes: reduce to a leader, all-reduce the leaders, broadcast."""
    homes = layout.groups("node")
    n = max(map(len, homes)) * len(homes)
    return then(
        in_groups(layout, n, homes, binomial_reduce.schedule),
        in_groups(layout, n, [[home[0] for home in homes]], ring.schedule),
        in_groups(layout, n, homes, binomial_broadcast.schedule),
    )


@dataclass(frozen=True)
class Example:
    """A schedule for tests, on the layout for so many ranks."""

    name: str
    collective: Collective
    make: Callable[[Layout], Schedule]
    layout: Callable[[int], Layout] = Layout.of

    def slices(self, ranks: int) -> tuple[Schedule, ...]:
        return (self.make(self.layout(ranks)),)

    def case(self, ranks: int) -> Case:
        return Case(self.collective.call(ranks), self.slices(ranks))


def _uneven(ranks: int) -> Layout:
    """One node of one rank, one of two, ... as far as they go, dealt so that consecutive ranks are apart."""
    sizes = [node for node in range(ranks) for _ in range(node + 1)][:ranks]
    return Layout(tuple(sizes[me * 2 % ranks] if ranks % 2 else sizes[me] for me in range(ranks)))


EXAMPLES = {
    example.name: example
    for example in (
        Example("two_way_ring", all_reduce, of(two_way_ring, lambda p: 2 * p, vectorised=True)),
        Example("all_at_once", all_gather, of(all_at_once, vectorised=True)),
        Example("halves_then_whole", all_gather, of(halves_then_whole, vectorised=True)),
        Example("shift_by_one", shift, of(shift_by_one, lambda _p: 2, vectorised=True)),
        Example("line", broadcast, of(line, lambda _p: 5)),
        Example("leaders_of_nodes", all_reduce, leaders_of_nodes, _uneven),
    )
}


SUBJECTS = [*ALGORITHMS, *EXAMPLES]


def every_case(name: str, workers: int) -> list[Case]:
    """Return every call of a subject on so many workers, to any root, with aggregators where it takes them."""
    if name in EXAMPLES:
        return [EXAMPLES[name].case(workers)]
    collective, algorithm = ALGORITHMS[name]
    return list(cases(collective, algorithm, places(algorithm, workers)))


@cache
def case_of(name: str, ranks: int) -> Case | None:
    """Return the first call of a subject on so many ranks, the last of them aggregators where it takes that."""
    if name in EXAMPLES:
        return EXAMPLES[name].case(ranks)
    collective, algorithm = ALGORITHMS[name]
    for workers in range(ranks, 0, -1):
        for case in cases(collective, algorithm, Layout.of(workers, aggregators=ranks - workers)):
            return case
    return None


# ---- data, and what NumPy says
# --------------------------------------------------------------------------------------

_NUMPY = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum, "avg": np.add}


def _lengths(operation: Operation, me: int, *, sends: bool) -> list[int]:
    """Return the elements of every unit that a caller knows, in src or in dst of rank ``me``."""
    if operation.collective.units == "divisible":
        return [operation.count]
    blocks = operation.call.blocks(operation.count)
    if blocks is None:
        return [operation.count] * operation.call.p
    return (blocks[me] if sends else blocks[:, me]).tolist()


def _slice(lengths: Sequence[int], units: range, first: int = 0) -> slice:
    """Return where ``units`` lie in a buffer that begins with unit ``first``."""
    return (
        slice(sum(lengths[first : units.start]), sum(lengths[first : units.stop]))
        if units
        else slice(0, 0)
    )


def contributions(operation: Operation, *, exact: bool = True) -> list[Array]:
    """Return what each worker contributes: small integers (powers of two for prod), or any numbers if not ``exact``."""
    chance, inputs = np.random.default_rng(1), []
    for me in range(operation.call.p):
        lengths = _lengths(operation, me, sends=True)
        source = _slice(lengths, operation.call.source(me, len(lengths)))
        values = chance.integers(0, 7, source.stop - source.start)
        if operation.reduction.name == "prod":
            values = 2 ** (values % 2)
        if not exact and operation.dtype.kind == "f":
            values = values / 3 + 0.1
        inputs.append(values.astype(operation.dtype))
    return inputs


def buffers(operation: Operation, *, exact: bool = True) -> tuple[list[Array], list[Array]]:
    """Return src and dst of all ranks as they are before the operation."""
    p, ranks = operation.call.p, range(operation.layout.ranks)
    inputs = contributions(operation, exact=exact)
    inputs += [np.full(operation.elements("src", me), 55, operation.dtype) for me in ranks[p:]]
    outputs = [np.full(operation.elements("dst", me), 77, operation.dtype) for me in ranks]
    if operation.in_place:
        for me in range(p):
            lengths = _lengths(operation, me, sends=False)
            outputs[me][_slice(lengths, operation.call.source(me, len(lengths)))] = inputs[me]
    return inputs, outputs


def result(operation: Operation, inputs: Sequence[Array], me: int) -> Array:
    """Return the expected result of rank ``me``, by NumPy's own reduction."""
    call, units = operation.call, len(_lengths(operation, me, sends=False))

    def contributed(origin: int, unit: int) -> Array:
        source = call.source(origin, units)
        return inputs[origin][
            _slice(_lengths(operation, origin, sends=True), range(unit, unit + 1), source.start)
        ]

    folded = [
        fold(
            _NUMPY[operation.reduction.name],
            [contributed(*one) for one in sorted(call.result(me, unit))],
        )
        for unit in call.target(me, units)
    ]
    whole = np.concatenate([*folded, np.empty(0, operation.dtype)])
    if operation.reduction.name != "avg":
        return whole
    return whole // call.p if whole.dtype.kind == "i" else whole / np.array(call.p, whole.dtype)


def defined_part(operation: Operation, target: Array, me: int) -> Array:
    """Return the part of dst that is defined at rank ``me`` in the end; the rest is workspace."""
    lengths = _lengths(operation, me, sends=False)
    return target[_slice(lengths, operation.call.target(me, len(lengths)))]


def rotates(ranks):
    """Every rank turns its blocks round by copies, among them one onto its own source."""

    def steps(me):
        yield Step(Copy(dst[me], tmp[0]), Copy(dst[me], tmp[1]))
        yield Step(Copy(tmp[0:2], tmp[2:4]))
        yield Step(Copy(tmp[1:4], tmp[0:3]))
        yield Step(*(Copy(dst[me], dst[unit]) for unit in range(ranks) if unit != me))
        if ranks > 1:
            yield Step(Copy(dst[0:ranks], dst[1:ranks] + dst[0]))

    return Schedule(Layout.of(ranks), ranks, steps)


def copies_beside_arrivals(ranks):
    """In one step a block is replaced, sent, and copied to where it is kept: all of them as it was."""

    def steps(me):
        right, left = (me + 1) % ranks, (me - 1) % ranks
        yield Step(*(Copy(dst[me], dst[unit]) for unit in range(ranks) if unit != me))
        if ranks > 1:
            yield Step(
                Recv(left, me), Copy(dst[me], tmp[0]), Send(right, me), Copy(dst[left], dst[right])
            )
        yield Step(Copy(tmp[0], dst[me]), Copy(dst[me], tmp[0]))

    return Schedule(Layout.of(ranks), ranks, steps)
