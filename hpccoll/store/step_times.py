"""The times of measured training steps: what each rank computed and sent when, and how much of that is exposed.

The step of a rank is divided at the ends of its computations. What lies between two of them belongs to the phase of the
second one, with all waiting in between, and what follows the last one is the tail:

- *forward*, *backward*: the seconds that belong to a phase. With one micro-batch the forward pass reaches from the
  start of the step to the end of its last forward computation, and the backward pass from there to the end of the last
  backward computation. With several, their passes add up; the bubbles of a pipeline belong to the passes that they
  delay.
- *tail*: from the end of the last computation to the end of the step: what no computation can hide.
- *communication*: the durations of all operations, added up, also of those that ran at the same time; the time in which
  a rank waits inside an operation for others is included.
- *exposed*: the median of the step minus that of the same step without communication (``null``). Where communication
  also slows computations or waiting down, that is more than the tail.

Each is the largest over ranks, and of that the median over all timed iterations.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hpccoll.spec.algorithm_registry import WORKLOADS
from hpccoll.store.case_times import CaseTimes
from hpccoll.store.rows import Row

FORWARD, BACKWARD = "forward", "backward"

STEP_FIGURES = "forward_s", "backward_s", "tail_s", "communication_s"
"""The properties of ``StepTimes`` that rows have."""

Seconds: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class StageProgram:
    """What the ranks of a pipeline stage run.

    Args:
        operations: of each operation ``label``, ``collective``, ``axis``, ``bytes`` and ``phase``, in order of start.
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
        """The seconds of all operations of a rank, added up."""
        return self._slowest(
            lambda position: (each := self.operations(position))[:, :, 2].sum(axis=1) - each[:, :, 1].sum(axis=1)
        )

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


def workload_of(row: Row) -> dict[str, Any]:
    """Return the workload of the row of a training step, with defaults: without the parameters of its algorithm."""
    arguments = WORKLOADS[row.collective].arguments
    return {name: row.params.get(name, default) for name, default in arguments.items()}


def with_exposed_times(rows: Iterable[Row], machines: Mapping[str, str]) -> list[Row]:
    """Return rows, of which training steps have their exposed time if the same step was measured without communication.

    Of several such steps the one of the same launch counts, else one of the same job, else one on the same machine. The
    interval contains all differences of the intervals of the two medians.

    Args:
        rows: the rows.
        machines: the machine of each run, by run_id.
    """
    rows = list(rows)
    bare: dict[tuple[object, ...], list[Row]] = defaultdict(list)
    for row in rows:
        if row.collective in WORKLOADS and row.floor and row.median_s is not None and row.status in ("ok", "partial"):
            bare[_step_key(row, machines)].append(row)
    return [_with_exposed_time(row, bare.get(_step_key(row, machines), ())) for row in rows] if bare else rows


def _step_key(row: Row, machines: Mapping[str, str]) -> tuple[object, ...]:
    """Return what a step and the same step without communication have in common."""
    workload = tuple(workload_of(row).items()) if row.collective in WORKLOADS else ()
    return (
        row.collective, workload, row.dtype, row.device, row.ranks, row.nodes, row.ranks_per_node, row.mapping,
        row.variant, row.kind, row.timing, machines.get(row.run_id),
    )  # fmt: skip


def _with_exposed_time(row: Row, bare: Sequence[Row]) -> Row:
    if row.floor or not bare or row.median_s is None:
        return row

    def closeness(null: Row) -> tuple[bool | int, ...]:
        return null.run_id == row.run_id, null.job == row.job, null.transport == row.transport, null.attempt

    null = max(bare, key=closeness)
    exposed_s = row.median_s - (null.median_s or 0.0)
    if row.ci_low_s is None or row.ci_high_s is None or null.ci_low_s is None or null.ci_high_s is None:
        return replace(row, exposed_s=exposed_s)
    low, high = row.ci_low_s - null.ci_high_s, row.ci_high_s - null.ci_low_s
    return replace(row, exposed_s=exposed_s, exposed_low_s=low, exposed_high_s=high)
