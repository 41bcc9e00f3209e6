"""Plausibility checks: the values of a result are compared with each other and with the job.

The types and bounds of single values are those of the records. A digest proves that a file holds what was written, and
cannot exclude that another program wrote it, or that results of another program contradict themselves.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import numpy as np
from msgspec import DecodeError, Meta, json
from numpy.typing import NDArray

from hpccoll.cases.algorithm_registry import collective
from hpccoll.cases.case import BACK_TO_BACK, LOOPS_OF_PROGRAMS, Case, Job
from hpccoll.schedule.reduction import itemsize
from hpccoll.store.case_times import OF_TRAINING, CaseTimes, TimesOfRanks, stage_programs
from hpccoll.store.schema import RANK_RESULT_MERGES, RESULT_COLUMNS

if TYPE_CHECKING:
    from hpccoll.store.raw_results import Attempt, Outcome, RawResults

_COUNTS = (
    *(column.name for column in RESULT_COLUMNS if column.dtype == "int64"),
    "workers_sent_predicted", "workers_received_predicted",
)  # fmt: skip
_AMOUNTS = (
    "wire_sent", "wire_received", "port_sent", "port_received", "cpu_s", "predicted_low_s", "predicted_high_s",
    *RANK_RESULT_MERGES, *(column.name for column in RESULT_COLUMNS if column.dtype == "float64"),
)  # fmt: skip


class ImplausibleError(ValueError):
    """A value that no measurement gives; the message names it."""


Violation = tuple[str, bool]
"""The message of a possible violation, and True if the value violates the rule."""


def check_plausible(raw: "RawResults") -> None:
    """Raise ImplausibleError for the first implausible value of results."""
    check_outcome = OutcomeCheck(raw.job)
    for attempt, outcomes in raw.attempts:
        check_attempt(attempt)
        for outcome in outcomes:
            check_outcome(attempt, outcome)


def check_attempt(attempt: "Attempt") -> None:
    """Raise ImplausibleError for the first implausible value of an attempt."""
    ranks, aggregators, places, number = attempt.ranks, attempt.aggregators, len(attempt.places), attempt.number
    is_created = _is_utc_timestamp(attempt.created)
    _raise_first(
        (
            (f"attempt {number} has {places} places of {ranks} ranks", places != ranks),
            (f"{aggregators} of {ranks} ranks are aggregators", aggregators >= ranks),
            (f"{ranks} ranks ran on {attempt.nodes} nodes", attempt.nodes > ranks),
            (f"attempt {number} was created at {attempt.created!r:.80}", not is_created),
        )
    )


def _is_utc_timestamp(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def _raise_first(violations: Iterable[Violation]) -> None:
    for message, is_violated in violations:
        if is_violated:
            raise ImplausibleError(message)


class OutcomeCheck:
    """Checks outcomes against their job."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._cases = frozenset(map(_case_id_without_shape, job.cases))

    def __call__(self, attempt: "Attempt", outcome: "Outcome") -> None:
        """Raise ImplausibleError if ``attempt`` cannot have measured ``outcome``."""
        case, times, workers = outcome.case, outcome.times, attempt.ranks - attempt.aggregators
        _raise_first(_status_violations(outcome))
        _raise_first([(f"the job has no case {case.id!r:.300}", _case_id_without_shape(case) not in self._cases)])
        _raise_first(_count_violations(outcome, attempt.ranks))
        if times is not None:
            _raise_first([(f"{outcome.bytes} bytes were moved of {case.bytes}", not _is_valid_size(outcome, workers))])
            _raise_first(_shape_violations(times, attempt.ranks))
            _raise_first(_times_violations(times, self.job, workers))
            needs_mean = attempt.ours and case.timing in LOOPS_OF_PROGRAMS
            _raise_first([(f"timing {case.timing} has no mean", needs_mean and not times.mean_ns.size)])
            if times.kept.is_in_memory:
                check_rank_times(times.kept.read(), times, outcome.program, attempt)


