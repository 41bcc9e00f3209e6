"""The times of measured training steps: what each rank computed and sent when, and how much of that is exposed.

The step of a rank is divided at the ends of its computations. What lies between two of them belongs to the phase of the
second one, with all waiting in between, and what follows the last one is the tail:

- *forward*, *backward*: the seconds that belong to a phase. With one micro-batch the forward pass reaches from the
  start of the step to the end of its last forward computation, and the backward pass from there to the end of the last
  backward computation. With several, their passes add up; the bubbles of a pipeline belong to the passes that they
  delay.
- *tail*: from the end of the last computation to the end of the step: what no computation can hide.
- *communication*: the durations of all operations, added up, also of those that ran at the same time; the time in which
  a rank waits inside an operation for others is included. The receipt of a message between pipeline stages does not
  count, because it lasts as long as the message is awaited.
Each is the largest over ranks, and of that the median over all timed iterations.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hpccoll.store.case_times import CaseTimes

FORWARD, BACKWARD = "forward", "backward"

STEP_FIGURES = "forward_s", "backward_s", "tail_s", "communication_s"
"""The properties of ``StepTimes`` that rows have."""

Seconds: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class StageProgram:
    """What the ranks of a pipeline stage run.

    Args:
        operations: of each operation ``label``, ``collective``, ``axis``, ``bytes`` and ``phase``, in order of start;
            ``receives`` if it is the receipt of a message.
        phases: the phase of each computation, in order.
    """

    operations: tuple[Mapping[str, Any], ...]
    phases: tuple[str, ...]

    @property
    def events(self) -> int:
        """The number of times of a run: three of each operation, then two of each computation."""
        return 3 * len(self.operations) + 2 * len(self.phases)


def stage_programs(text: str) -> tuple[StageProgram, ...]:
    """Return the programs of the column ``program`` of a raw file, one for each pipeline stage."""
    return tuple(
        StageProgram(
            tuple(each for each in stage if "label" in each),
            tuple(each["phase"] for each in stage if "label" not in each),
        )
        for stage in json.loads(text)
    )


@dataclass(frozen=True)  # without slots, because cached_property needs a __dict__
class StepTimes:
    """The times of a training step at workers, in seconds since each of them started it.

    Args:
        ranks: the numbers of the workers whose times are kept.
        stages: the number of the pipeline stage of each.
        programs: the program of each stage.
        event_s: the times, [iteration, rank, event]; nan for a rank without that event.
        step_s: the duration of the step, [iteration, rank].
    """

    ranks: NDArray[np.int64]
    stages: NDArray[np.int64]
    programs: tuple[StageProgram, ...]
    event_s: Seconds
    step_s: Seconds

    @classmethod
    def of(cls, times: CaseTimes, program: str | None, workers: int) -> "StepTimes | None":
        """Return the times of a case; None if it is no training step.

        Args:
            times: the raw times.
            program: its programs, as JSON.
            workers: the number of workers, which are the first ranks.
        """
        if not program or not times.event_ns.size:
            return None
        programs = stage_programs(program)
        ranks = np.arange(0, workers, times.rank_stride)
        start, end, event = (
            each[:, : len(ranks)] for each in (times.start_ns, times.end_ns, times.event_ns)
        )  # aggregators come last
        since = np.where(event < 0, np.nan, (event - start[:, :, None]) / 1e9)
        return cls(ranks, ranks * len(programs) // workers, programs, since, (end - start) / 1e9)

    def median_over_iterations(self) -> "StepTimes":
        """Return the medians of all times over iterations, as times of one iteration."""
        event_s, step_s = (np.median(each, axis=0, keepdims=True) for each in (self.event_s, self.step_s))
        return replace(self, event_s=event_s, step_s=step_s)

    def iteration(self, number: int) -> "StepTimes":
        """Return the times of one iteration."""
        return replace(self, event_s=self.event_s[number, None], step_s=self.step_s[number, None])

    def operations(self, position: int) -> Seconds:
        """Return when operations of the rank at ``position`` were ready, began and ended, [iteration, operation, 3]."""
        count = len(self.program(position).operations)
        return self.event_s[:, position, : 3 * count].reshape(len(self.event_s), count, 3)

    def computations(self, position: int) -> Seconds:
        """Return when computations of the rank at ``position`` began and ended, [iteration, computation, 2]."""
        program = self.program(position)
        first, count = 3 * len(program.operations), len(program.phases)
        return self.event_s[:, position, first : first + 2 * count].reshape(len(self.event_s), count, 2)

    def program(self, position: int) -> StageProgram:
        """Return the program of the rank at ``position``."""
        return self.programs[int(self.stages[position])]

    @cached_property
    def forward_s(self) -> float:
        """The seconds of the forward passes."""
        return self._slowest(lambda position: self._phase_s(position, FORWARD))

    @cached_property
    def backward_s(self) -> float:
        """The seconds of the backward passes."""
        return self._slowest(lambda position: self._phase_s(position, BACKWARD))

    @cached_property
    def tail_s(self) -> float:
        """The seconds from the end of the last computation to the end of the step."""
        return self._slowest(lambda position: self.step_s[:, position] - self._ends(position)[:, -1])

    @cached_property
    def communication_s(self) -> float:
        """The seconds of all operations of a rank but receipts, added up."""
        return self._slowest(self._communication_s)

    def _communication_s(self, position: int) -> Seconds:
        counts = np.array([not each.get("receives") for each in self.program(position).operations], bool)
        durations: Seconds = np.diff(self.operations(position)[:, counts, 1:], axis=2).sum(axis=(1, 2))
        return durations

    def _phase_s(self, position: int, phase: str) -> Seconds:
        belongs = np.array([each == phase for each in self.program(position).phases], bool)
        durations: Seconds = np.diff(self._ends(position), axis=1)[:, belongs].sum(axis=1)
        return durations

    def _ends(self, position: int) -> Seconds:
        """Return the start of the step and the ends of all computations, [iteration, 1 + computation]."""
        ends = self.computations(position)[:, :, 1]
        return np.concatenate([np.zeros((len(ends), 1)), ends], axis=1)

    def _slowest(self, seconds: Callable[[int], Seconds]) -> float:
        """Return the largest over ranks, the median over iterations."""
        of_ranks = [seconds(position) for position in range(len(self.ranks))]
        return float(np.median(np.max(of_ranks, axis=0)))
