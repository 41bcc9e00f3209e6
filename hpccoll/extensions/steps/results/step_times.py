"""The times of measured training steps: what each rank computed and sent when, and how much of that is exposed.

The step of a rank is divided at the ends of its computations. What lies between two of them belongs
to the phase of the second one, with all waiting in between, and what follows the last one is the
tail:

- *forward*, *backward*: the seconds that belong to a phase. With one micro-batch the forward pass
  reaches from the start of the step to the end of its last forward computation, and the backward
  pass from there to the end of the last backward computation. With several, their passes add up;
  the bubbles of a pipeline belong to the passes that they delay.
- *tail*: from the end of the last computation to the end of the step: what no computation can hide.
- *communication*: the durations of all collectives, added up, also of those that ran at the same
  time; the time in which a rank waits inside one for others is included. The receipt of a message
  between pipeline stages does not count, because it lasts as long as the message is awaited.
- *codec*: the durations of all codecs of compressed gradients, added up.
Each is the largest over ranks, and of that the median over all timed iterations.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from hpccoll.store.case_times import CaseTimes, StageProgram, stage_programs
from hpccoll.store.workload_timeline import WorkloadTimeline

FORWARD, BACKWARD = "forward", "backward"

CODEC = "codec"
"""What stands for the collective of an operation that encodes or decodes gradients."""

STEP_FIGURES = "forward_s", "backward_s", "tail_s", "communication_s", "codec_s"
"""The properties of ``StepTimes`` that rows have."""

Seconds: TypeAlias = NDArray[np.float64]

Positions: TypeAlias = NDArray[np.int64] | slice
"""The positions of some ranks among those whose times are kept."""


@dataclass(frozen=True)  # without slots, because cached_property needs a __dict__
class StepTimes:
    """The times of a training step at workers, in seconds since each of them started it."""

    ranks: NDArray[np.int64]  # the numbers of the workers whose times are kept
    stages: NDArray[np.int64]  # the number of the pipeline stage of each
    programs: tuple[StageProgram, ...]  # the program of each stage
    event_s: Seconds  # the times, [iteration, rank, event]; nan for a rank without that event
    step_s: Seconds  # the duration of the step, [iteration, rank]
    # of a training, the loss before, and the accuracy on what is held out after each update of the
    # first round, [step]
    learned: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None

    @classmethod
    def of(cls, times: CaseTimes, program: str | None, workers: int) -> "StepTimes | None":
        """Return the times of a case with this program (JSON) on ``workers`` workers; None of other cases."""
        if not program:
            return None
        kept = times.kept.read()
        if not kept.event_ns.size:
            return None
        programs = stage_programs(program)
        ranks = np.arange(0, workers, times.rank_stride)
        stages = ranks * len(programs) // workers
        columns = slice(len(ranks))  # aggregators come last
        start = kept.start_ns[:, columns]
        end = kept.end_ns[:, columns]
        event = kept.event_ns[:, columns]
        since = np.where(event < 0, np.nan, (event - start[:, :, None]) / 1e9)
        in_first_round = times.round == times.round[0]
        figures = []
        for figure in (times.step_loss, times.step_accuracy):
            if len(figure):
                figures.append(figure)
        learned = tuple(figure[in_first_round] for figure in figures)
        return cls(ranks, stages, programs, since, (end - start) / 1e9, learned or None)

    def median_over_iterations(self) -> "StepTimes":
        """Return the medians of all times over iterations, as times of one iteration."""
        event_s = np.median(self.event_s, axis=0, keepdims=True)
        step_s = np.median(self.step_s, axis=0, keepdims=True)
        return replace(self, event_s=event_s, step_s=step_s)

    def iteration(self, number: int) -> "StepTimes":
        """Return the times of one iteration."""
        return replace(self, event_s=self.event_s[number, None], step_s=self.step_s[number, None])

    def parts(self) -> Iterator[dict[str, object]]:
        """Yield the operations and computations of each rank in the first iteration, with their times."""
        for position in range(len(self.ranks)):
            yield from self._parts_of(position)

    def _parts_of(self, position: int) -> Iterator[dict[str, object]]:
        program = self.program(position)
        place = {"rank": int(self.ranks[position]), "stage": int(self.stages[position])}
        operation_times = self.operations(position)[0].tolist()
        for operation, (ready, begin, end) in zip(program.operations, operation_times, strict=True):
            about = {name: operation[name] for name in ("collective", "axis", "bytes", "phase")}
            yield {
                **place,
                "operation": operation["label"],
                **about,
                "ready_s": ready,
                "begin_s": begin,
                "end_s": end,
            }
        computation_times = self.computations(position)[0].tolist()
        for phase, (begin, end) in zip(program.phases, computation_times, strict=True):
            yield {
                **place,
                "operation": "computation",
                "phase": phase,
                "begin_s": begin,
                "end_s": end,
            }

    def operations(self, position: int) -> Seconds:
        """Return when operations of the rank at ``position`` were ready, began and ended, [iteration, operation, 3]."""
        stage = int(self.stages[position])
        return self.operations_of(stage, slice(position, position + 1))[:, 0]

    def computations(self, position: int) -> Seconds:
        """Return when computations of the rank at ``position`` began and ended, [iteration, computation, 2]."""
        stage = int(self.stages[position])
        return self.computations_of(stage, slice(position, position + 1))[:, 0]

    def program(self, position: int) -> StageProgram:
        """Return the program of the rank at ``position``."""
        return self.programs[int(self.stages[position])]

    @cached_property
    def forward_s(self) -> float:
        """The seconds of the forward passes."""
        return self._slowest(lambda stage, ranks: self._phase_s(stage, ranks, FORWARD))

    @cached_property
    def backward_s(self) -> float:
        """The seconds of the backward passes."""
        return self._slowest(lambda stage, ranks: self._phase_s(stage, ranks, BACKWARD))

    @cached_property
    def tail_s(self) -> float:
        """The seconds from the end of the last computation to the end of the step."""
        return self._slowest(
            lambda stage, ranks: self.step_s[:, ranks] - self._ends(stage, ranks)[:, :, -1]
        )

    @cached_property
    def communication_s(self) -> float:
        """The seconds of all collectives of a rank but receipts, added up."""
        return self._slowest(lambda stage, ranks: self._operations_s(stage, ranks, codecs=False))

    @cached_property
    def codec_s(self) -> float | None:
        """The seconds of all codecs of a rank, added up; None if gradients are not compressed."""
        operations = chain.from_iterable(program.operations for program in self.programs)
        if not any(operation["collective"] == CODEC for operation in operations):
            return None
        return self._slowest(lambda stage, ranks: self._operations_s(stage, ranks, codecs=True))

    def operations_of(self, stage: int, ranks: Positions) -> Seconds:
        """Return the times of operations of ranks of a stage, [iteration, rank, operation, 3]."""
        events = self.event_s[:, ranks]
        count = len(self.programs[stage].operations)
        return events[:, :, : 3 * count].reshape(*events.shape[:2], count, 3)

    def computations_of(self, stage: int, ranks: Positions) -> Seconds:
        """Return the times of computations of ranks of a stage, [iteration, rank, computation, 2]."""
        events = self.event_s[:, ranks]
        end = self.programs[stage].events
        count = len(self.programs[stage].phases)
        return events[:, :, end - 2 * count : end].reshape(*events.shape[:2], count, 2)

    def _ends(self, stage: int, ranks: Positions) -> Seconds:
        """Return the start of the step and the ends of all computations, [iteration, rank, 1 + computation]."""
        ends = self.computations_of(stage, ranks)[..., 1]
        starts = np.zeros((*ends.shape[:2], 1))
        return np.concatenate([starts, ends], axis=2)

    def _phase_s(self, stage: int, ranks: Positions, phase: str) -> Seconds:
        phases = self.programs[stage].phases
        belongs = np.array([computed == phase for computed in phases], bool)
        between_ends = np.diff(self._ends(stage, ranks), axis=2)
        durations: Seconds = between_ends[:, :, belongs].sum(axis=2)
        return durations

    def _operations_s(self, stage: int, ranks: Positions, *, codecs: bool) -> Seconds:
        counts = []
        for operation in self.programs[stage].operations:
            is_codec = operation["collective"] == CODEC
            counts.append(not operation.get("receives") and is_codec == codecs)
        operations = self.operations_of(stage, ranks)[:, :, np.array(counts, bool)]
        durations: Seconds = (operations[..., 2] - operations[..., 1]).sum(axis=2)
        return durations

    def _slowest(self, seconds: Callable[[int, NDArray[np.int64]], Seconds]) -> float:
        """Return the largest over ranks, the median over iterations, of the seconds of the ranks of each stage."""
        by_stage = []
        for stage in np.unique(self.stages).tolist():
            ranks = np.flatnonzero(self.stages == stage)
            by_stage.append(seconds(stage, ranks))
        slowest = np.concatenate(by_stage, axis=1).max(axis=1)
        return float(np.median(slowest))


def step_of(timeline: WorkloadTimeline | None) -> StepTimes | None:
    """Return a timeline that is of a training step; None for others."""
    if not isinstance(timeline, StepTimes):
        return None
    return timeline
