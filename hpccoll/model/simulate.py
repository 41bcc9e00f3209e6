"""The simulation of an operation on a machine: by events if there are few messages, else all ranks at once."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from hpccoll.model.event_simulation import simulate_events
from hpccoll.model.machine import Machine
from hpccoll.model.traffic import kept_traffic
from hpccoll.model.wave_simulation import simulate_waves
from hpccoll.schedule import Cut, Schedule

FEW_MESSAGES = 30_000
"""The most messages to simulate by events in any case: about a second."""

MANY_MESSAGES = 500_000
"""The most messages to simulate by events if lanes run side by side, for which all ranks at once is less accurate."""


class Simulated(NamedTuple):
    """The time of an operation."""

    seconds: float  # from the start of all ranks to the end of the last one
    exact: bool  # whether every message was an event


def simulate(
    schedules: Sequence[Schedule],
    cut: Cut,
    machine: Machine,
    window: int = 1,
    dtype: str = "float32",
    progress: Callable[[int], None] | None = None,
) -> Simulated:
    """Return the time of one operation.

    Args:
        schedules: the schedules of the slices, which the lanes of ``cut`` take in turn.
        cut: the positions of the units.
        machine: the machine model, with all tiers that messages cross.
        window: the number of channels in flight at once, each with a lane for every slice.
        dtype: the type of the elements, which decides what a fold costs.
        progress: is called now and then with the number of messages simulated so far.
    """
    kept = [each for each in map(kept_traffic, schedules) if each]
    if len(kept) == len(schedules):
        messages = sum(len(kept[lane % len(kept)].source) for lane in range(cut.lanes))
        side_by_side = min(window * len(schedules), cut.lanes) > 1
        if messages <= (MANY_MESSAGES if side_by_side else FEW_MESSAGES):
            return Simulated(simulate_events(schedules, cut, machine, window, dtype, progress), exact=True)
    return Simulated(simulate_waves(schedules, cut, machine, window, dtype, progress), exact=False)
