"""How ranks train a model in parallel: the mesh of ranks, with the groups of each axis, and what they divide.

Consecutive ranks are tensor-parallel, because their collectives are the most frequent; then follow
data-parallel ranks, and last the stages of the pipeline, as Megatron-LM numbers them. A
data-parallel group may be divided twice: ``shard`` ranks of it divide the parameters among
themselves (ZeRO, FSDP), and ``ep`` ranks of it the experts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import groupby
from typing import Any, NamedTuple, TypedDict

import numpy as np

from hpccoll.common.errors import BadInputError
from hpccoll.common.limits import RANKS, IntegerRange
from hpccoll.extensions.steps.training.buckets import BucketRule
from hpccoll.extensions.steps.training.compression import Compression
from hpccoll.extensions.steps.training.model_shape import ModelShape, Module, Tensor

AXES: Mapping[str, str] = {
    "tp": "tensor parallel",
    "dp": "data parallel",
    "pp": "pipeline parallel",
    "shard": "ranks of a data-parallel group that divide the parameters",
    "ep": "ranks of a data-parallel group that divide the experts",
}
"""The axes of a mesh; the first three multiply to the number of ranks."""

REPLICAS = {"replica": "shard", "expert_replica": "ep"}
"""The axes whose groups join what is equal in the parts of a data-parallel group: equal shards, and equal experts."""


PER_STEP = IntegerRange(1, 1 << 20)
"""The samples of a micro-batch, and the micro-batches of a step."""
MAX_INSTRUCTIONS = 400_000
"""About the maximum number of instructions of a pass through the model, times the micro-batches of a step."""

SHARDINGS = ("none", "zero1", "zero2", "zero3", "fsdp", "hsdp")
"""What data-parallel ranks divide: nothing; the state of the optimizer; gradients, too; parameters,
too, by tensors (zero3) or by blocks (fsdp), or by blocks among ``shard`` of the ranks (hsdp)."""


class StepDtypesJson(TypedDict):
    """The types of what the ranks of a training step exchange, as JSON has them."""

    gradient_dtype: str
    parameter_dtype: str
    activation_dtype: str


class StepDtypes(NamedTuple):
    """The types of what the ranks of a training step exchange; the key of ``gradient`` is ``gradient_dtype``."""

    gradient: str  # of gradients, which are summed
    parameter: str  # of parameters, which are gathered
    activation: str  # of activations and their gradients: tensor and expert parallelism, and stages

    @classmethod
    def of(cls, keys: Mapping[str, Any], default: str) -> "StepDtypes":
        """Return the types of keys; those that are not given are ``default``."""
        return cls(*(keys.get(f"{name}_dtype") or default for name in cls._fields))

    @property
    def keys(self) -> StepDtypesJson:
        """The types by key."""
        return {
            "gradient_dtype": self.gradient,
            "parameter_dtype": self.parameter,
            "activation_dtype": self.activation,
        }


def moved_elements(sharding: str, axes: Mapping[str, int]) -> tuple[str, ...]:
    """Return what ranks exchange, as the fields of StepDtypes, by the sizes of the axes of their mesh.

    An axis without a size has one rank; only ``dp``, which takes the ranks that are left, has
    several.
    """
    moved = []
    if axes.get("dp", RANKS.maximum) > 1:
        moved.append("gradient")
        if sharding != "none":
            moved.append("parameter")
    if any(axes.get(axis, 1) > 1 for axis in ("tp", "pp", "ep")):
        moved.append("activation")
    return tuple(moved)


@dataclass(frozen=True, slots=True)
class Mesh:
    """The numbers of ranks on each axis: see AXES."""

    tp: int = 1  # the ranks of a tensor-parallel group
    dp: int = 1  # the ranks of a data-parallel group
    pp: int = 1  # the stages of the pipeline
    shard: int = 1  # the ranks of a sharded group, a divisor of ``dp``
    ep: int = 1  # the ranks of an expert-parallel group, a divisor of ``dp``

    def __post_init__(self) -> None:
        for axis in fields(self):
            RANKS.check(f"parallel {axis.name}", getattr(self, axis.name))
        for name in ("shard", "ep"):
            if self.dp % getattr(self, name):
                raise BadInputError(
                    f"parallel {name}", getattr(self, name), f"a divisor of dp={self.dp}"
                )

    @classmethod
    def parse(cls, text: str, ranks: int) -> "Mesh":
        """Return the mesh of a text such as ``dp=4,tp=2,pp=2``; without dp it takes the ranks that are left.

        Raises:
            BadInputError: if the text is not a list of axes, or the axes do not multiply to the
                number of ranks.
        """
        sizes = cls.axes(text)
        divided = sizes.get("tp", 1) * sizes.get("pp", 1)
        if "dp" not in sizes and ranks % divided == 0:
            sizes["dp"] = ranks // divided
        if divided * sizes.get("dp", 1) != ranks:
            raise BadInputError("parallel", text, f"tp x dp x pp = {ranks}, the number of ranks")
        return cls(**sizes)

    @staticmethod
    def axes(text: str) -> dict[str, int]:
        """Return the sizes that a text gives to axes; BadInputError if it is not a list of axes."""
        sizes: dict[str, int] = {}
        for part in filter(None, (part.strip() for part in text.split(","))):
            name, equals, value = part.partition("=")
            if name not in AXES or not equals or name in sizes:
                raise BadInputError(
                    "parallel", part, f"axes such as dp=4,tp=2, each once; axes: {', '.join(AXES)}"
                )
            sizes[name] = RANKS.read(f"parallel {name}", value)
        return sizes

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return self.tp * self.dp * self.pp

    @property
    def text(self) -> str:
        """The mesh as text, without axes of 1: ``dp=4,tp=2``."""
        several = [axis for axis in AXES if getattr(self, axis) > 1]
        return ",".join(f"{axis}={getattr(self, axis)}" for axis in several) or "dp=1"

    def groups(self, axis: str) -> list[Sequence[int]]:
        """Return the ranks of all groups of an axis, one of AXES or of REPLICAS."""
        numbers = np.arange(self.ranks).reshape(self.pp, self.dp, self.tp)
        if axis == "tp":
            rows = numbers.reshape(-1, self.tp)
        elif axis == "pp":
            rows = numbers.reshape(self.pp, -1).T
        else:
            size = self.size(axis)
            columns = numbers.transpose(0, 2, 1).reshape(-1, self.dp)  # data-parallel groups
            if axis in REPLICAS:
                columns = (
                    columns.reshape(-1, size, self.dp // size)
                    .transpose(0, 2, 1)
                    .reshape(-1, self.dp)
                )
            rows = columns.reshape(-1, size)
        return list(rows.tolist())

    def size(self, axis: str) -> int:
        """Return the number of ranks of a group of an axis."""
        if axis in REPLICAS:
            return self.dp // int(getattr(self, REPLICAS[axis]))
        return int(getattr(self, axis))

    def stage_of(self, rank: int) -> int:
        """Return the number of the pipeline stage of a rank."""
        return rank // (self.dp * self.tp)

    def pairs(self, first: int, second: int) -> list[Sequence[int]]:
        """Return the pairs of ranks of two stages that exchange messages."""
        size = self.dp * self.tp
        return [(first * size + number, second * size + number) for number in range(size)]


@dataclass(frozen=True, slots=True)
class Parallelism:
    """How a model is trained in parallel."""

    mesh: Mesh = field(default_factory=Mesh)  # the mesh of the ranks
    buckets: BucketRule = field(default_factory=BucketRule)  # how gradients are grouped
    sharding: str = "none"  # one of SHARDINGS
    sequence: bool = False  # whether tensor-parallel ranks divide the sequence, too
    overlap: bool = True  # whether gradients are synchronised while the backward pass goes on
    micro_batches: int = 1  # the micro-batches of a step; their gradients are synchronised once
    samples: int = 1  # the samples of a micro-batch of a data-parallel rank
    # whether the backward pass computes the forward pass of each block again
    recompute: bool = False
    dtypes: StepDtypes | None = None  # the types of what moves [that of the model]
    compression: Compression | None = None  # how gradients are compressed [not at all]

    def __post_init__(self) -> None:
        if self.sharding not in SHARDINGS:
            raise BadInputError("sharding", self.sharding, SHARDINGS)
        for key in ("micro_batches", "samples"):
            PER_STEP.check(key, getattr(self, key))

    def dtypes_of(self, model: ModelShape) -> StepDtypes:
        """Return the types of what moves when a model is trained."""
        return self.dtypes or StepDtypes.of({}, model.dtype)

    @property
    def moved(self) -> tuple[str, ...]:
        """What ranks exchange, as the fields of StepDtypes."""
        return moved_elements(self.sharding, {axis: getattr(self.mesh, axis) for axis in AXES})

    @property
    def shards_parameters(self) -> bool:
        """Whether a rank has a part of each parameter, and gathers the others."""
        return self.sharding in ("zero3", "fsdp", "hsdp")

    @property
    def by_block(self) -> bool:
        """Whether the parameters, and the gradients, of a block are one piece, and buckets have no rule."""
        return self.sharding in ("fsdp", "hsdp")

    def check(self, model: ModelShape) -> None:
        """Check that a model can be trained like this; BadInputError if the model cannot be divided so."""
        most = max(1, MAX_INSTRUCTIONS // max(1, self._instructions(model)))
        if self.micro_batches > most:
            valid = f"at most {most}, for {model.name} with sharding {self.sharding}"
            raise BadInputError("micro_batches", self.micro_batches, valid)
        self._check_mesh(model)
        self._check_options(model)
        self._check_compression(model)
        self._check_sharding()

    def _instructions(self, model: ModelShape) -> int:
        """Return about how many instructions a pass has: computations between collectives are one.

        That is one for each part; or one for each module, if the tensors of each have collectives
        of their own.
        """
        if self.sharding in ("zero2", "zero3"):
            return len(model.modules)
        parts = groupby(model.modules, key=lambda module: (module.block, module.part))
        return sum(1 for _ in parts)

    def _check_mesh(self, model: ModelShape) -> None:
        mesh = self.mesh
        shape = model.transformer
        if shape is None:
            valid = f"1, because {model.name} is not a transformer; do: choose one of 'hpccoll list', such as gpt2"
            for axis in ("tp", "pp", "ep"):
                if getattr(mesh, axis) > 1:
                    raise BadInputError(f"parallel {axis}", getattr(mesh, axis), valid)
            return
        if mesh.pp > shape.blocks:
            raise BadInputError(
                "parallel pp", mesh.pp, f"at most the {shape.blocks} blocks of {model.name}"
            )
        if mesh.ep > 1 and not shape.experts:
            raise BadInputError("parallel ep", mesh.ep, "1: it has no experts")
        if mesh.ep > 1 and shape.experts % mesh.ep:
            raise BadInputError("parallel ep", mesh.ep, f"a divisor of the {shape.experts} experts")

    def _check_options(self, model: ModelShape) -> None:
        if self.sequence and self.mesh.tp == 1:
            raise BadInputError(
                "sequence", 1, "0: without tensor parallelism nothing divides the sequence"
            )
        if self.recompute and model.transformer is None:
            raise BadInputError("recompute", 1, f"0: {model.name} has no blocks")
        if (self.mesh.shard > 1) != (self.sharding == "hsdp"):
            valid = "more than 1 with hsdp, and 1 with other shardings"
            raise BadInputError("parallel shard", self.mesh.shard, valid)

    def _check_compression(self, model: ModelShape) -> None:
        if self.compression is None:
            return
        dtype = self.dtypes_of(model).gradient
        if self.sharding != "none":
            valid = f"nothing with sharding {self.sharding}: only all-reduces of gradients are compressed"
            raise BadInputError("compress", self.compression.text, valid)
        if dtype != "float32":
            valid = (
                f"none with gradients of {dtype}: those of float32 are compressed (gradient_dtype)"
            )
            raise BadInputError("compress", self.compression.text, valid)

    def _check_sharding(self) -> None:
        if self.by_block:
            rule = self.buckets
            usual = BucketRule()
            valid = (
                f"left out with sharding {self.sharding}: the gradients of a block are one bucket"
            )
            for key, value, default in (
                ("buckets", rule.framework, usual.framework),
                ("bucket", rule.limit, usual.limit),
                ("first_bucket", rule.first, usual.first),
            ):
                if value != default:
                    raise BadInputError(key, value, valid)
        if self.shards_parameters and self.mesh.pp > 1:
            raise BadInputError("sharding", self.sharding, "none, zero1 or zero2 with a pipeline")
        if self.shards_parameters and self.mesh.ep > 1:
            raise BadInputError(
                "sharding", self.sharding, "none, zero1 or zero2 with expert parallelism"
            )


def part_of(model: ModelShape, mesh: Mesh, stage: int = 0) -> ModelShape:
    """Return the part of a model that a rank of a stage has: its blocks, and its shards of tensors and of experts.

    The numbers of blocks of two stages differ by one at most, and the last stage, which has the
    output layer, too, has no more than others. What is before all blocks belongs to the first
    stage, what is after them to the last. Of the experts, those of the first rank stand for those
    of any: all compute as much, for tokens of all ranks.
    """
    blocks = 1
    if model.transformer:
        blocks = model.transformer.blocks
    begins = [-(-number * blocks // mesh.pp) for number in range(mesh.pp + 1)]
    seen_block = False
    modules = []
    for module in model.modules:
        seen_block |= module.block is not None
        if module.block is None:
            is_of_stage = stage == (mesh.pp - 1 if seen_block else 0)
        else:
            is_of_stage = begins[stage] <= module.block < begins[stage + 1]
        if is_of_stage:
            modules.append(_shard_of(module, mesh))
    return replace(model, modules=tuple(modules))


def _shard_of(module: Module, mesh: Mesh) -> Module:
    """Return the part of a module that a rank has: without the tensors of experts of other ranks."""
    tensors: list[Tensor] = []
    if module.expert is None or module.expert % mesh.ep == 0:
        for tensor in module.tensors:
            if tensor.split:
                elements = -(-tensor.elements // mesh.tp)
            else:
                elements = tensor.elements
            tensors.append(replace(tensor, elements=elements))
    is_divided = module.part == "output" or any(tensor.split for tensor in module.tensors)
    divided = mesh.tp if is_divided else 1
    return replace(module, tensors=tuple(tensors), forward_flops=module.forward_flops / divided)
