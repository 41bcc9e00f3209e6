"""Determines the algorithm that ran in a case, from the library's logs, the port counters and the schedule."""

from typing import TYPE_CHECKING

from hpccoll.cases.probe_cases import has_library_logs, requested_algorithm
from hpccoll.cases.transport_table import REFUSAL_PREFIX
from hpccoll.host.network_ports import SENT_PACKETS

if TYPE_CHECKING:
    from hpccoll.cases.case import Case, Job
    from hpccoll.evidence.probe_result import ProbeResult
    from hpccoll.measure.port_traffic import PortTraffic
    from hpccoll.measure.run.call_evidence import CallEvidence
    from hpccoll.measure.run.case_factory import Prepared


def judge(
    job: "Job",
    case: "Case",
    probe_result: "ProbeResult | None",
    prepared: "Prepared",
    traffic: "PortTraffic | None",
    recognition: "CallEvidence | None" = None,
) -> tuple[str, str | None]:
    """Return the algorithm that ran in a case of ``job``, and the evidence: by the logs of a probe if they mention it.

    ``prepared`` is the case as it was measured; ``traffic`` is None if no bytes were counted,
    ``recognition`` if nothing was recognised by its messages.
    """
    sent = traffic.sent if traffic else None
    executed, evidence = prepared.evidence(sent)
    if recognition:
        executed = recognition.executed(requested_algorithm(job, case))
        evidence = "; ".join(filter(None, (recognition.evidence, evidence)))
    if probe_result is None or not has_library_logs(job, case):
        return executed, evidence
    from_logs = [f"the probe {probe_result.failure}"] if probe_result.failure else []
    if probe_result.record is not None:
        from hpccoll.evidence.verdict import judge_collective  # few ranks read logs

        verdict = judge_collective(
            requested_algorithm(job, case),
            case.collective,
            prepared.bytes,
            prepared.layout.workers,
            probe_result.record,
            dtype=case.dtype,
            op=case.op,
            memory="cuda" if case.device == "cuda" and case.transport != "staged" else "host",
            nodes=job.shape(case).nodes,
            port_bytes=None if sent is None else sent / prepared.layout.nodes,
            port_packets=traffic.mean_per_node(SENT_PACKETS) if traffic else None,
        )
        executed = verdict.executed
        from_logs = [verdict.evidence, *from_logs]
    return executed, "; ".join(filter(None, (*from_logs, evidence))) or None


def full_reason(reason: str, probe_result: "ProbeResult | None", job: "Job", case: "Case") -> str:
    """Return the reason of a skipped case; if NCCL refused it, with the lines of the log that explain the refusal."""
    if not (probe_result and probe_result.record and reason.startswith(REFUSAL_PREFIX)):
        return reason
    from hpccoll.evidence.verdict import unavailable_reasons  # few ranks read logs

    reasons = unavailable_reasons(requested_algorithm(job, case), probe_result.record, case.dtype)
    lines = (
        entry.line
        for entry in probe_result.record.unavailable
        if entry.feature in ("algorithm", "gpu")
    )
    return "; ".join(dict.fromkeys((reason, *reasons[:1], *lines)))
