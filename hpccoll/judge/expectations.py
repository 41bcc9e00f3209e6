"""Expectations: measured times held against those that a machine file promises, case by case."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from hpccoll.judge.held import MACHINE, Expected, Held, HeldVerdict, verdict_between
from hpccoll.model.expected_times import expected_times
from hpccoll.model.machine_file import MachineFile
from hpccoll.model.observations import Observation, observations
from hpccoll.model.run_model import RunModel
from hpccoll.model.simulation import BOUNDS
from hpccoll.model.validation import Validated, count_progress
from hpccoll.store.raw_results import RawResults
from hpccoll.store.rows import Row
from hpccoll.store.schema import SIMULATED


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedCase(Held):
    """A measurement of one of our algorithms, held against the interval of its expected time."""

    KEYS: ClassVar[Mapping[str, str]] = {
        "collective": "case.observation.collective",
        "algorithm": "algorithm",
        "params": "case.observation.params",
        "nodes": "case.observation.layout.nodes",
        "ranks_per_node": "case.observation.layout.ranks_per_node",
        "ranks": "case.observation.layout.workers",
        "racks": "case.observation.layout.racks",
        "aggregators": "case.observation.layout.aggregators",
        "mapping": "case.observation.mapping",
        "in_place": "case.observation.in_place",
        "dtype": "case.observation.dtype",
        "bytes": "case.observation.nbytes",
        "median_s": "case.seconds",
        "ci_low_s": "expected.low",
        "ci_high_s": "expected.high",
        "kind": "kind",
        "measured_s": "measured",
        "ratio": "case.ratio",
        "reason": "reason",
        "distance": "distance",
        "measured_kind": "case.observation.kind",
        "machine": "case.observation.machine",
    }

    kind: ClassVar[str] = SIMULATED
    case: Validated  # the measurement, with the expected time at the likely values
    measured: float
    # how far the expected time is from the nearest measurement of the machine, in words
    distance: str

    @classmethod
    def of(
        cls, case: Validated, interval: tuple[float, float] | None, machine: MachineFile
    ) -> "ExpectedCase":
        """Return a measurement with its verdict; without an interval it cannot be told."""
        observation = case.observation
        layout = observation.layout
        expected, verdict = None, HeldVerdict.CANNOT_TELL
        if interval and case.seconds:
            low_s, high_s = interval
            expected = Expected(low_s, case.seconds, high_s, MACHINE, (machine.name,))
            verdict = verdict_between(observation.seconds, low_s, high_s)
        distance = machine.distance(layout.nodes, layout.ranks_per_node or 1, observation.nbytes)
        return cls(
            case=case,
            measured=observation.seconds,
            expected=expected,
            verdict=verdict,
            reason=case.reason,
            distance=distance,
        )

    @property
    def algorithm(self) -> str:
        """The name of the algorithm."""
        observation = self.case.observation
        return observation.algorithm.name if observation.algorithm else observation.name


@dataclass(frozen=True, slots=True)
class Expectation:
    """The measurements of one transport and executor on one machine, with what another machine file promises."""

    machine: MachineFile
    run: RunModel  # the measurements, with the expected times at the likely values
    cases: Sequence[ExpectedCase]  # the same, with their verdicts

    @property
    def within(self) -> int:
        """The number of measurements inside the interval of their expected time."""
        return sum(case.verdict is HeldVerdict.AS_EXPECTED for case in self.cases)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield every case in SI units, with the expected time as its median; absent values are None."""
        for case in self.cases:
            yield case.to_json()


def expectations(
    raw_results: Sequence[RawResults],
    machine: MachineFile,
    progress: Callable[[int, int], None] | None = None,
    rows: Collection[Row] | None = None,
) -> Iterator[Expectation]:
    """Yield measurements of our algorithms with what a machine file promises, by machine, transport and executor.

    The measurements of other programs are among them; calls of libraries are in
    ``library_expectations``. ``rows`` are those of the raw results that are held [all].
    """
    runs: dict[tuple[str, ...], list[Observation]] = defaultdict(list)
    files: dict[tuple[str, ...], dict[int, RawResults]] = defaultdict(dict)
    rows_by_key = None if rows is None else {row.key: row for row in rows}
    for raw in raw_results:
        for observation in observations(raw, imported=True, rows=rows_by_key):
            if observation.algorithm:
                run = (
                    observation.kind,
                    observation.machine,
                    observation.transport,
                    observation.executor,
                )
                runs[run].append(observation)
                files[run][id(raw)] = raw
    report = count_progress(progress, len(BOUNDS) * sum(map(len, runs.values())))
    for key, observed in sorted(runs.items()):
        *_, transport, executor = key
        expected = expected_times(observed, machine, report)
        validated = [case for case, _ in expected]
        cases = [ExpectedCase.of(case, interval, machine) for case, interval in expected]
        yield Expectation(
            machine,
            RunModel(list(files[key].values()), transport, None, validated, executor),
            cases,
        )
