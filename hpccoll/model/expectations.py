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
from hpccoll.model.validation import count_progress
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
        pairs = zip(self.run.validated, self.intervals, strict=True)
        return sum(ends is not None and ends[0] <= one.observation.seconds <= ends[1] for one, ends in pairs)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield every case in SI units, with the expected time as its median; absent values are None."""
        for one, ends in zip(self.run.validated, self.intervals, strict=True):
            case, layout = one.observation, one.observation.layout
            low, high = ends or (None, None)
            far = self.machine.distance(layout.nodes, layout.ranks_per_node or 1, case.nbytes)
            yield {
                "collective": case.collective, "algorithm": case.algorithm.name if case.algorithm else case.name,
                "params": dict(case.params), "nodes": layout.nodes, "ranks_per_node": layout.ranks_per_node,
                "ranks": layout.workers, "racks": layout.racks, "aggregators": layout.aggregators,
                "mapping": case.mapping, "in_place": case.in_place, "dtype": case.dtype, "bytes": case.nbytes,
                "median_s": one.seconds, "ci_low_s": low, "ci_high_s": high, "kind": SIMULATED,
                "measured_s": case.seconds, "ratio": one.ratio, "reason": one.reason or None, "distance": far,
                "measured_kind": case.kind, "machine": case.machine,
            }  # fmt: skip


def expectations(
    raw_results: Sequence[RawResults], machine: MachineFile, progress: Callable[[int, int], None] | None = None
) -> Iterator[Expectation]:
    """Yield measurements of our algorithms with what a machine file promises, by machine, transport and executor.

    The measurements of other programs are among them; calls of libraries are in ``library_expectations``.
    """
    runs: dict[tuple[str, ...], list[tuple[RawResults, Observation]]] = defaultdict(list)
    for raw in raw_results:
        for one in observations(raw, imported=True):
            if one.algorithm:
                runs[one.kind, one.machine, one.transport, one.executor].append((raw, one))
    report = count_progress(progress, len(BOUNDS) * sum(map(len, runs.values())))
    for (*_, transport, executor), measured in sorted(runs.items()):
        files = list({id(raw): raw for raw, _ in measured}.values())
        found = expected_times([one for _, one in measured], machine, report)
        run = RunModel(files, transport, None, [one for one, _ in found], executor)
        yield Expectation(machine, run, [ends for _, ends in found])
