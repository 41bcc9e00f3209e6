"""The sizes at which an order changes: a procedure that ranks and tests drive, size by size."""

from collections.abc import Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Generic, TypeVar

Order = TypeVar("Order", bound=Hashable)

MOST_CHANGES = 8
"""The most changes that are searched between two neighbours of the ladder."""


@dataclass(frozen=True, slots=True)
class OrderedSizes(Generic[Order]):
    """Probed sizes, one after the other, at which the order is the same."""

    order: Order
    sizes: tuple[int, ...]  # in bytes, ascending

    @property
    def first(self) -> int:
        """The smallest size."""
        return self.sizes[0]

    @property
    def last(self) -> int:
        """The largest size."""
        return self.sizes[-1]


def size_ladder(first: int, last: int, step: int) -> list[int]:
    """Return every power of two, and three times it, between two sizes, and the ends.

    Args:
        first: the smallest size in bytes.
        last: the largest size.
        step: the sizes are multiples of it, rounded down, but not to zero.
    """
    powers = [1 << exponent for exponent in range(last.bit_length())]
    candidates = [first, last, *powers, *(3 * power for power in powers)]
    within = [size for size in candidates if first <= size <= last]
    return multiples(within, step)


def multiples(sizes: Sequence[int], step: int) -> list[int]:
    """Return the sizes as multiples of ``step``, rounded down, but not to zero; ascending, each once."""
    return sorted({max(1, size // step) * step for size in sizes})


def probe_sizes(ladder: Sequence[int], step: int) -> Generator[int, Order, None]:
    """Yield the sizes to probe, and take their orders: those of a ladder, and every change between two neighbours.

    Changes are bisected. What lies between two neighbours of one order stays unprobed.

    Args:
        ladder: the sizes in bytes, ascending.
        step: between two neighbouring sizes that differ in their elements.
    """
    orders: dict[int, Order] = {}
    for size in ladder:
        orders[size] = yield size
    for before, after in pairwise(ladder):
        for _ in range(MOST_CHANGES):
            change = _unprobed_change(orders, before, after, step)
            if change is None:
                break
            yield from _bisect(orders, *change, step)


def _unprobed_change(
    orders: Mapping[int, Order], before: int, after: int, step: int
) -> tuple[int, int] | None:
    """Return the first two neighbours among the probed sizes that differ, with sizes between them; None without any."""
    probed = sorted(size for size in orders if before <= size <= after)
    for low, high in pairwise(probed):
        if orders[low] != orders[high] and high - low > step:
            return low, high
    return None


def _bisect(
    orders: dict[int, Order], low: int, high: int, step: int
) -> Generator[int, Order, None]:
    """Probe sizes between two that differ until two neighbouring ones do."""
    before = orders[low]
    while high - low > step:
        middle = low + (high - low) // step // 2 * step
        orders[middle] = yield middle
        if orders[middle] == before:
            low = middle
        else:
            high = middle


def ranges_of(orders: Mapping[int, Order]) -> tuple[OrderedSizes[Order], ...]:
    """Return the ranges of probed sizes, ascending.

    Args:
        orders: by size in bytes.
    """
    ranges: list[OrderedSizes[Order]] = []
    for size in sorted(orders):
        if ranges and ranges[-1].order == orders[size]:
            sizes = (*ranges[-1].sizes, size)
            ranges[-1] = OrderedSizes(orders[size], sizes)
        else:
            ranges.append(OrderedSizes(orders[size], (size,)))
    return tuple(ranges)
