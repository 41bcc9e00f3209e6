"""Leaps over equal steps: once times grow in each cycle of steps by as much as in the one before, most are left out.

A cycle is a map F of the times x of all ranks and resources. Let d be the growth of one cycle, F(x)
= x + d.

If messages share nothing, F consists of maxima and of sums with constants, hence is convex in every
component. Let f(n) = F(x + n d) - (x + (n + 1) d). If the growth of two cycles is the same, f(0) =
f(1) = 0. If one more cycle, tried at the far end, shows f(N) = 0, then f is 0 in between, for any
d: a convex function that is 0 at three points is 0 between the outer ones. So all cycles up to N
grow by d. If f(N) is not 0, a nearer end is tried.

Where messages share resources, their order decides, too. It stays the same if all times that change
grow by one amount, those of all ranks among them: what comes first is compared by differences of
times, see ``shared_clocks``. Resources whose times do not change are not used; what begins later
finds them free all the more.

Where latencies count, times repeat only after the steps that a message takes round the ring. A
weighted sum of the times of all ranks shows after how many cycles its growth repeats; these are
then one longer cycle.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]

LEAST_LEAP = 8
"""The fewest cycles between two attempts to leap."""

LONGEST_CYCLE = 2048
"""The most cycles after which times may repeat."""

ROUNDING = 64 * float(np.finfo(float).eps)
"""The difference up to which times are equal after a cycle, which is some tens of sums, relative to the largest one."""


def advance(
    times: Floats, ranks: int, cycle: Callable[[], None], repeats: int, *, linear: bool
) -> Iterator[int]:
    """Advance by equal cycles; yield after each one how many have passed, simulated or left out, since the last time.

    None have passed after those by which a leap is tried.

    Args:
        times: the times of ranks and resources in seconds, which ``cycle`` changes.
        ranks: how many of them, the first ones, are those at which ranks begin their next steps.
        cycle: advances by one cycle.
        repeats: the number of cycles.
        linear: whether messages share nothing.
    """
    weights = _weights(ranks)
    sums: list[float] = []
    earliest = float(times[:ranks].min())
    times -= earliest  # a leap multiplies rounding errors, which are small for small times

    def several(count: int, passed: int) -> Iterator[int]:
        for _ in range(count):
            cycle()
            sums.append(float(times[:ranks] @ weights))
            yield passed

    while repeats:
        count = min(max(LEAST_LEAP, len(sums) // 4), repeats)
        yield from several(count, 1)
        repeats -= count
        length = _repeating(sums)
        if length:
            tried = partial(several, length, 0)
            leapt = 0
            recorded = len(sums)
            while leapt != 2 and (left := repeats // length) > LEAST_LEAP:
                leapt = yield from _leap(
                    times, ranks, tried, left, length * ROUNDING, linear=linear
                )
                repeats -= length * leapt
                # what was tried far ahead, and what lies before it
                del sums[recorded + 2 * length if leapt == 2 else 0 :]
                recorded = len(sums)
                yield length * leapt
    times += earliest


def _leap(
    times: Floats,
    ranks: int,
    cycle: Callable[[], Iterator[int]],
    left: int,
    relative: float,
    *,
    linear: bool,
) -> Generator[int, None, int]:
    """Advance by two cycles, and by as many more as are found to be equal; return how many of ``left`` that are."""
    before = times.copy()
    yield from cycle()
    middle = times.copy()
    yield from cycle()
    after = times.copy()
    passed = 2
    growth = (after - before) / 2
    rounding = relative * float(after.max())
    steady = float(np.abs(after - middle - (middle - before)).max()) <= rounding
    if steady and (linear or _is_uniform(growth, ranks, rounding)):
        far = left - passed - 1
        while far > 1:
            times[:] = after + far * growth
            yield from cycle()
            expected = after + (far + 1) * growth
            if float(np.abs(times - expected).max()) <= relative * float(expected.max()):
                passed += far + 1
                break
            far //= 4
        else:
            times[:] = after
    return passed


def _is_uniform(growth: Floats, ranks: int, rounding: float) -> bool:
    """Return whether the times of all ranks, and all others that change, grow by one amount."""
    pace = float(growth[0])
    changed = np.abs(growth) > rounding
    changed[:ranks] = True
    return float(np.abs(growth[changed] - pace).max()) <= rounding


def _repeating(sums: Sequence[float]) -> int:
    """Return the least number of cycles after which the growth of sums has repeated lately; 0 if it has not."""
    growth = np.diff(sums[-4 * LONGEST_CYCLE :])
    rounding = ROUNDING * abs(sums[-1])
    for length in range(1, min(LONGEST_CYCLE, len(growth) // 2) + 1):
        if abs(growth[-1] - growth[-1 - length]) <= rounding:
            recent = growth[-max(2 * length, len(growth) // 2) :]
            if float(np.abs(recent[length:] - recent[:-length]).max()) <= rounding:
                return length
    return 0


@lru_cache(maxsize=4)
def _weights(ranks: int) -> Floats:
    """Return weights of the times of ranks, all different, so that growth that moves from rank to rank shows."""
    return np.random.default_rng(1).uniform(0.5, 1.5, ranks) / ranks
