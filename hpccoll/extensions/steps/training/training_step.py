"""A workload: a training step to measure, as the parameters of a case.

A case of the collective ``training_step`` runs the step of a model on all ranks. Its algorithm is
that of the collectives inside; its size is that of all gradients; its time is that of the step. Its
arguments are the keys of WORKLOAD. The algorithm ``null`` leaves the collectives out: what another
algorithm takes longer is exposed.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from hpccoll.common.errors import BadInputError
from hpccoll.extensions.steps.training.compressed_bucket import MESSAGE_DTYPES
from hpccoll.extensions.steps.training.compression import DENSE
from hpccoll.extensions.steps.training.model_shape import ModelShape, scaled, with_sequence
from hpccoll.extensions.steps.training.models import MODELS, model_of
from hpccoll.extensions.steps.training.models.digits import BATCH, DIGITS
from hpccoll.extensions.steps.training.parallelism import (
    Mesh,
    Parallelism,
    StepDtypes,
    moved_elements,
)
from hpccoll.extensions.steps.training.step_keys import WORKLOAD, parallelism_of
from hpccoll.extensions.steps.training.step_program import StepProgram
from hpccoll.extensions.steps.training.step_program_builder import step_programs
from hpccoll.schedule import itemsize

ROUTED_ARGUMENT = "zipf"
"""The pattern of unequal blocks that stands for the uneven routing of tokens to experts."""


NOT_OF_TRAININGS = "scale", "compute", "compute_us", "samples", "sharding", "parallel"
"""The keys that say what stands for a network, or how one is divided."""


@dataclass(frozen=True, slots=True)
class TrainingStep:
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
    sequence_length: int
    compress: str
    feedback: int
    gradient_dtype: str
    parameter_dtype: str
    activation_dtype: str
    corrupt: str

    def __post_init__(self) -> None:
        for key in fields(self):
            WORKLOAD[key.name].check(key.name, getattr(self, key.name))

    @classmethod
    def of(cls, params: Mapping[str, Any]) -> "TrainingStep":
        """Return the workload of the parameters of a case; other parameters are ignored."""
        return cls(**{name: params.get(name, key.default) for name, key in WORKLOAD.items()})

    @property
    def params(self) -> dict[str, int | str]:
        """The parameters of a case: the model, and what differs from its default."""
        params: dict[str, int | str] = {}
        for name, key in WORKLOAD.items():
            value = getattr(self, name)
            if name == "model" or value != key.default:
                params[name] = value
        return params

    def shape(self, models: Mapping[str, ModelShape] | None = None) -> ModelShape:
        """Return the model, with samples as long as asked for, scaled."""
        return scaled(
            with_sequence(self._unscaled(models), self.sequence_length or None), self.scale
        )

    def _unscaled(self, models: Mapping[str, ModelShape] | None) -> ModelShape:
        return (models or {}).get(self.model) or model_of(self.model)

    def canonical(
        self, dtype: str, models: Mapping[str, ModelShape] | None = None
    ) -> "tuple[str, TrainingStep]":
        """Return the type of gradients if ``dtype`` is the default, and the step without keys that change nothing.

        Those are the types of what no rank exchanges, types equal to that of gradients, the length
        of samples that the model has anyway, and feedback without compression. So equal steps are
        equal, however they were given.

        Raises:
            BadInputError: if ``parallel`` is not a list of axes, or the model does not exist.
        """
        types = self.dtypes(dtype)
        moved = moved_elements(self.sharding, Mesh.axes(self.parallel))
        changed: dict[str, Any] = {}
        for name, dtype_of_name in types._asdict().items():
            is_needed = name in moved and dtype_of_name != types.gradient
            if is_needed:
                changed[f"{name}_dtype"] = dtype_of_name
            else:
                changed[f"{name}_dtype"] = ""
        if self.sequence_length:
            transformer = self._unscaled(models).transformer
            if transformer and transformer.sequence == self.sequence_length:
                changed["sequence_length"] = 0
        if self.compress == DENSE:
            changed["feedback"] = 0
        return types.gradient, replace(self, **changed)

    def dtypes(self, dtype: str) -> StepDtypes:
        """Return the types of what moves; ``dtype`` is that of what has none of its own."""
        return StepDtypes.of(asdict(self), dtype)

    def moved_dtypes(self, workers: int, dtype: str) -> tuple[str, ...]:
        """Return the types of what ``workers`` ranks exchange; ``dtype`` is that of what has none of its own."""
        types = self.dtypes(dtype)._asdict()
        parallelism = self.parallelism(workers, dtype)
        moved = [types[name] for name in parallelism.moved]
        if parallelism.compression:
            moved += MESSAGE_DTYPES[parallelism.compression.name]
        return tuple(dict.fromkeys(moved))

    def gradient_bytes(self, dtype: str, models: Mapping[str, ModelShape] | None = None) -> int:
        """Return the bytes of all gradients of the model."""
        return self.shape(models).parameters * itemsize(self.dtypes(dtype).gradient)

    def parallelism(self, workers: int, dtype: str) -> Parallelism:
        """Return how ``workers`` ranks train the model; ``dtype`` is the type of what has none of its own."""
        return parallelism_of(
            asdict(self), mesh=Mesh.parse(self.parallel, workers), dtypes=self.dtypes(dtype)
        )

    def check_ranks(self, workers: int, dtype: str, op: str | None, device: str) -> None:
        """Check that ``workers`` ranks can train the model; a model of the user's own is checked by the ranks.

        Raises:
            BadInputError: if they cannot.
        """
        parallelism = self.parallelism(workers, dtype)
        if parallelism.compression and device != "cpu":
            raise BadInputError(
                "compress", self.compress, "none on a GPU: compression is measured in host memory"
            )
        if parallelism.compression and op not in ("sum", "avg"):
            raise BadInputError(
                "op", op, "sum or avg with compress: the mean of gradients is compressed"
            )
        if self.model in MODELS:
            parallelism.check(self.shape())
        self._check_training(workers, dtype, op, device)

    @property
    def learns(self) -> bool:
        """Whether ranks train a real network, and do not only move gradients."""
        return self.model == DIGITS

    @property
    def corrupted(self) -> tuple[int, int] | None:
        """The step, from 1, and the rank of the drill; None without one."""
        step, _, rank = self.corrupt.partition(":")
        if step.isdecimal() and rank.isdecimal():
            return (int(step), int(rank))
        return None

    def _check_training(self, workers: int, dtype: str, op: str | None, device: str) -> None:
        """Check what is refused where ranks train a real network, and what only these have."""
        if self.learns:
            self._check_real_training(workers, dtype, op, device)
        elif self.corrupt:
            raise BadInputError(
                "corrupt", self.corrupt, f"nothing without {DIGITS}, whose drill it is"
            )
        if self.corrupt:
            step, rank = self.corrupted or (0, workers)
            if step < 1 or rank >= workers:
                valid = f"STEP:RANK, a step from 1 on and one of {workers} ranks"
                raise BadInputError("corrupt", self.corrupt, valid)

    def _check_real_training(self, workers: int, dtype: str, op: str | None, device: str) -> None:
        for name in NOT_OF_TRAININGS:
            value = getattr(self, name)
            default = WORKLOAD[name].default
            if value != default:
                raise BadInputError(name, value, f"{default} with {self.model}")
        gradient_dtype = self.dtypes(dtype).gradient
        if device != "cpu":
            raise BadInputError("device", device, f"cpu with {self.model}")
        if op not in ("sum", "avg"):
            raise BadInputError("op", op, f"sum or avg with {self.model}")
        if gradient_dtype != "float32":
            raise BadInputError("dtype", gradient_dtype, f"float32 with {self.model}")
        if workers * self.micro_batches > BATCH:
            most = BATCH // self.micro_batches
            valid = f"at most {most}, whose micro-batches divide the {BATCH} images of a step"
            raise BadInputError("ranks", workers, valid)

    def programs(
        self, workers: int, dtype: str, models: Mapping[str, ModelShape] | None = None
    ) -> list[StepProgram]:
        """Return the program of each pipeline stage."""
        return step_programs(self.shape(models), self.parallelism(workers, dtype))
