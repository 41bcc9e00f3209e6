"""Statistics: from raw times to the median of a case, its confidence interval and its row."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hpccoll.cases.algorithm_registry import collective
from hpccoll.cases.case import LEAST_ITERATIONS, LOOPS_OF_PROGRAMS, PYTHON, SINGLE, Case, Job
from hpccoll.store.gpu_throttling import slow_gpus, throttled_gpus
from hpccoll.store.median_interval import interval_ranks, median_interval, median_of_sorted
from hpccoll.store.outcome_status import status_and_reason
from hpccoll.store.rows import MEAN, Interval, Row
from hpccoll.store.schema import IMPORTED, RESULT_MERGES
from hpccoll.store.sources import HPCCOLL
from hpccoll.store.workload_figures import workload_figures

if TYPE_CHECKING:
    from hpccoll.store.case_times import CaseTimes
    from hpccoll.store.raw_results import Attempt, Outcome


def median_ratio(ratios: Iterable[float]) -> float:
    """Return the median of at least one ratio, taken over logarithms: inverting all ratios inverts the median.

    For an even number it is the geometric mean of the two middle ratios.
    """
    return math.exp(median(map(math.log, ratios)))


def percentile(values: NDArray[np.int64] | NDArray[np.float64], q: float) -> float:
    """Return the nearest-rank percentile ``q`` (in per cent), which is one of the values."""
    return float(np.sort(values)[max(0, math.ceil(q / 100 * len(values)) - 1)])


@dataclass(frozen=True, slots=True)
class RoundStatistics:
    """The median of one round in seconds and its interval."""

    median: float
    interval: Interval

    @classmethod
    def from_samples(cls, seconds: NDArray[np.float64]) -> "RoundStatistics":
        median, low, high = median_interval(seconds)
        if len(seconds) < LEAST_ITERATIONS:
            return cls(median, None)
        return cls(median, (low, high))

    @classmethod
    def of_mean(cls, seconds: NDArray[np.float64]) -> "RoundStatistics":
        """Return the mean of a round in place of its median; no interval of it is known."""
        return cls(float(seconds.mean()), None)


def combine_rounds(rounds: Sequence[RoundStatistics]) -> RoundStatistics:
    """Return the median of the rounds' medians and its 95 % confidence interval.

    A round is one sample of the state of the machine, however many iterations it has. The interval
    spans the rounds' intervals from the lowest to the highest end. From 9 rounds on it drops as
    many of the lowest and highest ends as ``interval_ranks`` drops samples, so that one noisy round
    does not widen it.
    """
    first, last = interval_ranks(len(rounds))
    intervals = [statistics.interval for statistics in rounds if statistics.interval]
    median = median_of_sorted(sorted(statistics.median for statistics in rounds))
    if len(intervals) < len(rounds):
        return RoundStatistics(median, None)
    lows, highs = (sorted(ends) for ends in zip(*intervals, strict=True))
    return RoundStatistics(median, (lows[first], highs[last]))


def _median_s(nanoseconds: NDArray[np.int64]) -> float | None:
    """Return the median over iterations in seconds; None without any."""
    if not len(nanoseconds):
        return None
    return median_of_sorted(np.sort(nanoseconds)) / 1e9


def _device_s(times: "CaseTimes", operations: int) -> float | None:
    """Return the median over iterations of the slowest GPU's time in seconds; None if a GPU has no events."""
    elapsed_s = _median_s(times.device_max_ns)
    return None if elapsed_s is None else elapsed_s / operations


def _device_floor_s(attempt: "Attempt", operations: int) -> float | None:
    """Return the time between two events in a row, of the GPU with the longest, over the operations between them."""
    floors: Sequence[int | None] = attempt.provenance.get("event_floor_ns_of_rank") or ()
    measured = [floor for floor in floors if floor is not None]
    if not measured:
        return None
    return max(measured) / 1e9 / operations


def _per_worker_node(attempt: "Attempt", counted: int | None) -> float | None:
    return None if counted is None else counted / attempt.nodes


