"""A workload: a training step to measure, as the parameters of a case.

A case of the collective ``training_step`` runs the step of a model on all ranks. Its algorithm is that of the
collectives inside; its size is that of all gradients; its time is that of the step. Its arguments are the keys of
WORKLOAD. The algorithm ``null`` leaves the collectives out: what another algorithm takes longer is exposed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from hpccoll.common.limits import MAX_BYTES, IntegerRange, OneOfWords, PrintableText
from hpccoll.common.units import parse_size
from hpccoll.schedule import WORKLOADS, all_reduce, itemsize
from hpccoll.training.buckets import FRAMEWORKS, BucketRule
from hpccoll.training.mesh import Mesh
from hpccoll.training.model_shape import ModelShape, scaled
from hpccoll.training.models import MODELS, model_of
from hpccoll.training.parallelism import SHARDINGS, Parallelism, step_programs
from hpccoll.training.step_program import StepProgram

TRAINING_STEP = "training_step"

WAIT, GEMM, NOTHING = "wait", "gemm", "none"
COMPUTATIONS = WAIT, GEMM, NOTHING
"""How ranks compute: not at all, as a host whose accelerator computes; by products of matrices; or in no time."""

ROUTED_ARGUMENT = "zipf"
"""The pattern of unequal blocks that stands for the uneven routing of tokens to experts."""

MAX_US = 3_600_000_000
FLAG = IntegerRange(0, 1)
SIZE = IntegerRange(1, MAX_BYTES)


@dataclass(frozen=True, slots=True)
class WorkloadKey:
    """A key of a workload.

    Args:
        help: a noun phrase, with the default in brackets if it is not the value.
        default: the default.
        kind: the valid values.
        size: whether it is a number of bytes, which may be written as 25M; without a value it is 0.
    """

    help: str
    default: int | str
    kind: IntegerRange | OneOfWords | PrintableText
    size: bool = False

    def read(self, name: str, text: str) -> int | str:
        """Parse a value.

        Raises:
            BadInputError: if it is not valid.
        """
        if not self.size and not isinstance(self.kind, PrintableText):
            return self.kind.read(name, text)
        value = parse_size(text, name) if self.size else text
        self.kind.check(name, value)
        return value


WORKLOAD: Mapping[str, WorkloadKey] = {
    "model": WorkloadKey("model, see 'hpccoll list', or your own file F.yaml", "resnet50", PrintableText(minimum=1)),
    "scale": WorkloadKey("divisor of tensors, activations and limits of buckets", 1, IntegerRange(1, 1 << 20)),
    "compute": WorkloadKey("computation: wait (the rank is idle, as a host whose GPU computes), gemm (products of "
                           "matrices), none", WAIT, OneOfWords(COMPUTATIONS)),
    "compute_us": WorkloadKey(
        "with wait: microseconds that a rank computes for a micro-batch, a third of them forward", 30_000,
        IntegerRange(1, MAX_US),
    ),
    "samples": WorkloadKey("samples of a micro-batch of a data-parallel rank", 1, IntegerRange(1, 1 << 20)),
    "micro_batches": WorkloadKey("micro-batches of a step, which synchronises once", 1, IntegerRange(1, 1 << 16)),
    "overlap": WorkloadKey("1: gradients are synchronised during the backward pass; 0: after it", 1, FLAG),
    "buckets": WorkloadKey(f"rule of buckets: {', '.join(FRAMEWORKS)}", "ddp", OneOfWords((*FRAMEWORKS,))),
    "bucket": WorkloadKey("bytes of a bucket of the unscaled model [those of the rule]", 0, SIZE, size=True),
    "first_bucket": WorkloadKey("bytes of the first bucket of ddp [1M; with --bucket those]", 0, SIZE, size=True),
    "parallel": WorkloadKey("mesh of the ranks, such as dp=4,tp=2,pp=2 [all data parallel]", "", PrintableText()),
    "sharding": WorkloadKey(f"sharding: {', '.join(SHARDINGS)}", "none", OneOfWords(SHARDINGS)),
    "sequence": WorkloadKey("1: tensor-parallel ranks divide the sequence, too", 0, FLAG),
    "recompute": WorkloadKey("1: the backward pass computes the forward pass of blocks again", 0, FLAG),
}  # fmt: skip
"""The keys of a workload, the arguments of ``training_step``."""


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
            if not key.size or value != key.default:
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
        """Return the model, scaled.

        Args:
            models: the user's own models by name.
        """
        own = (models or {}).get(self.model)
        return scaled(own or model_of(self.model), self.scale)

    def gradient_bytes(self, dtype: str, models: Mapping[str, ModelShape] | None = None) -> int:
        """Return the bytes of all gradients of the model."""
        return self.shape(models).parameters * itemsize(dtype)

    def parallelism(self, workers: int, dtype: str) -> Parallelism:
        """Return how ``workers`` ranks train the model with gradients of ``dtype``."""
        return Parallelism(
            mesh=Mesh.parse(self.parallel, workers), buckets=self.rule, sharding=self.sharding,
            sequence=bool(self.sequence), overlap=bool(self.overlap), micro_batches=self.micro_batches,
            samples=self.samples, recompute=bool(self.recompute), gradient_dtype=dtype, parameter_dtype=dtype,
        )  # fmt: skip

    def check_ranks(self, workers: int, dtype: str) -> None:
        """Check that ``workers`` ranks can train the model; a model of the user's own is checked by the ranks.

        Raises:
            BadInputError: if they cannot.
        """
        parallelism = self.parallelism(workers, dtype)
        if self.model in MODELS:
            parallelism.check(self.shape())

    @property
    def rule(self) -> BucketRule:
        """The rule of buckets; limits are divided as the tensors are."""
        return BucketRule(self.buckets, self.bucket or None, self.first_bucket or None, scale=self.scale)

    def programs(self, workers: int, dtype: str, models: Mapping[str, ModelShape] | None = None) -> list[StepProgram]:
        """Return the program of each pipeline stage."""
        return step_programs(self.shape(models), self.parallelism(workers, dtype))


WORKLOADS[TRAINING_STEP] = replace(  # with the algorithms of all-reduce
    all_reduce, name=TRAINING_STEP, busbw=None, out_of_place=False,
    arguments={name: key.default for name, key in WORKLOAD.items()},
)  # fmt: skip