def check_rank_times(ranks: TimesOfRanks, times: CaseTimes, program: str | None, attempt: "Attempt") -> None:
    """Raise ImplausibleError if the times of the kept ``ranks`` contradict the summary ``times`` of all ranks.

    Args:
        ranks: the times of the kept ranks.
        times: what is known of each iteration.
        program: of a training step, its program as JSON.
        attempt: the attempt that measured them.
    """
    workers = attempt.ranks - attempt.aggregators
    _raise_first(_rank_shape_violations(ranks, times, attempt.ranks))
    _raise_first(_rank_violations(ranks, times, workers))
    _raise_first(_timeline_violations(ranks, times.rank_stride, program, workers))


def _case_id_without_shape(case: Case) -> str:
    """Return the id of a case without ranks and nodes: after a rank failure fewer ranks measure it."""
    return replace(case, ranks=None, nodes=None).id


def _status_violations(outcome: "Outcome") -> Iterator[Violation]:
    status, timed = outcome.status, outcome.times is not None
    yield f"a case is {status}, and has {'times' if timed else 'no times'}", timed != outcome.timed
    yield f"a case is ok, and {outcome.wrong} elements are wrong", status == "ok" and bool(outcome.wrong)
    yield "a case is wrong, and none of its elements is", status == "wrong" and outcome.wrong == 0


def _is_valid_size(outcome: "Outcome", workers: int) -> bool:
    """Return True if the moved bytes are the maximum number of whole elements within the requested size."""
    case, family = outcome.case, collective(outcome.case.collective)
    if outcome.bytes is None:
        return False
    if family.token or "traffic" in family.arguments:  # one element, or blocks with a rounded mean
        return 0 <= outcome.bytes <= 2 * max(case.bytes, 16)
    size = itemsize(case.dtype)
    return outcome.bytes == family.elements(case.bytes, size, workers) * family.blocks(workers) * size


def _count_violations(outcome: "Outcome", ranks: int) -> Iterator[Violation]:
    counts = {name: getattr(outcome, name) for name in _COUNTS}
    counts |= {f"counter {name}": value for name, value in (outcome.counters or {}).items()}
    yield from ((f"{name} is {value}", value is not None and value < 0) for name, value in counts.items())
    operations, aggregated = outcome.operations, outcome.case.timing in BACK_TO_BACK
    several = operations is not None and operations > 1
    yield f"an iteration has {operations} operations", operations == 0 or (several and not aggregated)
    for name in _AMOUNTS:
        values = np.atleast_1d(np.array(getattr(outcome, name), np.float64))  # None becomes nan
        invalid = values[(values < 0) | np.isinf(values)]
        yield f"{name} holds {', '.join(f'{value:g}' for value in invalid[:1])}", bool(invalid.size)
    yield f"tcp_traffic is {outcome.tcp_traffic!r:.80}", not _is_traffic(outcome.tcp_traffic)
    for name in RANK_RESULT_MERGES:
        known = len(getattr(outcome, name))
        yield f"{name} has values of {known} of {ranks} ranks", known not in (0, ranks)


def _is_traffic(text: str | None) -> bool:
    try:
        json.decode(text or "{}", type=dict[str, list[list[Annotated[int, Meta(ge=0)]]]])
    except DecodeError:
        return False
    return True


