"""What slowed GPUs down during a case: lowered clocks, by NVML's reasons, and clocks below those of the other GPUs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from hpccoll.store.raw_results import Attempt, Outcome

HARDWARE_SLOWDOWN = 0x8
CLOCK_EVENTS = {
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
"""Bits of nvmlClocksEventReasons (nvml.h of CUDA 12 and 13) that weaken a result. HARDWARE_SLOWDOWN
is set with the last two.

A power cap (0x4) is not among them: a GPU at full load reaches its power limit, and its clock shows
what that costs.
"""

LIMITS = {"gpu_power_limit_s": "power", "gpu_thermal_s": "heat", "gpu_sync_boost_s": "sync boost"}
"""What lowers the clock of a GPU, by the column of the time for which it did. The power limit is
not a fault, but a round in which it lowered the clock is slower than others."""

CLOCK_SHARE = 0.05
"""The part of the median clock of all GPUs by which a low clock differs; the steps of a clock are below 1 %."""


def gpu_fields(attempt: Attempt, outcome: Outcome) -> dict[str, Any]:
    """Return the fields of a row on the GPUs of its case."""
    return {
        "gpu_sm_clock": _extreme(min, outcome.gpu_sm_clock),
        "gpu_power": _extreme(max, outcome.gpu_power),
        "gpu_temperature": _extreme(max, outcome.gpu_temperature),
        "gpu_nvlink_sent": _extreme(max, outcome.gpu_nvlink_sent),
        "gpu_throttled": throttled_gpus(attempt, outcome),
        "gpu_slow": slow_gpus(attempt, outcome),
    }


def _extreme(
    function: Callable[[Iterable[float]], float], values: Iterable[float | None]
) -> float | None:
    present = [value for value in values if value is not None]
    return function(present) if present else None


def throttled_gpus(attempt: Attempt, outcome: Outcome) -> dict[str, Sequence[str]]:
    """Return why the clocks of GPUs were lowered, by the name of the GPU; empty if none was, or nothing is known."""
    if not (outcome.gpu_thermal_s or outcome.gpu_clock_events):
        return {}  # names of thousands of GPUs take time
    times = outcome.gpu_thermal_s or (None,) * len(outcome.gpu_clock_events)
    events = outcome.gpu_clock_events or (None,) * len(times)
    reasons = {
        name: _reasons(event or 0, thermal_s or 0.0)
        for name, event, thermal_s in zip(gpu_names(attempt), events, times, strict=False)
    }
    return {name: why for name, why in reasons.items() if why}


def lowered_round(number: int, activities: Iterable[Mapping[str, float]]) -> str | None:
    """Return the number of a round with the limits that lowered the clock of a GPU in it, None if none did.

    ``activities`` are those of the GPUs of all ranks in that round (``GpuMonitor.activity``).
    """
    rank_activities = [*activities]
    limits = [
        name
        for column, name in LIMITS.items()
        if any(activity.get(column) for activity in rank_activities)
    ]
    if not limits:
        return None
    return f"{number}: {', '.join(limits)}"


def limits_of_rounds(lowered: str | None) -> dict[int, tuple[str, ...]]:
    """Return the limits of each round that the column ``lowered_rounds`` names."""
    limits_by_round: dict[int, tuple[str, ...]] = {}
    for entry in (lowered or "").split("; "):
        number, _, limits = entry.partition(": ")
        if number.isdecimal():
            limits_by_round[int(number)] = tuple(limits.split(", "))
    return limits_by_round


def _reasons(events: int, thermal_s: float) -> tuple[str, ...]:
    named = tuple(name for bit, name in CLOCK_EVENTS.items() if events & bit)
    if not named and events & HARDWARE_SLOWDOWN:
        return ("hardware slowdown",)
    return named or (("thermal limit",) if thermal_s else ())


def slow_gpus(attempt: Attempt, outcome: Outcome) -> dict[str, float]:
    """Return the clocks of slow GPUs over the median clock of all GPUs of the case, by the name of the GPU."""
    if not outcome.gpu_sm_clock:
        return {}
    names_and_clocks = [
        (name, clock)
        for name, clock in zip(gpu_names(attempt), outcome.gpu_sm_clock, strict=False)
        if clock is not None
    ]
    typical = median(clock for _, clock in names_and_clocks) if names_and_clocks else 0.0
    return {
        name: clock / typical
        for name, clock in names_and_clocks
        if clock < (1 - CLOCK_SHARE) * typical
    }


def gpu_names(attempt: Attempt) -> list[str]:
    """Return the host and the bus address of each rank's GPU, [rank]."""
    provenance: Mapping[str, Any] = attempt.provenance
    buses = provenance.get("gpu_of_rank") or (None,) * attempt.ranks
    return [
        f"{place.host} {bus or f'rank {rank}'}"
        for rank, (place, bus) in enumerate(zip(attempt.places, buses, strict=False))
    ]
