"""The prover: runs a schedule on sets of contributions, and checks the postcondition of its collective.

A unit of a buffer holds the set of contributions folded into it; the empty set is undefined. For every rank it checks
that nothing undefined is sent or folded, that no contribution is counted twice, and that dst ends as the postcondition
requires.

Units that all messages leave where they are stay apart from one another, and units between which no range of a message
begins or ends hold the same ranks' contributions. So one of them stands for all, and units are proven in groups if the
sets of all would need too much memory. If every rank does for the unit of its number what rank 0 does for unit 0, as in
a ring, one unit stands for all. If even ranks do what rank 0 does and odd ones what rank 1 does, as in Swing, two units
do; and so on for longer periods. The messages are compared, and no declaration is believed.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hpccoll.schedule.collective import ALL_RANKS, CollectiveCall
from hpccoll.schedule.contribution_sets import UNDEFINED, Contribution, ContributionSets, row_words
from hpccoll.schedule.cut import units_of_ranges
from hpccoll.schedule.match import Messages, ScheduleError, match
from hpccoll.schedule.schedule import Schedule
from hpccoll.schedule.step import Part, Range

Ints = NDArray[np.int64]

MOST_ROW_BYTES = 1 << 29
"""The bytes of sets up to which all units are proven at once."""

KEPT_RANGES = 1_000_000
"""The most ranges of messages that are kept; a schedule with more is matched again for each group of units."""


class UnmetPostconditionError(ScheduleError):
    """A schedule is valid, but it leaves a rank without the result of its collective."""


def prove(call: CollectiveCall, schedules: Iterable[Schedule], *, in_place: bool = True) -> None:
    """Check each schedule (slice) of an algorithm against the postcondition of a call.

    Args:
        call: the call of a collective.
        schedules: the slices, each of which is checked over its own units.
        in_place: whether dst starts with the contributions and src is undefined, or the other way round.

    Raises:
        ScheduleError: if something undefined is read, or a contribution is counted twice; names round, rank and unit.
        UnmetPostconditionError: if a contribution is missing or misplaced at the end; names rank and unit.
    """
    for schedule in schedules:
        extent = _Extent.of(call, schedule)
        for places in extent.groups():
            contributions = _Contributions(call, extent, places, in_place=in_place)
            contributions.run()
            contributions.check()


class _Round(NamedTuple):
    """The messages of a round that have units."""

    number: int  # of the rounds in which such messages depart or land, from 0
    departing: tuple[Messages, ...]
    landing: tuple[Messages, ...]


def _rounds(schedule: Schedule) -> Iterator[_Round]:
    """Yield the rounds in which messages with units depart or land."""
    number = 0
    for round_ in match(schedule):
        departing = tuple(m for m in round_.sent if _has_units(m))
        landing = departing if round_.landed is round_.sent else tuple(m for m in round_.landed if _has_units(m))
        if departing or landing:
            yield _Round(number, departing, landing)
            number += 1


def _has_units(messages: Messages) -> bool:
    return any(np.any(np.less(r.first, r.last)) for r in messages.sent.ranges)


@dataclass(frozen=True, slots=True)
class _Extent:
    """The units of a schedule that are proven each by itself: consecutive ones between two edges are one place."""

    schedule: Schedule
    edges: Ints  # where the places begin, and the last one ends, ascending
    separate: bool  # whether all messages leave units where they are
    period: int  # what holds for a unit holds for the unit so far on, at the ranks so far on; 0 if it does not
    row_bytes: int  # the bytes of the unions of all places, estimated
    number: int  # the number of rounds
    kept: tuple[_Round, ...] | None  # the rounds; None if they have too many messages to be kept

    @classmethod
    def of(cls, call: CollectiveCall, schedule: Schedule) -> "_Extent":
        kept: list[_Round] = []
        named = folded = number = 0
        separate = True
        period = int(_rotates(call, schedule))
        ranges = _UniqueRanges()
        for round_ in _rounds(schedule):
            number += 1
            named += sum(len(m.source) * len(m.sent.ranges) for m in round_.landing)
            if named <= KEPT_RANGES:
                kept.append(round_)
            for m in round_.landing:
                separate = separate and _leaves_units(m)
                period = _period(m, schedule, period) if separate else 0
                for part in {id(part): part for part in (m.sent, m.landed, m.operand) if part is not None}.values():
                    ranges.add(part)
                if m.operand is not None:
                    folded += sum(int(np.sum(np.subtract(r.last, r.first))) for r in m.landed.ranges)
        for me in range(schedule.layout.workers):
            ranges.add_units(call.source(me, schedule.units))
            ranges.add_units(call.target(me, schedule.units))
        edges = ranges.ends() if separate else ranges.single_units()
        unions = folded * len(edges) // max(1, schedule.units) if separate else folded
        row_bytes = 8 * row_words(schedule.layout.workers) * unions
        complete = named <= KEPT_RANGES
        return cls(schedule, edges, separate, period, row_bytes, number, tuple(kept) if complete else None)

    @property
    def rounds(self) -> Iterable[_Round]:
        return _rounds(self.schedule) if self.kept is None else self.kept

    def groups(self) -> Iterator[range]:
        """Yield the places that are proven at once; of places that are alike, one."""
        every = max(1, len(self.edges) - 1)
        places = every
        if self.period:
            places = int(np.searchsorted(self.edges[:-1], self.period))
        groups = -(-self.row_bytes // MOST_ROW_BYTES) if self.separate else 1
        size = -(-every // max(1, groups))
        for first in range(0, places, size):
            yield range(first, min(first + size, places))


def _rotates(call: CollectiveCall, schedule: Schedule) -> bool:
    """Return whether each rank contributes, and must hold, the units of the rank before it, shifted by one."""
    p = schedule.layout.workers
    if not p == schedule.units == schedule.layout.ranks:
        return False
    units = np.arange(p)
    shifted = [_are_shifted([select(me, p) for me in range(p)], p) for select in (call.source, call.target)]
    of_first = np.array([call.collective.result(call, me, 0)[0] for me in range(p)])
    for me in range(p if all(shifted) else 0):
        origin, unit = call.collective.result(call, me, units)
        expected = of_first[(me - units) % p]
        expected = np.where(expected < 0, expected, (expected + units) % p)
        if not (np.array_equal(np.broadcast_to(origin, p), expected) and np.array_equal(unit, units)):
            return False
    return all(shifted)


def _are_shifted(units: Sequence[range], p: int) -> bool:
    """Return whether all ranks name all units, or each one unit, which is that of the rank before it plus one."""
    if all(each == range(p) for each in units):
        return True
    return all(len(each) == 1 and each.start == (units[0].start + me) % p for me, each in enumerate(units))


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
        first, last = np.asarray(r.first), np.asarray(r.last)
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
    parts = [messages.landed] if messages.operand is None else [messages.landed, messages.operand]
    return all(part.ranges is sent or _are_equal(part.ranges, sent) for part in parts)


def _are_equal(some: Sequence[Range], others: Sequence[Range]) -> bool:
    if len(some) != len(others):
        return False
    pairs = zip(some, others, strict=True)
    return all(np.array_equal(a.first, b.first) and np.array_equal(a.last, b.last) for a, b in pairs)


class _UniqueRanges:
    """The ranges of units that messages name, each once."""

    _LAST = 1 << 31  # no unit has a number as large

    def __init__(self) -> None:
        self._known = np.empty(0, np.int64)  # first and last in one number, ascending
        self._added: list[Ints] = []

    def add(self, part: Part) -> None:
        for r in part.ranges:
            first, last = np.asarray(r.first, np.int64), np.asarray(r.last, np.int64)
            self._added.append(np.ravel(first * self._LAST + last))
        if sum(map(len, self._added)) > max(len(self._known), 1 << 12):
            self._merge()

    def add_units(self, units: range) -> None:
        if units:
            self._added.append(np.array([units.start * self._LAST + units.stop]))

    def _merge(self) -> None:
        self._known = np.unique(np.concatenate([self._known, *self._added]))
        self._added.clear()

    def _firsts_and_lasts(self) -> tuple[Ints, Ints]:
        self._merge()
        first, last = np.divmod(self._known, self._LAST)
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


class _Contributions:
    """What is folded in some of the places of all buffers, as numbers of sets."""

    def __init__(self, call: CollectiveCall, extent: _Extent, places: range, *, in_place: bool) -> None:
        self.call, self.extent, self.places = call, extent, places
        layout, units = extent.schedule.layout, extent.schedule.units
        share = len(places) * extent.row_bytes // max(1, len(extent.edges) - 1)
        unions = share // (8 * row_words(layout.workers))
        self.units = extent.edges[places.start : places.stop]  # the first unit of each place
        self.sets = ContributionSets(layout.workers, self.units, unions)
        shape = layout.ranks, len(self.units)
        self.buffers: defaultdict[str, Ints] = defaultdict(lambda: np.full(shape, UNDEFINED, np.int64))
        self.carried: dict[Messages, Ints] = {}
        begin = self.buffers["dst" if in_place else "src"]
        for me in range(layout.workers):
            held = self._places_of(call.source(me, units))
            begin[me, held] = self.sets.single(me, np.arange(len(self.units))[held])

    def run(self) -> None:
        """Move all messages.

        Raises:
            ScheduleError: if something undefined is read, or a contribution is counted twice.
        """
        for round_ in self.extent.rounds:
            for batch in _batches(round_.departing, arrivals=False):
                self._send(round_.number, batch)
            for batch in _batches(round_.landing, arrivals=True):
                self._land(round_.number, batch)

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
            arriving = self._fold(number, held, arriving, target, places)
        self.buffers[joined.landed.buffer][target, places] = arriving

    def _check_places(self, number: int, messages: Messages, which: Ints, places: Ints) -> None:
        """Check that divisible units land where they were sent from."""
        _, sent = self._spread(messages.sent)
        for i in which[np.flatnonzero(sent != places)[:1]]:
            source, target = ([*_at(part, int(i)).units] for part in (messages.sent, messages.landed))
            raise _fault(number, f"rank {messages.target[i]} puts divisible units {source} in the place of {target}")

    def _read(self, number: int, buffer: str, ranks: Ints, places: Ints) -> Ints:
        """Return what ranks have at places that they read in round ``number``."""
        sets: Ints = self.buffers[buffer][ranks, places]
        if not sets.all():
            i = int(np.flatnonzero(sets == UNDEFINED)[0])
            what = f"{buffer}[{self.units[places[i]]}]"
            raise _fault(number, f"rank {ranks[i]} reads {what}, which nothing has defined")
        return sets

    def _fold(self, number: int, held: Ints, arriving: Ints, target: Ints, places: Ints) -> Ints:
        united, twice = self.sets.unite(held, arriving)
        if twice.any() and not self.call.collective.idempotent:
            i = int(np.flatnonzero(twice)[0])
            both = self.sets.members(int(held[i])) & self.sets.members(int(arriving[i]))
            what = f"rank {target[i]} counts twice in unit {self.units[places[i]]}: {_names(both)}"
            raise _fault(number, what)
        return united

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
        return np.clip(place, self.places.start, self.places.stop) - self.places.start

    def _places_of(self, units: range) -> slice:
        return slice(*self._place([units.start, units.stop]).tolist()) if units else slice(0, 0)

    def check(self) -> None:
        """Check the postcondition after the last round.

        Raises:
            UnmetPostconditionError: if a contribution is missing or misplaced.
        """
        for me in range(self.extent.schedule.layout.workers):
            held = self._places_of(self.call.target(me, self.extent.schedule.units))
            places = np.arange(len(self.units))[held]
            sets = self.buffers["dst"][me, held]
            for i in np.flatnonzero(~self._are_results(me, places, sets))[:1]:
                self._refuse(me, int(self.units[places[i]]), int(sets[i]))

    def _are_results(self, me: int, places: Ints, sets: Ints) -> NDArray[np.bool]:
        """Return whether sets are what a rank must hold at places."""
        origin, unit = self.call.collective.result(self.call, me, self.units[places])
        if np.ndim(origin) == 0 and origin == ALL_RANKS:
            return self.sets.are_complete(sets, places)
        wanted = np.searchsorted(self.units, unit).clip(max=len(self.units) - 1)
        are_here = self.units[wanted] == unit
        results: NDArray[np.bool] = are_here & (sets == self.sets.single(np.asarray(origin), wanted))
        return results

    def _refuse(self, me: int, unit: int, found: int) -> None:
        required, held = self.call.result(me, unit), self.sets.members(found)
        after = f"after round {self.extent.number}, the last one, " if self.extent.number else ""
        if missing := required - held:
            raise UnmetPostconditionError(f"{after}rank {me} ends without {_names(missing)} in unit {unit}")
        raise UnmetPostconditionError(f"{after}rank {me} ends with {_names(held - required)} in unit {unit}")


def _batches(messages: Sequence[Messages], *, arrivals: bool) -> list[list[Messages]]:
    """Return messages of a round that can be moved at once, as their parts are alike.

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
    return None if part is None else (part.buffer, len(part.ranges))


def _joined(batch: Sequence[Messages]) -> Messages:
    """Return the messages of a batch as one."""
    if len(batch) == 1:
        return batch[0]
    source, target = (np.concatenate([getattr(m, end) for m in batch]) for end in ("source", "target"))
    sent, landed = _joined_part([m.sent for m in batch]), _joined_part([m.landed for m in batch])
    operands = [m.operand for m in batch if m.operand is not None]
    return Messages(source, target, sent, landed, _joined_part(operands) if operands else None)


def _joined_part(parts: Sequence[Part]) -> Part:
    columns = zip(*(part.ranges for part in parts), strict=True)
    ranges = tuple(Range(*map(np.concatenate, zip(*column, strict=True))) for column in columns)
    return Part(parts[0].buffer, ranges)


def _at(part: Part, i: int) -> Part:
    return Part(part.buffer, tuple(Range(np.asarray(r.first)[i], np.asarray(r.last)[i]) for r in part.ranges))


def _names(contributions: Iterable[Contribution]) -> str:
    return ", ".join(f"rank {origin}'s unit {unit}" for origin, unit in sorted(contributions))


def _fault(number: int, what: str) -> ScheduleError:
    return ScheduleError(f"round {number + 1}: {what}")
