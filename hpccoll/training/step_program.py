"""A training step as a program: what the ranks of a pipeline stage compute, and which collectives they start and await.

All ranks of a stage run the same program, each with the other ranks of its own groups. A program has three kinds of
instructions: ``Compute``, ``Start`` and ``Wait``. A collective that is started runs beside what follows, until a
``Wait`` names it or the step ends; those of one stream run one after the other. Programs are run by ranks
(``hpccoll train``), and timed with predicted costs (``step_timeline``).

| parallelism | collectives |
| --- | --- |
| dp | an all-reduce of each bucket, started when its last gradient is ready |
| dp, zero1 | a reduce-scatter of each bucket, started likewise, and all-gathers of the parameters at the end |
| dp, zero3 or fsdp | all-gathers of the parameters before both passes through a unit; a reduce-scatter after it |
| dp, hsdp | the same in groups of ``shard`` ranks; then an all-reduce of each shard over the replicas |
| tp | an all-reduce after attention and after the feed-forward network, in both passes |
| tp, sequence | an all-gather before and a reduce-scatter after each of them |
| ep | an all-to-all before and one after the experts, in both passes |
| pp | one message to the next stage for each micro-batch, one back; one forward, one backward in turn (1F1B) |

S. Li et al.: PyTorch Distributed, VLDB 13 (2020); S. Rajbhandari et al.: ZeRO, SC (2020); Y. Zhao et al.: PyTorch FSDP,
VLDB 16 (2023); D. Narayanan et al.: Megatron-LM, SC (2021); V. Korthikanti et al.: Reducing activation recomputation,
MLSys (2023).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TypeAlias

from hpccoll.errors import BadInputError
from hpccoll.schedule import itemsize
from hpccoll.training.buckets import BucketRule, bucket_bytes
from hpccoll.training.mesh import Mesh
from hpccoll.training.model_shape import BACKWARD_OVER_FORWARD, ModelShape, Module, Tensor

FORWARD, BACKWARD = "forward", "backward"

SHARDINGS = ("none", "zero1", "zero3", "fsdp", "hsdp")
"""What data-parallel ranks divide: nothing; the optimizer's state; parameters by tensors (zero3) or by units (fsdp), or
by units among ``shard`` of the ranks (hsdp)."""


@dataclass(frozen=True, slots=True)
class StepOperation:
    """A collective of a training step.

    Args:
        label: what it is for: ``bucket 3``, ``block 7 attention``.
        collective: the name of the collective; ``send_recv`` is one message between neighbouring stages.
        axis: the axis of the mesh whose groups run it: dp, shard, replica, expert_replica, tp, ep or pp.
        nbytes: S in bytes, by the convention of the collective.
        dtype: the type of the elements.
        phase: ``forward``, ``backward``, or ``step`` after both.
        peer: of a message between stages, the other stage.
        sends: of a message between stages, whether this stage sends it.
    """

    label: str
    collective: str
    axis: str
    nbytes: int
    dtype: str
    phase: str
    peer: int | None = None
    sends: bool = False

    @property
    def stream(self) -> str:
        """The stream on which it runs after those before it; the all-reduce of a shard follows its reduce-scatter."""
        if self.peer is not None:
            return f"pp {'to' if self.sends else 'from'} {self.peer}"
        return "shard" if self.axis == "replica" else self.axis


@dataclass(frozen=True, slots=True)
class Compute:
    """A computation.

    Args:
        phase: ``forward`` or ``backward``.
        flops: its FLOPs on this rank.
    """

    phase: str
    flops: float


@dataclass(frozen=True, slots=True)
class Start:
    """Starts an operation: it may run from now on."""

    operation: StepOperation


@dataclass(frozen=True, slots=True)
class Wait:
    """Waits until the operation has ended that the ``number``-th Start of the program has started."""

    number: int


Instruction: TypeAlias = Compute | Start | Wait


@dataclass(frozen=True, slots=True)
class Parallelism:
    """How a model is trained in parallel.

    Args:
        mesh: the mesh of the ranks.
        buckets: how gradients are grouped.
        sharding: one of SHARDINGS.
        sequence: whether tensor-parallel ranks divide the sequence, too.
        overlap: whether gradients are synchronised while the backward pass goes on.
        micro_batches: the micro-batches of a step; their gradients are synchronised once.
        samples: the samples of a micro-batch of a data-parallel rank.
        recompute: whether the backward pass computes the forward pass again.
        gradient_dtype: the type of gradients on the wire [that of the model].
        parameter_dtype: the type of gathered parameters and of activations [that of the model].
    """

    mesh: Mesh = field(default_factory=Mesh)
    buckets: BucketRule = field(default_factory=BucketRule)
    sharding: str = "none"
    sequence: bool = False
    overlap: bool = True
    micro_batches: int = 1
    samples: int = 1
    recompute: bool = False
    gradient_dtype: str | None = None
    parameter_dtype: str | None = None

    def __post_init__(self) -> None:
        if self.sharding not in SHARDINGS:
            raise BadInputError("sharding", self.sharding, SHARDINGS)
        for key in ("micro_batches", "samples"):
            if getattr(self, key) < 1:
                raise BadInputError(key, getattr(self, key), "at least 1")

    def check(self, model: ModelShape) -> None:
        """Check that a model can be trained like this.

        Raises:
            BadInputError: if the model cannot be divided so.
        """
        mesh, transformer = self.mesh, model.transformer
        for axis in ("tp", "pp", "ep"):
            if getattr(mesh, axis) > 1 and transformer is None:
                raise BadInputError(f"parallel {axis}", getattr(mesh, axis), f"1: {model.name} is no transformer")
        if transformer and mesh.pp > transformer.blocks:
            raise BadInputError("parallel pp", mesh.pp, f"at most the {transformer.blocks} blocks of {model.name}")
        if transformer and mesh.ep > 1 and (not transformer.experts or transformer.experts % mesh.ep):
            what = f"a divisor of the {transformer.experts} experts" if transformer.experts else "1: it has no experts"
            raise BadInputError("parallel ep", mesh.ep, what)
        if self.sequence and mesh.tp == 1:
            raise BadInputError("sequence", "true", "false: without tensor parallelism nothing divides the sequence")
        if (mesh.shard > 1) != (self.sharding == "hsdp"):
            raise BadInputError("parallel shard", mesh.shard, "more than 1 with hsdp, and 1 with other shardings")
        if mesh.pp > 1 and self.sharding not in ("none", "zero1"):
            raise BadInputError("sharding", self.sharding, "none or zero1 with a pipeline")


@dataclass(frozen=True, slots=True)
class StepProgram:
    """The program of the ranks of one pipeline stage.

    Args:
        stage: the number of the stage.
        model: the part of the model that each of its ranks has.
        instructions: the instructions in order.
    """

    stage: int
    model: ModelShape
    instructions: tuple[Instruction, ...]

    @property
    def operations(self) -> list[StepOperation]:
        """The operations in the order of their starts, as ``Wait`` numbers them."""
        return [each.operation for each in self.instructions if isinstance(each, Start)]

    def flops(self, phase: str) -> float:
        """Return the FLOPs of a phase."""
        return sum(each.flops for each in self.instructions if isinstance(each, Compute) and each.phase == phase)


def part_of(model: ModelShape, mesh: Mesh, stage: int = 0) -> ModelShape:
    """Return the part of a model that a rank of a stage has: its blocks, and its shards of tensors and of experts.

    Blocks are dealt evenly, the first stages getting one more; what is before all blocks belongs to the first stage,
    what is after them to the last.
    """
    blocks = model.transformer.blocks if model.transformer else 1
    begins = [number * blocks // mesh.pp for number in range(mesh.pp + 1)]
    seen_block = False
    modules = []
    for module in model.modules:
        seen_block |= module.block is not None
        if module.block is None:
            mine = stage == (mesh.pp - 1 if seen_block else 0)
        else:
            mine = begins[stage] <= module.block < begins[stage + 1]
        if mine:
            tensors = tuple(filter(None, (_part_of_tensor(tensor, module, mesh) for tensor in module.tensors)))
            split = mesh.tp if any(tensor.split for tensor in module.tensors) or not module.tensors else 1
            modules.append(replace(module, tensors=tensors, forward_flops=module.forward_flops / split))
    return replace(model, modules=tuple(modules))


def _part_of_tensor(tensor: Tensor, module: Module, mesh: Mesh) -> Tensor | None:
    """Return the part of a tensor on a rank; None if its expert is on another one.

    The first ``1 / ep`` of the experts stand for those of any rank.
    """
    if tensor.expert and mesh.ep > 1 and not _has_expert(module, mesh):
        return None
    return replace(tensor, elements=-(-tensor.elements // mesh.tp)) if tensor.split else tensor


def _has_expert(module: Module, mesh: Mesh) -> bool:
    return int(module.name.split("experts.")[1].partition(".")[0]) % mesh.ep == 0


def step_programs(model: ModelShape, parallelism: Parallelism) -> list[StepProgram]:
    """Return the program of every pipeline stage.

    Raises:
        BadInputError: if the model cannot be trained like this.
    """
    parallelism.check(model)
    return [_Builder(model, parallelism, stage).program() for stage in range(parallelism.mesh.pp)]


class _Builder:
    """Builds the program of one stage."""

    def __init__(self, model: ModelShape, parallelism: Parallelism, stage: int) -> None:
        self.whole, self.parallelism, self.stage, self.mesh = model, parallelism, stage, parallelism.mesh
        self.model = part_of(model, self.mesh, stage)
        self.gradient_dtype = parallelism.gradient_dtype or model.dtype
        self.parameter_dtype = parallelism.parameter_dtype or model.dtype
        self.instructions: list[Instruction] = []
        self.started = 0

    def program(self) -> StepProgram:
        micro_batches = self.parallelism.micro_batches
        if self.mesh.pp == 1:
            for number in range(micro_batches):
                self.forward()
                self.backward(last=number == micro_batches - 1)
        else:
            self.one_forward_one_backward(micro_batches)
        if self.parallelism.sharding == "zero1":
            self.gather_parameters()
        return StepProgram(self.stage, self.model, tuple(_merged(self.instructions)))

    def one_forward_one_backward(self, micro_batches: int) -> None:
        """Append the passes of all micro-batches: the earlier a stage, the more forward passes precede the first back.

        D. Narayanan et al.: PipeDream, SOSP (2019).
        """
        before = min(self.mesh.pp - 1 - self.stage, micro_batches)
        for _ in range(before):
            self.forward()
        for number in range(micro_batches):
            if number + before < micro_batches:
                self.forward()
            self.backward(last=number == micro_batches - 1)

    # ---- passes -------------------------------------------------------------------------------------------------

    def forward(self) -> None:
        self.from_stage(self.stage - 1, FORWARD)
        self.pass_through(self.model.modules, FORWARD)
        self.to_stage(self.stage + 1, FORWARD)

    def backward(self, *, last: bool) -> None:
        """Append a backward pass; the ``last`` one synchronises gradients."""
        self.from_stage(self.stage + 1, BACKWARD)
        if self.parallelism.sharding in ("none", "zero1"):
            starts = self.bucket_starts() if last else {}
            self.pass_through(self.model.modules[::-1], BACKWARD, starts)
        else:
            self.pass_through(self.model.modules[::-1], BACKWARD)
        self.to_stage(self.stage - 1, BACKWARD)

    def pass_through(
        self, modules: Sequence[Module], phase: str, starts: "dict[str, list[StepOperation]] | None" = None
    ) -> None:
        """Append a pass through modules, with the collectives inside of it.

        Args:
            modules: the modules in the order of the pass.
            phase: ``forward`` or ``backward``.
            starts: the operations that start after the backward pass through a module, by the name of the module.
        """
        held: list[StepOperation] = []
        units = self.gathered_units(modules)
        gather = self.gather_ahead(units, phase)
        for number, (unit, inside) in enumerate(units):
            gather(number)
            for (_block, part), each in groupby(inside, key=lambda module: (module.block, module.part)):
                self.part_begins(part, unit, phase)
                for module in each:
                    self.compute(module, phase)
                    for operation in (starts or {}).get(module.name, ()):
                        if self.parallelism.overlap:
                            self.start(operation)
                        else:
                            held.append(operation)
                self.part_ends(part, unit, phase)
            if phase == BACKWARD and self.sharded:
                self.scatter_gradients(unit, inside)
        for operation in held:
            self.start(operation)

    def compute(self, module: Module, phase: str) -> None:
        passes = 1 if phase == FORWARD else BACKWARD_OVER_FORWARD + self.parallelism.recompute
        if module.forward_flops:
            self.instructions.append(Compute(phase, module.forward_flops * passes * self.parallelism.samples))

    # ---- tensor, sequence and expert parallelism ----------------------------------------------------------------

    def part_begins(self, part: str, unit: str, phase: str) -> None:
        label = f"{unit} {part}"
        if part and self.parallelism.sequence:
            self.run(self.operation(label, "all_gather", "tp", self.activations(), phase))
        if part == "experts" and self.mesh.ep > 1:
            self.run(self.operation(label, "all_to_all_v", "ep", self.routed(), phase))

    def part_ends(self, part: str, unit: str, phase: str) -> None:
        label = f"{unit} {part}"
        if part == "experts" and self.mesh.ep > 1:
            self.run(self.operation(label, "all_to_all_v", "ep", self.routed(), phase))
        if part and self.mesh.tp > 1:
            collective = "reduce_scatter" if self.parallelism.sequence else "all_reduce"
            self.run(self.operation(label, collective, "tp", self.activations(), phase))

    def activations(self) -> int:
        """Return the bytes of the activations of a micro-batch between two parts: b s h."""
        shape = self.whole.transformer
        assert shape  # noqa: S101  ``check`` has seen to it
        return self.parallelism.samples * shape.sequence * shape.hidden * itemsize(self.parameter_dtype)

    def routed(self) -> int:
        """Return the bytes of the activations that go to experts: each token goes to several."""
        shape = self.whole.transformer
        assert shape  # noqa: S101
        return self.activations() * shape.routed

    # ---- sharded parameters -------------------------------------------------------------------------------------

    @property
    def sharded(self) -> bool:
        return self.parallelism.sharding in ("zero3", "fsdp", "hsdp")

    @property
    def shard_axis(self) -> str:
        return "shard" if self.parallelism.sharding == "hsdp" else "dp"

    def gathered_units(self, modules: Sequence[Module]) -> list[tuple[str, list[Module]]]:
        """Return the modules by units: blocks, and what is before or after all blocks."""
        return [
            (f"block {block}" if block is not None else each[0].name, each)
            for block, grouped in groupby(modules, key=lambda module: module.block)
            for each in [list(grouped)]
        ]

    def gather_ahead(self, units: Sequence[tuple[str, list[Module]]], phase: str) -> "_GatherAhead":
        return _GatherAhead(self, units, phase)

    def gathers(self, unit: str, modules: Sequence[Module], phase: str) -> list[StepOperation]:
        """Return the all-gathers of the parameters of a unit: one each tensor with zero3, else one."""
        if not self.sharded:
            return []
        size = itemsize(self.parameter_dtype)
        if self.parallelism.sharding == "zero3":
            sizes = [(f"{m.name}.{t.name}", t.elements * size) for m in modules for t in m.tensors]
        else:
            sizes = [(unit, sum(t.elements for m in modules for t in m.tensors) * size)]
        return [self.operation(label, "all_gather", self.shard_axis, n, phase) for label, n in sizes if n]

    def scatter_gradients(self, unit: str, modules: Sequence[Module]) -> None:
        """Append the reduce-scatter of the gradients of a unit, and with hsdp the all-reduce of its shards."""
        nbytes = sum(t.elements for m in modules for t in m.tensors) * itemsize(self.gradient_dtype)
        if not nbytes:
            return
        dtype = self.gradient_dtype
        begin = self.start if self.parallelism.overlap else self.run
        begin(self.operation(unit, "reduce_scatter", self.shard_axis, nbytes, BACKWARD, dtype))
        if self.parallelism.sharding == "hsdp":
            begin(self.operation(unit, "all_reduce", "replica", nbytes // self.mesh.shard, BACKWARD, dtype))

    # ---- gradients ----------------------------------------------------------------------------------------------

    def bucket_starts(self) -> dict[str, list[StepOperation]]:
        """Return the operation of each bucket, by the name of the module whose gradients complete it."""
        collective = "all_reduce" if self.parallelism.sharding == "none" else "reduce_scatter"
        starts: dict[str, list[StepOperation]] = {}
        for axis, model in self.synchronised():
            size, ranks = itemsize(self.gradient_dtype), self.mesh.size(axis)
            if ranks == 1:
                continue
            for number, bucket in enumerate(self.parallelism.buckets.buckets(model, size, ranks), 1):
                operation = self.operation(
                    f"bucket {number}{' of experts' * (axis == 'expert_replica')}", collective, axis,
                    bucket_bytes(bucket, size), BACKWARD, self.gradient_dtype,
                )  # fmt: skip
                starts.setdefault(self.last_module(bucket), []).append(operation)
        return starts

    def synchronised(self) -> Iterator[tuple[str, ModelShape]]:
        """Yield the axes over which gradients are summed, each with the tensors that are."""
        if self.mesh.ep == 1:
            yield "dp", self.model
            return
        for axis, expert in (("dp", False), ("expert_replica", True)):
            modules = tuple(
                replace(module, tensors=tuple(tensor for tensor in module.tensors if tensor.expert == expert))
                for module in self.model.modules
            )
            yield axis, replace(self.model, modules=modules)

    def last_module(self, bucket: Sequence[Tensor]) -> str:
        """Return the name of the module of a bucket whose backward pass is the last."""
        names = {tensor.name.rpartition(".")[0] for tensor in bucket}
        return next(module.name for module in self.model.modules if module.name in names)

    def gather_parameters(self) -> None:
        """Append the all-gathers of updated parameters, one for each bucket; they follow the reduce-scatters."""
        before = [each.operation for each in self.instructions if isinstance(each, Start)]
        sizes = itemsize(self.parameter_dtype), itemsize(self.gradient_dtype)
        for number in range(self.started):
            self.instructions.append(Wait(number))
        for operation in before:
            if operation.collective == "reduce_scatter" and operation.label.startswith("bucket"):
                nbytes = operation.nbytes * sizes[0] // sizes[1]
                self.start(self.operation(operation.label, "all_gather", operation.axis, nbytes, "step"))

    # ---- pipeline -----------------------------------------------------------------------------------------------

    def from_stage(self, stage: int, phase: str) -> None:
        if 0 <= stage < self.mesh.pp:
            self.run(self.message(stage, phase, sends=False))

    def to_stage(self, stage: int, phase: str) -> None:
        if 0 <= stage < self.mesh.pp:
            self.start(self.message(stage, phase, sends=True))

    def message(self, stage: int, phase: str, *, sends: bool) -> StepOperation:
        operation = self.operation(f"stage {stage}", "send_recv", "pp", self.activations(), phase)
        return replace(operation, peer=stage, sends=sends)

    # ---- instructions -------------------------------------------------------------------------------------------

    def operation(
        self, label: str, collective: str, axis: str, nbytes: int, phase: str, dtype: str | None = None
    ) -> StepOperation:
        return StepOperation(label.strip(), collective, axis, nbytes, dtype or self.parameter_dtype, phase)

    def start(self, operation: StepOperation) -> int:
        """Append the start of an operation of more than one rank, and return its number."""
        if operation.axis != "pp" and self.mesh.size(operation.axis) == 1:
            return -1
        self.instructions.append(Start(operation))
        self.started += 1
        return self.started - 1

    def run(self, operation: StepOperation) -> int:
        """Append an operation that the rank waits for, and return its number."""
        number = self.start(operation)
        if number >= 0:
            self.instructions.append(Wait(number))
        return number


class _GatherAhead:
    """Gathers the parameters of each unit while the one before it is computed."""

    def __init__(self, builder: _Builder, units: Sequence[tuple[str, list[Module]]], phase: str) -> None:
        self.builder, self.units, self.phase = builder, units, phase
        self.numbers: dict[int, list[int]] = {}

    def __call__(self, number: int) -> None:
        """Append the start of the gathers of unit ``number`` and of the next one, and wait for the first."""
        ahead = 1 if self.builder.parallelism.overlap else 0
        for each in range(number, number + 1 + ahead):
            if each < len(self.units) and each not in self.numbers:
                unit, modules = self.units[each]
                gathers = self.builder.gathers(unit, modules, self.phase)
                self.numbers[each] = [self.builder.start(operation) for operation in gathers]
        self.builder.instructions += [Wait(each) for each in self.numbers[number] if each >= 0]


def _merged(instructions: Sequence[Instruction]) -> Iterator[Instruction]:
    """Yield the instructions with consecutive computations of a phase joined."""
    for key, each in groupby(instructions, key=lambda one: one.phase if isinstance(one, Compute) else None):
        if key is None:
            yield from each
        else:
            yield Compute(key, sum(one.flops for one in each if isinstance(one, Compute)))
