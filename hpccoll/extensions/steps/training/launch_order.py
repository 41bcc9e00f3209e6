"""The order in which all ranks of a training step launch its operations.

A rank of a step has a communicator of NCCL for each axis of the mesh, and one for each direction
between two pipeline stages. Kernels of different communicators may wait for each other's place on a
GPU. They cannot deadlock if every rank launches its operations in one global order (NCCL's user
guide, "Using multiple NCCL communicators concurrently", usage/communicators.rst of 2.30). The
orders of the programs themselves do not agree: with one forward and one backward pass in turn, the
first of two stages starts the second message forward before it receives the first one back, and the
last stage does the opposite.
"""

import heapq
from collections import defaultdict
from collections.abc import Sequence
from typing import TypeAlias

from hpccoll.extensions.steps.training.step_program import (
    Compute,
    Instruction,
    Start,
    StepOperation,
    StepProgram,
    Wait,
)

Message: TypeAlias = tuple[int, int, int]
"""A message between stages: the sender, the receiver, and how many there were before from the one to the other."""


def launch_orders(programs: Sequence[StepProgram]) -> list[list[int]]:
    """Return the numbers of the operations of each stage in the order in which its ranks launch them.

    The orders are parts of one order of the operations of all stages. An operation follows all
    those for which a rank waits before it starts it. Otherwise operations are in the order of the
    times at which all their ranks are ready for them, if a rank computes one FLOP in a unit of time
    and communication takes none: an operation that is launched early would hold up those behind it.

    Raises:
        RuntimeError: if a stage waits for a message that no stage sends.
    """
    walk = _Walk(programs)
    walk.run()
    return [stage.launched for stage in walk.stages]


class _Stage:
    """A pipeline stage on its way through its program."""

    def __init__(self, program: StepProgram) -> None:
        self.number = program.stage
        self.instructions: Sequence[Instruction] = program.instructions
        self.at = 0  # the next instruction
        self.now = 0.0
        self.started = 0  # how many operations
        # the numbers of the operations for which all ranks were ready, in that order
        self.launched: list[int] = []
        self.ready_at: dict[int, float] = {}  # when they were, by the number of the operation
        self.awaited: int | None = None  # the operation for which the stage waits
        # how many it has started, by their ends
        self.messages: defaultdict[tuple[int, int], int] = defaultdict(int)

    def launch(self, number: int, now: float) -> None:
        self.launched.append(number)
        self.ready_at[number] = now

    def message(self, operation: StepOperation, peer: int) -> Message:
        if operation.sends:
            ends = (self.number, peer)
        else:
            ends = (peer, self.number)
        self.messages[ends] += 1
        return *ends, self.messages[ends]


class _Walk:
    """The walk of all stages through their programs: the stage that is the furthest behind goes on."""

    def __init__(self, programs: Sequence[StepProgram]) -> None:
        self.stages = [_Stage(program) for program in programs]
        # the ends that wait for the other one
        self.first_ends: dict[Message, tuple[_Stage, int]] = {}
        self.ready = [(0.0, stage.number) for stage in self.stages]  # a heap

    def run(self) -> None:
        while self.ready:
            _, number = heapq.heappop(self.ready)
            self._advance(self.stages[number])
        waiting = []
        for stage in self.stages:
            if stage.awaited is not None:
                waiting.append(stage.number)
        if waiting:
            raise RuntimeError(f"stages {waiting} wait for messages that no stage sends")

    def _advance(self, stage: _Stage) -> None:
        """Take the next instruction of a stage, which then is ready for another one, or waits."""
        if stage.at == len(stage.instructions):
            return
        instruction = stage.instructions[stage.at]
        stage.at += 1
        match instruction:
            case Compute(flops=flops):
                stage.now += flops
            case Start(operation):
                self._start(stage, operation)
            case Wait(number) if number not in stage.ready_at:
                stage.awaited = number
                return
        heapq.heappush(self.ready, (stage.now, stage.number))

    def _start(self, stage: _Stage, operation: StepOperation) -> None:
        number = stage.started
        stage.started += 1
        if operation.peer is None:
            stage.launch(number, stage.now)
            return
        message = stage.message(operation, operation.peer)
        if message not in self.first_ends:
            self.first_ends[message] = stage, number
            return
        peer, other_number = self.first_ends.pop(message)
        stage.launch(number, stage.now)
        peer.launch(other_number, stage.now)
        if peer.awaited == other_number:
            peer.awaited = None
            peer.now = stage.now
            heapq.heappush(self.ready, (peer.now, peer.number))