def _kept_ranks(times: CaseTimes, ranks: int) -> int:
    return -(-ranks // times.rank_stride)


def _shape_violations(times: CaseTimes, ranks: int) -> Iterator[Violation]:
    n, stride = len(times.max_ns), times.rank_stride
    kept = _kept_ranks(times, ranks) if stride > 0 else 0
    is_power = stride & (stride - 1) == 0
    yield f"times of {kept} ranks, every {stride}th, are kept in {n} iterations", not (n and kept and is_power)
    per_iteration = times.min_ns, times.median_ns, times.max_ns, times.slowest_rank, times.round
    yield "its times are of different iterations", any(values.shape != (n,) for values in per_iteration)
    optional = times.span_ns, times.mean_ns, times.skew_ns, times.device_max_ns
    of_training = (getattr(times, name) for name in OF_TRAINING)
    differ = any(values.size and values.shape != (n,) for values in (*optional, *of_training))
    yield "its times by other rules are of different iterations", differ


def _rank_shape_violations(ranks: TimesOfRanks, times: CaseTimes, count: int) -> Iterator[Violation]:
    shape = len(times.max_ns), _kept_ranks(times, count)
    samples = ranks.start_ns, ranks.end_ns
    yield "its times are of different ranks", any(values.shape != shape for values in samples)
    differ = ranks.device_ns.size > 0 and ranks.device_ns.shape != shape
    yield "the times of its GPUs are of different ranks", differ


def _times_violations(times: CaseTimes, job: Job, workers: int) -> Iterator[Violation]:
    ordered = (times.min_ns >= 0) & (times.min_ns <= times.median_ns) & (times.median_ns <= times.max_ns)
    yield "the shortest, median and longest time are in no order", not ordered.all()
    yield "the slowest rank is no rank of the job", _outside(times.slowest_rank, 0, workers - 1)
    yield f"a round is none of {job.effort.rounds}", _outside(times.round, 1, job.effort.rounds)
    short = times.span_ns.size and (times.span_ns < times.max_ns).any()
    yield "the span is shorter than an operation", bool(short)
    if times.mean_ns.size:
        outside = (times.mean_ns < times.min_ns) | (times.mean_ns > times.max_ns)
        yield "the mean time is outside of the extremes", bool(outside.any())
    yield "ranks started less than nothing apart", bool((times.skew_ns < 0).any())
    yield "the slowest GPU took less than nothing", bool((times.device_max_ns < 0).any())
    yield "an accuracy is no share", _outside(times.step_accuracy, 0, 1)
    yield "other ranks than those of the job differ", _outside(times.step_differing, 0, workers - 1)


def _rank_violations(ranks: TimesOfRanks, times: CaseTimes, workers: int) -> Iterator[Violation]:
    # The extremes cover all workers, so the durations of the kept ranks lie within them.
    durations = (ranks.end_ns - ranks.start_ns)[:, : _kept_ranks(times, workers)]
    yield "an operation took less than nothing", bool((ranks.end_ns < ranks.start_ns).any())
    yield "a clock showed less than nothing", bool((ranks.start_ns < 0).any())
    outside = (durations < times.min_ns[:, None]) | (durations > times.max_ns[:, None])
    yield "the time of a rank is outside of the extremes", bool(outside.any())
    if times.rank_stride == 1:
        longest = durations[np.arange(len(durations)), times.slowest_rank]
        yield "the longest time is no rank's", bool((longest != times.max_ns).any())
    yield "a GPU took less than nothing", bool((ranks.device_ns < 0).any())


def _timeline_violations(ranks: TimesOfRanks, stride: int, program: str | None, workers: int) -> Iterator[Violation]:
    """Yield the violations of the timeline of a training step; each test assumes that the tests before it passed."""
    if not ranks.event_ns.size:
        return
    try:
        programs = stage_programs(program or "")
    except (ValueError, TypeError, KeyError, AttributeError):
        yield f"the program of a training step is {program!r:.80}", True
        return
    events = [each.events for each in programs]
    shape = (*ranks.start_ns.shape, max(events, default=0))
    yield f"{len(programs)} stages have {workers} ranks", not programs or workers % len(programs) > 0
    yield f"its timeline has {ranks.event_ns.shape[2]} events of {shape[2]}", ranks.event_ns.shape != shape
    counts = [events[rank * len(programs) // workers] for rank in range(0, workers, stride)]
    since = ranks.event_ns - ranks.start_ns[:, :, None]
    early = any((since[:, position, :count] < 0).any() for position, count in enumerate(counts))
    yield "a part of a training step ran before the step", early


def _outside(values: NDArray[np.int64] | NDArray[np.uint8] | NDArray[np.float64], minimum: int, maximum: int) -> bool:
    return bool(((values < minimum) | (values > maximum)).any())
