"""The timeline of a training step: when each stage computes, and when each collective runs, from their durations.

A collective starts when the program has started it and the stream has ended those before it, and
takes as long as it takes alone. What stages send each other is there when the sender has started it
and its time has passed. The step ends when all stages have computed and awaited everything.

- *communication*: the seconds of all collectives of a stage, and of the messages that it sends,
  together.
- *codec*: the seconds of all codecs of a stage, which take turns with its collectives. Where they
  run on the device that computes, they take turns with its computations, too: those after a codec
  begin by its seconds later.
- *exposed*: what the step takes longer than the same step with collectives and codecs that take no
  time.
- *share*: exposed seconds over those of the step.

The backward pass of bucket k ends at r(k); its collective starts at max(r(k), end(k - 1)): S. Li et
al.: PyTorch Distributed, VLDB 13 (2020).
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from hpccoll.extensions.steps.training.step_program import (
    Compute,
    Start,
    StepOperation,
    StepProgram,
    Wait,
)

Cost = Callable[[StepOperation], float]
"""Returns the seconds of an operation."""

Seconds = Callable[[Compute], float]
"""Returns the seconds of a computation."""


@dataclass(frozen=True, slots=True)
class StepSpan:
    """A computation, or an operation, of a stage."""

    label: str  # the phase of a computation, or the label of an operation
    begin_s: float  # when it starts, in seconds from the start of the step
    end_s: float  # when it ends
    ready_s: float = 0.0  # of an operation, when the program has started it
    operation: StepOperation | None = None  # the operation; None for a computation

    @property
    def is_codec(self) -> bool:
        """Whether it encodes or decodes gradients."""
        return self.operation is not None and self.operation.is_codec

    @property
    def communicates(self) -> bool:
        """Whether an operation lasts as long as its collective takes: a message is received for as long as awaited."""
        return (
            self.operation is not None
            and not self.operation.receives
            and not self.operation.is_codec
        )


@dataclass(frozen=True, slots=True)
class StepTimeline:
    """The times of a step."""

    step_s: float  # the seconds of the step
    bare_s: float  # the seconds of the same step without communication and codecs
    compute_s: float  # the seconds that the busiest stage computes
    # the seconds of all collectives and sent messages of the stage that communicates longest
    communication_s: float
    codec_s: float  # the seconds of all codecs of the stage that has most of them
    spans: tuple[tuple[StepSpan, ...], ...]  # the computations and operations of each stage

    @property
    def exposed_s(self) -> float:
        """The seconds by which communication and codecs make the step longer."""
        return self.step_s - self.bare_s

    @property
    def share(self) -> float:
        """Exposed seconds over those of the step."""
        if not self.step_s:
            return 0.0
        return self.exposed_s / self.step_s

    @property
    def bubble_s(self) -> float:
        """The seconds that the busiest stage waits for others, without communication: the bubble of the pipeline."""
        return self.bare_s - self.compute_s


def step_timeline(
    programs: Sequence[StepProgram], seconds: Seconds, cost: Cost, *, codecs_compute: bool = False
) -> StepTimeline:
    """Return the timeline of the programs of all stages, from the duration of each computation and operation.

    ``codecs_compute`` says that codecs run on the device that computes.
    """
    stages, step_s = _run(programs, seconds, cost, codecs_compute)
    _, bare_s = _run(programs, seconds, lambda _operation: 0.0, codecs_compute)
    communication_s = [
        _total_s(span for span in stage.spans if span.communicates) for stage in stages
    ]
    codec_s = [_total_s(span for span in stage.spans if span.is_codec) for stage in stages]
    compute_s = max(stage.computed for stage in stages)
    spans = tuple(tuple(stage.spans) for stage in stages)
    return StepTimeline(
        step_s=step_s,
        bare_s=bare_s,
        compute_s=compute_s,
        communication_s=max(communication_s),
        codec_s=float(max(codec_s)),
        spans=spans,
    )


def _total_s(spans: Iterable[StepSpan]) -> float:
    return sum(span.end_s - span.begin_s for span in spans)


Messages: TypeAlias = defaultdict[tuple[int, int, str], deque[float]]
"""When the messages arrive that no stage has received yet, by their sender, their receiver and their phase."""


@dataclass(slots=True)
class _Stage:
    """The progress of a pipeline stage."""

    program: StepProgram
    codecs_compute: bool
    at: int = 0  # the next instruction
    now: float = 0.0
    # the seconds of all computations, added up in the order in which they pass: never more than
    # ``now``, whatever is rounded, so that no bubble is below zero
    computed: float = 0.0
    spans: list[StepSpan] = field(default_factory=list)
    ended: list[float] = field(default_factory=list)  # when each operation ends
    # when the last operation of each stream ends
    free: dict[str, float] = field(default_factory=dict)

    def advance(self, seconds: Seconds, cost: Cost, messages: Messages) -> bool:
        """Run instructions until one receives a message that has not been sent; return whether any has run."""
        begin = self.at
        while self.at < len(self.program.instructions):
            match self.program.instructions[self.at]:
                case Compute() as computation:
                    lasts = seconds(computation)
                    self.spans.append(StepSpan(computation.phase, self.now, self.now + lasts))
                    self.now += lasts
                    self.computed += lasts
                case Wait(number):
                    self.now = max(self.now, self.ended[number])
                case Start(operation) if operation.receives:
                    arrivals = messages[operation.peer or 0, self.program.stage, operation.phase]
                    if not arrivals:
                        break
                    self._add(operation, self.now, max(self.now, arrivals.popleft()))
                case Start(operation, after):
                    self._start(operation, after, cost(operation), messages)
            self.at += 1
        return self.at > begin

    def _start(
        self, operation: StepOperation, after: int | None, lasts: float, messages: Messages
    ) -> None:
        """Add an operation, which begins after those before it on its stream, and after another one if it has to."""
        before = self.ended[after] if after is not None else 0.0
        start = max(self.now, self.free.get(operation.stream, 0.0), before)
        end = start + lasts
        self._add(operation, start, end)
        self.free[operation.stream] = end
        if operation.is_codec and self.codecs_compute:
            self.now += lasts
        if operation.peer is not None:
            messages[self.program.stage, operation.peer, operation.phase].append(end)

    def _add(self, operation: StepOperation, begin: float, end: float) -> None:
        self.spans.append(StepSpan(operation.label, begin, end, self.now, operation))
        self.ended.append(end)


def _run(
    programs: Sequence[StepProgram], seconds: Seconds, cost: Cost, codecs_compute: bool
) -> tuple[list[_Stage], float]:
    """Return the stages after their programs, and when the last one ends."""
    stages = [_Stage(program, codecs_compute) for program in programs]
    messages = Messages(deque)
    while any(stage.advance(seconds, cost, messages) for stage in stages):
        pass
    stuck = []
    for stage in stages:
        if stage.at < len(stage.program.instructions):
            stuck.append(stage.program.stage)
    if stuck:
        raise RuntimeError(f"stages {stuck} wait for messages that no stage sends")
    return stages, max(max([stage.now, *stage.ended]) for stage in stages)
