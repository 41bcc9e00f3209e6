"""A training step as a program: what the ranks of a pipeline stage compute, and which collectives they start and await.

All ranks of a stage run the same program, each with the other ranks of its own groups. A program
has three kinds of instructions: ``Compute``, ``Start`` and ``Wait``. A collective that is started
runs beside what follows, until a ``Wait`` names it or the step ends; those of one stream run one
after the other. Programs are run by ranks (``hpccoll train``), and timed with predicted costs
(``step_timeline``); ``parallelism`` builds them.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TypeAlias

from hpccoll.extensions.steps.training.buckets import Bucket
from hpccoll.extensions.steps.training.model_shape import ModelShape

FORWARD = "forward"
BACKWARD = "backward"
STEP = "step"

CODEC = "codec"
"""What stands for the collective of an operation that encodes or decodes gradients: see ``compressed_bucket``."""


@dataclass(frozen=True, slots=True)
class StepOperation:
    """A collective of a training step, or a codec between two of them, which takes its turn on their stream."""

    label: str  # what it is for: ``bucket 3``, ``block 7 attention``
    # the name of the collective; ``send_recv`` is one message between neighbouring stages
    collective: str
    # the axis of the mesh whose groups run it: dp, shard, replica, expert_replica, tp, ep or pp
    axis: str
    nbytes: int  # S in bytes, by the convention of the collective
    dtype: str  # the type of the elements
    phase: str  # ``forward``, ``backward``, or ``step`` after both
    peer: int | None = None  # of a message between stages, the other stage
    sends: bool = False  # of a message between stages, whether this stage sends it
    op: str | None = None  # the reduction [that of the step]
    codec: str = ""  # of a codec, what it does: ``encode``, ``sum``, ``decode``

    @property
    def is_codec(self) -> bool:
        """Whether it moves nothing: its bytes are those that a codec goes through."""
        return self.collective == CODEC

    @property
    def stream(self) -> str:
        """The stream on which it runs after those before it: that of its groups, or of its direction."""
        if self.peer is None:
            return self.axis
        direction = "to" if self.sends else "from"
        return f"pp {direction} {self.peer}"

    @property
    def receives(self) -> bool:
        """Whether it is the receipt of a message."""
        return self.peer is not None and not self.sends

    def buffers(self, stage: int, number: int) -> Hashable:
        """Return what identifies the buffers of the operation: operations whose value is equal share them.

        Operations that are alike and follow one another share buffers, but every bucket has its
        own. Both ends of a message have the same value.
        """
        if self.is_codec:  # the gradients themselves
            return stage, self.axis, self.label.removesuffix(self.codec)
        if self.is_bucket:
            return stage, number
        if self.peer is None:
            return stage, self.collective, self.axis, self.nbytes, self.dtype
        if self.sends:
            pair = (stage, self.peer)
        else:
            pair = (self.peer, stage)
        return "message", pair, self.nbytes, self.dtype

    def belongs_to(self, bucket: "GradientBucket") -> bool:
        """Whether it is an operation of a bucket, or of the chain that stands for it."""
        return self.axis == bucket.axis and f"{self.label} ".startswith(f"{bucket.label} ")

    @property
    def is_bucket(self) -> bool:
        """Whether it synchronises a bucket of gradients, or gathers its parameters."""
        return self.label.startswith("bucket")


@dataclass(frozen=True, slots=True)
class Compute:
    """A computation."""

    phase: str  # ``forward`` or ``backward``
    flops: float  # its FLOPs on this rank
    modules: tuple[str, ...] = ()  # the names of the modules that it passes through, in order


@dataclass(frozen=True, slots=True)
class Start:
    """Starts an operation: it may run from now on."""

    operation: StepOperation
    # the number of the Start of an operation, on another stream, that must have ended before
    after: int | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """Waits until the operation has ended that the ``number``-th Start of the program has started."""

    number: int


Instruction: TypeAlias = Compute | Start | Wait


@dataclass(frozen=True, slots=True)
class GradientBucket:
    """Gradients that are synchronised together."""

    label: str  # its name: ``bucket 3``, or the block that it belongs to
    axis: str  # the axis of the mesh over which they are summed
    tensors: Bucket  # the tensors, in the order in which their gradients become ready

    @property
    def elements(self) -> int:
        """The number of gradients."""
        return sum(tensor.elements for tensor in self.tensors)


@dataclass(frozen=True, slots=True)
class StepProgram:
    """The program of the ranks of one pipeline stage."""

    stage: int  # the number of the stage
    model: ModelShape  # the part of the model that each of its ranks has
    instructions: tuple[Instruction, ...]  # the instructions in order
    # the buckets of gradients, in the order of their collectives; a single rank has them, too
    buckets: tuple[GradientBucket, ...]

    @property
    def operations(self) -> list[StepOperation]:
        """The operations in the order of their starts, as ``Wait`` numbers them."""
        return [
            instruction.operation
            for instruction in self.instructions
            if isinstance(instruction, Start)
        ]

    @property
    def buffer_bytes(self) -> int:
        """S of all operations together, once for those that share buffers."""
        sizes: dict[Hashable, int] = {}
        for number, operation in enumerate(self.operations):
            key = operation.buffers(self.stage, number)
            sizes[key] = max(sizes.get(key, 0), operation.nbytes)
        return sum(sizes.values())

    def flops(self, phase: str) -> float:
        """Return the FLOPs of a phase."""
        computations = []
        for instruction in self.instructions:
            if isinstance(instruction, Compute):
                computations.append(instruction)
        return sum(computation.flops for computation in computations if computation.phase == phase)
