"""What ran in a case: what the library's logs, the port counters and the schedule say of it."""

from dataclasses import dataclass

from hpccoll.evidence.probe_result import ProbeResult
from hpccoll.evidence.verdict import judge_collective, unavailable_reasons
from hpccoll.spec.case import Case, Job
from hpccoll.spec.probe_cases import has_library_logs, requested_algorithm

REFUSES = "NCCL refuses it"
"""How a reason begins that is NCCL's own."""


@dataclass(frozen=True, slots=True)
class Executed:
    """What was asked of the library, what ran, and how that is known."""

    requested: str | None
    executed: str
    evidence: str | None


def judge(
    job: Job, case: Case, found: ProbeResult | None, without: tuple[str, str | None], *,
    nbytes: int, workers: int, port_bytes: float | None,
) -> Executed:  # fmt: skip
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
    asked = requested_algorithm(job, case)
    executed, evidence = without
    if found is None or not has_library_logs(job, case):
        return Executed(asked, executed, evidence)
    words = [f"the probe {found.failure}"] if found.failure else []
    if found.record is not None:
        by_logs = judge_collective(
            asked, case.collective, nbytes, workers, found.record, dtype=case.dtype, op=case.op,
            memory="cuda" if case.device == "cuda" and case.transport != "staged" else "host",
            nodes=job.shape(case).nodes, port_bytes=port_bytes,
        )  # fmt: skip
        executed, words = by_logs.executed, [by_logs.evidence, *words]
    return Executed(asked, executed, "; ".join(filter(None, (*words, evidence))) or None)


def full_reason(reason: str, found: ProbeResult | None, job: Job, case: Case) -> str:
    """Return why a case is skipped, with the lines of the log that say most where NCCL refuses what is forced."""
    if not (found and found.record and reason.startswith(REFUSES)):
        return reason
    known = unavailable_reasons(requested_algorithm(job, case), found.record, case.dtype)
    of_algorithm = (one.line for one in found.record.unavailable if one.feature == "algorithm")
    return "; ".join(dict.fromkeys((reason, *known[:1], *of_algorithm)))
