"""Determines the algorithm that ran in a case, from the library's logs, the port counters and the schedule."""

from typing import TYPE_CHECKING

from hpccoll.cases.planned_schedule import cached_crossings, cached_slices
from hpccoll.cases.probe_cases import has_library_logs, requested_algorithm
from hpccoll.cases.transport_table import REFUSAL_PREFIX
from hpccoll.host.network_ports import SENT_PACKETS
from hpccoll.schedule import Algorithm, Cut, wire_bytes

if TYPE_CHECKING:
    from hpccoll.cases.case import Case, Job
    from hpccoll.evidence.probe_result import ProbeResult
    from hpccoll.measure.case_factory import Prepared
    from hpccoll.measure.port_traffic import PortTraffic
    from hpccoll.measure.recognition import Recognition
    from hpccoll.schedule.operation import Operation

MATCHING_RATIO = 0.98, 1.1
"""The ratios of port bytes to a schedule's bytes at which both match: headers add 7 % at an MTU of 1500 bytes
(hpccoll/render/wire_bandwidth.py), and there is little other traffic while messages are large."""

MAX_COMPARED_RANKS = 1024
"""The maximum number of ranks for which a library's bytes are compared with those of our algorithms: counting all
algorithms of an all-reduce takes 3 s, and 13 s for 4096 ranks, while all ranks wait."""

MAX_NAMED = 3
"""The maximum number of matching algorithms that are named."""


def judge(
    job: "Job", case: "Case", probe_result: "ProbeResult | None", prepared: "Prepared", traffic: "PortTraffic | None",
    recognition: "Recognition | None" = None,
) -> tuple[str, str | None]:  # fmt: skip
    """Return the algorithm that ran in a case of ``job``, and the evidence: by the logs of a probe if they mention it.

    ``prepared`` is the case as it was measured; ``traffic`` is None if no bytes were counted, ``recognition`` if
    nothing was recognised by its messages.
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
            requested_algorithm(job, case), case.collective, prepared.bytes, prepared.layout.workers,
            probe_result.record, dtype=case.dtype, op=case.op,
            memory="cuda" if case.device == "cuda" and case.transport != "staged" else "host",
            nodes=job.shape(case).nodes, port_bytes=None if sent is None else sent / prepared.layout.nodes,
            port_packets=traffic.mean_per_node(SENT_PACKETS) if traffic else None,
        )  # fmt: skip
        executed, from_logs = verdict.executed, [verdict.evidence, *from_logs]
    return executed, "; ".join(filter(None, (*from_logs, evidence))) or None


def full_reason(reason: str, probe_result: "ProbeResult | None", job: "Job", case: "Case") -> str:
    """Return the reason of a skipped case; if NCCL refused it, with the lines of the log that explain the refusal."""
    if not (probe_result and probe_result.record and reason.startswith(REFUSAL_PREFIX)):
        return reason
    from hpccoll.evidence.verdict import unavailable_reasons  # few ranks read logs

    known = unavailable_reasons(requested_algorithm(job, case), probe_result.record, case.dtype)
    lines = (entry.line for entry in probe_result.record.unavailable if entry.feature in ("algorithm", "gpu"))
    return "; ".join(dict.fromkeys((reason, *known[:1], *lines)))


def algorithms_matching_bytes(operation: "Operation", nbytes: int, sent: int) -> str:
    """Return a sentence with the bytes that a library sent, and our algorithms that send as many.

    The library may have run none of them. ``nbytes`` is the size S; ``sent`` are the bytes per operation that all hosts
    sent, by their port counters.
    """
    family, layout = operation.collective, operation.layout
    amount = f"{sent} B" if family.token else f"{sent / layout.nodes / nbytes:.3f} S a node"
    if layout.ranks > MAX_COMPARED_RANKS:
        return f"the ports sent {amount}; not compared with algorithms: more than {MAX_COMPARED_RANKS} ranks"
    matching = [
        algorithm.name
        for algorithm in family.algorithms.values()
        if not algorithm.floor and not algorithm.unmet(layout) and _matches(operation, algorithm, sent)
    ]
    if len(matching) > MAX_NAMED:  # on two ranks nearly all algorithms send the same
        matching[MAX_NAMED:] = [f"{len(matching) - MAX_NAMED} others"]
    return f"the ports sent {amount}" + (f", as much as {' or '.join(matching)}" if matching else "")


def _matches(operation: "Operation", algorithm: Algorithm, sent: int) -> bool:
    if operation.call.traffic:
        return False  # the total does not distinguish algorithms if blocks are unequal
    slices = cached_slices(operation.call, algorithm, operation.layout, ())
    cut = Cut(operation.call, operation.count, slices[0].units, len(slices), operation.dtype.itemsize)
    counted = wire_bytes([cached_crossings(each, "node") for each in slices], cut)
    least, most = MATCHING_RATIO
    return least * counted <= sent <= most * counted
