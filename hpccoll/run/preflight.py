"""Room: whether something that is asked for can run here at all, before it is begun."""

from typing import TYPE_CHECKING

from hpccoll.errors import BadInputError, UnusableError
from hpccoll.spec.case import Job

if TYPE_CHECKING:
    from mpi4py import MPI

    from hpccoll.schedule import Layout


def preflight(comm: "MPI.Intracomm", job: Job, layout: "Layout") -> None:
    """See that something can run, and every node has room for the largest case.

    Who has just typed a size or a root is told, where a sweep goes on.

    Raises:
        BadInputError: on all ranks, where a node has not, nothing can run, or a word of a case is not known.
    """
    from mpi4py import MPI

    from hpccoll.host.machine import available_memory
    from hpccoll.spec.catalogue import check_case, redundant_mapping, unmet_needs
    from hpccoll.spec.memory import check_memory
    from hpccoll.spec.variant_skips import variant_skip_reason
    from hpccoll.tuning.auto import resolve_auto
    from hpccoll.tuning.table import TuneTable

    table = None if job.table is None else TuneTable.from_json(job.table)
    found: list[str | None] = []
    for case in job.cases:
        check_case(case)
        try:
            made, _ = resolve_auto(case, layout, table)
        except BadInputError as error:
            found.append(str(error))
        else:
            strange = variant_skip_reason(job.variant, job.sets, case, job.shape(case))
            found.append(unmet_needs(made, layout) or strange or redundant_mapping(case, layout))
    reasons = list(dict.fromkeys(found))
    if all(reasons):
        why = "; ".join(filter(None, reasons))
        raise UnusableError("run", f"none of its {len(job.cases)} cases can run here: {why}")
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    complaint = None
    try:
        check_memory(job.cases, job.ranks, node.size, available_memory(), aggregators=job.aggregators)
    except BadInputError as error:
        complaint = error
    node.Free()
    for said in filter(None, comm.allgather(complaint)):
        raise said
