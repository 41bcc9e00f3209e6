"""The cases that the library's logs can explain, derived from a job alone, so that plans can name them."""

from dataclasses import replace

from hpccoll.cases.algorithm_registry import is_workload
from hpccoll.cases.case import SINGLE, Case, Job, Shape
from hpccoll.cases.catalogue import distinct_placements
from hpccoll.cases.library_request import SWITCH_REQUESTS, forced_by_mpi, requested_by_environment
from hpccoll.cases.variants import named_variants
from hpccoll.schedule.collective import NATIVE


def requested_algorithm(job: Job, case: Case) -> str | None:
    """Return the algorithm that the variant of ``job`` requests of the library; None for our own schedules."""
    if case.algorithm != NATIVE:
        return None
    by_nccl = case.transport == "nccl"
    variables = {
        name: value
        for name, value in job.environment.items()
        if name.startswith("NCCL_") == by_nccl
    }
    request = requested_by_environment(
        variables, case.collective, job.communicator if by_nccl else None
    )
    if by_nccl or request:
        return request
    return forced_by_mpi(variables, case.collective)


def has_library_logs(job: Job, case: Case) -> bool:
    """Return whether logs of the library can tell what it did in ``case``.

    Those of NCCL always can; those of MPI can if the variant requests SHARP or is a control for it.
    """
    if case.algorithm != NATIVE:
        return False
    variant = named_variants().get(job.variant) if job.variant else None
    expects_evidence = variant is not None and variant.transport == "mpi" and variant.shows_in_logs
    return (
        case.transport == "nccl"
        or expects_evidence
        or requested_algorithm(job, case) in SWITCH_REQUESTS
    )


def probe_cases(job: Job, shape: Shape) -> list[Case]:
    """Return the cases of ``shape`` to be logged, each once: no library chooses by the placement or by how it is timed.

    If only our own schedules run over NCCL, return one of them: the log names the network that all
    of them use.
    Training steps are left out: a log tells nothing of a step as a whole. A case is logged in place
    only if its call knows nothing else, such as one with one buffer.
    """
    cases: dict[str, Case] = {}
    for case in job.cases:
        if case.transport != "nccl" and not has_library_logs(job, case):
            continue
        if job.shape(case) != shape or is_workload(case.collective):
            continue
        placements = distinct_placements(case.collective, case.algorithm, (False, True))
        logged = replace(case, in_place=all(placements), timing=SINGLE)
        cases[logged.id] = logged
    with_logs = [case for case in cases.values() if has_library_logs(job, case)]
    return with_logs or [case for case in cases.values() if case.transport == "nccl"][:1]
