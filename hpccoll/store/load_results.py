"""Rows, runs and gaps from the raw files, journals and plans below some paths."""

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from hpccoll.common.memory import collector_paused
from hpccoll.schedule.collective import NATIVE
from hpccoll.store.case_row import make_row
from hpccoll.store.case_states import case_states
from hpccoll.store.job_cases import JobCases, job_cases
from hpccoll.store.result_files import ResultFiles, read_all
from hpccoll.store.rows import Results, Row, Run
from hpccoll.store.sweep_notes import read_sweep_notes
from hpccoll.store.workload_figures import MedianTimelines, completed_rows


def read_results(paths: Iterable[Path], rule: str = "max") -> Results:
    """Read raw files and directories of them, whose plan.json names the planned cases.

    A file of ``hpccoll order native --out`` among them gives native rows their order.

    The ``rule`` for the time of an operation is ``max`` or ``span``; it is ``max`` of a case that
    has no span.

    Raises:
        BadInputError: for a path that does not exist, if none of the named files can be read, or if
            nothing is found. Any other unreadable file becomes a gap, and ``damaged`` names it.
    """
    paths = list(paths)
    with collector_paused():
        files = read_all(paths)
        return to_results(files, paths, rule)


def to_results(
    files: ResultFiles,
    paths: Collection[Path] = (),
    rule: str = "max",
    *,
    with_orders: bool = True,
) -> Results:
    """Return the results of files; directories among ``paths`` also have failure notes and Slurm's jobs.

    With ``with_orders``, rows have the orders of their sums, which takes modules that ranks do not
    need.
    """
    notes = read_sweep_notes(files.unstarted_jobs, paths)
    jobs: list[JobCases] = []
    rows: list[Row] = []
    for raw in files.raw_results:
        cases = job_cases(raw)
        jobs.append(cases)
        for history in cases.row_histories:
            rows.append(make_row(cases.job, history, rule))
    states = case_states(files, jobs, notes)
    machines = {run.run_id: run.machine for run in states.runs}
    sorted_rows = sorted(completed_rows(rows, machines), key=_row_order)
    notes_on_files = list(files.notes)
    if with_orders:
        sorted_rows = _with_orders(sorted_rows, files, states.runs)
        if files.orders and not any(map(_is_native_with_order, sorted_rows)):
            notes_on_files.append(NO_ROW_OF_ORDERS)
    return Results(
        timelines=MedianTimelines(jobs),
        rows=tuple(sorted_rows),
        runs=states.runs,
        planned=states.planned,
        missing=states.missing,
        skipped=states.skipped,
        scheduled=states.scheduled,
        progress=states.progress,
        damaged=tuple(files.damaged),
        notes=tuple(notes_on_files),
    )


def _with_orders(rows: Iterable[Row], files: ResultFiles, runs: Sequence[Run]) -> list[Row]:
    from hpccoll.store.native_orders import NativeOrders
    from hpccoll.store.row_orders import with_orders

    return list(with_orders(rows, NativeOrders(files.orders, runs)))


NO_ROW_OF_ORDERS = (
    "no native result here is of the library, settings, ranks, types and sizes that the files of "
    "'hpccoll order' probed"
)
"""The remark on files of orders that no row has."""


def _is_native_with_order(row: Row) -> bool:
    return row.algorithm == NATIVE and row.order is not None


def _row_order(row: Row) -> tuple[object, ...]:
    """Return the sort key of a row; rows are measured in random order."""
    configuration = (
        row.collective,
        row.device,
        row.dtype,
        row.op or "",
        row.ranks,
        row.algorithm,
        str(row.params),
    )
    return *configuration, row.mapping, row.in_place, row.bytes, row.job, row.attempt
