"""Statistics: from raw times to the median of a case, its confidence interval and its row."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hpccoll.cases.algorithm_registry import collective
from hpccoll.cases.case import LEAST_ITERATIONS, LOOPS_OF_PROGRAMS, PYTHON, SINGLE, Case, Job
from hpccoll.cases.catalogue import step_groups
from hpccoll.store.gpu_throttling import slow_gpus, throttled_gpus
from hpccoll.store.median_interval import interval_ranks, median_interval, median_of_sorted
from hpccoll.store.rows import MEAN, Interval, Row
from hpccoll.store.schema import IMPORTED, RESULT_MERGES
from hpccoll.store.sources import HPCCOLL
from hpccoll.store.step_times import STEP_FIGURES, StepTimes
from hpccoll.store.step_waiting import step_waiting

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
        return cls(median, None if len(seconds) < LEAST_ITERATIONS else (low, high))

    @classmethod
    def of_mean(cls, seconds: NDArray[np.float64]) -> "RoundStatistics":
        """Return the mean of a round in place of its median; no interval of it is known."""
        return cls(float(seconds.mean()), None)


def combine_rounds(rounds: Sequence[RoundStatistics]) -> RoundStatistics:
    """Return the median of the rounds' medians and its 95 % confidence interval.

    A round is one sample of the state of the machine, however many iterations it has. The interval spans the rounds'
    intervals from the lowest to the highest end. From 9 rounds on it drops as many of the lowest and highest ends as
    ``interval_ranks`` drops samples, so that one noisy round does not widen it.
    """
    first, last = interval_ranks(len(rounds))
    intervals = [one.interval for one in rounds if one.interval]
    median = median_of_sorted(sorted(one.median for one in rounds))
    if len(intervals) < len(rounds):
        return RoundStatistics(median, None)
    lows, highs = (sorted(ends) for ends in zip(*intervals, strict=True))
    return RoundStatistics(median, (lows[first], highs[last]))


def _median_s(nanoseconds: NDArray[np.int64]) -> float | None:
    """Return the median over iterations in seconds; None without any."""
    return median_of_sorted(np.sort(nanoseconds)) / 1e9 if len(nanoseconds) else None


def _device_s(times: "CaseTimes", operations: int) -> float | None:
    """Return the median over iterations of the slowest GPU's time in seconds; None if a GPU has no events."""
    elapsed_s = _median_s(times.device_max_ns)
    return None if elapsed_s is None else elapsed_s / operations


def _device_floor_s(attempt: "Attempt", operations: int) -> float | None:
    """Return the time between two events in a row, of the GPU with the longest, over the operations between them."""
    floors: Sequence[int | None] = attempt.provenance.get("event_floor_ns_of_rank") or ()
    known = [floor for floor in floors if floor is not None]
    if not known:
        return None
    return max(known) / 1e9 / operations


def status_and_reason(job: Job, outcome: "Outcome", rounds: Collection[int] | None = None) -> tuple[str, str | None]:
    """Return the status of a row and its reason; a correct case with fewer rounds than requested is partial.

    ``rounds`` are those of the outcome, if the caller has them already.
    """
    if outcome.status != "ok":
        return outcome.status, outcome.reason
    measured, requested = len(outcome.rounds if rounds is None else rounds), job.effort.rounds
    if measured == requested or outcome.source:  # another program has its own number of rounds
        return "ok", None  # a failed round has been measured since
    return "partial", "; ".join(filter(None, (f"{measured} of {requested} rounds", outcome.reason)))


def _per_worker_node(attempt: "Attempt", counted: int | None) -> float | None:
    return None if counted is None else counted / attempt.nodes


