"""Stand-ins: how many ranks are simulated in the place of more, where the time of an algorithm grows along a line.

With messages of the same size, the time of some algorithms grows by as much for each rank, or for
each doubling of the ranks, once ranks are far enough apart that a message crosses every tier:

- in a ring each of 2 (p - 1) steps takes as long, in a pairwise exchange each of p - 1, and a rank
  that sends to all others directly has one message more for each rank;
- a double binary tree has a level more, and its messages have the whole size of a segment whatever
  p is.

Three stand-ins are simulated. The line through the two larger ones gives the time; by how much it
misses the smallest says how straight it is. If the largest stand-in is off by that miss and the
second one is not, the error grows with the distance: that is the stated bound. Trees were up to 2.1
% off although their lines miss less (512 ranks and 64 B, 5,120 ranks and 1 GiB), so that their
bound is at least 3 %. Lines hold for all other costs: of sharing, of folds, of uneven nodes, as
long as they are alike in the stand-ins.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, floor, log2, log10

from hpccoll.schedule import Layout, is_power_of_two
from hpccoll.schedule.layout import equal_block


@dataclass(frozen=True, slots=True)
class Growth:
    """How the time of an algorithm grows with its ranks."""

    scale: Callable[[int], float]  # a number of ranks on the axis on which the time is a line
    first: int  # the smallest stand-in has about as many ranks
    factors: tuple[int, int, int]  # the ranks of the stand-ins, as multiples of those
    as_powers_of_two: bool = False  # whether a power of two is another case than other numbers
    # whether stand-ins have messages of the same size; otherwise they have the whole size
    same_message: bool = True
    # whether ranks are taken from both ends of the layout, so that a few of them cross every tier
    # as a ring does
    both_ends: bool = False
    # the most ranks that are simulated themselves [those of the largest stand-in]
    largest_exact: int = 0
    # the part of the time by which it may be off although the line is straight: more than was found
    # where all ranks were simulated beside it
    least_bound: float = 0.0

    @property
    def limit(self) -> int:
        """The most ranks that are simulated themselves."""
        return self.largest_exact or self.first * self.factors[-1]


NO_POWERS_OF_TWO = 3, 5, 6
"""The factors of stand-ins whose ranks must not be a power of two."""


def _ranks(p: int) -> float:
    return p


GROWTH: dict[str, Growth] = {
    "bidirectional_ring": Growth(_ranks, 32, (1, 2, 3), both_ends=True, largest_exact=256),
    "direct": Growth(_ranks, 256, (2, 3, 4)),
    "pairwise": Growth(_ranks, 256, (2, 4, 8), as_powers_of_two=True),
    "double_binary_tree": Growth(log2, 512, (1, 2, 4), same_message=False, least_bound=0.03),
}
"""The algorithms whose time grows along a line, by name; of all collectives that have them with equal blocks."""


@dataclass(frozen=True, slots=True)
class StandIn:
    """Fewer ranks in the place of all."""

    layout: Layout
    at: float  # where they are on the axis
    nbytes: int  # the size that gives them the messages of all ranks


@dataclass(frozen=True, slots=True)
class StandIns:
    """The three stand-ins of a layout, the smallest one first."""

    growth: Growth
    workers: int  # the ranks in whose place they are
    chosen: Sequence[StandIn]

    def time(self, times: Sequence[float]) -> float:
        """Return the time of all ranks from those of the stand-ins."""
        return self._line(times, self.growth.scale(self.workers))

    def miss(self, times: Sequence[float]) -> float:
        """Return the part of the smallest time by which the line through the others misses it."""
        return abs(self._line(times, self.chosen[0].at) / times[0] - 1) if times[0] else 0.0

    def bound(self, times: Sequence[float]) -> float:
        """Return the part of the time of all ranks by which it is off at most, if an end of the line misses as much.

        Where all ranks were simulated beside it, the time was within this bound
        (tests/model/test_stand_ins.py).
        """
        _, second, third = self.chosen
        time = self.time(times)
        if not time:
            return self.growth.least_bound
        distance = (self.growth.scale(self.workers) - second.at) / (third.at - second.at)
        return max(self.growth.least_bound, self.miss(times) * times[0] * distance / time)

    def sentence(self, miss: float, bound: float) -> str:
        """Return what was simulated, how straight the line is, and how far off the time of all ranks is at most."""
        first, second, third = (f"{stand_in.layout.workers:,}" for stand_in in self.chosen)
        line = f"within {_percent(bound)} of the line through simulations of {second} and {third} ranks"
        return f"{line}, which misses that of {first} by {_percent(miss)} at most"

    def _line(self, times: Sequence[float], at: float) -> float:
        (_, second, third), (_, earlier, later) = self.chosen, times
        slope = (later - earlier) / (third.at - second.at)
        return later + slope * (at - third.at)


def _percent(part: float) -> str:
    """Return a part in per cent, rounded up to two digits, and at least 0.01 %."""
    percent = max(100 * part, 0.01)
    digit = 10.0 ** (floor(log10(percent)) - 1)
    return f"{ceil(percent / digit - 1e-9) * digit:.2g} %"


def stand_ins(
    name: str, layout: Layout, nbytes: int, itemsize: int, *, blocks: bool
) -> StandIns | None:
    """Return the stand-ins of an algorithm on a layout; None if all ranks are simulated.

    Args:
        name: the algorithm.
        layout: the layout of all ranks, without aggregators.
        nbytes: S.
        itemsize: the bytes of an element.
        blocks: whether the buffer has a block for each rank; otherwise it may be cut anywhere.
    """
    growth = GROWTH.get(name)
    if growth is None or layout.aggregators or layout.workers <= growth.limit:
        return None
    block = 1 if growth.both_ends else _block(layout)
    unit = -(-growth.first // block) * block
    factors = growth.factors
    if growth.as_powers_of_two and not is_power_of_two(layout.workers):
        factors = NO_POWERS_OF_TWO
    if growth.scale is log2:
        counts = [_tree_ranks(layout, growth.first * factor) for factor in factors]
    else:
        counts = [unit * factor for factor in factors]
    if counts[-1] >= layout.workers or len({*counts}) < len(counts):
        return None
    chosen = []
    for count in counts:
        size = nbytes
        if growth.same_message:
            grain = itemsize * count if blocks else itemsize
            size = max(grain, round(nbytes * count / layout.workers / grain) * grain)
        chosen.append(StandIn(_part(layout, count, growth), growth.scale(count), size))
    return StandIns(growth, layout.workers, chosen)


def _block(layout: Layout) -> int:
    """Return how many consecutive ranks look like those that follow them, but for the last rack, which may be smaller.

    If ranks are not dealt rack by rack, it is as many as the whole layout takes to repeat.
    """
    first = layout.groups("rack" if layout.racks > 1 else "node")[0]
    are_together = first == list(range(len(first)))
    return len(first) if are_together else equal_block(layout)


def _tree_ranks(layout: Layout, about: int) -> int:
    """Return the ranks of a tree that looks like that of all, with fewer levels."""
    levels = int(log2(layout.workers)) - int(log2(about))
    return layout.workers >> levels


def _part(layout: Layout, count: int, growth: Growth) -> Layout:
    if not growth.both_ends:
        return layout.subset(range(count)).renumbered()
    half = count // 2
    return layout.subset([*range(half), *range(layout.workers - half, layout.workers)]).renumbered()