def _mean_if_complete(values: Sequence[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    if not present or len(present) < len(values):
        return None
    return sum(present) / len(present)


def _extreme(
    function: Callable[[Iterable[float]], float], values: Iterable[float | None]
) -> float | None:
    present = [value for value in values if value is not None]
    return function(present) if present else None


def _sent_by_port(attempt: "Attempt", outcome: "Outcome") -> dict[str, float]:
    """Return the mean bytes sent by each port of the workers' nodes, which come first; a node may lack a port."""
    worker_nodes = outcome.port_sent[: attempt.nodes]
    mean_by_port = {}
    for port, name in enumerate(attempt.ports):
        sent_by_node = [node[port] for node in worker_nodes]
        if any(sent is not None for sent in sent_by_node):
            mean_by_port[name] = sum(sent or 0.0 for sent in sent_by_node) / len(sent_by_node)
    return mean_by_port


def rule_of(case: Case, times: "CaseTimes | None", requested: str) -> str:
    """Return the rule for the time of an operation: ``requested``, unless the case has no other than its own."""
    if case.timing in LOOPS_OF_PROGRAMS:
        return MEAN
    has_span = times is None or len(times.span_ns) > 0
    if requested == "span" and case.timing == SINGLE and has_span:
        return "span"
    return "max"


def _seconds_by_rule(times: "CaseTimes", rule: str) -> NDArray[np.float64]:
    """Return the time of each iteration; all ranks of a prediction end at once, and it has no mean."""
    by_rule = {"max": times.max_ns, "span": times.span_ns, MEAN: times.mean_ns}
    nanoseconds = by_rule[rule]
    if not len(nanoseconds):
        nanoseconds = times.max_ns
    seconds: NDArray[np.float64] = nanoseconds / 1e9
    return seconds


def _by_round(
    seconds: NDArray[np.float64], times: "CaseTimes", numbers: Iterable[int], rule: str
) -> dict[int, RoundStatistics]:
    """Return the statistics of each round, given the time of each iteration."""
    summarise = RoundStatistics.from_samples
    if rule == MEAN:
        summarise = RoundStatistics.of_mean
    return {number: summarise(seconds[times.round == number]) for number in numbers}


def make_row(
    job: Job,
    attempt: "Attempt",
    outcome: "Outcome",
    rule: str = "max",
    runs: Mapping[int, str] | None = None,
) -> Row:
    """Return the row of an outcome, derived from its raw times.

    Args:
        job: the job of the case.
        attempt: the attempt that measured the last round.
        outcome: the outcome of all rounds.
        rule: the rule for the time of a single operation; ``max`` if the case has no ``span``.
        runs: the id of the run that measured each round [the run of ``attempt``].
    """
    case = outcome.case
    times = outcome.times
    rule = rule_of(case, times, rule)
    measured = outcome.rounds
    if times is None:
        time_fields = _UNTIMED
    else:
        seconds = _seconds_by_rule(times, rule) / (outcome.operations or 1)
        rounds = _by_round(seconds, times, sorted(measured), rule)
        time_fields = _median_fields(attempt, outcome, rounds, seconds, rule)
        time_fields |= _round_fields(job, attempt, rounds, runs or {})
        time_fields |= _loop_fields(attempt, outcome, times)
        time_fields |= _workload_fields(attempt, outcome)
    status, reason = status_and_reason(job, outcome, measured)
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
        bytes=case.bytes if outcome.bytes is None else outcome.bytes,
        requested_bytes=case.bytes,
        ranks=_workers(attempt),
        nodes=attempt.nodes,
        ranks_per_node=attempt.ranks_per_node,
        racks=attempt.racks,
        aggregators=attempt.aggregators,
        timing=case.timing,
        rule=None if is_imported else rule,
        cpu_s=float(outcome.cpu_s.max()) if len(outcome.cpu_s) else None,
        status=status,
        reason=reason,
        oversubscribed=attempt.oversubscribed,
        kind=attempt.kind,
        **time_fields,
        **_traffic_fields(attempt, outcome),
        **_gpu_fields(attempt, outcome),
        **_result_fields(attempt, outcome),
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


def _workers(attempt: "Attempt") -> int:
    return attempt.ranks - attempt.aggregators


def _median_fields(
    attempt: "Attempt",
    outcome: "Outcome",
    rounds: Mapping[int, RoundStatistics],
    seconds: NDArray[np.float64],
    rule: str,
) -> dict[str, Any]:
    """Return the fields of the median over all rounds, given the time of each iteration in ``seconds``."""
    combined = combine_rounds(list(rounds.values()))
    interval = combined.interval
    if outcome.predicted_low_s is not None and outcome.predicted_high_s is not None:
        interval = outcome.predicted_low_s, outcome.predicted_high_s
    low_s, high_s = interval or (None, None)
    has_percentile = attempt.ours and rule != MEAN
    algbw, busbw = _bandwidths(outcome, _workers(attempt), combined.median)
    return {
        "median_s": combined.median,
        "p99_s": percentile(seconds, 99) if has_percentile else None,
        "ci_low_s": low_s,
        "ci_high_s": high_s,
        "algbw_Bps": algbw,
        "busbw_Bps": busbw,
    }


def _bandwidths(
    outcome: "Outcome", workers: int, median_s: float
) -> tuple[float, float] | tuple[None, None]:
    """Return algbw and busbw in bytes per second; None if the case moves no bytes that count."""
    factor = collective(outcome.case.collective).busbw
    if outcome.bytes is None or factor is None or outcome.floor or not median_s > 0:
        return None, None
    algbw = outcome.bytes / median_s
    return algbw, algbw * factor(workers)


def _round_fields(
    job: Job, attempt: "Attempt", rounds: Mapping[int, RoundStatistics], runs: Mapping[int, str]
) -> dict[str, Any]:
    """Return the fields with an entry for each requested round, None for a round that is missing."""
    medians: list[float | None] = []
    intervals: list[Interval] = []
    run_ids: list[str | None] = []
    for number in range(1, job.effort.rounds + 1):
        statistics = rounds.get(number)
        if statistics is None:
            medians.append(None)
            intervals.append(None)
            run_ids.append(None)
        else:
            medians.append(statistics.median)
            intervals.append(statistics.interval)
            run_ids.append(runs.get(number, attempt.run_id))
    return {
        "rounds": len(rounds),
        "round_medians_s": tuple(medians),
        "round_intervals_s": tuple(intervals),
        "round_run_ids": tuple(run_ids),
    }


def _loop_fields(attempt: "Attempt", outcome: "Outcome", times: "CaseTimes") -> dict[str, Any]:
    """Return what the loop recorded besides durations: its iterations, how ranks start, and times on GPUs."""
    operations = outcome.operations or 1
    device_s = _device_s(times, operations)
    return {
        "iterations": len(times.max_ns),
        "skew_s": _median_s(times.skew_ns),
        "device_s": device_s,
        "device_floor_s": None if device_s is None else _device_floor_s(attempt, operations),
    }


def _workload_fields(attempt: "Attempt", outcome: "Outcome") -> Mapping[str, Any]:
    """Return the fields of a workload; empty for other cases."""
    if not outcome.program:
        return {}
    figures = workload_figures(outcome.case.collective)
    return {} if figures is None else figures.row_fields(outcome, _workers(attempt))


def _traffic_fields(attempt: "Attempt", outcome: "Outcome") -> dict[str, Any]:
    """Return the bytes per operation of a node of workers and of its ports; the workers' nodes come first."""
    return {
        "worker_sent_predicted": _per_worker_node(attempt, outcome.workers_sent_predicted),
        "worker_sent_measured": _mean_if_complete(outcome.wire_sent[: attempt.nodes]),
        "worker_received_predicted": _per_worker_node(attempt, outcome.workers_received_predicted),
        "worker_received_measured": _mean_if_complete(outcome.wire_received[: attempt.nodes]),
        "port_sent": _sent_by_port(attempt, outcome),
    }


def _gpu_fields(attempt: "Attempt", outcome: "Outcome") -> dict[str, Any]:
    return {
        "gpu_sm_clock": _extreme(min, outcome.gpu_sm_clock),
        "gpu_power": _extreme(max, outcome.gpu_power),
        "gpu_temperature": _extreme(max, outcome.gpu_temperature),
        "gpu_nvlink_sent": _extreme(max, outcome.gpu_nvlink_sent),
        "gpu_throttled": throttled_gpus(attempt, outcome),
        "gpu_slow": slow_gpus(attempt, outcome),
    }


def _result_fields(attempt: "Attempt", outcome: "Outcome") -> dict[str, Any]:
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
