"""Whose logs can say what ran, known from a job alone, so that a plan says it; and what they say of a case."""

from dataclasses import dataclass, replace

from hpccoll.case import Case, Job, Shape
from hpccoll.evidence.asked import requested_of
from hpccoll.evidence.found import Found
from hpccoll.evidence.variants import VARIANTS
from hpccoll.evidence.verdict import reasons_of, verdict
from hpccoll.schedule.promise import NATIVE

REFUSES = "NCCL refuses it"
"""How a reason begins that is NCCL's own."""


def requested(job: Job, case: Case) -> str | None:
    """Return what the variant of ``job`` asks of the library in one word; None for our own schedules."""
    if case.algorithm != NATIVE:
        return None
    by_nccl = case.transport == "nccl"
    told = {name: value for name, value in job.environment.items() if name.startswith("NCCL_") == by_nccl}
    return requested_of(told, case.collective, job.communicator if by_nccl else None)


def logged(job: Job, case: Case) -> bool:
    """Return whether logs of the library can say what it did in ``case``: NCCL's always, MPI's where SHARP is asked.

    Also where it is a control of that.
    """
    if case.algorithm != NATIVE:
        return False
    known = VARIANTS.get(job.variant or "")
    asked = known is not None and known.transport == "mpi" and known.demands.met is not None
    return case.transport == "nccl" or asked or requested(job, case) is not None


def once(job: Job, shape: Shape) -> list[Case]:
    """Return the cases of ``shape`` to have logged, each in one placement: no library chooses by that.

    Where only our own schedules go over NCCL it is one of them: the log says which network is under all.
    """
    cases = {replace(case, in_place=False).id: case for case in job.cases if job.shape(case) == shape}
    own = [case for case in cases.values() if logged(job, case)]
    return own or [case for case in cases.values() if case.transport == "nccl"][:1]


@dataclass(frozen=True, slots=True)
class Said:
    """What was asked of the library, what ran, and how that is known."""

    requested: str | None
    executed: str
    evidence: str | None


def judged(
    job: Job, case: Case, found: Found | None, without: tuple[str, str | None], *,
    nbytes: int, workers: int, port_bytes: float | None,
) -> Said:  # fmt: skip
    """Return what ran in a case, by the logs of a probe where they speak of it.

    Args:
        job: that the case is of.
        case: as it was measured.
        found: what a probe found, None where there was none.
        without: what ran and how that is known without logs: by our own schedule, or by bytes alone.
        nbytes: the size S that was moved.
        workers: the ranks.
        port_bytes: that the ports of a node sent for one operation; None where they were not counted.
    """
    asked = requested(job, case)
    executed, evidence = without
    if found is None or not logged(job, case):
        return Said(asked, executed, evidence)
    words = [f"the probe {found.why}"] if found.why else []
    if found.record is not None:
        by_logs = verdict(
            asked, case.collective, nbytes, workers, found.record, dtype=case.dtype, op=case.op,
            memory="cuda" if case.device == "cuda" and case.transport != "staged" else "host",
            nodes=job.shape(case).nodes, port_bytes=port_bytes,
        )  # fmt: skip
        executed, words = by_logs.executed, [by_logs.words, *words]
    return Said(asked, executed, "; ".join(filter(None, (*words, evidence))) or None)


def in_full(reason: str, found: Found | None, job: Job, case: Case) -> str:
    """Return why a case is skipped, with the lines of the log that say most where NCCL refuses what is forced."""
    if not (found and found.record and reason.startswith(REFUSES)):
        return reason
    known = reasons_of(requested(job, case), found.record, case.dtype)
    of_algorithm = (one.line for one in found.record.refusals if one.of == "algorithm")
    return "; ".join(dict.fromkeys((reason, *known[:1], *of_algorithm)))
