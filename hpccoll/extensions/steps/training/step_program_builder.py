"""The programs of training steps: the instructions of each pipeline stage, by how the model is trained in parallel.

| parallelism | collectives |
| --- | --- |
| dp | an all-reduce of each bucket, started when its last gradient is ready |
| dp, compressed | what stands for it: see ``compressed_bucket`` |
| dp, zero1 | a reduce-scatter of each bucket, started likewise; at the end all-gathers of the parameters |
| dp, zero2 | the same; gradients are divided, too, and so reduced after every micro-batch |
| dp, zero3 | as zero2, but the all-gathers precede both passes through a block, one for each tensor |
| dp, fsdp | all-gathers of a block before both passes through it, in one piece; a reduce-scatter of it after them |
| dp, hsdp | the same in groups of ``shard`` ranks; after each reduce-scatter an all-reduce over the replicas |
| tp | an all-reduce after attention and after the feed-forward network, in both passes; one each of the embedding |
| tp, sequence | an all-gather before and a reduce-scatter after each of them |
| ep | an all-to-all before and one after the experts, in both passes |
| pp | one message to the next stage for each micro-batch, one back; one forward, one backward in turn (1F1B) |

DeepSpeed's stages 1 and 2 run an all-reduce of each bucket where ZeRO's authors and Megatron-LM
have a reduce-scatter. Left out is what takes little of a step: losses and norms of gradients, the
second all-gather of a divided sequence in the backward pass, which frameworks hide, and the
all-reduce of an embedding that the first and the last stage of a pipeline share.

S. Li et al.: PyTorch Distributed, VLDB 13 (2020); S. Rajbhandari et al.: ZeRO, SC (2020); Y. Zhao
et al.: PyTorch FSDP, VLDB 16 (2023); D. Narayanan et al.: Megatron-LM, SC (2021); V. Korthikanti et
al.: Reducing activation recomputation, MLSys (2023).
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, groupby
from operator import attrgetter

from hpccoll.extensions.steps.training.compressed_bucket import compressed
from hpccoll.extensions.steps.training.model_shape import BACKWARD_OVER_FORWARD, ModelShape, Module
from hpccoll.extensions.steps.training.parallelism import Parallelism, part_of
from hpccoll.extensions.steps.training.step_program import (
    BACKWARD,
    FORWARD,
    STEP,
    Compute,
    GradientBucket,
    Instruction,
    Start,
    StepOperation,
    StepProgram,
    Wait,
)
from hpccoll.schedule import itemsize

COLUMNS_FIRST = ("attention", "mlp", "experts", "output")
"""The parts of a model whose first product tensor parallelism divides by columns: every rank needs
the whole input, and the backward pass adds up its gradient."""

ROWS_LAST = ("embedding", "attention", "mlp", "experts")
"""The parts whose last product is divided by rows: the forward pass adds up the output."""


ACTIVATION_AXES = ("tp", "ep", "pp")
"""The axes whose groups exchange activations; others gather parameters and sum gradients."""


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
        self.whole = model
        self.parallelism = parallelism
        self.stage, self.mesh = stage, parallelism.mesh
        self.model = part_of(model, self.mesh, stage)
        self.dtypes = parallelism.dtypes_of(model)
        self.instructions: list[Instruction] = []
        self.started = 0
        # with numbers of operations from 0, and how many
        self.passes: dict[str, tuple[list[Instruction], int]] = {}
        self.buckets = tuple(self.gradient_buckets())

    def program(self) -> StepProgram:
        micro_batches = self.parallelism.micro_batches
        # Of a pipeline, the earlier a stage, the more forward passes precede the first one back,
        # and then they take turns: D. Narayanan et al.: PipeDream, SOSP (2019).
        ahead = min(self.mesh.pp - 1 - self.stage, micro_batches)
        for _ in range(ahead):
            self.repeat(FORWARD, self.forward)
        for number in range(micro_batches):
            if number + ahead < micro_batches:
                self.repeat(FORWARD, self.forward)
            synchronises = number == micro_batches - 1 or self.parallelism.sharding not in (
                "none",
                "zero1",
            )
            if synchronises:
                name = f"{BACKWARD}, synchronised"
            else:
                name = BACKWARD
            self.repeat(name, partial(self.backward, synchronises=synchronises))
        if self.parallelism.sharding in ("zero1", "zero2"):
            self.gather_parameters()
        return StepProgram(self.stage, self.model, tuple(_merged(self.instructions)), self.buckets)

    def repeat(self, name: str, append: Callable[[], None]) -> None:
        """Append a pass; ``append`` makes its instructions once for all micro-batches."""
        if name not in self.passes:
            instructions = self.instructions
            started = self.started
            self.instructions = []
            self.started = 0
            append()
            self.passes[name] = list(_merged(self.instructions)), self.started
            self.instructions = instructions
            self.started = started
        merged, operations = self.passes[name]
        self.instructions += [_shifted(instruction, self.started) for instruction in merged]
        self.started += operations

    def forward(self) -> None:
        self.exchange(self.stage - 1, FORWARD, sends=False)
        for unit, modules in self.gathered_units(self.model.modules, FORWARD):
            self.pass_through(unit, modules, FORWARD)
        self.exchange(self.stage + 1, FORWARD, sends=True)

    def backward(self, *, synchronises: bool) -> None:
        """Append a backward pass; without sharded gradients only the last one synchronises them."""
        self.exchange(self.stage + 1, BACKWARD, sends=False)
        starts = self.bucket_starts() if synchronises else {}
        during = starts if self.parallelism.overlap else {}
        for unit, modules in self.gathered_units(self.model.modules[::-1], BACKWARD):
            if self.parallelism.recompute and modules[0].block is not None:
                self.pass_through(unit, modules[::-1], FORWARD, again=True)
            self.pass_through(unit, modules, BACKWARD, during)
        self.exchange(self.stage - 1, BACKWARD, sends=True)
        if not self.parallelism.overlap:
            for operation in chain.from_iterable(starts.values()):
                self.synchronise(operation)

    def pass_through(
        self,
        unit: str,
        modules: Sequence[Module],
        direction: str,
        starts: Mapping[str, Sequence[StepOperation]] | None = None,
        *,
        again: bool = False,
    ) -> None:
        """Append a pass through the modules of a unit, with the collectives inside of it."""
        phase = BACKWARD if again else direction
        if direction == FORWARD:
            passes = 1
        else:
            passes = BACKWARD_OVER_FORWARD
        factor = self.parallelism.samples * passes
        for part, modules_of_part in groupby(modules, key=attrgetter("part")):
            self.part_begins(part, unit, direction, phase)
            for module in modules_of_part:
                if module.forward_flops:
                    self.instructions.append(
                        Compute(phase, module.forward_flops * factor, (module.name,))
                    )
                if starts:
                    for operation in starts.get(module.name, ()):
                        self.synchronise(operation)
            self.part_ends(part, unit, direction, phase)

    def part_begins(self, part: str, unit: str, direction: str, phase: str) -> None:
        if part == "experts":
            self.exchange_tokens(unit, phase)
        if direction == FORWARD:
            gathering = COLUMNS_FIRST
        else:
            gathering = ROWS_LAST
        if self.parallelism.sequence and part in gathering:
            self.run(
                self.operation(f"{unit} {part}", "all_gather", "tp", self.divided(part), phase)
            )

    def part_ends(self, part: str, unit: str, direction: str, phase: str) -> None:
        if direction == FORWARD:
            reducing = ROWS_LAST
        else:
            reducing = COLUMNS_FIRST
        if part in reducing:
            collective = "all_reduce"
            if self.parallelism.sequence:
                collective = "reduce_scatter"
            self.run(self.operation(f"{unit} {part}", collective, "tp", self.divided(part), phase))
        if part == "experts":
            self.exchange_tokens(unit, phase)

    def exchange_tokens(self, unit: str, phase: str) -> None:
        """Append the exchange of the activations that go to experts: each token goes to several."""
        elements = self.activations() * self.routed_experts // self.sequence_parts
        self.run(self.operation(f"{unit} experts", "all_to_all_v", "ep", elements, phase))

    def activations(self) -> int:
        """Return the elements of the activations of a micro-batch between two parts: b s h."""
        shape = self.whole.transformer
        assert shape  # noqa: S101  ``check`` has seen to it
        return max(1, self.parallelism.samples * shape.sequence * shape.hidden // self.whole.scale)

    def divided(self, part: str) -> int:
        """Return the elements that tensor-parallel ranks gather, or add up: those of experts come from all ranks."""
        arrived = part == "experts" and self.mesh.ep > 1 and self.parallelism.sequence
        return self.activations() * (self.routed_experts if arrived else 1)

    @property
    def routed_experts(self) -> int:
        if not self.whole.transformer:
            return 0
        return self.whole.transformer.routed

    @property
    def sequence_parts(self) -> int:
        if not self.parallelism.sequence:
            return 1
        return self.mesh.tp

    def gathered_units(
        self, modules: Sequence[Module], phase: str
    ) -> Iterator[tuple[str, list[Module]]]:
        """Yield the units of a pass; the parameters of each are gathered while the one before it is computed."""
        units = _units(modules)
        gathered: list[list[int | None]] = []
        for number, (unit, modules_of_unit) in enumerate(units):
            ahead = number + 1 + self.parallelism.overlap
            for name, modules_ahead in units[len(gathered) : ahead]:
                gathers = self.gathers(name, modules_ahead, phase)
                gathered.append([self.start(operation) for operation in gathers])
            self.wait(gathered[number])
            yield unit, modules_of_unit

    def gathers(self, unit: str, modules: Sequence[Module], phase: str) -> list[StepOperation]:
        """Return the all-gathers of the parameters of a unit: one for each tensor with zero3, else one."""
        if not self.parallelism.shards_parameters:
            return []
        sizes = []
        for module in modules:
            for tensor in module.tensors:
                sizes.append((f"{module.name}.{tensor.name}", tensor.elements))
        if self.parallelism.by_block and sizes:
            sizes = [(unit, sum(elements for _, elements in sizes))]
        return [
            self.operation(label, "all_gather", self.shard_axis, elements, phase)
            for label, elements in sizes
        ]

    @property
    def shard_axis(self) -> str:
        return "shard" if self.parallelism.sharding == "hsdp" else "dp"

    def gradient_buckets(self) -> Iterator[GradientBucket]:
        """Yield the buckets of gradients in the order of their collectives."""
        if self.parallelism.by_block:
            yield from self.block_buckets()
            return
        rule = self.parallelism.buckets
        # Megatron-LM divides only what it overlaps, and what a pipeline ends with.
        if rule.framework == "megatron" and (self.stage or not self.parallelism.overlap):
            rule = replace(rule, framework="one")
        for axis, label, modules in self.synchronised():
            model = replace(self.model, modules=tuple(modules))
            buckets = rule.buckets(model, itemsize(self.dtypes.gradient), self.mesh.size(axis))
            for number, bucket in enumerate(buckets, 1):
                yield GradientBucket(f"bucket {number}{label}", axis, bucket)

    def block_buckets(self) -> Iterator[GradientBucket]:
        """Yield a bucket for each block that has gradients, the last block first."""
        for unit, modules in _units(self.model.modules[::-1]):
            tensors = replace(self.model, modules=tuple(modules[::-1])).ready
            if tensors:
                yield GradientBucket(unit, self.shard_axis, tensors)

    def synchronised(self) -> Iterator[tuple[str, str, list[Module]]]:
        """Yield the axes over which gradients are summed, each with the modules whose are."""
        if self.mesh.ep == 1:
            yield "dp", "", list(self.model.modules)
            return
        yield "dp", "", [module for module in self.model.modules if module.expert is None]
        yield (
            "expert_replica",
            " of experts",
            [module for module in self.model.modules if module.expert is not None],
        )

    def bucket_starts(self) -> dict[str, list[StepOperation]]:
        """Return the operations of the buckets, by the name of the module whose gradients complete each."""
        collective = "reduce_scatter"
        if self.parallelism.sharding == "none":
            collective = "all_reduce"
        order = {module.name: number for number, module in enumerate(self.model.modules)}
        starts: defaultdict[str, list[StepOperation]] = defaultdict(list)
        for bucket in self.buckets:
            operation = self.operation(
                bucket.label, collective, bucket.axis, bucket.elements, BACKWARD
            )
            last = min(
                (tensor.name.rpartition(".")[0] for tensor in bucket.tensors), key=order.__getitem__
            )
            starts[last].append(operation)
        return starts

    def synchronise(self, operation: StepOperation) -> None:
        """Append the operation of a bucket, or the chain of a compressed one.

        With hsdp the all-reduce of its shards follows, beside the next bucket.
        """
        compression = self.parallelism.compression
        if compression:
            for link in compressed(operation, compression, self.mesh.size(operation.axis)):
                self.start(link)
            return
        number = self.start(operation)
        if self.parallelism.sharding == "hsdp":
            shard = -(-operation.nbytes // self.mesh.shard)
            self.start(
                replace(operation, collective="all_reduce", axis="replica", nbytes=shard),
                after=number,
            )

    def gather_parameters(self) -> None:
        """Append the all-gathers of updated parameters, one for each bucket; they follow the reduce-scatters."""
        self.wait(range(self.started))
        for bucket in self.buckets:
            self.start(
                self.operation(bucket.label, "all_gather", bucket.axis, bucket.elements, STEP)
            )

    def exchange(self, stage: int, phase: str, *, sends: bool) -> None:
        """Append a message to another stage, or the receipt of one, which the rank waits for, if there is the stage."""
        if not 0 <= stage < self.mesh.pp:
            return
        elements = self.activations() // self.sequence_parts
        operation = self.operation(f"stage {stage}", "send_recv", "pp", elements, phase)
        message = replace(operation, peer=stage, sends=sends)
        if sends:
            self.start(message)
        else:
            self.run(message)

    def operation(
        self, label: str, collective: str, axis: str, elements: int, phase: str
    ) -> StepOperation:
        dtype = self.dtypes.gradient
        if axis in ACTIVATION_AXES:
            dtype = self.dtypes.activation
        elif collective == "all_gather":
            dtype = self.dtypes.parameter
        return StepOperation(
            label.strip(), collective, axis, elements * itemsize(dtype), dtype, phase
        )

    def start(self, operation: StepOperation, after: int | None = None) -> int | None:
        """Append the start of an operation, and return its number; None if its group has a single rank."""
        if operation.peer is None and self.mesh.size(operation.axis) == 1:
            return None
        self.instructions.append(Start(operation, after))
        self.started += 1
        return self.started - 1

    def wait(self, numbers: Iterable[int | None]) -> None:
        for number in numbers:
            if number is not None:
                self.instructions.append(Wait(number))

    def run(self, operation: StepOperation) -> None:
        """Append an operation that the rank waits for."""
        self.wait([self.start(operation)])


def _units(modules: Sequence[Module]) -> list[tuple[str, list[Module]]]:
    """Return modules by units: blocks, and what is before or after all blocks."""
    units = []
    for block, grouped in groupby(modules, key=attrgetter("block")):
        modules_of_unit = list(grouped)
        if block is None:
            name = modules_of_unit[0].name
        else:
            name = f"block {block}"
        units.append((name, modules_of_unit))
    return units


def _shifted(instruction: Instruction, number: int) -> Instruction:
    """Return an instruction whose operations have numbers that are larger by ``number``."""
    match instruction:
        case Wait():
            return Wait(instruction.number + number)
        case Start(operation, after) if after is not None:
            return Start(operation, after + number)
    return instruction


def _merged(instructions: Sequence[Instruction]) -> Iterator[Instruction]:
    """Yield the instructions with consecutive computations of a phase joined."""
    for phase, consecutive in groupby(instructions, key=_phase_of_computation):
        if phase is None:
            yield from consecutive
            continue
        computations = []
        for instruction in consecutive:
            if isinstance(instruction, Compute):
                computations.append(instruction)
        flops = sum(computation.flops for computation in computations)
        modules = chain.from_iterable(computation.modules for computation in computations)
        yield Compute(phase, flops, tuple(modules))


def _phase_of_computation(instruction: Instruction) -> str | None:
    if not isinstance(instruction, Compute):
        return None
    return instruction.phase