def _mean_if_complete(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def _extreme(function: Callable[[Iterable[float]], float], values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return function(known) if known else None


def _sent_by_port(attempt: "Attempt", outcome: "Outcome") -> dict[str, float]:
    """Return the mean bytes sent by each port of the workers' nodes, which come first; a node may lack a port."""
    workers = outcome.port_sent[: attempt.nodes]
    sent = {name: [node[i] or 0.0 for node in workers] for i, name in enumerate(attempt.ports)}
    exists = {name: any(node[i] is not None for node in workers) for i, name in enumerate(attempt.ports)}
    return {name: sum(values) / len(values) for name, values in sent.items() if exists[name]}


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
    job: Job, attempt: "Attempt", outcome: "Outcome", rule: str = "max", runs: Mapping[int, str] | None = None
) -> Row:
    """Return the row of an outcome, derived from its raw times.

    Args:
        job: the job of the case.
        attempt: the attempt that measured the last round.
        outcome: the outcome of all rounds.
        rule: the rule for the time of a single operation; ``max`` if the case has no ``span``.
        runs: the id of the run that measured each round [the run of ``attempt``].
    """
    case, times, workers = outcome.case, outcome.times, attempt.ranks - attempt.aggregators
    median = p99 = algbw = busbw = None
    interval: Interval = None
    rounds: dict[int, RoundStatistics] = {}
    rule, measured = rule_of(case, times, rule), outcome.rounds
    if times is not None:
        seconds = _seconds_by_rule(times, rule) / (outcome.operations or 1)
        rounds = _by_round(seconds, times, sorted(measured), rule)
        combined = combine_rounds([*rounds.values()])
        median, interval = combined.median, combined.interval
        if outcome.predicted_low_s is not None and outcome.predicted_high_s is not None:
            interval = outcome.predicted_low_s, outcome.predicted_high_s
        p99 = percentile(seconds, 99) if attempt.ours and rule != MEAN else None
        factor = collective(case.collective).busbw
        if outcome.bytes is not None and factor is not None and not outcome.floor and median > 0:
            algbw = outcome.bytes / median
            busbw = algbw * factor(workers)
    low, high = interval or (None, None)
    step = None if times is None else StepTimes.of(times, outcome.program, workers)
    waiting = step_waiting(step, lambda axis: step_groups(case, workers, axis)) if step and not outcome.floor else None
    status, reason = status_and_reason(job, outcome, measured)
    ran = times is not None and attempt.ours
    executor = outcome.executor or (PYTHON if ran else None)
    device_s = None if times is None else _device_s(times, outcome.operations or 1)
    device_floor_s = None if device_s is None else _device_floor_s(attempt, outcome.operations or 1)
    operations = outcome.operations or (None if times is None else 1)
    numbers = range(1, job.effort.rounds + 1) if rounds else ()
    return Row(
        case_id=case.id, run_id=attempt.run_id, job=job.name, attempt=attempt.number,
        collective=case.collective, algorithm=case.algorithm, transport=case.transport, device=case.device,
        dtype=case.dtype, op=case.op, in_place=case.in_place, mapping=case.mapping or attempt.mapping, root=case.root,
        params=case.params, variant=job.variant,
        bytes=case.bytes if outcome.bytes is None else outcome.bytes, requested_bytes=case.bytes,
        ranks=workers, nodes=attempt.nodes, ranks_per_node=attempt.ranks_per_node,
        racks=attempt.racks, aggregators=attempt.aggregators,
        iterations=0 if times is None else len(times.max_ns), timing=case.timing,
        rule=None if attempt.kind == IMPORTED else rule,
        median_s=median, p99_s=p99, ci_low_s=low, ci_high_s=high, algbw_Bps=algbw, busbw_Bps=busbw,
        rounds=len(rounds),
        round_medians_s=tuple(rounds[n].median if n in rounds else None for n in numbers),
        round_intervals_s=tuple(rounds[n].interval if n in rounds else None for n in numbers),
        round_run_ids=tuple((runs or {}).get(n, attempt.run_id) if n in rounds else None for n in numbers),
        device_s=device_s, device_floor_s=device_floor_s,
        skew_s=None if times is None else _median_s(times.skew_ns),
        cpu_s=float(outcome.cpu_s.max()) if len(outcome.cpu_s) else None,
        worker_sent_predicted=_per_worker_node(attempt, outcome.workers_sent_predicted),
        worker_sent_measured=_mean_if_complete(outcome.wire_sent[: attempt.nodes]),
        worker_received_predicted=_per_worker_node(attempt, outcome.workers_received_predicted),
        worker_received_measured=_mean_if_complete(outcome.wire_received[: attempt.nodes]),
        port_sent=_sent_by_port(attempt, outcome),
        gpu_sm_clock=_extreme(min, outcome.gpu_sm_clock),
        gpu_power=_extreme(max, outcome.gpu_power),
        gpu_temperature=_extreme(max, outcome.gpu_temperature),
        gpu_nvlink_sent=_extreme(max, outcome.gpu_nvlink_sent),
        gpu_throttled=throttled_gpus(attempt, outcome),
        gpu_slow=slow_gpus(attempt, outcome),
        **({} if step is None else {name: getattr(step, name) for name in STEP_FIGURES}),
        **({} if waiting is None else asdict(waiting)),
        status=status, reason=reason,
        oversubscribed=attempt.oversubscribed,
        kind=attempt.kind,
        **{**{name: getattr(outcome, name) for name in RESULT_MERGES}, "executor": executor,
           "operations": operations, "source": outcome.source or HPCCOLL, "load": case.load},
    )  # fmt: skip
