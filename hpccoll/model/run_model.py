"""The model of a run: the machine fitted to its patterns, and predictions of everything that it measured."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import starmap
from typing import Any, NamedTuple, TypedDict, get_type_hints

from hpccoll.cases.case import PYTHON
from hpccoll.common.errors import BadInputError, UnusableError
from hpccoll.common.extensions import contributions
from hpccoll.common.json_schema import typed_dict
from hpccoll.model.collective_machine import fit_machine_to_collectives
from hpccoll.model.fit import fit
from hpccoll.model.machine_file import MachineFile
from hpccoll.model.machine_sections import DeclaredSections
from hpccoll.model.message_patterns import MIN_SIZES
from hpccoll.model.observations import Observation, Work, observations
from hpccoll.model.validation import (
    Crossing,
    Errors,
    Regret,
    Validated,
    count_progress,
    find_crossings,
    validate,
)
from hpccoll.store.raw_results import RawResults
from hpccoll.store.schema import IMPORTED


class _ValidatedKeys(TypedDict):
    algorithm: str
    params: dict[str, int | str]
    in_place: bool
    mapping: str | None
    bytes: int
    measured_s: float
    predicted_s: float | None
    reason: str | None
    held_out: bool


class OvertakingJson(TypedDict):
    """Which of two algorithms is faster for large vectors, and from which sizes on, as JSON has it."""

    overtaker: str | None
    bytes: tuple[float, ...]


class _RunModelKeys(TypedDict):
    files: list[str]
    kind: str
    transport: str
    executor: str
    measured: str
    machine: str
    variant: str | None
    machine_file: MachineFile | None


class _CrossingKeys(TypedDict):
    algorithms: tuple[str, str]
    modelled: OvertakingJson
    measured: OvertakingJson


@dataclass(frozen=True)  # without slots, for cached properties
class RunModel:
    """The measurements of one transport and executor on one machine, the machine fitted to them, and predictions."""

    raw_results: Sequence[RawResults]  # the raw results of one environment on one machine
    transport: str  # the transport of the validated observations
    machine: MachineFile | None  # the machine fitted to them; None without ping-pongs
    validated: list[Validated]  # the observations with their predictions
    executor: str = PYTHON  # the executor that measured the observations
    # whether the run has a model of the other executor for this transport
    several_executors: bool = False
    # how many measurements a machine that is fitted to collectives leaves out, by the reason
    left_out: Mapping[str, int] = field(default_factory=dict)

    @property
    def over(self) -> str:
        """The transport, with the executor if the run has both."""
        return (
            f"{self.transport} by the {self.executor} executor"
            if self.several_executors
            else self.transport
        )

    @property
    def measured_on(self) -> tuple[str, str]:
        """The kind of the measurement, and the machine."""
        observation: Observation | None = None
        if self.validated:
            observation = self.validated[0].observation
        return _measured_on(self.raw_results, observation)

    @property
    def held_out(self) -> list[Validated]:
        """The observations that the fit has not seen."""
        return [case for case in self.validated if case.held_out]

    @cached_property
    def groups(self) -> dict[Work, list[Validated]]:
        """The validated observations by their work; a mapping that all of them share is in the work and in no name."""
        by_work: dict[Work, list[Validated]] = defaultdict(list)
        for case in self.validated:
            by_work[case.observation.work].append(case)
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
            numbers |= {
                "regret_mean": regret.mean,
                "regret_most": regret.most,
                "regret_held_out": regret.held_out,
            }
        return self.machine.model_copy(update={"validation": numbers})

    @staticmethod
    def json_record() -> Any:
        """Return the type of its JSON."""
        work = {}
        for name, kind in get_type_hints(Work).items():
            work[name] = kind | None
        row = typed_dict("ValidatedJson", work, _ValidatedKeys)
        crossing = typed_dict("CrossingJson", work, _CrossingKeys)
        lists = {"rows": Sequence[row], "crossings": Sequence[crossing]}  # type: ignore[valid-type]
        return typed_dict("RunModelJson", lists, _RunModelKeys)

    def to_json(self) -> dict[str, Any]:
        """Return the model of one run in SI units; absent values are null."""
        measured_kind, machine_name = self.measured_on
        return {
            "files": [str(raw.path) for raw in self.raw_results],
            "kind": "simulated",
            "transport": self.transport,
            "executor": self.executor,
            "measured": measured_kind,
            "machine": machine_name,
            "variant": self.raw_results[0].job.variant,
            "machine_file": self._machine_json(),
            "rows": [_row(case) for case in self.validated],
            "crossings": list(self._crossing_rows()),
        }

    def _machine_json(self) -> dict[str, Any] | None:
        if self.machine is None:
            return None
        return self.machine_file().model_dump(mode="json", by_alias=True)

    def _crossing_rows(self) -> Iterator[dict[str, Any]]:
        for work, validated in self.groups.items():
            for crossing in find_crossings(validated):
                yield _crossing_row(work, crossing)


def _of_one_mapping(work: Work, validated: list[Validated]) -> tuple[Work, list[Validated]]:
    """Return the work with the mapping that all observations share, and these without it; else both as is."""
    mappings = {case.observation.mapping for case in validated}
    if len(mappings) > 1:
        return work, validated
    bare = [
        replace(case, observation=replace(case.observation, mapping=None)) for case in validated
    ]
    return work._replace(mapping=mappings.pop() or ""), bare


def models_of(
    raw_results: Sequence[RawResults],
    declared: DeclaredSections | None = None,
    progress: Callable[[int, int], None] | None = None,
    most_nodes: int | None = None,
    transport: str | None = None,
    library: str | None = None,
) -> list[RunModel]:
    """Return a model for each machine, environment, transport and executor of the raw files.

    A machine is fitted to ping-pongs and other patterns; without any, to collectives.

    Args:
        raw_results: the raw files.
        declared: sections that a person adds.
        progress: is called with the number of predictions so far, and of all.
        most_nodes: the nodes of the largest job whose collectives a machine is fitted to [half of
            those of the largest one].
        transport: the transport of the runs [all].
        library: the library of imported runs, or the begin of its name [all].

    Raises:
        BadInputError: if no run has anything that a machine can be fitted to, none has the
            transport and the library, or all jobs have more nodes.
    """
    runs: dict[object, list[RawResults]] = defaultdict(list)
    for raw in raw_results:
        if raw.attempts:
            attempt = raw.attempts[0][0]
            runs[attempt.kind, attempt.machine, raw.job.variant].append(raw)
    measured: list[_MeasuredRun] = []
    for files in runs.values():
        measured += _by_executor(files)
    if transport is not None:
        measured = _over_transport(measured, transport)
    if library is not None:
        measured = _of_library(measured, library)
    _check_most_nodes(most_nodes, measured)
    report = count_progress(progress, sum(len(run.observed) for run in measured))
    models = []
    fits_to_patterns = {id(run): fit(run.observed, run.machine_name) for run in measured}
    has_patterns = any(fits_to_patterns.values())
    for run in measured:
        fitted = fits_to_patterns[id(run)]
        if fitted:
            machine = _completed(fitted[0], run, declared)
            validated = validate(run.observed, machine.machine(), fitted[1], report)
            models.append(run.model(machine, validated))
        elif has_patterns:
            models.append(run.unfitted())
        else:
            models.append(_fitted_to_collectives(run, declared, report, most_nodes))
    if not any(model.machine for model in models):
        raise _no_ping_pongs(raw_results)
    return models


def _check_most_nodes(most_nodes: int | None, runs: Sequence["_MeasuredRun"]) -> None:
    """Check that some job has at most ``most_nodes`` nodes; else BadInputError."""
    nodes = [observation.layout.nodes for run in runs for observation in run.observed]
    least = min(nodes, default=1)
    if most_nodes is not None and most_nodes < least:
        expected = f"at least {least}, the nodes of the smallest job"
        raise BadInputError("--max-nodes", most_nodes, expected)


def _over_transport(runs: Sequence["_MeasuredRun"], transport: str) -> list["_MeasuredRun"]:
    """Return the runs over a transport; BadInputError if there are none."""
    over_it = [run for run in runs if run.transport == transport]
    if not over_it:
        raise _not_among("--transport", transport, {run.transport for run in runs})
    return over_it


def _of_library(runs: Sequence["_MeasuredRun"], library: str) -> list["_MeasuredRun"]:
    """Return the runs with a library, or whose library begins so; BadInputError if there are none."""
    imported = [run for run in runs if run.library]
    with_it = [run for run in imported if run.library.startswith(library)]
    if not with_it:
        raise _not_among("--library", library, {run.library for run in imported})
    return with_it


def _not_among(option: str, value: str, valid: Collection[str]) -> BadInputError:
    """Return that a value of an option is none of the valid ones; there may be no valid one."""
    if not valid:
        return UnusableError(
            option, f"no result of a known {option.removeprefix('--')} is in PATHS"
        )
    return BadInputError(option, value, sorted(valid))


def model_of_machine(models: Sequence[RunModel], key: str, value: object) -> RunModel:
    """Return the only one of some models that has a machine.

    Raises:
        BadInputError: of the ``value`` of a ``key``, if there are several.
    """
    fitted = [model for model in models if model.machine]
    if len(fitted) > 1:
        several = ", ".join(f"{model.measured_on[1]} over {model.over}" for model in fitted)
        expected = f"results of one machine, --library and --transport, not of {several}"
        raise BadInputError(key, str(value), expected)
    return fitted[0]


def _fitted_to_collectives(
    run: "_MeasuredRun",
    declared: DeclaredSections | None,
    report: Callable[[], object],
    most_nodes: int | None,
) -> RunModel:
    fitted = fit_machine_to_collectives(run.observed, run.machine_name, most_nodes)
    if fitted is None:
        return run.unfitted()
    machine = _completed(fitted.machine, run, declared)
    validated = validate(run.observed, machine.machine(), fitted.used, report)
    return run.model(machine, validated, fitted.left_out)


def _completed(
    machine: MachineFile, run: "_MeasuredRun", declared: DeclaredSections | None
) -> MachineFile:
    """Return a fitted machine with the sections that a person or an extension adds."""
    if declared:
        machine = machine.declaring(declared)
    return machine.model_copy(update=_sections_of_extensions(run.files))


def _sections_of_extensions(files: Sequence[RawResults]) -> dict[str, Any]:
    """Return the sections of a machine file that extensions fit, by their keys."""
    sections: dict[str, Any] = {}
    for fit_sections in contributions("fitted_sections"):
        sections |= fit_sections(files)
    return sections


class _MeasuredRun(NamedTuple):
    """The observations of one transport and executor on one machine."""

    files: list[RawResults]
    transport: str
    executor: str
    observed: list[Observation]
    several_executors: bool  # whether the other executor has observations of this transport, too

    @property
    def library(self) -> str:
        """The library of imported measurements, which stands behind the name of their machine; else empty."""
        if self.observed[0].kind != IMPORTED:
            return ""
        return self.machine_name.rpartition(", ")[2]

    @property
    def machine_name(self) -> str:
        _, machine = _measured_on(self.files, self.observed[0])
        return machine

    def model(
        self,
        machine: MachineFile | None,
        validated: list[Validated],
        left_out: Mapping[str, int] | None = None,
    ) -> RunModel:
        """Return the model of the run."""
        return RunModel(
            self.files,
            self.transport,
            machine,
            validated,
            self.executor,
            self.several_executors,
            left_out or {},
        )

    def unfitted(self) -> RunModel:
        """Return the model of a run that no machine is fitted to."""
        reason = "the run has no ping-pong"
        return self.model(None, [Validated(case, None, reason) for case in self.observed])


def _measured_on(files: Sequence[RawResults], observation: Observation | None) -> tuple[str, str]:
    """Return the kind of the measurements of a run, and the machine; ``observation`` is one of them, if any."""
    if observation and observation.kind == IMPORTED:
        return observation.kind, observation.machine
    attempt = files[0].attempts[0][0]
    return attempt.kind, attempt.machine


class _RunKey(NamedTuple):
    """What the observations of a run share."""

    machine: str  # of imported ones, whose file may have several; else empty
    transport: str
    executor: str

    @classmethod
    def of(cls, observation: Observation) -> "_RunKey":
        machine = ""
        if observation.kind == IMPORTED:
            machine = observation.machine
        return cls(machine, observation.transport, observation.executor)


def _by_executor(files: list[RawResults]) -> list[_MeasuredRun]:
    """Return the observations of the files of a run by transport and executor, imported ones by machine as well."""
    observed: dict[_RunKey, list[Observation]] = defaultdict(list)
    for raw in files:
        for observation in observations(raw, imported=True):
            observed[_RunKey.of(observation)].append(observation)
    executors = Counter((key.machine, key.transport) for key in observed)
    runs = []
    for key in sorted(observed):
        several_executors = executors[key.machine, key.transport] > 1
        runs.append(
            _MeasuredRun(files, key.transport, key.executor, observed[key], several_executors)
        )
    return runs


def _no_ping_pongs(raw_results: Sequence[RawResults]) -> BadInputError:
    needed = (
        f"a run that has send_recv of {MIN_SIZES} sizes or more (workflows/config/calibrate.yaml), "
        "or collectives whose algorithm is known"
    )
    paths = ", ".join(str(raw.path) for raw in raw_results)
    return BadInputError("path", paths, needed)


def _work(work: Work) -> dict[str, Any]:
    return {name: None if value == "" else value for name, value in work._asdict().items()}


def _crossing_row(work: Work, crossing: Crossing) -> dict[str, Any]:
    return {
        **_work(work),
        "algorithms": crossing.pair,
        "modelled": {"overtaker": crossing.modelled.overtaker, "bytes": crossing.modelled.sizes},
        "measured": {"overtaker": crossing.measured.overtaker, "bytes": crossing.measured.sizes},
    }


def _row(case: Validated) -> dict[str, Any]:
    observation = case.observation
    return {
        **_work(observation.work),
        "algorithm": observation.name,
        "params": dict(observation.params),
        "in_place": observation.in_place,
        "mapping": observation.mapping,
        "bytes": observation.nbytes,
        "measured_s": observation.seconds,
        "predicted_s": case.seconds,
        "reason": case.reason or None,
        "held_out": case.held_out,
    }
