"""A walk over the matched schedule with arrays: what each rank has at each place of its buffers, as numbers.

A place is one or more units between which no range of a message begins or ends, so that all of them
have the same history. What a number stands for is up to the memory: a set of contributions (prove),
or a summation tree (order). ``walk`` does the same message by message, which takes 1,024 ranks
seconds.
"""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hpccoll.common.text import first_few
from hpccoll.schedule.cut import units_of_ranges
from hpccoll.schedule.match import Messages, ScheduleError, match
from hpccoll.schedule.schedule import Schedule
from hpccoll.schedule.step import Part, Range

if TYPE_CHECKING:
    from hpccoll.schedule.collective import CollectiveCall

Ints = NDArray[np.int64]

UNDEFINED = 0
"""The number of what nothing has written."""

KEPT_RANGES = 1_000_000
"""The most ranges of messages that are kept; a schedule with more is matched again for each walk."""


class UnitStep(NamedTuple):
    """The messages of a step that have units."""

    number: int  # of the steps in which such messages depart or land, from 0
    departing: tuple[Messages, ...]
    landing: tuple[Messages, ...]


def _steps(schedule: Schedule) -> Iterator[UnitStep]:
    """Yield the steps in which messages with units depart or land."""
    number = 0
    for matched in match(schedule):
        departing = tuple(m for m in matched.sent if _has_units(m))
        landing = (
            departing
            if matched.landed is matched.sent
            else tuple(m for m in matched.landed if _has_units(m))
        )
        if departing or landing:
            yield UnitStep(number, departing, landing)
            number += 1


def _has_units(messages: Messages) -> bool:
    return any(np.any(np.less(r.first, r.last)) for r in messages.sent.ranges)


