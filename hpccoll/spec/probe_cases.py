"""Which cases a library's logs can explain: known from a job alone, so that a plan can say it."""

from dataclasses import replace

from hpccoll.evidence.requested import requested_by_environment
from hpccoll.evidence.variants import named_variants
from hpccoll.schedule.collective import NATIVE
from hpccoll.spec.case import Case, Job, Shape


def requested_algorithm(job: Job, case: Case) -> str | None:
    """Return what the variant of ``job`` asks of the library in one word; None for our own schedules."""
    if case.algorithm != NATIVE:
        return None
    by_nccl = case.transport == "nccl"
    told = {name: value for name, value in job.environment.items() if name.startswith("NCCL_") == by_nccl}
    return requested_by_environment(told, case.collective, job.communicator if by_nccl else None)


def has_library_logs(job: Job, case: Case) -> bool:
    """Return whether logs of the library can say what it did in ``case``: NCCL's always, MPI's where SHARP is asked.

    Also where it is a control of that.
    """
    if case.algorithm != NATIVE:
        return False
    known = named_variants().get(job.variant) if job.variant else None
    asked = known is not None and known.transport == "mpi" and known.expected_evidence.is_met is not None
    return case.transport == "nccl" or asked or requested_algorithm(job, case) is not None


def probe_cases(job: Job, shape: Shape) -> list[Case]:
    """Return the cases of ``shape`` to have logged, each in one placement: no library chooses by that.

    Where only our own schedules go over NCCL it is one of them: the log says which network is under all.
    """
    cases = {replace(case, in_place=False).id: case for case in job.cases if job.shape(case) == shape}
    own = [case for case in cases.values() if has_library_logs(job, case)]
    return own or [case for case in cases.values() if case.transport == "nccl"][:1]
