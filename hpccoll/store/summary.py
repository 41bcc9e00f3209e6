"""Summary: from raw times to how long an operation took, how sure that is, and the row that says so."""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hpccoll.case import Job
from hpccoll.schedule import collective
from hpccoll.store.raw import Attempt, Outcome
from hpccoll.store.rows import Row


def durations_max(start_ns: NDArray[np.int64], end_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the duration of each iteration by the rule ``max``: the longest over ranks, each by its own clock.

    Args:
        start_ns: [iteration, rank].
        end_ns: [iteration, rank].
    """
    longest: NDArray[np.int64] = (end_ns - start_ns).max(axis=1)
    return longest


INTERVAL_SAMPLES = 6
"""With fewer samples not even the extremes enclose the median with 95 % confidence."""


@lru_cache
def _interval_ranks(n: int) -> tuple[int, int]:
    """Return the order statistics (0-based) that enclose the median of n samples with at least 95 % confidence.

    The number of samples below the median is binomial (n, 1/2): H. A. David, H. N. Nagaraja, Order Statistics, 7.1.
    Below 6 samples no pair reaches 95 %: the extremes are returned.
    """
    tail, lower = 0.0, 0
    while lower < n // 2:
        tail += math.exp(math.lgamma(n + 1) - math.lgamma(lower + 1) - math.lgamma(n - lower + 1) - n * math.log(2))
        if tail > 0.025:
            break
        lower += 1
    return max(lower - 1, 0), n - 1 - max(lower - 1, 0)


def median_interval(values: NDArray[np.int64] | NDArray[np.float64]) -> tuple[float, float, float]:
    """Return the median of ``values`` and its distribution-free 95 % confidence interval (low, high)."""
    ordered = np.sort(values)
    low, high = _interval_ranks(len(ordered))
    return float(np.median(ordered)), float(ordered[low]), float(ordered[high])


def percentile(values: NDArray[np.int64] | NDArray[np.float64], q: float) -> float:
    """Return the nearest-rank percentile ``q`` in per cent, a value that was really seen."""
    return float(np.sort(values)[max(0, math.ceil(q / 100 * len(values)) - 1)])


def row(job: Job, attempt: Attempt, outcome: Outcome, timing: str = "max") -> Row:
    """Return the row of one outcome, everything derived from its raw times."""
    case, times = outcome.case, outcome.times
    median = low = high = p99 = algbw = busbw = None
    if times is not None:
        by_span = timing == "span" and len(times.span_ns)
        timing = "span" if by_span else "max"
        seconds = (times.span_ns if by_span else times.max_ns) / 1e9
        median, low, high = median_interval(seconds)
        if len(seconds) < INTERVAL_SAMPLES:
            low = high = None
        p99 = percentile(seconds, 99)
        factor = collective(case.collective).busbw
        if outcome.bytes is not None and factor is not None and not outcome.floor and median > 0:
            algbw = outcome.bytes / median
            busbw = algbw * factor(attempt.ranks - attempt.aggregators)
    return Row(
        case_id=case.id, run_id=attempt.run_id, job=job.name, attempt=attempt.number,
        collective=case.collective, algorithm=case.algorithm, transport=case.transport, device=case.device,
        dtype=case.dtype, op=case.op, in_place=case.in_place, mapping=case.mapping or attempt.mapping, root=case.root,
        params=case.params, variant=job.variant,
        bytes=case.bytes if outcome.bytes is None else outcome.bytes, requested_bytes=case.bytes,
        ranks=attempt.ranks - attempt.aggregators, nodes=attempt.nodes, ranks_per_node=attempt.ranks_per_node,
        racks=attempt.layout.racks, aggregators=attempt.aggregators,
        iterations=0 if times is None else len(times.max_ns), timing=timing,
        median_s=median, p99_s=p99, ci_low_s=low, ci_high_s=high, algbw_Bps=algbw, busbw_Bps=busbw,
        cpu_s=float(outcome.cpu_s.max()) if len(outcome.cpu_s) else None,
        wire_bytes_predicted=outcome.wire_bytes_predicted, wire_bytes_measured=outcome.wire_bytes_measured,
        rack_bytes_predicted=outcome.rack_bytes_predicted,
        wrong=outcome.wrong, status=outcome.status, reason=outcome.reason, converged=outcome.converged,
        oversubscribed=attempt.oversubscribed, executed=outcome.executed, evidence=outcome.evidence,
        kind=attempt.kind, floor=outcome.floor,
    )  # fmt: skip
