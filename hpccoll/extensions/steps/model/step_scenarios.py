"""Scenarios: several training steps to compare, described in a file, each on a cluster of its own.

    common: {model: llama3-405b, nodes: 2048, parallel: "tp=8,pp=16", compute: 400ms}
    scenarios:
      - {name: "RDMA, ring", cluster: 8xh100-400g, algorithm: ring}
      - {name: "RDMA, hierarchical", cluster: 8xh100-400g, algorithm: hierarchical}

A scenario takes the keys of ``common``, and may replace any of them; it replaces the keys of the
computation together. Without such a key, it computes as fast as the scenario before it. In
``common``, ``step`` (the time of a step today) belongs to the first scenario.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self

from pydantic import Field, create_model, model_validator

from hpccoll.common.errors import BadInputError, UnusableError
from hpccoll.common.limits import MAX_LIST_ENTRIES, NAME, RANKS
from hpccoll.common.options import check_one_given
from hpccoll.common.yaml_model import (
    Bounded,
    Text,
    YamlSection,
    annotation_of,
    load_plain_yaml,
    load_yaml,
)
from hpccoll.extensions.steps.model.step_prediction import (
    ComputeRate,
    StepPrediction,
    StepPredictionJson,
    StepRequest,
    predict_steps,
)
from hpccoll.extensions.steps.training.compression import DENSE, compressions
from hpccoll.extensions.steps.training.model_file import load_models, models_from_json
from hpccoll.extensions.steps.training.model_shape import ModelShape, with_sequence
from hpccoll.extensions.steps.training.models import model_of
from hpccoll.extensions.steps.training.parallelism import StepDtypes
from hpccoll.extensions.steps.training.step_keys import PEAK_FLOPS, PREDICTED, parallelism_of
from hpccoll.model.machine_file import MachineFile, read_machine
from hpccoll.model.simulation_work import ShowProgress
from hpccoll.schedule import Parameter

_FIELDS: dict[str, Any] = {
    "cluster": (
        Text | None,
        Field(None, description="described cluster or fitted machine: a name or a file"),
    ),
    "nodes": (Annotated[int, Bounded(RANKS)] | None, Field(None, description="number of nodes")),
    "params": (dict[str, int | str] | None, Field(None, description="parameters of the algorithm")),
} | {
    name: (annotation_of(key.kind) | None, Field(None, description=key.help))
    for name, key in PREDICTED.items()
}
ScenarioKeys: Any = create_model(
    "ScenarioKeys",
    __base__=YamlSection,
    __doc__="The keys of a step, those of ``hpccoll predict step``.",
    **_FIELDS,
)
COMPUTATION = {"flops_rate", "mfu", "gpu", "compute", "step"}
"""The keys that can say how fast GPUs compute."""
Scenario: Any = create_model(
    "Scenario",
    __base__=ScenarioKeys,
    __doc__="One step.",
    name=(
        Annotated[Text, Field(max_length=NAME.maximum)],
        Field(description="name of the scenario"),
    ),
)


AS_BEFORE = ComputeRate()
"""How fast ranks compute in a scenario that does not say it."""


def step_request(
    described: Mapping[str, Any],
    nodes: Sequence[int],
    parameters: Mapping[str, Parameter] | None,
    compute: ComputeRate | None = None,
) -> StepRequest:
    """Return the step that values of the keys of PREDICTED describe, on numbers of nodes; None is a default.

    If no key says how fast GPUs compute, ``compute`` does.

    Raises:
        BadInputError: if a value is invalid, or not exactly one key says how fast GPUs compute.
    """
    keys = {name: key.default for name, key in PREDICTED.items()}
    for name in keys:
        if described.get(name) is not None:
            keys[name] = described[name]
    model = with_sequence(read_model_shape(keys["model"], "model"), keys["sequence_length"] or None)
    dtypes = StepDtypes.of(keys, keys["dtype"] or model.dtype)
    parallelism = parallelism_of({**keys, "compress": DENSE}, dtypes=dtypes)
    compressed = compressions(keys["compress"], feedback=bool(keys["feedback"]))
    return StepRequest(
        model=model,
        nodes=nodes,
        compute=compute_rate(keys, compute),
        parallel=keys["parallel"],
        parallelism=parallelism,
        batch=keys["batch"],
        ranks_per_node=keys["ranks_per_node"],
        algorithm=keys["algorithm"],
        parameters=parameters or {},
        compressions=compressed,
        codec_rate=keys["codec_rate"],
    )


class ScenarioFile(YamlSection):
    """A file of scenarios."""

    common: ScenarioKeys = Field(ScenarioKeys(), description="the keys that all scenarios have")
    scenarios: Annotated[list[Scenario], Field(min_length=1, max_length=MAX_LIST_ENTRIES)] = Field(
        description="the steps, each with a name"
    )

    @model_validator(mode="after")
    def _complete(self) -> Self:
        common = self.common.model_dump(exclude_none=True)
        for number, scenario in enumerate(self.scenarios):
            own = scenario.model_dump(exclude_none=True)
            not_inherited = set(own)
            if not COMPUTATION.isdisjoint(own):
                not_inherited |= COMPUTATION
            elif number:
                not_inherited.add("step")
            inherited = {name: value for name, value in common.items() if name not in not_inherited}
            complete = self.scenarios[number] = scenario.model_copy(update=inherited)
            for key in ("cluster", "model", "nodes"):
                if getattr(complete, key) is None:
                    raise BadInputError(
                        f"scenarios.{number}.{key}", None, "a value, here or in common"
                    )
        return self


class ScenarioPredictionJson(StepPredictionJson):
    """The predicted step of a scenario, as JSON has it."""

    scenario: str
    machine: str


@dataclass(frozen=True, slots=True)
class ScenarioPrediction:
    """The prediction of a scenario."""

    scenario: Any  # the scenario, a Scenario
    machine: MachineFile  # its machine
    request: StepRequest  # its step, as the keys describe it
    prediction: StepPrediction

    @property
    def name(self) -> str:
        """The name of the scenario, with the compression if it has several."""
        has_several_compressions = "," in (self.scenario.compress or "")
        if not has_several_compressions:
            return str(self.scenario.name)
        return f"{self.scenario.name}, {self.prediction.compress or DENSE}"

    @property
    def label(self) -> str:
        """The name with the sharding: without it, ``dp=512`` is read as data parallelism that divides nothing."""
        sharding = self.prediction.parallelism.sharding
        if sharding == "none" or sharding in self.name.lower():
            return self.name
        return f"{self.name}, {sharding}"

    def to_json(self) -> ScenarioPredictionJson:
        """Return the prediction in SI units."""
        return {"scenario": self.name, "machine": self.machine.name, **self.prediction.to_json()}


class ScenarioPredictions(NamedTuple):
    """The predictions of a file."""

    predictions: list[ScenarioPrediction]
    # the names of the scenarios without a prediction because the user has interrupted them
    interrupted: list[str]


def predict_scenarios(path: Path, progress: ShowProgress | None = None) -> ScenarioPredictions:
    """Return the predictions of a file of scenarios. After an interrupt (SIGINT) these are the complete ones, if any.

    Raises:
        BadInputError: if the file is invalid, or a scenario cannot be predicted.
    """
    steps = []
    for number, scenario in enumerate(load_yaml(path, ScenarioFile, "--scenarios").scenarios):
        with _naming(path, scenario):
            machine = read_machine(scenario.cluster, "cluster").with_network(scenario.rate)
            default = AS_BEFORE if number else None
            request = step_request(dict(scenario), [scenario.nodes], scenario.params, default)
        steps.append((scenario, machine, request))
    predictions: list[ScenarioPrediction] = []
    complete = 0
    try:
        for scenario, machine, request in steps:
            if progress:
                progress(complete, len(steps), scenario.name)
            if request.compute is AS_BEFORE:
                compute = predictions[-1].prediction.compute
            else:
                compute = request.compute
            with _naming(path, scenario):
                predicted = predict_steps(machine, replace(request, compute=compute))
            predictions += [
                ScenarioPrediction(scenario, machine, request, prediction)
                for prediction in predicted.predictions
            ]
            if predicted.interrupted:
                break
            complete += 1
    except KeyboardInterrupt:
        if not predictions:
            raise
    return ScenarioPredictions(predictions, [scenario.name for scenario, *_ in steps[complete:]])


@contextmanager
def _naming(path: Path, scenario: Any) -> Iterator[None]:
    """Name the file and the scenario in errors, and its keys, where they name options."""
    try:
        yield
    except BadInputError as error:
        *values, words = error.args[1:]
        arguments = *values, _with_keys(words)
        renamed = type(error)(f"{path}: {scenario.name}: {_with_keys(error.key)}", *arguments)
        renamed.others = error.others
        raise renamed from None


OPTION = re.compile(r"(?<!\S)--([a-z][a-z-]*)")
"""An option in a message."""


def _with_keys(words: str) -> str:
    """Return a text with keys of the file in the place of their options: ``flops_rate`` for ``--flops-rate``."""

    def key_of(match: re.Match[str]) -> str:
        key = match[1].replace("-", "_")
        return key if key in Scenario.model_fields else match[0]

    return OPTION.sub(key_of, words)


def read_model_shape(name: str, key: str) -> ModelShape:
    """Return the model of this name, or of a file; BadInputError if there is none, or the file is invalid."""
    own = load_models([name], key, load_plain_yaml)
    return models_from_json(own.contents).get(own.name_of(name)) or model_of(name)


def compute_rate(keys: Mapping[str, Any], default: ComputeRate | None = None) -> ComputeRate:
    """Return how fast GPUs compute, from the keys ``flops_rate``, ``mfu`` with ``gpu``, ``compute`` and ``step``.

    Raises:
        BadInputError: if several are given, none without a default, or a GPU without ``mfu``.
    """
    flops_rate, mfu, gpu, compute, step = (
        keys[name] for name in ("flops_rate", "mfu", "gpu", "compute", "step")
    )
    rates = {
        "--flops-rate": flops_rate,
        "--mfu with --gpu": mfu or gpu,
        "--compute": compute,
        "--step": step,
    }
    if default and not any(rates.values()):
        return default
    check_one_given("--compute", rates)
    if mfu is None and gpu is None:
        return ComputeRate(flops_rate, compute, step)
    if mfu is None or gpu is None:
        missing = "--mfu" if mfu is None else "--gpu"
        raise UnusableError(missing, "give --mfu and --gpu together")
    return ComputeRate(mfu * PEAK_FLOPS[gpu], source=f"{mfu:.0%} of the peak of {gpu}")
