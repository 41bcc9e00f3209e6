"""Scenarios: several training steps to compare, described in a file, each on a cluster of its own.

    common: {model: llama3-405b, nodes: 2048, parallel: "tp=8,pp=16", compute: 400ms}
    scenarios:
      - {name: "RDMA, ring", cluster: 8xh100-400g, algorithm: ring}
      - {name: "RDMA, hierarchical", cluster: 8xh100-400g, algorithm: hierarchical}

A scenario has the keys of ``common``, and may set each of them anew.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from hpccoll.common.errors import BadInputError, UnusableError
from hpccoll.common.limits import MAX_LIST_ENTRIES, NAME, RANKS, RANKS_PER_NODE, IntegerRange, PositiveNumber
from hpccoll.common.units import parse_seconds, parse_size
from hpccoll.common.yaml_model import Bounded, Text, YamlSection, load_plain_yaml, load_yaml
from hpccoll.model.machine_file import read_machine
from hpccoll.model.step_prediction import PEAK_FLOPS, ComputeRate, StepPrediction, StepRequest, predict_steps
from hpccoll.training.buckets import BucketRule
from hpccoll.training.model_file import load_models, model_name, models_from_json
from hpccoll.training.model_shape import ModelShape
from hpccoll.training.models import model_of
from hpccoll.training.parallelism import Parallelism

TOKENS = IntegerRange(1, 1 << 24)
Count = Annotated[int, Bounded(TOKENS)]


class ScenarioKeys(YamlSection):
    """The keys of a step, those of ``hpccoll predict step``."""

    cluster: Text | None = Field(None, description="described cluster or fitted machine: a name or a file")
    model: Text | None = Field(None, description="model: a name or a file")
    sequence_length: Count | None = Field(None, description="tokens of a sample")
    nodes: Annotated[int, Bounded(RANKS)] | None = Field(None, description="number of nodes")
    ranks_per_node: Annotated[int, Bounded(RANKS_PER_NODE)] | None = Field(None, description="GPUs on each node")
    parallel: Text | None = Field(None, description="mesh such as tp=8,pp=4")
    sharding: Text | None = Field(None, description="none, zero1, zero2, zero3, fsdp, hsdp")
    buckets: Text | None = Field(None, description="rule of buckets")
    bucket: Text | int | None = Field(None, description="size of a bucket")
    algorithm: Text | None = Field(None, description="algorithm of the collectives that have it")
    params: dict[str, int | str] | None = Field(None, description="parameters of the algorithm")
    flops_rate: Text | int | float | None = Field(None, description="FLOPs a second of a GPU")
    mfu: Text | float | None = Field(None, description="fraction of the peak of the GPU")
    gpu: Text | None = Field(None, description="GPU of mfu")
    compute: Text | None = Field(None, description="time that a GPU computes in a step")
    samples: Count | None = Field(None, description="samples of a micro-batch")
    micro_batches: Count | None = Field(None, description="micro-batches of a step")
    batch: Count | None = Field(None, description="samples of a step")
    dtype: Text | None = Field(None, description="type of gradients")
    overlap: bool | None = Field(None, description="whether gradients are synchronised during the backward pass")
    sequence: bool | None = Field(None, description="whether tensor-parallel ranks divide the sequence")
    recompute: bool | None = Field(None, description="whether the backward pass repeats the forward pass")


class Scenario(ScenarioKeys):
    """One step."""

    name: Annotated[Text, Field(max_length=NAME.maximum)] = Field(description="name of the scenario")

    def request(self) -> StepRequest:
        """Return the step to predict.

        Raises:
            BadInputError: if a value is invalid.
        """
        rule = BucketRule(self.buckets or "ddp", None if self.bucket is None else parse_size(self.bucket, "bucket"))
        return StepRequest(
            model=read_model_shape(self.model or "", "model", self.sequence_length), nodes=[self.nodes or 1],
            compute=compute_rate(_text(self.flops_rate), _text(self.mfu), self.gpu, self.compute),
            parallel=self.parallel or "",
            parallelism=Parallelism(
                buckets=rule, sharding=self.sharding or "none", sequence=bool(self.sequence),
                overlap=self.overlap is not False, micro_batches=self.micro_batches or 1, samples=self.samples or 1,
                recompute=bool(self.recompute), gradient_dtype=self.dtype,
            ),
            batch=self.batch, ranks_per_node=self.ranks_per_node, algorithm=self.algorithm,
            parameters=self.params or {},
        )  # fmt: skip


class ScenarioFile(YamlSection):
    """A file of scenarios."""

    common: ScenarioKeys = Field(
        default_factory=lambda: ScenarioKeys.model_validate({}), description="the keys that all scenarios have"
    )
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
    """The prediction of a scenario.

    Args:
        scenario: the scenario.
        machine: the name of its machine.
        prediction: the prediction.
    """

    scenario: Scenario
    machine: str
    prediction: StepPrediction

    @property
    def title(self) -> str:
        """The scenario in a line."""
        mesh = self.prediction.parallelism.mesh.text
        return f"{self.scenario.name}: {self.scenario.model} on {self.prediction.nodes} nodes of {self.machine}, {mesh}"

    def row(self) -> dict[str, Any]:
        """Return the prediction in SI units."""
        return {"scenario": self.scenario.name, "machine": self.machine, **self.prediction.row()}


def predict_scenarios(path: Path, progress: Callable[[int, int], None] | None = None) -> list[ScenarioPrediction]:
    """Return the predictions of a file of scenarios.

    Raises:
        BadInputError: if the file is invalid, or a scenario cannot be predicted.
    """
    listed = load_yaml(path, ScenarioFile, "--scenarios").scenarios
    steps = [(each, read_machine(each.cluster or "", f"{path}: cluster"), each.request()) for each in listed]
    found = []
    for done, (scenario, machine, request) in enumerate(steps):
        if progress:
            progress(done, len(steps))
        predicted = predict_steps(machine, request, lambda *_counts, done=done: progress and progress(done, len(steps)))
        found.append(ScenarioPrediction(scenario, machine.name, predicted.predictions[0]))
    return found


def read_model_shape(name: str, key: str, tokens: int | None = None) -> ModelShape:
    """Return the model of this name, or of a user's own file.

    Args:
        name: the name, or the path of the file.
        key: the option that names it.
        tokens: of a transformer, the tokens of a sample [as many as its own]; FLOPs are in proportion.

    Raises:
        BadInputError: if there is no such model, the file is invalid, or the model is no transformer.
    """
    own = models_from_json(load_models([name], key, load_plain_yaml))
    model = own.get(model_name(name)) or model_of(name)
    if tokens is None:
        return model
    TOKENS.check("--sequence-length", tokens)
    if model.transformer is None:
        raise BadInputError("--sequence-length", tokens, f"a transformer, unlike {model.name}")
    factor = tokens / model.transformer.sequence
    modules = tuple(replace(module, forward_flops=module.forward_flops * factor) for module in model.modules)
    return replace(model, modules=modules, transformer=replace(model.transformer, sequence=tokens))


def compute_rate(flops_rate: str | None, mfu: str | None, gpu: str | None, compute: str | None) -> ComputeRate:
    """Return how fast GPUs compute, from the options of the same names.

    Raises:
        BadInputError: if not exactly one of them is given, or a value is invalid.
    """
    if sum(each is not None for each in (flops_rate, mfu, compute)) != 1 or (mfu is None) != (gpu is None):
        raise UnusableError("--flops-rate", "exactly one of --flops-rate, --mfu with --gpu, and --compute")
    if compute is not None:
        return ComputeRate(step_s=parse_seconds(compute, "--compute"))
    if flops_rate is not None:
        return ComputeRate(PositiveNumber(1e21).read("--flops-rate", flops_rate))
    if gpu is None or gpu not in PEAK_FLOPS:
        raise BadInputError("--gpu", gpu, sorted(PEAK_FLOPS))
    fraction = PositiveNumber(1.0).read("--mfu", mfu or "")
    return ComputeRate(fraction * PEAK_FLOPS[gpu], source=f"{fraction:.0%} of the peak of {gpu}")


def _text(value: object) -> str | None:
    return None if value is None else str(value)
