"""The timeline of a training step: when each stage computes, and when each collective runs, from their durations.

A collective starts when the program has started it and the stream has ended those before it, and takes as long as it
takes alone. What stages send each other is there when the sender has started it and its time has passed. The step ends
when all stages have computed and awaited everything.

- *communication*: the seconds of all collectives of a stage, together.
- *exposed*: what the step takes longer than the same step with collectives that take no time.
- *share*: exposed seconds over those of the step.

The backward pass of bucket k ends at r(k); its collective starts at max(r(k), end(k - 1)): S. Li et al.: PyTorch
Distributed, VLDB 13 (2020).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hpccoll.training.step_program import Compute, Start, StepOperation, StepProgram, Wait

Cost = Callable[[StepOperation], float]
"""Returns the seconds of an operation."""

Seconds = Callable[[Compute], float]
"""Returns the seconds of a computation."""


@dataclass(frozen=True, slots=True)
class StepSpan:
    """A computation, or an operation, of a stage.

    Args:
        label: the phase of a computation, or the label of an operation.
        begin_s: when it starts, in seconds from the start of the step.
        end_s: when it ends.
        ready_s: of an operation, when the program has started it.
        operation: the operation; None for a computation.
    """

    label: str
    begin_s: float
    end_s: float
    ready_s: float = 0.0
    operation: StepOperation | None = None


@dataclass(frozen=True, slots=True)
class StepTimeline:
    """The times of a step.

    Args:
        step_s: the seconds of the step.
        bare_s: the seconds of the same step without communication.
        compute_s: the seconds that the busiest stage computes.
        communication_s: the seconds of all collectives of the stage that communicates longest.
        spans: the computations and operations of each stage.
    """

    step_s: float
    bare_s: float
    compute_s: float
    communication_s: float
    spans: tuple[tuple[StepSpan, ...], ...]

    @property
    def exposed_s(self) -> float:
        """The seconds by which communication makes the step longer."""
        return self.step_s - self.bare_s

    @property
    def share(self) -> float:
        """Exposed seconds over those of the step."""
        return self.exposed_s / self.step_s if self.step_s else 0.0

    @property
    def bubble_s(self) -> float:
        """The seconds that the busiest stage waits for others, without communication: the bubble of the pipeline."""
        return self.bare_s - self.compute_s


def step_timeline(programs: Sequence[StepProgram], seconds: Seconds, cost: Cost) -> StepTimeline:
    """Return the timeline of the programs of all stages.

    Args:
        programs: the program of each stage.
        seconds: the duration of a computation.
        cost: the duration of an operation.
    """
    spans, step_s = _run(programs, seconds, cost)
    _, bare_s = _run(programs, seconds, lambda _operation: 0.0)
    computed = [sum(span.end_s - span.begin_s for span in each if span.operation is None) for each in spans]
    communicated = [sum(span.end_s - span.begin_s for span in each if span.operation) for each in spans]
    return StepTimeline(step_s, bare_s, max(computed), max(communicated), tuple(map(tuple, spans)))


@dataclass(slots=True)
class _Stage:
    """The progress of a stage."""

    program: StepProgram
    at: int = 0  # the next instruction
    now: float = 0.0
    spans: list[StepSpan] = field(default_factory=list)
    streams: dict[str, float] = field(default_factory=dict)  # when each is free
    ended: list[float | None] = field(default_factory=list)  # when each operation ends; None until its sender starts it
    received: int = 0


def _run(programs: Sequence[StepProgram], seconds: Seconds, cost: Cost) -> tuple[list[list[StepSpan]], float]:
    """Return the spans of each stage, and when the last one ends."""
    stages = [_Stage(program) for program in programs]
    sent: dict[tuple[int, int, str], list[float]] = {}  # when messages have arrived, by sender, receiver and phase
    taken: dict[tuple[int, int, str], int] = {}
    advanced = True
    while advanced:
        advanced = False
        for number, stage in enumerate(stages):
            while stage.at < len(stage.program.instructions):
                instruction = stage.program.instructions[stage.at]
                if isinstance(instruction, Start) and not _start(number, stage, instruction, cost, sent, taken):
                    break
                if isinstance(instruction, Compute):
                    end = stage.now + seconds(instruction)
                    stage.spans.append(StepSpan(instruction.phase, stage.now, end))
                    stage.now = end
                elif isinstance(instruction, Wait):
                    end_s = stage.ended[instruction.number]
                    stage.now = max(stage.now, end_s or 0.0)
                stage.at += 1
                advanced = True
    if stuck := [number for number, stage in enumerate(stages) if stage.at < len(stage.program.instructions)]:
        raise RuntimeError(f"stages {stuck} wait for messages that no stage sends")
    ends = [max([stage.now, *filter(None, stage.ended)]) for stage in stages]
    return [stage.spans for stage in stages], max(ends)


def _start(
    number: int, stage: _Stage, instruction: Start, cost: Cost,
    sent: dict[tuple[int, int, str], list[float]], taken: dict[tuple[int, int, str], int],
) -> bool:  # fmt: skip
    """Start an operation of a stage; return False if it receives a message that has not been sent yet."""
    operation, now = instruction.operation, stage.now
    if operation.peer is not None and not operation.sends:
        key = operation.peer, number, operation.phase
        index = taken.get(key, 0)
        if index >= len(sent.get(key, ())):
            return False
        taken[key] = index + 1
        arrived = sent[key][index]
        stage.spans.append(StepSpan(operation.label, now, max(now, arrived), now, operation))
        stage.ended.append(arrived)
        return True
    begin = max(now, stage.streams.get(operation.stream, 0.0))
    end = begin + cost(operation)
    stage.streams[operation.stream] = end
    stage.spans.append(StepSpan(operation.label, begin, end, now, operation))
    stage.ended.append(end)
    if operation.peer is not None:
        sent.setdefault((number, operation.peer, operation.phase), []).append(end)
    return True
