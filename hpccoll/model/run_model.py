"""The model of a run: the machine fitted to its patterns, and predictions of everything that it measured."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import starmap
from typing import Any

from hpccoll.cases.case import PYTHON
from hpccoll.common.errors import BadInputError
from hpccoll.model.codec_fit import measured_codecs
from hpccoll.model.fit import fit
from hpccoll.model.machine_file import MachineFile
from hpccoll.model.machine_sections import DeclaredSections
from hpccoll.model.message_patterns import MIN_SIZES
from hpccoll.model.observations import Observation, Work, observations
from hpccoll.model.validation import Errors, Regret, Validated, count_progress, find_crossings, validate
from hpccoll.store.raw_results import RawResults


@dataclass(frozen=True)  # without slots, for cached properties
class RunModel:
    """The measurements of one transport and executor on one machine, the machine fitted to them, and predictions."""

    raw_results: Sequence[RawResults]  # the raw results of one environment on one machine
    transport: str  # the transport of the validated observations
    machine: MachineFile | None  # the machine fitted to them; None without ping-pongs
    validated: list[Validated]  # the observations with their predictions
    executor: str = PYTHON  # the executor that measured the observations
    several_executors: bool = False  # whether the run has a model of the other executor for this transport

    @property
    def over(self) -> str:
        """The transport, with the executor if the run has both."""
        return self.transport + (f" by the {self.executor} executor" if self.several_executors else "")

    @property
    def measured_on(self) -> tuple[str, str]:
        """The kind of the measurement, and the machine."""
        attempt = self.raw_results[0].attempts[0][0]
        return attempt.kind, attempt.machine

    @property
    def held_out(self) -> list[Validated]:
        """The observations that the fit has not seen."""
        return [one for one in self.validated if one.held_out]

    @cached_property
    def groups(self) -> dict[Work, list[Validated]]:
        """The validated observations by their work; a mapping that all of them share is in the work and in no name."""
        by_work: dict[Work, list[Validated]] = defaultdict(list)
        for one in self.validated:
            by_work[one.observation.work].append(one)
        return dict(sorted(starmap(_of_one_mapping, by_work.items())))

    def machine_file(self) -> MachineFile:
        """Return the fitted machine with its errors on held-out measurements.

        Raises:
            BadInputError: if the run has no ping-pongs.
        """
        if self.machine is None:
            raise _no_ping_pongs(self.raw_results)
        numbers: dict[str, float] = {}
        if errors := Errors.of(self.held_out):
            numbers |= asdict(errors)
        if regret := Regret.of(self.held_out):
            numbers |= {"regret_mean": regret.mean, "regret_most": regret.most, "regret_held_out": regret.held_out}
        return self.machine.model_copy(update={"validation": numbers})

    def to_json(self) -> dict[str, Any]:
        """Return the model of one run in SI units; absent values are null."""
        measured_kind, machine_name = self.measured_on
        return {
            "files": [str(raw.path) for raw in self.raw_results], "kind": "simulated", "transport": self.transport,
            "executor": self.executor, "measured": measured_kind, "machine": machine_name,
            "variant": self.raw_results[0].job.variant,
            "machine_file": self.machine_file().model_dump(mode="json", by_alias=True) if self.machine else None,
            "rows": [_row(one) for one in self.validated],
            "crossings": [
                {
                    **_work(work), "algorithms": each.pair,
                    "modelled": {"overtaker": each.modelled.overtaker, "bytes": each.modelled.sizes},
                    "measured": {"overtaker": each.measured.overtaker, "bytes": each.measured.sizes},
                }
                for work, validated in self.groups.items()
                for each in find_crossings(validated)
            ],
        }  # fmt: skip


def _of_one_mapping(work: Work, validated: list[Validated]) -> tuple[Work, list[Validated]]:
    """Return the work with the mapping that all observations share, and these without it; else both as is."""
    mappings = {one.observation.mapping for one in validated}
    if len(mappings) > 1:
        return work, validated
    bare = [replace(one, observation=replace(one.observation, mapping=None)) for one in validated]
    return work._replace(mapping=mappings.pop() or ""), bare


def models_of(
    raw_results: Sequence[RawResults], declared: DeclaredSections | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[RunModel]:  # fmt: skip
    """Return a model for each machine, environment, transport and executor of the raw files.

    Raises:
        BadInputError: if no run has any ping-pongs.
    """
    runs: dict[object, list[RawResults]] = defaultdict(list)
    for raw in raw_results:
        if raw.attempts:
            attempt = raw.attempts[0][0]
            runs[attempt.kind, attempt.machine, raw.job.variant].append(raw)
    measured: list[tuple[list[RawResults], str, str, list[Observation], bool]] = []
    for of_run in runs.values():
        by_executor: dict[tuple[str, str], list[Observation]] = defaultdict(list)
        for one in (one for raw in of_run for one in observations(raw)):
            by_executor[one.transport, one.executor].append(one)
        transports = [transport for transport, _ in by_executor]
        for (transport, executor), observed in sorted(by_executor.items()):
            measured.append((of_run, transport, executor, observed, transports.count(transport) > 1))
    report, models = count_progress(progress, sum(len(observed) for *_, observed, _ in measured)), []
    for of_run, transport, executor, observed, several in measured:
        validated = [Validated(one, None, "the run has no ping-pong") for one in observed]
        machine, used = fit(observed, of_run[0].attempts[0][0].machine) or (None, ())
        if machine:
            machine = machine.declaring(declared) if declared else machine
            machine = machine.model_copy(update={"codecs": measured_codecs(of_run)})
            validated = validate(observed, machine.machine(), used, report)
        models.append(RunModel(of_run, transport, machine, validated, executor, several))
    if not any(one.machine for one in models):
        raise _no_ping_pongs(raw_results)
    return models


def _no_ping_pongs(raw_results: Sequence[RawResults]) -> BadInputError:
    needed = f"a run that has send_recv of {MIN_SIZES} sizes or more: see workflows/config/calibrate.yaml"
    return BadInputError("path", ", ".join(str(raw.path) for raw in raw_results), needed)


def _work(work: Work) -> dict[str, Any]:
    return {name: value if value != "" else None for name, value in work._asdict().items()}


def _row(one: Validated) -> dict[str, Any]:
    observation = one.observation
    return {
        **_work(observation.work), "algorithm": observation.name, "params": dict(observation.params),
        "in_place": observation.in_place, "mapping": observation.mapping, "bytes": observation.nbytes,
        "measured_s": observation.seconds, "predicted_s": one.seconds, "reason": one.reason or None,
        "held_out": one.held_out,
    }  # fmt: skip
