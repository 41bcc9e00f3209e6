"""Which cases of a job are made, and with which algorithm: rank 0 decides before the first case, and sends it to all.

It follows from the job and the layout alone. What a rank may lack is asked of all ranks, in
case_factory.py.
"""

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from mpi4py import MPI

from hpccoll.cases.case import COMPILED, PYTHON, Case, Job, Shape
from hpccoll.cases.catalogue import check_case
from hpccoll.cases.skip_reason import LaunchFacts, MeasuredPlans, skip_reason
from hpccoll.cases.variants import NodeView
from hpccoll.common.errors import BadInputError, UnusableError
from hpccoll.common.units import format_count
from hpccoll.schedule import Layout, is_workload
from hpccoll.schedule.collective import AUTO

if TYPE_CHECKING:
    from hpccoll.analysis.choice_table import TuneTable
    from hpccoll.store.raw_results import Attempt

Decisions: TypeAlias = tuple[dict[str, str], dict[str, tuple[Case, str | None]]]
"""By the ids of cases: why cases are skipped; and, where the table of the job chose the algorithm,
the case with it and the reason of the choice."""


class CaseChoices:
    """Decides for an attempt which cases are made.

    Args:
        job: the job.
        attempt: has the layout of the ranks, and the machine that a table may name.
        compiled: the element types that the compiled executor folds; empty without it.
    """

    def __init__(self, job: Job, attempt: "Attempt", compiled: Collection[str]) -> None:
        self.job = job
        self.attempt = attempt
        self._compiled = compiled

    def decide(self, cases: Iterable[Case], nccl_nodes: Mapping[str, NodeView | None]) -> Decisions:
        """Return which of ``cases`` are skipped, and what the table chose.

        ``nccl_nodes`` are the nodes as NCCL counts them, by element type; None if NCCL cannot be
        used.
        """
        layout = self.attempt.layout
        shape = Shape(layout.nodes, layout.workers, layout.aggregators)
        plans = MeasuredPlans(layout, shape, self.job.named)
        skipped: dict[str, str] = {}
        chosen: dict[str, tuple[Case, str | None]] = {}
        for case in cases:
            facts = launch_facts(
                self.job, case, nccl_nodes.get(case.dtype) if case.transport == "nccl" else None
            )
            try:
                resolved, choice = self.resolve(case, layout)
                check_case(resolved)
                reason = skip_reason(case, layout, facts, resolved) or _reason_of_equal_plan(
                    plans, case
                )
            # on all ranks, because it depends on the case and the layout only
            except BadInputError as error:
                reason = str(error)
            else:
                chosen[case.id] = resolved, choice
            if reason:
                skipped[case.id] = reason
        return skipped, {case_id: way for case_id, way in chosen.items() if way[1] is not None}

    def resolve(self, case: Case, layout: Layout) -> tuple[Case, str | None]:
        """Return the case that the table of the job chooses, and why; a case that names its algorithm stays as it is.

        Raises:
            BadInputError: if the table has no choice.
        """
        if case.algorithm != AUTO or is_workload(case.collective):
            return case, None
        from hpccoll.analysis.choice_table import resolve_auto  # few jobs have a table

        return resolve_auto(case, layout, self._table, self.job.variant, self._conditions(case))

    @cached_property
    def _table(self) -> "TuneTable | None":
        return _table_of(self.job)

    def _conditions(self, case: Case) -> str:
        """Return the conditions of the measurement, by which a table may distinguish its choices."""
        from hpccoll.analysis.setting import Conditions, machine_name, recorded_mpi_version

        is_compiled = case.device == "cpu" and case.dtype in self._compiled
        mpi = recorded_mpi_version(self.attempt.provenance)
        machine = machine_name(self.attempt.machine, self.attempt.provenance)
        return Conditions(machine, mpi, COMPILED if is_compiled else PYTHON).label


def _reason_of_equal_plan(plans: MeasuredPlans, case: Case) -> str | None:
    """Return the reason to skip a case if its plan is that of an earlier one; cases come in the order of the job."""
    if is_workload(case.collective):
        return None
    with suppress(BadInputError):  # the case is skipped when it is made
        return plans.skip_reason(case)
    return None


def launch_facts(job: Job, case: Case, nccl_nodes: NodeView | None = None) -> LaunchFacts:
    """Return what is known of the launch of a case; ``nccl_nodes`` are its nodes as NCCL counts them."""
    mpi = MPI.Get_library_version()
    return LaunchFacts(
        shape=job.shape(case), variant=job.variant, sets=job.sets, nccl_nodes=nccl_nodes, mpi=mpi
    )


def _table_of(job: Job) -> "TuneTable | None":
    """Return the table of choices for the algorithm ``auto``; None without one."""
    if job.table is None:
        return None
    from hpccoll.analysis.choice_table import TuneTable  # few jobs have a table

    return TuneTable.from_json(job.table)


def check_some_case_runs(job: Job, layout: Layout) -> None:
    """Check that some case of a job can run on a layout.

    Raises:
        UnusableError: if none can; it has the reasons.
    """
    table = _table_of(job)
    reasons = dict[str | None, None]()
    for case in job.cases:
        try:
            resolved = _choice_of_table(case, layout, table)
            reasons[skip_reason(case, layout, launch_facts(job, case), resolved)] = None
        except BadInputError as error:
            reasons[str(error)] = None
    if all(reasons):
        why = "; ".join(filter(None, reasons))
        raise UnusableError(
            "run", f"none of {format_count(len(job.cases), 'case')} can run here: {why}"
        )


def _choice_of_table(case: Case, layout: Layout, table: "TuneTable | None") -> Case:
    """Return the case that a table chooses under any conditions."""
    if case.algorithm != AUTO:
        return case
    from hpccoll.analysis.choice_table import resolve_auto

    resolved, _ = resolve_auto(case, layout, table)
    return resolved
