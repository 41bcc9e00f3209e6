"""How many times as long transfers took as the usual ones, before and after the effects of named faults are taken out.

What is left afterwards is noise, or something that the verdict does not name. Maps have the transfers of slots in which
all of the machine is busy.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hpccoll.diagnosis.recorded import RecordedDiagnosis
from hpccoll.diagnosis.records import OF_A_RACK, Booleans, Fault, Floats, Integers, Kind, Purpose
from hpccoll.diagnosis.robust_statistics import median

MAPPED: tuple[Purpose, ...] = "screen", "racks", "retest", "accused", "links"
"""The slots whose transfers are on maps, from the last screen on: one before it was given up, because pairs slowed one
another, or a node did not answer. In others most of the machine rests."""

FEWEST_PAIRS = 4
"""The pairs of a slot from which on it has a usual time of its own; other slots of a request share one."""

LEAST_DISTANCE = 0.02
"""The least cost of distance between racks, a share of the usual time, that differs from noise on a map."""

SLOWED: Mapping[Kind, Callable[[Booleans, Booleans], Booleans]] = {
    "node": np.logical_or, "rail": np.logical_or, "rack": np.logical_or, "hung": np.logical_or,
    "send": lambda sender, _: sender, "receive": lambda _, receiver: receiver,
    "link": np.logical_and, "shared_link": np.logical_xor, "uplink": np.logical_xor,
}  # fmt: skip
"""Which transfers a fault slows, by whether their sender, and their receiver, is one of its nodes or in its rack."""


@dataclass(frozen=True, slots=True)
class Ratios:
    """How many times as long transfers took as the usual ones: lower quartiles, each on the rail where it is most.

    The median of what is left is 1.
    """

    before: Floats  # NaN if none was measured
    after: Floats  # what is left if the effects of named faults and of distance are taken out
    rails: Integers
    transfers: Integers  # how many were measured on the rail


@dataclass(frozen=True, slots=True)
class SlotSummary:
    """The slots that were measured for a purpose."""

    purpose: Purpose
    slots: int
    seconds: float  # the median time of a transfer; NaN if none ended


class MeasuredRatios:
    """All transfers of a diagnosis, beside the usual time of their slot and rail.

    Args:
        recorded: the diagnosis; if it was interrupted, no faults are named.
    """

    def __init__(self, recorded: RecordedDiagnosis) -> None:
        question, measured = recorded.question, recorded.measured
        self._nodes, self._rails = len(question.hosts), question.rails
        self._racks = racks = np.array(question.rack_numbers or [0] * self._nodes)
        shape = (-1, self._nodes)  # each rail of a slot is a row
        none = np.zeros((0, self._nodes * self._rails), np.int64)
        partners = np.concatenate([none, *(each.slots.partners[: len(each.seconds)] for each in measured)])
        self._partners = partners.reshape(shape) % self._nodes
        times = np.concatenate([none, *(each.seconds for each in measured)]).reshape(shape)
        rests = self._partners == np.arange(self._nodes)
        self._seconds = np.where(np.isfinite(times) & ~rests, times, np.nan)
        self._rail = np.tile(np.arange(self._rails), len(partners))
        counts = [len(each.seconds) * self._rails for each in measured]
        self._purposes = np.repeat([each.slots.purpose for each in measured], counts)
        requests = np.repeat(np.arange(len(measured)), counts)
        screens = [number for number, each in enumerate(measured) if each.slots.purpose == "screen"]
        self._mapped = np.isin(self._purposes, MAPPED) & (requests >= max(screens, default=0))
        pairs = np.isfinite(self._seconds).sum(1) / 2
        shared = requests * self._rails + self._rail
        groups = np.where(pairs >= FEWEST_PAIRS, len(measured) * self._rails + np.arange(len(pairs)), shared)
        self._is_far, logs = racks[self._partners] != racks, np.log(self._seconds)
        left = logs - self._expected(recorded.diagnosis.faults if recorded.diagnosis else ())
        across, within = (_medians(np.where(part, left, np.nan), groups) for part in (self._is_far, ~self._is_far))
        far = float(np.nan_to_num(median((across - within)[self._mapped])))
        self.distance = math.exp(far)  # how many times as long transfers across racks take as those within
        left = left - far * self._is_far
        usual = _medians(left, groups)
        self._before, self._after = logs - usual, left - usual

    def _expected(self, faults: Sequence[Fault]) -> Floats:
        """Return what faults add to the logarithms of times: a transfer is as slow as the slowest of them."""
        expected = np.zeros(self._partners.shape)
        for fault in faults:
            component = fault.component
            number = self._racks if component.kind in OF_A_RACK else np.arange(self._nodes)
            of_fault = np.isin(number, component.where)
            slowed = SLOWED[component.kind](np.broadcast_to(of_fault, expected.shape), of_fault[self._partners])
            if component.rail is not None:
                slowed = slowed & (self._rail == component.rail)[:, None]
            if math.isfinite(fault.effect):  # what does not end has no time
                expected = np.maximum(expected, slowed * math.log(fault.effect))
        return expected

    @property
    def has_distance(self) -> bool:
        """Whether distance costs enough to be visible."""
        return abs(self.distance - 1) > LEAST_DISTANCE

    @property
    def ended(self) -> bool:
        """Whether any transfer of the maps has ended."""
        return bool(np.isfinite(self._before[self._mapped]).any())

    @property
    def of_pairs(self) -> Ratios:
        """Those of transfers from each node to each other one: [sender, receiver]."""
        return self._ratios([np.arange(self._nodes) * self._nodes + self._partners], (self._nodes, self._nodes))

    @property
    def of_nodes(self) -> Ratios:
        """Those of what each node sends, and of what it receives: [2, nodes]."""
        sender = np.broadcast_to(np.arange(self._nodes), self._partners.shape)
        return self._ratios([sender, self._nodes + self._partners], (2, self._nodes))

    @property
    def of_racks(self) -> Ratios:
        """Those within each rack, of what it sends to others, and of what it receives from them: [3, racks]."""
        racks, count = self._racks, self._racks.max() + 1
        sent, received = (
            np.where(self._is_far, part, -1) for part in (count + racks, 2 * count + racks[self._partners])
        )
        return self._ratios([np.where(self._is_far, -1, racks), sent, received], (3, count))

    @property
    def slots(self) -> list[SlotSummary]:
        """The slots of each purpose."""
        purposes = {purpose: self._purposes == purpose for purpose in dict.fromkeys(self._purposes.tolist())}
        return [
            SlotSummary(purpose, int(rows.sum()) // self._rails, median(self._seconds[rows]))
            for purpose, rows in purposes.items()
        ]

    def _ratios(self, places: Sequence[Integers], shape: tuple[int, int]) -> Ratios:
        """Return the ratios of places, numbers below the size of a shape; -1: the transfer [rows, nodes] is of none."""
        size, mapped = math.prod(shape), self._mapped[:, None] & np.isfinite(self._before)
        counted = [mapped & (place >= 0) for place in places]
        of_rail = self._rail[:, None] * size
        codes = np.concatenate([(of_rail + place)[valid] for place, valid in zip(places, counted, strict=True)])
        before, after = (
            _lower_quartiles(codes, np.concatenate([values[valid] for valid in counted]), self._rails * size)
            for values in (self._before, self._after)
        )
        before, after = before - median(after), after - median(after)
        by_rail = before.reshape(self._rails, size)
        slowest = np.argmax(np.where(np.isfinite(by_rail), by_rail, -np.inf), axis=0)
        chosen = slowest * size + np.arange(size)
        transfers = np.bincount(codes, minlength=self._rails * size)
        found = np.exp(before[chosen]), np.exp(after[chosen]), slowest, transfers[chosen]
        return Ratios(*(each.reshape(shape) for each in found))


def _medians(values: Floats, groups: Integers) -> Floats:
    """Return the median of the values [rows, nodes] of the group of each row, [rows, 1]."""
    medians = np.full((len(groups), 1), np.nan)
    for group in np.unique(groups):
        medians[groups == group] = median(values[groups == group])
    return medians


def _lower_quartiles(codes: Integers, values: Floats, size: int) -> Floats:
    """Return the lower quartile [size] of the values of each code: of up to four values the least; NaN without any."""
    order = np.lexsort((values, codes))
    found, first, count = np.unique(codes[order], return_index=True, return_counts=True)
    quartiles = np.full(size, np.nan)
    quartiles[found] = values[order][first + (count - 1) // 4]
    return quartiles
