"""Regularity: which ranks of a schedule do alike, so that a block of consecutive ranks can stand for all of them.

A schedule has period d if, in each of its steps, every rank sends one message and receives one, or
none does, copies aside, and if the following holds for every multiple b of d that divides the
number of ranks. Ranks whose numbers differ by a multiple of b

- send to ranks whose numbers differ by a multiple of b, either all inside their own blocks of b
  ranks or none,
- send messages of as many units, and all fold what arrives, or none does.

Then the ranks of one block do what those of any other block do. For a ring d is 1, and it is 1 for
partners ``me ^ x`` too: b is then a power of two, which keeps the bits below b apart from those
above.

An algorithm declares its period next to its text; compositions derive theirs here, and a test
compares all ranks.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import lcm

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Regularity:
    """How the ranks of a schedule do alike."""

    period: int  # d
    # by how many units the parts of rank r + 1 lie further than those of rank r, if all ranks do
    # what rank 0 does with peers shifted by their numbers, modulo the number of ranks; None if some
    # do not
    shifts: int | None = None


def of_sequence(parts: Iterable[Regularity | None]) -> Regularity | None:
    """Return the regularity of schedules one after the other; None if one of them has none."""
    period = 1
    shifts = set()
    for part in parts:
        if part is None:
            return None
        period = lcm(period, part.period)
        shifts.add(part.shifts)
    common = shifts.pop() if len(shifts) == 1 else None
    return Regularity(period, common)


def of_relabelled(regularity: Regularity | None, actual: Sequence[int]) -> Regularity | None:
    """Return the regularity of a schedule whose role r is played by ``actual[r]``, which keeps units.

    Roles in the order of ranks, or in the opposite order, keep shifts; other ones keep nothing.
    """
    if regularity is None or regularity.shifts is None:
        return None
    for direction in (1, -1):
        if not ((np.diff(actual) - direction) % len(actual)).any():
            return replace(regularity, shifts=direction * regularity.shifts)
    return None


def of_groups(members: NDArray[np.integer], inner: Regularity | None) -> Regularity | None:
    """Return the regularity of groups of all ranks that do the same, each by itself.

    Groups of consecutive ranks are alike, whatever their roles do. Where group i of n has the ranks
    i, i + n and so on, n consecutive ranks have the same role.

    Args:
        members: the ranks of the groups, [group, role].
        inner: the regularity in each of them.
    """
    if inner is None:
        return None
    groups, roles = members.shape
    everyone = np.arange(members.size)
    periods = []
    if np.array_equal(members, everyone.reshape(groups, roles)):
        periods.append(roles)
    if np.array_equal(members, everyone.reshape(roles, groups).T):
        periods.append(groups * inner.period)
    return Regularity(min(periods)) if periods else None
