"""Sums of floats in the order of a schedule: what ranks contribute, and what the trees say that they end with."""

from collections.abc import Iterable, Sequence

import numpy as np
from schedule_examples import ALGORITHMS, Array, Case, cases, places

from hpccoll.schedule import dtype_of
from hpccoll.schedule.operation import Operation
from hpccoll.schedule.order import BufferOrder, ScheduleOrder, order_of
from hpccoll.schedule.summation_tree import SummationTree

FLOATS = "float16", "bfloat16", "float32", "float64"
REDUCING = [
    name
    for name, (collective, algorithm) in ALGORITHMS.items()
    if collective.has_op and not algorithm.floor
]
ELEMENTS_OF_UNIT = 8
"""Half of them get random values, half adversarial ones."""


def random_values(chance, count):
    """Return values of very different sizes, so that nearly every other order has other bits."""
    return chance.standard_normal(count) * np.exp2(chance.integers(-4, 5, count))


def adversarial_values(chance, count):
    """Return large values that cancel, zeros of both signs, infinities, and values below the smallest normal one."""
    choices = [30000.0, -30000.0, 1.0, 2.0**-10, -0.0, 0.0, 2.0**-24, np.inf]
    return chance.choice(choices, count, p=[0.2, 0.2, 0.2, 0.1, 0.1, 0.1, 0.09, 0.01])


def case_on(name: str, p: int) -> Case | None:
    """Return the first call of an algorithm on p workers; None if it does not run there."""
    collective, algorithm = ALGORITHMS[name]
    return next(cases(collective, algorithm, places(algorithm, p)), None)


def order_of_slices(operation: Operation) -> tuple[ScheduleOrder, ...]:
    """Return the trees of each slice, in or out of place as the operation is; sizes and types do not matter."""
    schedules = [operation.lane_schedule(number) for number in range(len(operation.slices))]
    return tuple(order_of(operation.call, s, in_place=operation.in_place) for s in schedules)


def trees_of(slices: Iterable[ScheduleOrder]) -> dict[int, SummationTree]:
    """Return each different tree by digest."""
    trees = {}
    for order in slices:
        digests, places_of_digests = np.unique(order.digests, return_index=True)
        for digest, place in zip(digests.tolist(), places_of_digests.tolist(), strict=True):
            trees[digest] = order.tree(place)
    return trees


class OrderedSum:
    """An operation on values of one type, and its total once ``evaluate`` has added them.

    Args:
        case: the schedules.
        dtype: the type of the elements.
        channels: the number of channels; with two, the operation is out of place.
    """

    def __init__(self, case: Case, dtype: str, channels: int) -> None:
        lanes = channels * len(case.slices)
        units = 1 if case.call.collective.units == "per_rank" else case.slices[0].units
        count = ELEMENTS_OF_UNIT * units * lanes + 5  # of the buffer, or of each rank's block
        in_place = channels != 2
        self.name = f"{dtype}, {channels} channels"
        self.operation = case.operation(
            count, dtype_of(dtype), in_place=in_place, channels=channels
        )
        elements = count * case.call.collective.blocks(case.call.p)
        chance = np.random.default_rng(channels)
        self.inputs: list[Array] = []  # of each worker
        for _ in range(case.call.p):
            values = random_values(chance, elements)
            values[1::2] = adversarial_values(chance, elements // 2)
            self.inputs.append(values.astype(self.operation.dtype))
        self.total = np.empty(elements, self.operation.dtype)

    def buffers(self, me: int) -> tuple[Array, Array]:
        """Return src and dst of a rank as they are before the operation."""
        source = np.zeros(self.operation.elements("src", me), self.operation.dtype)
        target = np.zeros(self.operation.elements("dst", me), self.operation.dtype)
        if me < len(self.inputs):
            held = target if self.operation.in_place else source
            held[: len(self.inputs[me])] = self.inputs[me]
        return source, target

    def digests(self, slices: tuple[ScheduleOrder, ...]) -> Array:
        """Return the digest of the tree of each element."""
        order = BufferOrder(slices, self.operation.cut).elements
        return np.repeat(order.digests, np.diff(order.edges))

    def expected(self, me: int) -> Array:
        """Return what a rank must end with: its part of the total."""
        operation = self.operation
        block = operation.call.target(me, operation.api_cut.units)
        if operation.collective.units == "per_rank":
            return self.total[block.start * operation.count : block.stop * operation.count]
        return self.total if block else self.total[:0]


def evaluate(sums: Sequence[OrderedSum]) -> None:
    """Compute the totals of sums of one case: each tree adds the elements of all of them that have it."""
    slices = {}
    for total in sums:
        in_place = total.operation.in_place
        if in_place not in slices:
            slices[in_place] = order_of_slices(total.operation)
    trees = {}
    for orders in slices.values():
        trees |= trees_of(orders)
    digests = [total.digests(slices[total.operation.in_place]) for total in sums]
    for digest, tree in trees.items():
        places_of_tree = [np.flatnonzero(of_elements == digest) for of_elements in digests]
        values = []  # of each rank, the elements of each sum
        for rank in tree.ranks:
            values.append(
                [total.inputs[rank][at] for total, at in zip(sums, places_of_tree, strict=True)]
            )
        with np.errstate(all="ignore"):
            added = tree.evaluate(values, add_arrays)
        for total, at, elements in zip(sums, places_of_tree, added, strict=True):
            total.total[at] = elements


def add_arrays(held: Sequence[Array], arriving: Sequence[Array]) -> list[Array]:
    """Return the sums of arrays, pair by pair."""
    return [first + second for first, second in zip(held, arriving, strict=True)]


def equal_bits(result: Array, expected: Array) -> bool:
    """Return whether two arrays have the same bits; all NaNs are alike."""
    both_nan = np.isnan(result) & np.isnan(expected)
    shape = len(result), result.itemsize
    same = result.view(np.uint8).reshape(shape) == expected.view(np.uint8).reshape(shape)
    return bool((same.all(axis=1) | both_nan).all())
