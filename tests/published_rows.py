"""Published times of training steps, and what is predicted after fitting one number to the smallest row of a table."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from hpccoll.extensions.steps.model.group_costs import GroupCosts
from hpccoll.extensions.steps.model.step_prediction import ComputeRate, rate_of_step
from hpccoll.extensions.steps.training.buckets import BucketRule
from hpccoll.extensions.steps.training.models import model_of
from hpccoll.extensions.steps.training.models.transformers import gpt2
from hpccoll.extensions.steps.training.parallelism import Mesh, Parallelism, StepDtypes
from hpccoll.extensions.steps.training.step_program_builder import step_programs
from hpccoll.extensions.steps.training.step_timeline import StepTimeline, step_timeline
from hpccoll.model.machine_file import read_machine

DATA = Path(__file__).parent / "extensions" / "steps" / "model" / "published_steps.yaml"
GPUS_PER_NODE = 8


class PublishedStep:
    """A row of a table, with its programs and the costs of its collectives: NCCL's own, or schedules of ours alone."""

    def __init__(self, cluster: str, keys: dict[str, Any], *, library: bool = True) -> None:
        self.name, self.gpus, self.keys = str(keys["name"]), keys["gpus"], keys
        self.machine = read_machine(cluster, "cluster")
        tp, pp = keys["tp"], keys["pp"]
        self.mesh = Mesh(tp=tp, pp=pp, dp=self.gpus // tp // pp)
        self.model = (
            model_of(keys["model"])
            if "model" in keys
            else gpt2(
                self.name, keys["blocks"], keys["hidden"], keys["vocabulary"], keys["sequence"]
            )
        )
        parallelism = Parallelism(
            mesh=self.mesh,
            buckets=BucketRule(keys.get("buckets", "megatron")),
            sharding=keys.get("sharding", "none"),
            sequence=keys.get("sequence_parallel", False),
            overlap=keys.get("overlap", True),
            micro_batches=keys["batch"] // self.mesh.dp // keys["samples"],
            samples=keys["samples"],
            recompute=keys.get("recompute", False),
            dtypes=StepDtypes.of({}, "bfloat16"),
        )
        self.programs = step_programs(self.model, parallelism)
        nodes = -(-self.gpus // GPUS_PER_NODE)
        layout = self.machine.layout(nodes, min(self.gpus, GPUS_PER_NODE))
        machine = self.machine if library else self.machine.model_copy(update={"nccl": None})
        self.costs = GroupCosts(machine, layout, self.mesh)
        self.costs.prepare(self.programs)

    @property
    def measured_s(self) -> float:
        """The published seconds of a step."""
        keys = self.keys
        if "seconds" in keys:
            return float(keys["seconds"])
        if keys.get("flops") == "model":
            flops = 3 * self.model.forward_flops * keys["batch"]
        else:
            tokens, blocks, hidden = (
                keys["batch"] * keys["sequence"],
                keys["blocks"],
                keys["hidden"],
            )
            more = keys["sequence"] / (6 * hidden) + keys["vocabulary"] / (16 * blocks * hidden)
            flops = 96 * tokens * blocks * hidden**2 * (1 + more)
        return float(flops / (keys["tflops"] * 1e12 * self.gpus))

    def step(self, flops_per_s: float) -> "PredictedStep":
        """Return the predicted step at a rate of computation."""
        seconds = ComputeRate(flops_per_s).seconds(self.programs)
        return PredictedStep(self, step_timeline(self.programs, seconds, self.costs.cost))

    def fit(self) -> float:
        """Return the rate of computation at which the predicted step takes as long as the published one."""
        return rate_of_step(self.programs, self.costs.cost, self.measured_s)


@dataclass(frozen=True)
class PredictedStep:
    """A predicted step."""

    row: PublishedStep  # the published row
    timeline: StepTimeline  # its timeline

    @property
    def bubble_s(self) -> float:
        """The bubble; an interleaved schedule of v parts of each stage has a v-th of it."""
        return self.timeline.bubble_s / int(self.row.keys.get("interleaved", 1))

    @property
    def seconds(self) -> float:
        """The seconds of the step."""
        return self.timeline.step_s - self.timeline.bubble_s + self.bubble_s

    @property
    def error(self) -> float:
        """The predicted over the published time, minus 1."""
        return self.seconds / self.row.measured_s - 1


def tables() -> list[dict[str, Any]]:
    """Return the tables of the file."""
    content: list[dict[str, Any]] = yaml.safe_load(DATA.read_text())
    return content


def predicted(
    table: dict[str, Any], names: Sequence[str] = (), *, library: bool = True
) -> Iterator[tuple[float, PredictedStep]]:
    """Yield the fitted fraction of the peak and the prediction of each row: the fitted one, then ``names`` [all].

    With ``library`` NCCL's own algorithms run what they can, else schedules of ours run everything.
    """
    rate = 0.0
    for number, keys in enumerate(table["rows"]):
        if number and names and keys["name"] not in names:
            continue
        row = PublishedStep(table["cluster"], table["common"] | keys, library=library)
        if not number:
            rate = row.fit()
        yield rate / float(table["peak"]), row.step(rate)
