"""What the engines of training steps share: the walk over a program, its times, and what stands for computations.

With ``compute: wait`` these are pauses, with ``compute: gemm`` products of square matrices.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from hpccoll.extensions.steps.training.step_keys import NOTHING, WAIT
from hpccoll.extensions.steps.training.step_program import (
    Compute,
    Instruction,
    Start,
    StepProgram,
    Wait,
)
from hpccoll.extensions.steps.training.training_step import TrainingStep
from hpccoll.measure.matrix_multiplication import Products

Nanoseconds = NDArray[np.int64]

READY, BEGIN, END = range(3)
"""The three times of an operation: when the program started it, when it began, when it ended here."""

Each = TypeVar("Each")

MAX_REST = 0.05
"""The part of a computation that may be left to the next one: small products take longer for their FLOPs."""


def matrix_products(program: StepProgram, rows: range) -> list[Products]:
    """Return the products of each computation of a program, in its order.

    A computation becomes products of the largest matrices that fit into it, and smaller ones for
    the rest, while that is more than a twentieth. What is left then is added to the next
    computation, so that the FLOPs of the step are right. If a computation, together with what is
    left from those before, is smaller than the smallest product, it has none. ``rows`` are the
    valid numbers of rows, in ascending order.
    """
    left, products = 0.0, []
    for instruction in program.instructions:
        if isinstance(instruction, Compute):
            left += instruction.flops
            products.append(_products(left, rows))
            left -= sum(number * product_flops(size) for size, number in products[-1])
    return products


def _products(flops: float, rows: range) -> Products:
    products, rest = [], flops
    while rest > MAX_REST * flops and (
        size := max((n for n in rows if product_flops(n) <= rest), default=0)
    ):
        number, rest = divmod(rest, product_flops(size))
        products.append((size, int(number)))
    return (*products,)


def product_flops(rows: int) -> int:
    """Return the FLOPs of the product of two square matrices: a multiplication and an addition for each term."""
    return 2 * rows**3


def phase_seconds(program: StepProgram, workload: TrainingStep) -> dict[str, float]:
    """Return the seconds of a FLOP in each phase, so that the whole program computes as long as the workload says."""
    whole = {phase: program.flops(phase) for phase in ("forward", "backward")}
    total = sum(whole.values())
    seconds = 0.0
    if workload.compute == WAIT:
        seconds = workload.compute_us * 1e-6 * workload.micro_batches
    return dict.fromkeys(whole, seconds / total if total and workload.compute != NOTHING else 0.0)


class ProgramRunner(ABC, Generic[Each]):
    """Runs a program; each run records when every computation and operation began and ended.

    ``operations`` are of every Start of the program of this rank, in its order; an aggregator has
    no program, and starts all of them at once.
    """

    def __init__(self, program: StepProgram | None, operations: Sequence[Each]) -> None:
        self.operations = operations
        self.instructions: Sequence[Instruction] = (
            program.instructions if program else [Start(None)] * len(operations)  # type: ignore[arg-type]
        )
        computations = sum(isinstance(instruction, Compute) for instruction in self.instructions)
        self.events = 3 * len(operations) + 2 * computations
        """The number of times of a run: three of each operation, then two of each computation."""
        self.runs: list[Nanoseconds] = []

    def walk(self) -> None:
        """Follow the instructions; at the end wait for all operations."""
        started = 0
        event = 3 * len(self.operations)
        for instruction in self.instructions:
            match instruction:
                case Compute():
                    self.compute(instruction, event)
                    event += 2
                case Start():
                    self.start(started, instruction.after)
                    started += 1
                case Wait():
                    self.await_end(instruction.number)
        for number in range(started):
            self.await_end(number)

    @abstractmethod
    def compute(self, instruction: Compute, event: int) -> None:
        """Compute; its begin is the event number ``event``, its end the next one."""

    @abstractmethod
    def start(self, number: int, after: int | None) -> None:
        """Start an operation on its stream, behind those before it there, and behind operation ``after``."""

    @abstractmethod
    def await_end(self, number: int) -> None:
        """Let what follows begin when an operation has ended."""
