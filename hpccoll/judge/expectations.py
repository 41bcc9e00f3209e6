"""Expectations: measured times over those that a machine file promises, case by case."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hpccoll.model.expected_times import expected_times
from hpccoll.model.machine_file import MachineFile
from hpccoll.model.observations import Observation, observations
from hpccoll.model.run_model import RunModel
from hpccoll.model.simulation import BOUNDS
from hpccoll.model.validation import Validated, count_progress
from hpccoll.store.raw_results import RawResults
from hpccoll.store.schema import SIMULATED


@dataclass(frozen=True, slots=True)
class Expectation:
    """The measurements of one transport and executor on one machine, with what another machine file promises."""

    machine: MachineFile
    run: RunModel  # the measurements, with the expected times at the likely values
    intervals: Sequence[tuple[float, float] | None]  # the ends of the interval of each expected time; None without one

    @property
    def within(self) -> int:
        """The number of measurements inside the interval of their expected time."""
        inside = 0
        for case, interval in zip(self.run.validated, self.intervals, strict=True):
            if interval is not None:
                low_s, high_s = interval
                inside += low_s <= case.observation.seconds <= high_s
        return inside

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield every case in SI units, with the expected time as its median; absent values are None."""
        for case, interval in zip(self.run.validated, self.intervals, strict=True):
            yield self._row(case, interval)

    def _row(self, case: Validated, interval: tuple[float, float] | None) -> dict[str, Any]:
        observation = case.observation
        layout = observation.layout
        low_s, high_s = interval or (None, None)
        return {
            "collective": observation.collective,
            "algorithm": observation.algorithm.name if observation.algorithm else observation.name,
            "params": dict(observation.params),
            "nodes": layout.nodes,
            "ranks_per_node": layout.ranks_per_node,
            "ranks": layout.workers,
            "racks": layout.racks,
            "aggregators": layout.aggregators,
            "mapping": observation.mapping,
            "in_place": observation.in_place,
            "dtype": observation.dtype,
            "bytes": observation.nbytes,
            "median_s": case.seconds,
            "ci_low_s": low_s,
            "ci_high_s": high_s,
            "kind": SIMULATED,
            "measured_s": observation.seconds,
            "ratio": case.ratio,
            "reason": case.reason or None,
            "distance": self.machine.distance(layout.nodes, layout.ranks_per_node or 1, observation.nbytes),
            "measured_kind": observation.kind,
            "machine": observation.machine,
        }


def expectations(
    raw_results: Sequence[RawResults], machine: MachineFile, progress: Callable[[int, int], None] | None = None
) -> Iterator[Expectation]:
    """Yield measurements of our algorithms with what a machine file promises, by machine, transport and executor.

    The measurements of other programs are among them; calls of libraries are in ``library_expectations``.
    """
    runs: dict[tuple[str, ...], list[Observation]] = defaultdict(list)
    files: dict[tuple[str, ...], dict[int, RawResults]] = defaultdict(dict)
    for raw in raw_results:
        for observation in observations(raw, imported=True):
            if observation.algorithm:
                run = observation.kind, observation.machine, observation.transport, observation.executor
                runs[run].append(observation)
                files[run][id(raw)] = raw
    report = count_progress(progress, len(BOUNDS) * sum(map(len, runs.values())))
    for key, observed in sorted(runs.items()):
        *_, transport, executor = key
        expected = expected_times(observed, machine, report)
        cases = [case for case, _ in expected]
        intervals = [interval for _, interval in expected]
        model = RunModel(list(files[key].values()), transport, None, cases, executor)
        yield Expectation(machine, model, intervals)
