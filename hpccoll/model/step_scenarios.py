"""Scenarios: several training steps to compare, described in a file, each on a cluster of its own.

    common: {model: llama3-405b, nodes: 2048, parallel: "tp=8,pp=16", compute: 400ms}
    scenarios:
      - {name: "RDMA, ring", cluster: 8xh100-400g, algorithm: ring}
      - {name: "RDMA, hierarchical", cluster: 8xh100-400g, algorithm: hierarchical}

A scenario has the keys of ``common``, and may set each of them anew.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self

from pydantic import Field, create_model, model_validator

from hpccoll.common.errors import BadInputError, UnusableError
from hpccoll.common.limits import MAX_LIST_ENTRIES, NAME, RANKS
from hpccoll.common.yaml_model import Bounded, Text, YamlSection, annotation_of, load_plain_yaml, load_yaml
from hpccoll.model.machine_file import read_machine
from hpccoll.model.simulation_work import ShowProgress
from hpccoll.model.step_prediction import ComputeRate, StepPrediction, StepRequest, predict_steps
from hpccoll.schedule import Parameter
from hpccoll.training.model_file import load_models, model_name, models_from_json
from hpccoll.training.model_shape import ModelShape, with_sequence
from hpccoll.training.models import model_of
from hpccoll.training.parallelism import StepDtypes
from hpccoll.training.step_keys import PEAK_FLOPS, PREDICTED, parallelism_of

_FIELDS: dict[str, Any] = {
    "cluster": (Text | None, Field(None, description="described cluster or fitted machine: a name or a file")),
    "nodes": (Annotated[int, Bounded(RANKS)] | None, Field(None, description="number of nodes")),
    "params": (dict[str, int | str] | None, Field(None, description="parameters of the algorithm")),
} | {name: (annotation_of(key.kind) | None, Field(None, description=key.help)) for name, key in PREDICTED.items()}
ScenarioKeys: Any = create_model(
    "ScenarioKeys", __base__=YamlSection, __doc__="The keys of a step, those of ``hpccoll predict step``.", **_FIELDS
)
Scenario: Any = create_model(
    "Scenario",
    __base__=ScenarioKeys,
    __doc__="One step.",
    name=(Annotated[Text, Field(max_length=NAME.maximum)], Field(description="name of the scenario")),
)


def step_request(
    given: Mapping[str, Any], nodes: Sequence[int], parameters: Mapping[str, Parameter] | None
) -> StepRequest:
    """Return the step that values of the keys of PREDICTED describe, on numbers of nodes; None is a default.

    Raises:
        BadInputError: if a value is invalid, or not exactly one key says how fast GPUs compute.
    """
    keys = {name: key.default if given.get(name) is None else given[name] for name, key in PREDICTED.items()}
    model = with_sequence(read_model_shape(keys["model"], "model"), keys["sequence_length"] or None)
    dtypes = StepDtypes.of(keys, keys["dtype"] or model.dtype)
    return StepRequest(
        model=model, nodes=nodes, compute=compute_rate(keys), parallel=keys["parallel"],
        parallelism=parallelism_of(keys, dtypes=dtypes), batch=keys["batch"],
        ranks_per_node=keys["ranks_per_node"], algorithm=keys["algorithm"], parameters=parameters or {},
    )  # fmt: skip


class ScenarioFile(YamlSection):
    """A file of scenarios."""

    common: ScenarioKeys = Field(ScenarioKeys(), description="the keys that all scenarios have")
    scenarios: Annotated[list[Scenario], Field(min_length=1, max_length=MAX_LIST_ENTRIES)] = Field(
        description="the steps, each with a name"
    )

    @model_validator(mode="after")
    def _complete(self) -> Self:
        given = self.common.model_dump(exclude_none=True)
        self.scenarios = [Scenario(**(given | each.model_dump(exclude_none=True))) for each in self.scenarios]
        for number, each in enumerate(self.scenarios):
            for key in ("cluster", "model", "nodes"):
                if getattr(each, key) is None:
                    raise BadInputError(f"scenarios.{number}.{key}", None, "a value, here or in common")
        return self


@dataclass(frozen=True, slots=True)
class ScenarioPrediction:
    """The prediction of a scenario."""

    scenario: Any  # the scenario, a Scenario
    machine: str  # the name of its machine
    prediction: StepPrediction

    @property
    def title(self) -> str:
        """The scenario in a line."""
        mesh = self.prediction.parallelism.mesh.text
        return f"{self.scenario.name}: {self.scenario.model} on {self.prediction.nodes} nodes of {self.machine}, {mesh}"

    def to_json(self) -> dict[str, Any]:
        """Return the prediction in SI units."""
        return {"scenario": self.scenario.name, "machine": self.machine, **self.prediction.to_json()}


class ScenarioPredictions(NamedTuple):
    """The predictions of a file."""

    predictions: list[ScenarioPrediction]
    interrupted: list[str]  # the names of the scenarios without a prediction because the user has interrupted them


def predict_scenarios(path: Path, progress: ShowProgress | None = None) -> ScenarioPredictions:
    """Return the predictions of a file of scenarios. After an interrupt (SIGINT) these are the complete ones, if any.

    Raises:
        BadInputError: if the file is invalid, or a scenario cannot be predicted.
    """
    listed = load_yaml(path, ScenarioFile, "--scenarios").scenarios
    steps = [
        (each, read_machine(each.cluster, f"{path}: cluster"), step_request(dict(each), [each.nodes], each.params))
        for each in listed
    ]
    found: list[ScenarioPrediction] = []
    try:
        for done, (scenario, machine, request) in enumerate(steps):
            if progress:
                progress(done, len(steps), scenario.name)
            predicted = predict_steps(machine, request)
            found.append(ScenarioPrediction(scenario, machine.name, predicted.predictions[0]))
    except KeyboardInterrupt:
        if not found:
            raise
    return ScenarioPredictions(found, [scenario.name for scenario, *_ in steps[len(found) :]])


def read_model_shape(name: str, key: str) -> ModelShape:
    """Return the model of this name, or of a file; BadInputError if there is none, or the file is invalid."""
    own = models_from_json(load_models([name], key, load_plain_yaml))
    return own.get(model_name(name)) or model_of(name)


def compute_rate(keys: Mapping[str, Any]) -> ComputeRate:
    """Return how fast GPUs compute, from the values of the keys ``flops_rate``, ``mfu``, ``gpu`` and ``compute``.

    Raises:
        BadInputError: if not exactly one of them is given, or a GPU without ``mfu``.
    """
    flops_rate, mfu, gpu, compute = (keys[name] for name in ("flops_rate", "mfu", "gpu", "compute"))
    if sum(each is not None for each in (flops_rate, mfu, compute)) != 1 or (mfu is None) != (gpu is None):
        raise UnusableError("--flops-rate", "exactly one of --flops-rate, --mfu with --gpu, and --compute")
    if mfu is None:
        return ComputeRate(flops_rate, compute)
    return ComputeRate(mfu * PEAK_FLOPS[gpu], source=f"{mfu:.0%} of the peak of {gpu}")
