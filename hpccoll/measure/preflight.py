"""Checks before the first case of a command line."""

from mpi4py import MPI

from hpccoll.analysis.choice_table import TuneTable
from hpccoll.analysis.resolve_auto import resolve_auto
from hpccoll.cases.case import Job
from hpccoll.cases.memory_estimate import check_memory
from hpccoll.cases.skip_reason import LaunchFacts, skip_reason
from hpccoll.common.errors import BadInputError, UnusableError
from hpccoll.host.cpu_and_memory import available_memory
from hpccoll.schedule import Layout
from hpccoll.training.model_file import models_from_json


def preflight(comm: MPI.Intracomm, job: Job, layout: Layout) -> None:
    """Check before the first case that some case can run and every node has memory for the largest one.

    Raises:
        BadInputError: on all ranks, if a node lacks memory, no case can run, or a name in a case is unknown.
    """
    table = None if job.table is None else TuneTable.from_json(job.table)
    found: list[str | None] = []
    for case in job.cases:
        facts = LaunchFacts(shape=job.shape(case), variant=job.variant, sets=job.sets)
        try:
            resolved, _ = resolve_auto(case, layout, table)
            found.append(skip_reason(case, layout, facts, resolved))
        except BadInputError as error:
            found.append(str(error))
    reasons = list(dict.fromkeys(found))
    if all(reasons):
        why = "; ".join(filter(None, reasons))
        raise UnusableError("run", f"none of its {len(job.cases)} cases can run here: {why}")
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    failure = None
    try:
        models = models_from_json(job.models)
        check_memory(job.cases, job.ranks, node.size, available_memory(), aggregators=job.aggregators, models=models)
    except BadInputError as error:
        failure = error
    node.Free()
    for each in filter(None, comm.allgather(failure)):
        raise each
