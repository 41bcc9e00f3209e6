"""The figures of training steps in rows, as ``store.workload_figures.WorkloadFigures`` gives them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from hpccoll.extensions.steps.results.step_times import STEP_FIGURES, StepTimes
from hpccoll.extensions.steps.results.step_waiting import step_waiting
from hpccoll.extensions.steps.training import TRAINING_STEP
from hpccoll.extensions.steps.training.parallelism import Mesh
from hpccoll.store.call_key import CallKey
from hpccoll.store.case_times import CaseTimes
from hpccoll.store.raw_results import Outcome
from hpccoll.store.rows import Row


class StepFigures:
    """Makes the figures; each method does what that of ``WorkloadFigures`` says."""

    def timeline(self, times: CaseTimes, program: str | None, workers: int) -> StepTimes | None:
        return StepTimes.of(times, program, workers)

    def row_fields(self, outcome: Outcome, workers: int) -> dict[str, Any]:
        if outcome.times is None:
            return {}
        step = StepTimes.of(outcome.times, outcome.program, workers)
        if step is None:
            return {}
        figures = {name: getattr(step, name) for name in STEP_FIGURES}
        if outcome.floor:
            return figures
        mesh = Mesh.parse(str(outcome.case.params.get("parallel", "")), workers)
        waiting = step_waiting(step, mesh.groups)
        if waiting is not None:
            figures |= asdict(waiting)
        return figures

    def completed(self, rows: Sequence[Row], machines: Mapping[str, str]) -> list[Row]:
        return with_exposed_times(rows, machines)


def with_exposed_times(rows: Iterable[Row], machines: Mapping[str, str]) -> list[Row]:
    """Return rows whose training steps have their exposed time, if the same step was measured without communication.

    If there are several such steps, the one of the same launch counts, else one of the same job,
    else one on the same machine. The interval contains all differences of the intervals of the two
    medians. ``machines`` has the machine of each run by run_id.
    """
    rows = list(rows)
    null_rows: dict[CallKey, list[Row]] = defaultdict(list)

    def step(row: Row) -> CallKey:
        key = CallKey.of(row, machines.get(row.run_id, ""))
        return key.without(
            "op", "root", "in_place", "racks", "aggregators", "executor"
        ).uncompressed

    for row in rows:
        if row.collective == TRAINING_STEP and row.floor and row.usable:
            null_rows[step(row)].append(row)
    if not null_rows:
        return rows
    return [_with_exposed_time(row, null_rows.get(step(row), ())) for row in rows]


def closest_null(row: Row, bare: Iterable[Row]) -> Row | None:
    """Return the step without communication that counts for a step; None if ``bare`` is empty."""

    def closeness(null: Row) -> tuple[bool | int, ...]:
        return (
            null.run_id == row.run_id,
            null.job == row.job,
            null.transport == row.transport,
            null.attempt,
        )

    return max(bare, key=closeness, default=None)


def _with_exposed_time(row: Row, bare: Sequence[Row]) -> Row:
    null = closest_null(row, bare)
    if row.floor or null is None or row.median_s is None:
        return row
    exposed_s = row.median_s - (null.median_s or 0.0)
    if row.interval is None or null.interval is None:
        return replace(row, exposed_s=exposed_s)
    low_s, high_s = row.interval
    null_low_s, null_high_s = null.interval
    return replace(
        row,
        exposed_s=exposed_s,
        exposed_low_s=low_s - null_high_s,
        exposed_high_s=high_s - null_low_s,
    )


STEP_FIGURES_OF_ROWS = StepFigures()
