"""How many times as long transfers took as the usual ones, before and after the effects of named faults are taken out.

What is left afterwards is noise, or something that the verdict does not name. Maps have the
transfers of slots in which all of the machine is busy.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpccoll.diagnosis.recorded import RecordedDiagnosis
from hpccoll.diagnosis.robust_statistics import median
from hpccoll.diagnosis.slot_records import (
    OF_A_RACK,
    Booleans,
    Fault,
    Floats,
    Integers,
    Kind,
    Purpose,
)

MAPPED: tuple[Purpose, ...] = "screen", "racks", "retest", "accused", "links"
"""The slots whose transfers are on maps, from the last screen on: one before it was given up,
because pairs slowed one another, or a node did not answer. In others most of the machine rests."""

FEWEST_PAIRS = 4
"""The pairs of a slot from which on it has a usual time of its own; other slots of a request share one."""

LEAST_DISTANCE = 0.02
"""The least cost of distance between racks, a share of the usual time, that differs from noise on a map."""

SLOWED: Mapping[Kind, Callable[[Booleans, Booleans], Booleans]] = {
    "node": np.logical_or,
    "rail": np.logical_or,
    "rack": np.logical_or,
    "hung": np.logical_or,
    "send": lambda sender, _: sender,
    "receive": lambda _, receiver: receiver,
    "link": np.logical_and,
    "shared_link": np.logical_xor,
    "uplink": np.logical_xor,
}
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
        question = recorded.question
        measured = recorded.measured
        self._nodes = len(question.hosts)
        self._rails = question.rails
        self._racks = np.array(question.rack_numbers or [0] * self._nodes)
        slots = np.array([len(request.seconds) for request in measured], np.int64)  # [requests]
        rows = slots * self._rails
        purposes = np.array([request.slots.purpose for request in measured])
        partners = []
        for request in measured:
            partners.append(request.slots.partners[: len(request.seconds)])

        # Each rail of a slot is a row of what follows.
        self._partners = self._rows(partners)
        self._partners %= self._nodes
        self._rail = np.tile(np.arange(self._rails), slots.sum())
        self._purposes = np.repeat(purposes, rows)
        request_of = np.repeat(np.arange(len(measured)), rows)
        is_of_last_screen = request_of >= _last_screen(recorded)
        self._mapped = np.isin(self._purposes, MAPPED) & is_of_last_screen
        seconds = self._rows([request.seconds for request in measured])
        self._seconds = self._valid(seconds)
        self._is_far = self._racks[self._partners] != self._racks

        logs = np.log(self._seconds)
        groups = self._comparable_rows(request_of)
        faults = recorded.diagnosis.faults if recorded.diagnosis else ()
        healthy = logs - self._expected(faults)
        across = _medians(np.where(self._is_far, healthy, np.nan), groups)
        within = _medians(np.where(self._is_far, np.nan, healthy), groups)
        further = (across - within)[self._mapped]
        far = float(np.nan_to_num(median(further)))
        # how many times as long transfers across racks take as those within
        self.distance = math.exp(far)
        left = healthy - far * self._is_far
        usual = _medians(left, groups)
        self._before = logs - usual
        self._after = left - usual

    def _rows(self, by_request: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """Return values [slots, endpoints] of requests as [rows, nodes], with a row for each rail of a slot."""
        nothing = np.zeros((0, self._nodes * self._rails), np.int64)
        return np.concatenate([nothing, *by_request]).reshape(-1, self._nodes)

    def _valid(self, seconds: Floats) -> Floats:
        """Return the times of transfers that ended; NaN for others, and where a node rested."""
        rests = self._partners == np.arange(self._nodes)
        return np.where(np.isfinite(seconds) & ~rests, seconds, np.nan)

    def _comparable_rows(self, request_of: Integers) -> Integers:
        """Return for each row the number of a group that has a usual time in common.

        A row of enough pairs is a group of its own; the others of a request and rail are one.
        """
        requests = request_of.max(initial=-1) + 1
        pairs = np.isfinite(self._seconds).sum(1) / 2
        own = requests * self._rails + np.arange(len(pairs))
        shared = request_of * self._rails + self._rail
        return np.where(pairs >= FEWEST_PAIRS, own, shared)

    def _expected(self, faults: Sequence[Fault]) -> Floats:
        """Return what faults add to the logarithms of times: a transfer is as slow as the slowest of them."""
        expected = np.zeros(self._partners.shape)
        for fault in faults:
            component = fault.component
            number = self._racks if component.kind in OF_A_RACK else np.arange(self._nodes)
            is_faulty = np.isin(number, component.where)
            slowed = SLOWED[component.kind](
                np.broadcast_to(is_faulty, expected.shape), is_faulty[self._partners]
            )
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
        sender = np.arange(self._nodes)
        pair = sender * self._nodes + self._partners
        return self._ratios([pair], (self._nodes, self._nodes))

    @property
    def of_nodes(self) -> Ratios:
        """Those of what each node sends, and of what it receives: [2, nodes]."""
        sender = np.broadcast_to(np.arange(self._nodes), self._partners.shape)
        return self._ratios([sender, self._nodes + self._partners], (2, self._nodes))

    @property
    def of_racks(self) -> Ratios:
        """Those within each rack, of what it sends to others, and of what it receives from them: [3, racks]."""
        sender = self._racks
        receiver = self._racks[self._partners]
        count = sender.max() + 1
        within = np.where(self._is_far, -1, sender)
        sent = np.where(self._is_far, count + sender, -1)
        received = np.where(self._is_far, 2 * count + receiver, -1)
        return self._ratios([within, sent, received], (3, count))

    @property
    def slots(self) -> list[SlotSummary]:
        """The slots of each purpose."""
        summaries = []
        for purpose in dict.fromkeys(self._purposes.tolist()):
            rows = self._purposes == purpose
            slots = int(rows.sum()) // self._rails
            summaries.append(SlotSummary(purpose, slots, median(self._seconds[rows])))
        return summaries

    def _ratios(self, places: Sequence[Integers], shape: tuple[int, int]) -> Ratios:
        """Return the ratios of places.

        Args:
            places: the numbers of the places that each transfer [rows, nodes] belongs to; -1 if it
                belongs to none.
            shape: that of the result, whose size all numbers are below.
        """
        size = math.prod(shape)
        mapped = self._mapped[:, None] & np.isfinite(self._before)
        first_of_rail = self._rail[:, None] * size
        codes_by_place = []
        before_by_place = []
        after_by_place = []
        for place in places:
            is_counted = mapped & (place >= 0)
            code = first_of_rail + place
            codes_by_place.append(code[is_counted])
            before_by_place.append(self._before[is_counted])
            after_by_place.append(self._after[is_counted])
        codes = np.concatenate(codes_by_place)
        before = np.concatenate(before_by_place)
        after = np.concatenate(after_by_place)
        all_codes = self._rails * size
        before_by_code = _lower_quartiles(codes, before, all_codes)
        after_by_code = _lower_quartiles(codes, after, all_codes)
        usual = median(after_by_code)

        by_rail = (before_by_code - usual).reshape(self._rails, size)
        comparable = np.where(np.isfinite(by_rail), by_rail, -np.inf)
        slowest = np.argmax(comparable, axis=0)
        chosen = slowest * size + np.arange(size)
        transfers = np.bincount(codes, minlength=all_codes)
        ratios_before = np.exp(before_by_code[chosen] - usual)
        ratios_after = np.exp(after_by_code[chosen] - usual)
        return Ratios(
            before=ratios_before.reshape(shape),
            after=ratios_after.reshape(shape),
            rails=slowest.reshape(shape),
            transfers=transfers[chosen].reshape(shape),
        )


def _last_screen(recorded: RecordedDiagnosis) -> int:
    """Return the number of the last request for a screen; 0 if there is none."""
    last = 0
    for number, request in enumerate(recorded.measured):
        if request.slots.purpose == "screen":
            last = number
    return last


def _medians(values: Floats, groups: Integers) -> Floats:
    """Return the median of the values [rows, nodes] of the group of each row, [rows, 1]."""
    medians = np.full((len(groups), 1), np.nan)
    for group in np.unique(groups):
        medians[groups == group] = median(values[groups == group])
    return medians


def _lower_quartiles(codes: Integers, values: Floats, size: int) -> Floats:
    """Return the lower quartile [size] of the values of each code: of up to four values the least; NaN without any."""
    order = np.lexsort((values, codes))
    measured, first, count = np.unique(codes[order], return_index=True, return_counts=True)
    quartiles = np.full(size, np.nan)
    quartiles[measured] = values[order][first + (count - 1) // 4]
    return quartiles
