"""Determines the algorithm that ran in a case, from the library's logs, the port counters and the schedule."""

from dataclasses import dataclass

from hpccoll.cases.case import Case, Job
from hpccoll.cases.probe_cases import has_library_logs, requested_algorithm
from hpccoll.evidence.probe_result import ProbeResult
from hpccoll.evidence.verdict import judge_collective, unavailable_reasons

REFUSAL_PREFIX = "NCCL refuses it"
"""The beginning of the reason of a case that NCCL refuses."""


@dataclass(frozen=True, slots=True)
class Executed:
    """The algorithm requested of the library, the algorithm that ran, and the evidence for that."""

    requested: str | None
    executed: str
    evidence: str | None


def judge(
    job: Job, case: Case, probe_result: ProbeResult | None, without_logs: tuple[str, str | None], *,
    nbytes: int, workers: int, port_bytes: float | None, port_packets: float | None = None,
) -> Executed:  # fmt: skip
    """Return the algorithm that ran in a case, by the logs of a probe if they mention it.

    Args:
        job: the job of the case.
        case: the case as it was measured.
        probe_result: the result of the log probe, None if there was none.
        without_logs: the algorithm and the evidence that are known without logs: from our schedule or from bytes.
        nbytes: the size S that was moved.
        workers: the number of workers.
        port_bytes: the bytes per operation that the ports of a node sent; None if they were not counted.
        port_packets: the packets, likewise.
    """
    requested = requested_algorithm(job, case)
    executed, evidence = without_logs
    if probe_result is None or not has_library_logs(job, case):
        return Executed(requested, executed, evidence)
    from_logs = [f"the probe {probe_result.failure}"] if probe_result.failure else []
    if probe_result.record is not None:
        judgement = judge_collective(
            requested, case.collective, nbytes, workers, probe_result.record, dtype=case.dtype, op=case.op,
            memory="cuda" if case.device == "cuda" and case.transport != "staged" else "host",
            nodes=job.shape(case).nodes, port_bytes=port_bytes, port_packets=port_packets,
        )  # fmt: skip
        executed, from_logs = judgement.executed, [judgement.evidence, *from_logs]
    return Executed(requested, executed, "; ".join(filter(None, (*from_logs, evidence))) or None)


def full_reason(reason: str, probe_result: ProbeResult | None, job: Job, case: Case) -> str:
    """Return the reason of a skipped case; if NCCL refused it, with the lines of the log that explain the refusal."""
    if not (probe_result and probe_result.record and reason.startswith(REFUSAL_PREFIX)):
        return reason
    known = unavailable_reasons(requested_algorithm(job, case), probe_result.record, case.dtype)
    lines = (entry.line for entry in probe_result.record.unavailable if entry.feature in ("algorithm", "gpu"))
    return "; ".join(dict.fromkeys((reason, *known[:1], *lines)))
