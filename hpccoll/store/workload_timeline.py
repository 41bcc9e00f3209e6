"""When the parts of a workload ran."""

from collections.abc import Iterator, Mapping
from typing import Protocol


class WorkloadTimeline(Protocol):
    """When the parts of a workload ran, in each iteration at each rank."""

    def iteration(self, number: int) -> "WorkloadTimeline":
        """Return the times of one iteration."""

    def median_over_iterations(self) -> "WorkloadTimeline":
        """Return the medians over iterations, as times of one iteration."""

    def parts(self) -> Iterator[Mapping[str, object]]:
        """Yield the parts of the first iteration at each rank, with their times in seconds since its start."""
