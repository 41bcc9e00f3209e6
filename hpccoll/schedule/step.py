"""The steps of a schedule: what one rank sends, receives, reduces and copies.

A rank or a unit is an int, or an array that holds it for every rank at once; then a step describes
the whole cluster.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Index: TypeAlias = int | np.integer | NDArray[np.integer]
Truth: TypeAlias = bool | np.bool | NDArray[np.bool]

NONE = -1
"""The null peer: a send to it or a receive from it does nothing (MPI's PROC_NULL)."""


class Range(NamedTuple):
    """The units first, first + 1, ... last - 1."""

    first: Index
    last: Index


ALL_UNITS = (Range(0, -1),)
"""The ranges of a part that holds all units of a schedule, before ``Schedule.of`` replaces them by their number."""


@dataclass(frozen=True, slots=True)
class Part:
    """Ranges of units in a named buffer, in the order in which they lie in a message."""

    buffer: str
    ranges: tuple[Range, ...]

    def __add__(self, other: "Part") -> "Part":
        if self.buffer != other.buffer:
            raise ValueError(f"a part lies in one buffer, not in {self.buffer} and {other.buffer}")
        return Part(self.buffer, self.ranges + other.ranges)

    @property
    def units(self) -> tuple[int, ...]:
        """The units of a part whose ends are numbers, in the order in which they lie in a message."""
        ranges = [range(int(r.first), int(r.last)) for r in self.ranges]
        return tuple(chain.from_iterable(ranges))

    def in_buffer(self, buffer: str) -> "Part":
        """Return the same units of another buffer."""
        return Part(buffer, self.ranges)


@dataclass(frozen=True, slots=True)
class Buffer:
    """A buffer of units: ``dst[3]`` is a unit, ``dst[2:5]`` a range, ``dst[2:5] + dst[0]`` a part of two ranges."""

    name: str

    def __getitem__(self, units: Index | slice) -> Part:
        if isinstance(units, slice):
            if units.start is None or units.stop is None or units.step is not None:
                raise ValueError(
                    f"{self.name}: a range of units has a first and a last, and no stride"
                )
            return Part(self.name, (Range(units.start, units.stop),))
        return Part(self.name, (Range(units, units + 1),))

    @property
    def all(self) -> Part:
        """All units of the schedule."""
        return Part(self.name, ALL_UNITS)

    def around(self, first: Index, count: int, units: int) -> Part:
        """Return ``count`` units from ``first`` on, modulo ``units``."""
        first = first % units
        last = first + count
        return self[first : minimum(last, units)] + self[0 : maximum(last - units, 0)]

    def units(self, units: Iterable[Index]) -> Part:
        """Return the part of single units, in the order given."""
        ranges = [Range(unit, unit + 1) for unit in units]
        return Part(self.name, tuple(ranges))


src = Buffer("src")
dst = Buffer("dst")
tmp = Buffer("tmp")


def _part(units: Part | Index) -> Part:
    """A bare unit means that unit of dst."""
    return units if isinstance(units, Part) else dst[units]


@dataclass(frozen=True, slots=True, init=False)
class _Message:
    """One end of a message."""

    peer: Index
    part: Part

    def __init__(self, peer: Index, part: Part | Index) -> None:
        object.__setattr__(self, "peer", peer)
        object.__setattr__(self, "part", _part(part))


class Send(_Message):
    """Send ``part`` to ``peer``, as it was before the step."""

    __slots__ = ()


class Recv(_Message):
    """Replace ``part`` by what ``peer`` sends."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, init=False)
class RecvReduce:
    """Fold what ``peer`` sends with ``operand`` into ``part``; ``operand`` is ``part`` by default."""

    peer: Index
    part: Part
    operand: Part

    def __init__(self, peer: Index, part: Part | Index, operand: Part | None = None) -> None:
        object.__setattr__(self, "peer", peer)
        object.__setattr__(self, "part", _part(part))
        object.__setattr__(self, "operand", self.part if operand is None else operand)


@dataclass(frozen=True, slots=True)
class Copy:
    """Copy ``source``, as it was before the step, to ``target`` on the same rank."""

    source: Part
    target: Part


@dataclass(frozen=True, slots=True)
class CopyReduce(Copy):
    """Fold ``source``, as it was before the step, with ``operand`` into ``target`` on the same rank.

    It takes its turn among the arrivals of the step, as listed: so a rank folds its own contribution
    at any place of the order, where RecvReduce alone would have it first.
    """

    operand: Part


Action: TypeAlias = Send | Recv | RecvReduce | Copy | CopyReduce


@dataclass(frozen=True, slots=True, init=False)
class Step:
    """Actions that run at once: sends read the buffers as they were, arrivals are folded in the order listed."""

    actions: tuple[Action, ...]

    def __init__(self, *actions: Action) -> None:
        object.__setattr__(self, "actions", actions)


def peer_if(condition: Truth, peer: Index) -> Index:
    """Return ``peer`` where ``condition`` holds, else NONE, element by element."""
    if isinstance(condition, np.ndarray) or isinstance(peer, np.ndarray):
        return np.where(condition, peer, NONE)
    return peer if condition else NONE


minimum, maximum = np.minimum, np.maximum
"""The smaller and the larger of two indices, for ints and for arrays."""


def ceil_log2(p: int) -> int:
    """Return the smallest k with 2^k >= ``p``, for ``p`` >= 1."""
    return (p - 1).bit_length()


def floor_log2(p: int) -> int:
    """Return the largest k with 2^k <= ``p``, for ``p`` >= 1."""
    return p.bit_length() - 1


def is_power_of_two(p: int) -> bool:
    """Return whether ``p`` >= 1 is 2^k for some k."""
    return p.bit_count() == 1


def drop_null_peers(step: Step) -> Step:
    """Return a step of one rank without its messages to and from NONE, whose parts mean nothing."""
    actions = [action for action in step.actions if isinstance(action, Copy) or action.peer != NONE]
    return Step(*actions)


def rewrite(step: Step, peer: Callable[[Index], Index], part: Callable[[Part], Part]) -> Step:
    """Return ``step`` with every peer and every part replaced."""

    def rewritten(action: Action) -> Action:
        if isinstance(action, CopyReduce):
            operand = part(action.operand)
            return CopyReduce(part(action.source), part(action.target), operand)
        if isinstance(action, Copy):
            return Copy(part(action.source), part(action.target))
        new_part = part(action.part)
        if isinstance(action, RecvReduce):
            operand = new_part if action.operand is action.part else part(action.operand)
            return RecvReduce(peer(action.peer), new_part, operand)
        return type(action)(peer(action.peer), new_part)

    return Step(*map(rewritten, step.actions))


def rewrite_ends(end: Callable[[Index], Index]) -> Callable[[Part], Part]:
    """Return the function that replaces both ends of every range of a part."""

    def rewritten(part: Part) -> Part:
        ranges = [Range(end(r.first), end(r.last)) for r in part.ranges]
        return Part(part.buffer, tuple(ranges))

    return rewritten


def with_unit_count(step: Step, units: int) -> Step:
    """Return ``step`` with every part of all units, such as ``dst.all``, as a range of ``units``."""
    parts = chain.from_iterable(map(parts_of, step.actions))
    if not any(part.ranges is ALL_UNITS for part in parts):
        return step
    all_units = (Range(0, units),)

    def counted(part: Part) -> Part:
        if part.ranges is ALL_UNITS:
            return Part(part.buffer, all_units)
        return part

    return rewrite(step, lambda peer: peer, counted)


def parts_of(action: Action) -> tuple[Part, ...]:
    """Return all parts that an action reads or writes at a rank."""
    if isinstance(action, CopyReduce):
        return action.source, action.target, action.operand
    if isinstance(action, Copy):
        return action.source, action.target
    if isinstance(action, RecvReduce):
        return action.part, action.operand
    return (action.part,)
