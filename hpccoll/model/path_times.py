"""Times of operations as sums along their critical paths, on machines that were fitted to collectives.

The fit is a regression on what is on the paths (``collective_fit``). So the fitted machine has the
same times as the regression if they are made of the same sums; a simulation of the same costs would
differ where messages that share something begin at different times. The path itself is that of
typical costs, whatever the machine is.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hpccoll.model.complete_exchange import ExchangeWaves, complete_exchanges
from hpccoll.model.critical_path import (
    PathAddresses,
    PathFold,
    PathMessage,
    PathWaves,
    RowWork,
    WaveMessages,
    path_seconds,
)
from hpccoll.model.equal_waves import OperationWaves, cut_of_port, largest_fold, operation_waves
from hpccoll.model.machine import Machine, cost_columns
from hpccoll.model.torus_links import Torus
from hpccoll.schedule import Cut, Schedule
from hpccoll.schedule.layout import TIERS

Ints = NDArray[np.int64]
Floats = NDArray[np.floating]
Bools = NDArray[np.bool]

SYNCHRONOUS_BYTES = 32 << 10
"""The size from which messages wait for their receivers (rendezvous)."""

NODE = TIERS.index("node")

MOST_EXCHANGING = 1024
"""The most ranks all of whose messages are followed if each sends to all others at once."""


class TypicalCosts:
    """The costs with which the longest path of an operation is found: those of clusters of the 2020s, rounded.

    The links of a torus cost nothing here. So they do not decide which messages are on the path.
    """

    def messages_s(self, messages: WaveMessages, *, received: bool) -> Floats:
        is_inside = messages.tier <= NODE
        byte_s = np.where(is_inside, 2e-10, 1.25e-10)
        passing_s = np.maximum(messages.rank_bytes * byte_s, messages.port_bytes * 1e-10)
        queued_s = (1 + messages.before) * 2e-7
        seconds: Floats = queued_s + passing_s
        if received:
            seconds += np.where(is_inside, 3e-7, 2e-6)
        return seconds

    def fold_s(self, nbytes: Ints) -> Floats:
        return nbytes / 6e9

    def waits(self, nbytes: Ints) -> Bools:
        return nbytes >= SYNCHRONOUS_BYTES


class MachineCosts(TypicalCosts):
    """The costs of the work on a path on a machine that was fitted to collectives.

    Args:
        machine: the machine, in the job.
        dtype: the type of the elements.
    """

    def __init__(self, machine: Machine, dtype: str) -> None:
        if machine.path is None:
            raise ValueError("this machine has no costs of critical paths")
        self.machine = machine
        self.dtype = dtype
        self.path = machine.path
        self.fold_byte_s = machine.fold_byte_s(dtype) * machine.ports

    def messages_s(self, messages: WaveMessages, *, received: bool) -> Floats:
        """Return the seconds of each message: what it waits for, and the longest of what it passes."""
        queued_s, passing_s = self._queued_and_passing_s(messages, received)
        seconds: Floats = queued_s + passing_s
        return seconds

    def _queued_and_passing_s(
        self, messages: WaveMessages, received: bool
    ) -> tuple[Floats, Floats]:
        """Return the seconds that each message waits, and the longest of those that its bytes take to pass."""
        path, ports = self.path, self.machine.ports
        alone_s, byte_s = self._tier_costs(messages)
        if received:
            queued_s = alone_s + messages.before * path.following_s + messages.hops * path.hop_s
        else:
            queued_s = (1 + messages.before) * path.following_s
        passing_s = messages.rank_bytes * byte_s
        if ports > 1:
            queued_s = queued_s + (ports - 1) * (path.further_port_s or 0.0)
            passing_s = np.maximum(passing_s, messages.rank_bytes * ports * path.ports_byte_s)
        passing_s = np.maximum(passing_s, messages.link_bytes * path.link_byte_s)
        passing_s = np.maximum(passing_s, messages.port_bytes * self.machine.port_byte_s)
        return queued_s, passing_s

    def work_s(self, work: Mapping[RowWork, int]) -> float:
        """Return the seconds of work that follows one another, each kind as often as it says."""
        seconds = 0.0
        for kind, count in work.items():
            if isinstance(kind, PathFold):
                seconds += count * kind.nbytes * self.fold_byte_s
            elif isinstance(kind, PathAddresses):
                seconds += count * self._addresses_s(kind)
            else:
                seconds += count * self._message_s(kind)
        return seconds

    def _message_s(self, message: PathMessage) -> float:
        messages = WaveMessages(
            np.array([TIERS.index(message.tier)]),
            np.array([message.nbytes]),
            np.array([message.before]),
            np.array([message.rank_bytes]),
            np.array([message.port_bytes]),
            np.array([message.link_bytes]),
            np.array([message.hops]),
        )
        queued_s, passing_s = self._queued_and_passing_s(messages, message.received)
        folding_s = 0.0
        if message.segments:  # its segments are folded while it is on its way
            ports = self.machine.ports
            folding_s = message.nbytes * self.fold_byte_s
            folding_s += message.segments * ports * self.path.segment_s
        return float(queued_s[0]) + max(float(passing_s[0]), folding_s)

    def _addresses_s(self, addresses: PathAddresses) -> float:
        """Return the seconds of a message of addresses, which is sent over one port."""
        message = PathMessage(
            addresses.tier, addresses.nbytes, addresses.before, addresses.nbytes, 0, received=True
        )
        over_one_port = MachineCosts(replace(self.machine, ports=1), self.dtype)
        return over_one_port._message_s(message) + self.path.address_s

    def fold_s(self, nbytes: Ints) -> Floats:
        """Return the seconds of each fold; a rank folds what its ports received, one after another."""
        return nbytes * self.fold_byte_s

    def _tier_costs(self, messages: WaveMessages) -> tuple[Floats, Floats]:
        """Return the seconds of each message besides its bytes, and those of a byte between two ranks."""
        alone_s = np.zeros(len(messages.tier))
        byte_s = np.zeros(len(messages.tier))
        for tier in np.unique(messages.tier):
            crossing = np.flatnonzero(messages.tier == tier)
            costs = self.machine.tiers[TIERS[tier]]
            latency_s, overhead_s, _, seconds_of_byte, _ = cost_columns(
                costs, messages.nbytes[crossing]
            )
            alone_s[crossing] = latency_s + 2 * overhead_s
            byte_s[crossing] = seconds_of_byte
        return alone_s, byte_s


def sums_paths(machine: Machine, schedules: Sequence[Schedule], cut: Cut) -> bool:
    """Return whether the time of an operation is a sum along its path: on a machine that was fitted to such sums.

    What it was not fitted to is simulated: lanes side by side, aggregators, and resources that a
    person has declared.
    """
    declared = machine.cpus or machine.uplink_byte_s or machine.memory_byte_s
    if machine.path is None or declared:
        return False
    return cut.lanes == 1 and not schedules[0].layout.aggregators


def times_along_path(
    schedule: Schedule,
    cut: Cut,
    machines: Sequence[Machine],
    dtype: str,
    progress: Callable[[int], None] | None = None,
) -> list[float]:
    """Return the seconds of the messages and folds of an operation on several machines, in the same job.

    Args:
        schedule: the schedule.
        cut: the positions of the units, in one lane.
        machines: the machines, which differ in their costs only.
        dtype: the type of the elements.
        progress: is called now and then with the number of messages so far.
    """
    torus = machines[0].torus
    waves = _waves(schedule, cut_of_port(cut, machines[0].ports), torus)
    costs = [MachineCosts(machine, dtype) for machine in machines]
    return path_seconds(waves, TypicalCosts(), costs, torus, progress)


def _waves(schedule: Schedule, cut: Cut, torus: Torus | None) -> PathWaves:
    """Return the waves of an operation, at as few ranks as can stand for all."""
    exchanges = exchanges_of_many_ranks((schedule,), cut)
    if exchanges:
        return exchanges
    if torus is None:
        return operation_waves((schedule,), cut)
    return OperationWaves((schedule,), cut, everyone=True)


def exchanges_of_many_ranks(schedules: Sequence[Schedule], cut: Cut) -> ExchangeWaves | None:
    """Return the waves of an operation if it consists of complete exchanges of very many messages."""
    if len(schedules) > 1 or schedules[0].layout.ranks <= MOST_EXCHANGING:
        return None
    return complete_exchanges(schedules[0], cut)


def largest_fold_of_ports(schedules: tuple[Schedule, ...], cut: Cut, ports: int) -> int:
    """Return the most bytes that a rank folds at once, of what all of its ports receive; 0 if it folds none."""
    if not cut.call.collective.reduces:
        return 0
    part = cut_of_port(cut, ports)
    exchanges = exchanges_of_many_ranks(schedules, part)
    return largest_fold(exchanges or operation_waves(schedules, part)) * ports
