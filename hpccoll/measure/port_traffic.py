"""Port traffic: the bytes and events that the counters of network ports record during a pass of operations.

Some drivers update their counters once per second only (e1000e, bnxt_en). A pass may end before
they do, and the measured bytes are then too few or none; the report shows them next to the
predicted bytes.
"""

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpccoll.cases.case import PASS_S, SETTLE_S
from hpccoll.host.network_ports import (
    DATA_WORD_BYTES,
    RECEIVED,
    SATURATED,
    SENT,
    Counters,
    NetworkPort,
    read_counters,
)
from hpccoll.measure.timing_loop import RankProgress, RankSync, Samples, TimedOperation

CounterChanges = Mapping[tuple[str, str], int | None]
"""The increases of the counters of a host, by port and counter name; None if unknown."""


def counter_changes(before: Counters, after: Counters) -> dict[tuple[str, str], int | None]:
    """Return the increase of each counter; None if it decreased, saturated or disappeared."""
    changes: dict[tuple[str, str], int | None] = {}
    for counter, first in before.items():
        last = after.get(counter)
        invalid = last is None or last < first or last in (SATURATED, SATURATED * DATA_WORD_BYTES)
        changes[counter] = None if last is None or invalid else last - first
    return changes


def _sum(values: Iterable[Any]) -> Any:
    """Return the sum of numbers; None if one is unknown, or if there is none."""
    numbers = [*values]
    if not numbers or None in numbers:
        return None
    return sum(numbers)


def sum_over_ports(changes: CounterChanges, name: str) -> int | None:
    """Return the increase of a counter over all ports that have it; None if one is unknown or no port has it."""
    total: int | None = _sum(value for (_, counter), value in changes.items() if counter == name)
    return total


MAX_ITERATIONS = 1000
"""The maximum number of iterations of a pass. The bytes of two barriers are then about a thousandth
of those of the small messages."""


def pass_iterations(samples: Samples) -> int:
    """Return the number of iterations of a counting pass, from the timed ones; valid at rank 0."""
    return int(np.clip(PASS_S / max(median_s(samples), 1e-9), 1, MAX_ITERATIONS))


def median_s(samples: Samples) -> float:
    """Return the median time of the timed iterations, at rank 0."""
    if samples.times is None:
        raise ValueError("only rank 0 knows the times")
    return float(np.median(samples.times.max_ns)) / 1e9


def count_traffic(
    operation: TimedOperation,
    sync: RankSync,
    iterations: int,
    progress: RankProgress,
    ports: tuple[NetworkPort, ...],
) -> CounterChanges:
    """Run ``iterations`` of an operation, untimed, and return the counter changes; all ranks call this together.

    No barriers separate the iterations, because nothing is timed. ``ports`` are those whose
    counters this rank reads, none on most ranks.
    """
    progress.enter("waiting for the other ranks to count bytes")
    sync.barrier()
    before = read_counters(ports)
    sync.barrier()  # no rank sends before all have read the counters
    for _ in range(iterations):
        progress.enter("in an operation whose bytes are counted")
        operation.reset()
        operation.run()
    sync.barrier()
    # All ranks sleep, so that none sends. Only a few frames, acknowledgements of TCP, may arrive
    # later than that.
    time.sleep(SETTLE_S)
    changes = counter_changes(before, read_counters(ports))
    for port in ports:
        # its counters miss some bytes: what they say is not known to be all
        if port.has_uncounted_bytes:
            changes |= {(port.name, SENT): None, (port.name, RECEIVED): None}
    return changes


@dataclass(frozen=True, slots=True)
class PortTraffic:
    """The counter changes of all nodes, in the order of their numbers, during a pass of a number of operations."""

    operations: int
    changes: tuple[CounterChanges, ...]

    def per_node(self, name: str) -> tuple[float | None, ...]:
        """Return the increase of a counter per operation, [node]."""
        return tuple(self._per_operation(sum_over_ports(node, name)) for node in self.changes)

    def by_port(self, name: str, ports: Sequence[str]) -> tuple[tuple[float | None, ...], ...]:
        """Return the increase of a counter per operation, [node][port]."""
        return tuple(
            tuple(self._per_operation(node.get((port, name))) for port in ports)
            for node in self.changes
        )

    def results(self, ports: Sequence[str]) -> dict[str, Any]:
        """Return the results of a case by their names; ``ports`` are those of the attempt."""
        return {
            "wire_bytes_measured": self.sent,
            "counters": self.counters,
            "wire_sent": self.per_node(SENT),
            "wire_received": self.per_node(RECEIVED),
            "port_sent": self.by_port(SENT, ports),
            "port_received": self.by_port(RECEIVED, ports),
        }

    def _per_operation(self, value: int | None) -> float | None:
        if value is None:
            return None
        return value / self.operations

    @property
    def sent(self) -> int | None:
        """The bytes per operation that all hosts sent, None if unknown for one of them."""
        total = _sum(self.per_node(SENT))
        return None if total is None else round(total)

    def mean_per_node(self, name: str) -> float | None:
        """Return the increase of a counter per operation, the mean over all nodes; None if unknown for one of them."""
        total = _sum(self.per_node(name))
        return None if total is None else total / len(self.changes)

    @property
    def counters(self) -> dict[str, int | None]:
        """The increases of all other counters over all hosts and the whole pass, with the number of operations."""
        sums_of_hosts: dict[str, list[int | None]] = defaultdict(list)
        for changes in self.changes:
            counters_of_host = dict.fromkeys(name for _, name in changes)
            for name in counters_of_host:
                sums_of_hosts[name].append(sum_over_ports(changes, name))
        counters: dict[str, int | None] = {"operations": self.operations}
        for name, sums in sums_of_hosts.items():
            if name not in (SENT, RECEIVED):
                counters[name] = _sum(sums)
        return counters
