"""The row of a case: the fields of its outcome, and the statistics of its times."""

from collections.abc import Mapping, Sequence
from typing import Any

from hpccoll.cases.algorithm_registry import collective
from hpccoll.cases.case import PYTHON, Job
from hpccoll.store.gpu_throttling import gpu_fields
from hpccoll.store.raw_results import Attempt, CaseHistory, Outcome
from hpccoll.store.rows import MEAN, Interval, Row
from hpccoll.store.schema import IMPORTED, RESULT_MERGES
from hpccoll.store.sources import HPCCOLL
from hpccoll.store.statistics import TimeStatistics, rule_of, time_statistics
from hpccoll.store.workload_figures import workload_fields


def make_row(job: Job, history: CaseHistory, rule: str = "max") -> Row:
    """Return the row of a case, derived from its raw times.

    ``rule`` is that for the time of a single operation; it is ``max`` if the case has no ``span``.
    """
    attempt = history.attempt
    outcome = history.outcome
    case = outcome.case
    rule = rule_of(case, outcome.times, rule)
    time_fields = _UNTIMED
    if outcome.times is not None:
        numbers = sorted(history.runs)
        operations = outcome.operations or 1
        statistics = time_statistics(outcome.times, numbers, rule, operations)
        time_fields = _time_fields(attempt, outcome, statistics, rule)
        time_fields |= _round_fields(job, history.runs, statistics)
        time_fields |= workload_fields(outcome, _workers(attempt))
    moved_bytes = outcome.bytes
    if moved_bytes is None:
        moved_bytes = case.bytes
    cpu_s = float(outcome.cpu_s.max()) if len(outcome.cpu_s) else None
    is_imported = attempt.kind == IMPORTED
    return Row(
        case_id=case.id,
        run_id=attempt.run_id,
        job=job.name,
        attempt=attempt.number,
        collective=case.collective,
        algorithm=case.algorithm,
        transport=case.transport,
        device=case.device,
        dtype=case.dtype,
        op=case.op,
        in_place=case.in_place,
        mapping=case.mapping or attempt.mapping,
        root=case.root,
        params=case.params,
        variant=job.variant,
        bytes=moved_bytes,
        requested_bytes=case.bytes,
        ranks=_workers(attempt),
        nodes=attempt.nodes,
        ranks_per_node=attempt.ranks_per_node,
        racks=attempt.racks,
        aggregators=attempt.aggregators,
        timing=case.timing,
        rule=None if is_imported else rule,
        cpu_s=cpu_s,
        status=history.status,
        reason=history.reason,
        oversubscribed=attempt.oversubscribed,
        kind=attempt.kind,
        **time_fields,
        **_traffic_fields(attempt, outcome),
        **_result_fields(attempt, outcome),
        **gpu_fields(attempt, outcome),
    )


_UNTIMED: dict[str, Any] = {
    "iterations": 0,
    "rounds": 0,
    "median_s": None,
    "p99_s": None,
    "ci_low_s": None,
    "ci_high_s": None,
    "algbw_Bps": None,
    "busbw_Bps": None,
}
"""The fields with times of a row without times; what is missing here has a default."""


def _workers(attempt: Attempt) -> int:
    return attempt.ranks - attempt.aggregators


def _time_fields(
    attempt: Attempt, outcome: Outcome, statistics: TimeStatistics, rule: str
) -> dict[str, Any]:
    """Return the fields of the times over all rounds: of the median, of how ranks start, and of times on GPUs."""
    median_s = statistics.combined.median
    interval = statistics.combined.interval
    if outcome.predicted_low_s is not None and outcome.predicted_high_s is not None:
        interval = outcome.predicted_low_s, outcome.predicted_high_s
    low_s, high_s = interval or (None, None)
    has_percentile = attempt.ours and rule != MEAN
    algbw, busbw = _bandwidths(outcome, _workers(attempt), median_s)
    device_floor_s = None
    if statistics.device_s is not None:
        device_floor_s = _device_floor_s(attempt, outcome.operations or 1)
    return {
        "iterations": statistics.iterations,
        "median_s": median_s,
        "p99_s": statistics.p99_s if has_percentile else None,
        "ci_low_s": low_s,
        "ci_high_s": high_s,
        "algbw_Bps": algbw,
        "busbw_Bps": busbw,
        "skew_s": statistics.skew_s,
        "device_s": statistics.device_s,
        "device_floor_s": device_floor_s,
    }


