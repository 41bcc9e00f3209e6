"""A workload: a training step to measure, as the parameters of a case.

A case of the collective ``training_step`` runs the step of a model on all ranks. Its algorithm is that of the
collectives inside; its size is that of all gradients; its time is that of the step. Its arguments are the keys of
WORKLOAD. The algorithm ``null`` leaves the collectives out: what another algorithm takes longer is exposed.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from hpccoll.schedule import WORKLOADS, all_reduce, itemsize
from hpccoll.training.model_shape import ModelShape, scaled
from hpccoll.training.models import MODELS, model_of
from hpccoll.training.parallelism import Mesh, Parallelism
from hpccoll.training.step_keys import BYTES, WORKLOAD, parallelism_of
from hpccoll.training.step_program import StepProgram
from hpccoll.training.step_program_builder import step_programs

TRAINING_STEP = "training_step"

ROUTED_ARGUMENT = "zipf"
"""The pattern of unequal blocks that stands for the uneven routing of tokens to experts."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A training step; the fields are the keys of WORKLOAD.

    Raises:
        BadInputError: if a value is invalid.
    """

    model: str
    scale: int
    compute: str
    compute_us: int
    samples: int
    micro_batches: int
    overlap: int
    buckets: str
    bucket: int
    first_bucket: int
    parallel: str
    sharding: str
    sequence: int
    recompute: int

    def __post_init__(self) -> None:
        for each in fields(self):
            key, value = WORKLOAD[each.name], getattr(self, each.name)
            if key.kind is not BYTES or value != key.default:
                key.kind.check(each.name, value)

    @classmethod
    def of(cls, params: Mapping[str, Any]) -> "Workload":
        """Return the workload of the parameters of a case; other parameters are ignored."""
        return cls(**{name: params.get(name, key.default) for name, key in WORKLOAD.items()})

    @property
    def params(self) -> dict[str, int | str]:
        """The parameters of a case: the model, and what differs from its default."""
        return {
            name: value
            for name, key in WORKLOAD.items()
            for value in [getattr(self, name)]
            if name == "model" or value != key.default
        }

    def shape(self, models: Mapping[str, ModelShape] | None = None) -> ModelShape:
        """Return the model, scaled."""
        own = (models or {}).get(self.model)
        return scaled(own or model_of(self.model), self.scale)

    def gradient_bytes(self, dtype: str, models: Mapping[str, ModelShape] | None = None) -> int:
        """Return the bytes of all gradients of the model."""
        return self.shape(models).parameters * itemsize(dtype)

    def parallelism(self, workers: int, dtype: str) -> Parallelism:
        """Return how ``workers`` ranks train the model with gradients of ``dtype``."""
        return parallelism_of(
            asdict(self), mesh=Mesh.parse(self.parallel, workers), gradient_dtype=dtype, parameter_dtype=dtype
        )

    def check_ranks(self, workers: int, dtype: str) -> None:
        """Check that ``workers`` ranks can train the model; a model of the user's own is checked by the ranks.

        Raises:
            BadInputError: if they cannot.
        """
        parallelism = self.parallelism(workers, dtype)
        if self.model in MODELS:
            parallelism.check(self.shape())

    def programs(self, workers: int, dtype: str, models: Mapping[str, ModelShape] | None = None) -> list[StepProgram]:
        """Return the program of each pipeline stage."""
        return step_programs(self.shape(models), self.parallelism(workers, dtype))


WORKLOADS[TRAINING_STEP] = replace(  # with the algorithms of all-reduce
    all_reduce, name=TRAINING_STEP, busbw=None, out_of_place=False,
    arguments={name: key.default for name, key in WORKLOAD.items()},
)  # fmt: skip
