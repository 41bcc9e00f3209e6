"""The wire: what the counters of a host's network ports say of the operations that ran between two readings.

Some drivers bring their counters up to date once a second only (e1000e, bnxt_en): a pass is then over before they move,
and the bytes measured are few or none. They say so beside the bytes predicted.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hpccoll.host.network_ports import DATA_WORD_BYTES, RECEIVED, SATURATED, SENT, Counters, NetworkPort, read_counters
from hpccoll.measure.timing_loop import RankProgress, RankSync, Samples, TimedOperation
from hpccoll.spec.case import PASS_S, SETTLE_S
from hpccoll.store.statistics import durations_max

CounterChanges = Mapping[tuple[str, str], int | None]
"""How far the counters of a host have come, by port and name; None where that is not known."""


def counter_changes(before: Counters, after: Counters) -> dict[tuple[str, str], int | None]:
    """Return how far each counter has come; None where one went back, stopped or disappeared."""
    moved: dict[tuple[str, str], int | None] = {}
    for counter, first in before.items():
        last = after.get(counter)
        strange = last is None or last < first or last in (SATURATED, SATURATED * DATA_WORD_BYTES)
        moved[counter] = None if last is None or strange else last - first
    return moved


def sum_over_ports(moved: CounterChanges, name: str) -> int | None:
    """Return how far a counter has come on all ports that have it; None where one does not know, or none has it."""
    values = [value for (_, counter), value in moved.items() if counter == name]
    known = [value for value in values if value is not None]
    return sum(known) if values and len(known) == len(values) else None


MOST = 1000
"""The most operations of a pass: the bytes of two barriers are then some thousandth of a small message's."""


def pass_operations(samples: Samples) -> int:
    """Return how many operations a counting pass has, from the timed iterations; known at rank 0."""
    median_s = float(np.median(durations_max(samples.start_ns, samples.end_ns))) / 1e9
    return int(np.clip(PASS_S / max(median_s, 1e-9), 1, MOST))


def count_traffic(
    prepared: TimedOperation,
    together: RankSync,
    operations: int,
    progress: RankProgress,
    ports: tuple[NetworkPort, ...],
) -> CounterChanges:
    """Do ``pass_operations`` operations on all ranks together, and return how far the counters of ``ports`` have come.

    Nothing is timed, so that no barrier has to stand between the operations.
    """
    progress.enter("waiting for the other ranks to count bytes")
    together.barrier()
    before = read_counters(ports)
    together.barrier()  # nobody sends before everybody has read
    for _ in range(operations):
        progress.enter("in an operation whose bytes are counted")
        prepared.reset()
        prepared.run()
    together.barrier()
    # All ranks, so that none goes on and sends. Acknowledgements of TCP that are under way longer are a few frames.
    time.sleep(SETTLE_S)
    unseen = dict.fromkeys((port.name, name) for port in ports if port.has_uncounted_bytes for name in (SENT, RECEIVED))
    return {**counter_changes(before, read_counters(ports)), **unseen}


@dataclass(frozen=True, slots=True)
class PortTraffic:
    """What the hosts' counters say of a counting pass.

    Args:
        operations: of the pass.
        moved: how far the counters of each node have come, in the order of the nodes' numbers.
    """

    operations: int
    moved: tuple[CounterChanges, ...]

    def per_node(self, name: str) -> tuple[float | None, ...]:
        """Return a counter of each node, per operation."""
        return tuple(self._per_operation(sum_over_ports(node, name)) for node in self.moved)

    def by_port(self, name: str, ports: Sequence[str]) -> tuple[tuple[float | None, ...], ...]:
        """Return a counter of each of ``ports`` of each node, per operation, [node][port]."""
        return tuple(tuple(self._per_operation(node.get((port, name))) for port in ports) for node in self.moved)

    def _per_operation(self, value: int | None) -> float | None:
        return None if value is None else value / self.operations

    @property
    def sent(self) -> int | None:
        """The bytes per operation that all hosts sent, None where one does not know."""
        known = [value for value in self.per_node(SENT) if value is not None]
        return round(sum(known)) if len(known) == len(self.moved) else None

    @property
    def counters(self) -> dict[str, int | None]:
        """Every other counter that a host has, over all hosts and the whole pass, with the operations of the pass."""
        names = dict.fromkeys(name for node in self.moved for _, name in node if name not in (SENT, RECEIVED))
        return {"operations": self.operations, **{name: self._total(name) for name in names}}

    def _total(self, name: str) -> int | None:
        values = [sum_over_ports(node, name) for node in self.moved if any(name == counter for _, counter in node)]
        known = [value for value in values if value is not None]
        return sum(known) if len(known) == len(values) else None