def _bandwidths(
    outcome: Outcome, workers: int, median_s: float
) -> tuple[float, float] | tuple[None, None]:
    """Return algbw and busbw in bytes per second; None if the case moves no bytes that count."""
    factor = collective(outcome.case.collective).busbw
    if outcome.bytes is None or factor is None or outcome.floor or not median_s > 0:
        return None, None
    algbw = outcome.bytes / median_s
    return algbw, algbw * factor(workers)


def _device_floor_s(attempt: Attempt, operations: int) -> float | None:
    """Return the time between two events in a row, of the GPU with the longest, over the operations between them."""
    floors: Sequence[int | None] = attempt.provenance.get("event_floor_ns_of_rank") or ()
    measured = [floor for floor in floors if floor is not None]
    if not measured:
        return None
    return max(measured) / 1e9 / operations


def _round_fields(job: Job, runs: Mapping[int, str], statistics: TimeStatistics) -> dict[str, Any]:
    """Return the fields with an entry for each requested round, None for a round that is missing."""
    medians: list[float | None] = []
    intervals: list[Interval] = []
    run_ids: list[str | None] = []
    for number in range(1, job.effort.rounds + 1):
        round_statistics = statistics.rounds.get(number)
        if round_statistics is None:
            medians.append(None)
            intervals.append(None)
            run_ids.append(None)
        else:
            medians.append(round_statistics.median)
            intervals.append(round_statistics.interval)
            run_ids.append(runs[number])
    return {
        "rounds": len(statistics.rounds),
        "round_medians_s": tuple(medians),
        "round_intervals_s": tuple(intervals),
        "round_run_ids": tuple(run_ids),
    }


def _traffic_fields(attempt: Attempt, outcome: Outcome) -> dict[str, Any]:
    """Return the bytes per operation of a node of workers and of its ports; the workers' nodes come first."""
    return {
        "worker_sent_predicted": _per_worker_node(attempt, outcome.workers_sent_predicted),
        "worker_sent_measured": _mean_if_complete(outcome.wire_sent[: attempt.nodes]),
        "worker_received_predicted": _per_worker_node(attempt, outcome.workers_received_predicted),
        "worker_received_measured": _mean_if_complete(outcome.wire_received[: attempt.nodes]),
        "port_sent": _sent_by_port(attempt, outcome),
    }


def _per_worker_node(attempt: Attempt, counted: int | None) -> float | None:
    return None if counted is None else counted / attempt.nodes


def _mean_if_complete(values: Sequence[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    if not present or len(present) < len(values):
        return None
    return sum(present) / len(present)


def _sent_by_port(attempt: Attempt, outcome: Outcome) -> dict[str, float]:
    """Return the mean bytes sent by each port of the workers' nodes, which come first; a node may lack a port."""
    worker_nodes = outcome.port_sent[: attempt.nodes]
    mean_by_port = {}
    for port, name in enumerate(attempt.ports):
        sent_by_node = [node[port] for node in worker_nodes]
        if any(sent is not None for sent in sent_by_node):
            mean_by_port[name] = sum(sent or 0.0 for sent in sent_by_node) / len(sent_by_node)
    return mean_by_port


def _result_fields(attempt: Attempt, outcome: Outcome) -> dict[str, Any]:
    """Return the fields of ``CaseResult``, with the defaults of a case that hpccoll timed."""
    results = {name: getattr(outcome, name) for name in RESULT_MERGES}
    is_timed = outcome.times is not None
    default_executor = PYTHON if is_timed and attempt.ours else None
    default_operations = 1 if is_timed else None
    results["executor"] = outcome.executor or default_executor
    results["operations"] = outcome.operations or default_operations
    results["source"] = outcome.source or HPCCOLL
    results["load"] = outcome.case.load
    return results