@dataclass(frozen=True, slots=True)
class Extent:
    """The units of a schedule that are proven each by itself: consecutive ones between two edges are one place."""

    schedule: Schedule
    edges: Ints  # where the places begin, and the last one ends, ascending
    separate: bool  # whether all messages leave units where they are
    # what holds for a unit holds for the unit so far on, at the ranks so far on; 0 if it does not
    period: int
    folds: int  # the folds of all places at all ranks, estimated
    number: int  # the number of steps
    kept: tuple[UnitStep, ...] | None  # the steps; None if they have too many messages to be kept

    @classmethod
    def of(cls, call: "CollectiveCall", schedule: Schedule) -> "Extent":
        kept: list[UnitStep] = []
        named = folded = number = 0
        separate = True
        period = int(_rotates(call, schedule))
        ranges = _UniqueRanges()
        for matched in _steps(schedule):
            number += 1
            named += sum(len(m.source) * len(m.sent.ranges) for m in matched.landing)
            if named <= KEPT_RANGES:
                kept.append(matched)
            for m in matched.landing:
                separate = separate and _leaves_units(m)
                period = _period(m, schedule, period) if separate else 0
                ranges.add_parts(m)
                if m.operand is not None:
                    folded += sum(
                        int(np.sum(np.subtract(r.last, r.first))) for r in m.landed.ranges
                    )
        for me in range(schedule.layout.workers):
            ranges.add_units(call.source(me, schedule.units))
            ranges.add_units(call.target(me, schedule.units))
        if separate:
            edges = ranges.ends()
            folded = folded * len(edges) // max(1, schedule.units)
        else:
            edges = ranges.single_units()
        return cls(
            schedule,
            edges,
            separate,
            period,
            folds=folded,
            number=number,
            kept=tuple(kept) if named <= KEPT_RANGES else None,
        )

    @property
    def steps(self) -> Iterable[UnitStep]:
        if self.kept is None:
            return _steps(self.schedule)
        return self.kept

    @property
    def count(self) -> int:
        """The number of places."""
        return max(1, len(self.edges) - 1)

    def groups(self, number: int, *, alike_once: bool = False) -> Iterator[range]:
        """Yield the places in groups that are walked one after another.

        Args:
            number: the number of groups; places that are not separate are always in one.
            alike_once: whether of places that are alike only one is yielded.
        """
        places = self.count
        if alike_once and self.period:
            places = int(np.searchsorted(self.edges[:-1], self.period))
        groups = number if self.separate else 1
        size = -(-self.count // max(1, groups))
        for first in range(0, places, size):
            yield range(first, min(first + size, places))


def _rotates(call: "CollectiveCall", schedule: Schedule) -> bool:
    """Return whether each rank contributes, and must hold, the units of the rank before it, shifted by one."""
    p = schedule.layout.workers
    if not p == schedule.units == schedule.layout.ranks:
        return False
    for select in (call.source, call.target):
        if not _are_shifted([select(me, p) for me in range(p)], p):
            return False
    units = np.arange(p)
    origins_of_unit_0 = np.array([call.collective.result(call, me, 0)[0] for me in range(p)])
    for me in range(p):
        origin, unit = call.collective.result(call, me, units)
        expected = origins_of_unit_0[(me - units) % p]
        expected = np.where(expected < 0, expected, (expected + units) % p)
        if not (
            np.array_equal(np.broadcast_to(origin, p), expected) and np.array_equal(unit, units)
        ):
            return False
    return True


def _are_shifted(units: Sequence[range], p: int) -> bool:
    """Return whether all ranks name all units, or each names one unit: that of the rank before it plus one."""
    if all(units_of_rank == range(p) for units_of_rank in units):
        return True
    first = units[0].start
    return all(
        len(units_of_rank) == 1 and units_of_rank.start == (first + me) % p
        for me, units_of_rank in enumerate(units)
    )


def _period(messages: Messages, schedule: Schedule, least: int) -> int:
    """Return the smallest multiple of a period after which messages repeat, too; 0 if they never do, or it is 0."""
    p = schedule.layout.ranks
    if not least or not np.array_equal(messages.source, np.arange(p)):
        return 0
    for period in range(least, p // 2 + 1, least):
        if p % period == 0 and _are_rotated(messages, p, period):
            return period
    return 0


def _are_rotated(messages: Messages, p: int, period: int) -> bool:
    """Return whether ranks a period apart send to the same distance units that lie a period further on."""
    everyone = np.arange(p)
    if not _repeats((messages.target - everyone) % p, period):
        return False
    for first, length in _cyclic_ranges(messages.sent.ranges, p):
        if length.min() == p:
            continue
        if not (_repeats(length, period) and _repeats((first - everyone) % p, period)):
            return False
    return True


def _cyclic_ranges(ranges: Sequence[Range], p: int) -> list[tuple[Ints, Ints]]:
    """Return the first units and the lengths of ranges modulo p: those that go on at 0 belong to the one before."""
    cyclic = list[tuple[Ints, Ints]]()
    ends_at_p = np.zeros(p, bool)
    for r in ranges:
        first = np.asarray(r.first)
        last = np.asarray(r.last)
        length = last - first
        goes_on = bool(cyclic) and not first.any() and bool((ends_at_p | (length == 0)).all())
        if goes_on:
            begin, before = cyclic.pop()
            cyclic.append((begin, before + length))
        else:
            cyclic.append((first, length))
        ends_at_p = last == p
    return cyclic


def _repeats(values: Ints, period: int) -> bool:
    """Return whether values of all ranks repeat after a period that divides their number."""
    return bool((values[period:] == values[:-period]).all())


def _leaves_units(messages: Messages) -> bool:
    """Return whether every message lands at the units from which it was sent."""
    sent = messages.sent.ranges
    if not _are_equal(messages.landed.ranges, sent):
        return False
    return messages.operand is None or _are_equal(messages.operand.ranges, sent)


def _are_equal(left: Sequence[Range], right: Sequence[Range]) -> bool:
    if left is right:
        return True
    if len(left) != len(right):
        return False
    pairs = zip(left, right, strict=True)
    return all(
        np.array_equal(a.first, b.first) and np.array_equal(a.last, b.last) for a, b in pairs
    )


class _UniqueRanges:
    """The ranges of units that messages name, each once."""

    _LAST = 1 << 31  # no unit has a number as large

    def __init__(self) -> None:
        self._merged = np.empty(0, np.int64)  # first and last in one number, ascending
        self._added: list[Ints] = []

    def add_parts(self, messages: Messages) -> None:
        """Add the ranges of all parts of messages."""
        self._add(messages.sent)
        if messages.landed is not messages.sent:
            self._add(messages.landed)
        if messages.operand is not None and messages.operand is not messages.landed:
            self._add(messages.operand)

    def _add(self, part: Part) -> None:
        for r in part.ranges:
            first = np.asarray(r.first, np.int64)
            last = np.asarray(r.last, np.int64)
            self._added.append(np.ravel(first * self._LAST + last))
        if sum(map(len, self._added)) > max(len(self._merged), 1 << 12):
            self._merge()

    def add_units(self, units: range) -> None:
        if units:
            self._added.append(np.array([units.start * self._LAST + units.stop]))

    def _merge(self) -> None:
        self._merged = np.unique(np.concatenate([self._merged, *self._added]))
        self._added.clear()

    def _firsts_and_lasts(self) -> tuple[Ints, Ints]:
        self._merge()
        first, last = np.divmod(self._merged, self._LAST)
        some = first < last
        return first[some], last[some]

    def ends(self) -> Ints:
        """Return where ranges begin or end."""
        return np.unique(np.concatenate(self._firsts_and_lasts()))

    def single_units(self) -> Ints:
        """Return where each unit of the ranges begins and ends."""
        first, last = self._firsts_and_lasts()
        _, units = units_of_ranges(first, last)
        return np.unique(np.concatenate([units, units + 1]))


class FoldPlaces(NamedTuple):
    """Where something is folded: the step, the ranks that fold, and the place of each."""

    number: int
    target: Ints
    places: Ints


class PlaceMemory(ABC):
    """What all ranks have at some of the places of all buffers, as numbers [rank, place]."""

    def __init__(
        self,
        call: "CollectiveCall",
        extent: Extent,
        places: range,
        *,
        in_place: bool,
        dtype: type[np.signedinteger] = np.int64,
    ) -> None:
        self.call = call
        self.extent = extent
        self.places = places
        self.units = extent.edges[places.start : places.stop]  # the first unit of each place
        shape = extent.schedule.layout.ranks, len(self.units)
        self.buffers: defaultdict[str, Ints] = defaultdict(lambda: np.full(shape, UNDEFINED, dtype))
        self.carried: dict[Messages, Ints] = {}
        self.begin = self.buffers["dst" if in_place else "src"]

    @abstractmethod
    def contributions(self, me: int, places: Ints) -> Ints:
        """Return the numbers of what rank ``me`` contributes at places."""

    @abstractmethod
    def fold(self, held: Ints, arriving: Ints, at: FoldPlaces, /) -> Ints:
        """Return the numbers of what arrivals folded with what ranks have become."""

    def run(self) -> None:
        """Put the contributions where they begin, and move all messages.

        Raises:
            ScheduleError: if something undefined is read, or ``fold`` raises it.
        """
        for me in range(self.extent.schedule.layout.workers):
            held = self.places_of(self.call.source(me, self.extent.schedule.units))
            self.begin[me, held] = self.contributions(me, np.arange(len(self.units))[held])
        for matched in self.extent.steps:
            for batch in _batches(matched.departing, arrivals=False):
                self._send(matched.number, batch)
            for batch in _batches(matched.landing, arrivals=True):
                self._land(matched.number, batch)

    def _send(self, number: int, batch: Sequence[Messages]) -> None:
        joined = _joined(batch)
        which, places = self._spread(joined.sent)
        sets = self._read(number, joined.sent.buffer, joined.source[which], places)
        if len(batch) == 1:
            self.carried[batch[0]] = sets
            return
        ends = np.searchsorted(which, np.arange(1, len(batch)))
        self.carried.update(zip(batch, np.split(sets, ends), strict=True))

    def _land(self, number: int, batch: Sequence[Messages]) -> None:
        joined = _joined(batch)
        arriving = np.concatenate([self.carried.pop(m) for m in batch])
        which, places = self._spread(joined.landed)
        target = joined.target[which]
        if self.call.collective.units == "divisible":
            self._check_places(number, joined, which, places)
        if joined.operand is not None:
            same = joined.operand is joined.landed
            operands = places if same else self._spread(joined.operand)[1]
            held = self._read(number, joined.operand.buffer, target, operands)
            arriving = self.fold(held, arriving, FoldPlaces(number, target, places))
        self.buffers[joined.landed.buffer][target, places] = arriving

    def _check_places(self, number: int, messages: Messages, which: Ints, places: Ints) -> None:
        """Check that divisible units land where they were sent from."""
        _, sent = self._spread(messages.sent)
        moved = which[np.flatnonzero(sent != places)]
        if len(moved):
            i = int(moved[0])
            source = list(_at(messages.sent, i).units)
            target = list(_at(messages.landed, i).units)
            raise fault_of_step(
                self.extent.schedule,
                number,
                int(messages.target[i]),
                f"puts divisible units {source} in the place of {target}",
            )

    def _read(self, number: int, buffer: str, ranks: Ints, places: Ints) -> Ints:
        """Return what ranks have at places that they read in step ``number``."""
        sets: Ints = self.buffers[buffer][ranks, places]
        if not sets.all():
            i = int(np.flatnonzero(sets == UNDEFINED)[0])
            rank = int(ranks[i])
            place = f"{buffer}[{self.units[places[i]]}]"
            schedule = self.extent.schedule
            raise fault_of_step(
                schedule,
                number,
                rank,
                f"reads {place}, which nothing has defined{_received_before(schedule, number, rank)}",
            )
        return sets

    def _spread(self, part: Part) -> tuple[Ints, Ints]:
        """Return the places of a part, message by message, and before them the message of each."""
        columns = [(self._place(r.first), self._place(r.last)) for r in part.ranges]
        if len(columns) == 1:
            return units_of_ranges(*columns[0])
        firsts, lasts = (np.stack(column, axis=-1).ravel() for column in zip(*columns, strict=True))
        which, places = units_of_ranges(firsts, lasts)
        return which // len(columns), places

    def _place(self, unit: object) -> Ints:
        """Return which of the places begin at units that are edges; those beyond begin where the places end."""
        place = np.searchsorted(self.extent.edges, np.asarray(unit, np.int64))
        first = self.places.start
        return np.clip(place, first, self.places.stop) - first

    def places_of(self, units: range) -> slice:
        """Return the places of consecutive units."""
        if not units:
            return slice(0, 0)
        return slice(*self._place([units.start, units.stop]).tolist())


def _batches(messages: Sequence[Messages], *, arrivals: bool) -> list[list[Messages]]:
    """Return messages of a step that can be moved at once, as their parts are alike.

    Arrivals at a rank land one after another: the first of each rank, then the second, and so on.
    """
    if len(messages) < 2 or any(len(m.source) > 1 for m in messages):
        return [[m] for m in messages]
    landed: defaultdict[int, int] = defaultdict(int)  # by rank
    alike: defaultdict[tuple[int, object], list[Messages]] = defaultdict(list)
    for m in messages:
        if not arrivals:
            alike[0, _form(m.sent)].append(m)
            continue
        target = int(m.target[0])
        forms = _form(m.sent), _form(m.landed), _form(m.operand)
        alike[landed[target], forms].append(m)
        landed[target] += 1
    in_turn = sorted(alike, key=lambda key: key[0])
    return [alike[key] for key in in_turn]


def _form(part: Part | None) -> tuple[str, int] | None:
    if part is None:
        return None
    return part.buffer, len(part.ranges)


def _joined(batch: Sequence[Messages]) -> Messages:
    """Return the messages of a batch as one."""
    if len(batch) == 1:
        return batch[0]
    operands = [m.operand for m in batch if m.operand is not None]
    return Messages(
        source=np.concatenate([m.source for m in batch]),
        target=np.concatenate([m.target for m in batch]),
        sent=_joined_part([m.sent for m in batch]),
        landed=_joined_part([m.landed for m in batch]),
        operand=_joined_part(operands) if operands else None,
    )


def _joined_part(parts: Sequence[Part]) -> Part:
    joined = []
    for ranges in zip(*(part.ranges for part in parts), strict=True):
        firsts, lasts = zip(*ranges, strict=True)
        joined.append(Range(np.concatenate(firsts), np.concatenate(lasts)))
    return Part(parts[0].buffer, tuple(joined))


def _at(part: Part, i: int) -> Part:
    """Return the part of message ``i``."""
    ranges = [Range(np.asarray(r.first)[i], np.asarray(r.last)[i]) for r in part.ranges]
    return Part(part.buffer, tuple(ranges))


def fault_of_step(schedule: Schedule, number: int, rank: int, fault: str) -> ScheduleError:
    """Return the error of a rank in step ``number``, counted from 0, with the rank's own step if that is another."""
    own = _step_of_rank(schedule, number, rank)
    place = f"step {number + 1}"
    if own != number + 1:
        place += f" (step {own} of rank {rank})"
    return ScheduleError(f"{place}: rank {rank} {fault}")


def _step_of_rank(schedule: Schedule, number: int, rank: int) -> int:
    """Return which of its own steps a rank is in during step ``number``, counted from 0, of all ranks."""
    own = 1
    before = 0  # the steps in which something moved
    for matched in match(schedule):
        moves = any(map(_has_units, (*matched.sent, *matched.landed)))
        if moves and before == number:
            break
        before += moves
        own += rank in matched.ended
    return own


def _received_before(schedule: Schedule, number: int, rank: int) -> str:
    """Return what a rank received in the last of its steps with arrivals before step ``number``, in words."""
    last: list[str] = []
    received_in = 0
    for matched in _steps(schedule):
        if matched.number >= number:
            break
        arrived: list[str] = []
        for m in matched.landing:
            for i in np.flatnonzero((m.target == rank) & (m.source != rank)):
                arrived.append(f"{_part_name(_at(m.landed, int(i)))} from rank {m.source[i]}")
        if arrived:
            last = arrived
            received_in = matched.number + 1
    if not last:
        return "; it has received nothing before"
    return f"; it received last, in step {received_in}: {', '.join(first_few(last, 4, 'message'))}"


def _part_name(part: Part) -> str:
    """Return a part as an algorithm writes it: ``dst[3]``, ``dst[2:5] + dst[0]``."""
    names = []
    for r in part.ranges:
        first, last = int(r.first), int(r.last)
        units = str(first) if last == first + 1 else f"{first}:{last}"
        if first < last:
            names.append(f"{part.buffer}[{units}]")
    return " + ".join(names) or "no unit"
