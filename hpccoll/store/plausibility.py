"""Plausibility checks: the values of a result are compared with each other and with the job.

The types and bounds of single values are those of the records. A digest proves that a file holds
what was written, and cannot exclude that another program wrote it, or that results of another
program contradict themselves.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any

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
    "workers_sent_predicted",
    "workers_received_predicted",
)
_AMOUNTS = (
    "wire_sent",
    "wire_received",
    "port_sent",
    "port_received",
    "cpu_s",
    "predicted_low_s",
    "predicted_high_s",
    *RANK_RESULT_MERGES,
    *(column.name for column in RESULT_COLUMNS if column.dtype == "float64"),
)


class ImplausibleError(ValueError):
    """A value that no measurement gives; the message names it."""


def check_plausible(raw: "RawResults") -> None:
    """Raise ImplausibleError for the first implausible value of results."""
    check_outcome = OutcomeCheck(raw.job)
    for attempt, outcomes in raw.attempts:
        check_attempt(attempt)
        for outcome in outcomes:
            check_outcome(attempt, outcome)


def check_attempt(attempt: "Attempt") -> None:
    """Raise ImplausibleError for the first implausible value of an attempt."""
    _raise_first(_attempt_violations(attempt))


def _attempt_violations(attempt: "Attempt") -> Iterator[str]:
    ranks = attempt.ranks
    aggregators = attempt.aggregators
    places = len(attempt.places)
    if places != ranks:
        yield f"attempt {attempt.number} has {places} places of {ranks} ranks"
    if aggregators >= ranks:
        yield f"{aggregators} of {ranks} ranks are aggregators"
    if attempt.nodes > ranks:
        yield f"{ranks} ranks ran on {attempt.nodes} nodes"
    if not _is_utc_timestamp(attempt.created):
        yield f"attempt {attempt.number} was created at {attempt.created!r:.80}"


def _is_utc_timestamp(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def _raise_first(violations: Iterable[str]) -> None:
    for message in violations:
        raise ImplausibleError(message)


class OutcomeCheck:
    """Checks outcomes against their job."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._cases = frozenset(map(_case_id_without_shape, job.cases))

    def __call__(self, attempt: "Attempt", outcome: "Outcome") -> None:
        """Raise ImplausibleError if ``attempt`` cannot have measured ``outcome``."""
        _raise_first(_status_violations(outcome))
        if _case_id_without_shape(outcome.case) not in self._cases:
            raise ImplausibleError(f"the job has no case {outcome.case.id!r:.300}")
        _raise_first(_count_violations(outcome, attempt.ranks))
        if outcome.times is not None:
            self._check_times(attempt, outcome, outcome.times)

    def _check_times(self, attempt: "Attempt", outcome: "Outcome", times: CaseTimes) -> None:
        case, workers = outcome.case, attempt.ranks - attempt.aggregators
        if not _is_valid_size(outcome, workers):
            raise ImplausibleError(f"{outcome.bytes} bytes were moved of {case.bytes}")
        _raise_first(_shape_violations(times, attempt.ranks, ours=attempt.ours))
        _raise_first(_times_violations(times, self.job, workers))
        if attempt.ours and case.timing in LOOPS_OF_PROGRAMS and not times.mean_ns.size:
            raise ImplausibleError(f"timing {case.timing} has no mean")
        if times.kept.is_in_memory:
            check_rank_times(times.kept.read(), times, outcome.program, attempt)


def check_rank_times(
    ranks: TimesOfRanks, times: CaseTimes, program: str | None, attempt: "Attempt"
) -> None:
    """Raise ImplausibleError if the times of the kept ``ranks`` contradict the summary ``times`` of all ranks.

    Args:
        ranks: the times of the kept ranks.
        times: what is known of each iteration.
        program: of a training step, its program as JSON.
        attempt: the attempt that measured them.
    """
    workers = attempt.ranks - attempt.aggregators
    if attempt.imported and not ranks.start_ns.size:
        return  # a program that writes the longest time of an iteration only
    _raise_first(_rank_shape_violations(ranks, times, attempt.ranks))
    _raise_first(_rank_violations(ranks, times, workers))
    _raise_first(_timeline_violations(ranks, times.rank_stride, program, workers))


def _case_id_without_shape(case: Case) -> str:
    """Return the id of a case without ranks and nodes: after a rank failure fewer ranks measure it."""
    if case.ranks is None and case.nodes is None:
        return case.id
    return replace(case, ranks=None, nodes=None).id


def _status_violations(outcome: "Outcome") -> Iterator[str]:
    status, timed = outcome.status, outcome.times is not None
    if timed != outcome.timed:
        yield f"a case is {status}, and has {'times' if timed else 'no times'}"
    if status == "ok" and outcome.wrong:
        yield f"a case is ok, and {outcome.wrong} elements are wrong"
    if status == "wrong" and outcome.wrong == 0:
        yield "a case is wrong, and none of its elements is"


def _is_valid_size(outcome: "Outcome", workers: int) -> bool:
    """Return True if the moved bytes are the maximum number of whole elements within the requested size."""
    case, family = outcome.case, collective(outcome.case.collective)
    if outcome.bytes is None:
        return False
    if family.token or "traffic" in family.arguments:  # one element, or blocks with a rounded mean
        return 0 <= outcome.bytes <= 2 * max(case.bytes, 16)
    size = itemsize(case.dtype)
    return (
        outcome.bytes == family.elements(case.bytes, size, workers) * family.blocks(workers) * size
    )


def _count_violations(outcome: "Outcome", ranks: int) -> Iterator[str]:
    for name in _COUNTS:
        if _is_negative(getattr(outcome, name)):
            yield f"{name} is {getattr(outcome, name)}"
    yield from _counter_violations(outcome.counters or {})
    operations, aggregated = outcome.operations, outcome.case.timing in BACK_TO_BACK
    several = operations is not None and operations > 1
    if operations == 0 or (several and not aggregated):
        yield f"an iteration has {operations} operations"
    for name in _AMOUNTS:
        for amount in _invalid_amounts(getattr(outcome, name)):
            yield f"{name} holds {amount:g}"
    if not _is_traffic(outcome.tcp_traffic):
        yield f"tcp_traffic is {outcome.tcp_traffic!r:.80}"
    yield from _rank_count_violations(outcome, ranks)


def _counter_violations(counters: Mapping[str, int | None]) -> Iterator[str]:
    for name, value in counters.items():
        if _is_negative(value):
            yield f"counter {name} is {value}"


def _rank_count_violations(outcome: "Outcome", ranks: int) -> Iterator[str]:
    for name in RANK_RESULT_MERGES:
        ranks_with_values = len(getattr(outcome, name))
        if ranks_with_values not in (0, ranks):
            yield f"{name} has values of {ranks_with_values} of {ranks} ranks"


def _is_negative(value: int | None) -> bool:
    return value is not None and value < 0


def _invalid_amounts(amounts: Any) -> NDArray[np.float64] | tuple[()]:
    """Return those of some amounts, which may be nested, that are negative or infinite."""
    if amounts is None or (isinstance(amounts, tuple | list) and not amounts):
        return ()
    values = np.atleast_1d(np.array(amounts, np.float64))  # None becomes nan
    return values[(values < 0) | np.isinf(values)]


def _is_traffic(text: str | None) -> bool:
    if not text:
        return True
    try:
        json.decode(text, type=dict[str, list[list[Annotated[int, Meta(ge=0)]]]])
    except DecodeError:
        return False
    return True


def _kept_ranks(times: CaseTimes, ranks: int) -> int:
    return -(-ranks // times.rank_stride)


def _shape_violations(times: CaseTimes, ranks: int, *, ours: bool) -> Iterator[str]:
    n, stride = len(times.max_ns), times.rank_stride
    kept = _kept_ranks(times, ranks) if stride > 0 else 0
    is_power = stride & (stride - 1) == 0
    if not (n and kept and is_power):
        yield f"times of {kept} ranks, every {stride}th, are kept in {n} iterations"
    if times.max_ns.shape != (n,) or times.round.shape != (n,):
        yield "its times are of different iterations"
    from_all_ranks = times.min_ns, times.median_ns, times.slowest_rank
    if any(values.shape != (n,) for values in from_all_ranks if ours or values.size):
        yield "its times are of different iterations"
    optional = times.span_ns, times.mean_ns, times.skew_ns, times.device_max_ns
    training_times = (getattr(times, name) for name in OF_TRAINING)
    if any(values.size and values.shape != (n,) for values in (*optional, *training_times)):
        yield "its times by other rules are of different iterations"


def _rank_shape_violations(ranks: TimesOfRanks, times: CaseTimes, count: int) -> Iterator[str]:
    shape = len(times.max_ns), _kept_ranks(times, count)
    if ranks.start_ns.shape != shape or ranks.end_ns.shape != shape:
        yield "its times are of different ranks"
    if ranks.device_ns.size > 0 and ranks.device_ns.shape != shape:
        yield "the times of its GPUs are of different ranks"


def _times_violations(times: CaseTimes, job: Job, workers: int) -> Iterator[str]:
    if not _are_ordered(times):
        yield "the shortest, median and longest time are in no order"
    if _outside(times.slowest_rank, 0, workers - 1):
        yield "the slowest rank is not a rank of the job"
    if _outside(times.round, 1, job.effort.rounds):
        yield f"a round is not among the {job.effort.rounds} of the job"
    if times.span_ns.size and (times.span_ns < times.max_ns).any():
        yield "the span is shorter than an operation"
    if (
        times.mean_ns.size
        and ((times.mean_ns < times.min_ns) | (times.mean_ns > times.max_ns)).any()
    ):
        yield "the mean time is outside of the extremes"
    if (times.skew_ns < 0).any():
        yield "ranks started less than nothing apart"
    if (times.device_max_ns < 0).any():
        yield "the slowest GPU took less than nothing"
    if _outside(times.step_accuracy, 0, 1):
        yield "an accuracy is not a share"
    if _outside(times.step_differing, 0, workers - 1):
        yield "other ranks than those of the job differ"


def _are_ordered(times: CaseTimes) -> bool:
    """Return whether no shortest, median or longest time is below the one before, or below 0."""
    rising = [np.zeros(1, np.int64), times.min_ns, times.median_ns, times.max_ns]
    measured = [values for values in rising if values.size]
    return all(bool((low <= high).all()) for low, high in pairwise(measured))


def _rank_violations(ranks: TimesOfRanks, times: CaseTimes, workers: int) -> Iterator[str]:
    # The extremes cover all workers, so the durations of the kept ranks lie within them.
    durations = (ranks.end_ns - ranks.start_ns)[:, : _kept_ranks(times, workers)]
    if (ranks.end_ns < ranks.start_ns).any():
        yield "an operation took less than nothing"
    if (ranks.start_ns < 0).any():
        yield "a clock showed less than nothing"
    if ((durations < times.min_ns[:, None]) | (durations > times.max_ns[:, None])).any():
        yield "the time of a rank is outside of the extremes"
    if times.rank_stride == 1:
        longest = durations[np.arange(len(durations)), times.slowest_rank]
        if (longest != times.max_ns).any():
            yield "the longest time is not that of a rank"
    if (ranks.device_ns < 0).any():
        yield "a GPU took less than nothing"


def _timeline_violations(
    ranks: TimesOfRanks, stride: int, program: str | None, workers: int
) -> Iterator[str]:
    """Yield the violations of the timeline of a training step; each test assumes that the tests before it passed."""
    if not ranks.event_ns.size:
        return
    try:
        programs = stage_programs(program or "")
    except (ValueError, TypeError, KeyError, AttributeError):
        yield f"the program of a training step is {program!r:.80}"
        return
    events = [stage.events for stage in programs]
    shape = (*ranks.start_ns.shape, max(events, default=0))
    if not programs or workers % len(programs):
        yield f"{len(programs)} stages have {workers} ranks"
    if ranks.event_ns.shape != shape:
        yield f"its timeline has {ranks.event_ns.shape[2]} events of {shape[2]}"
    counts = [events[rank * len(programs) // workers] for rank in range(0, workers, stride)]
    since = ranks.event_ns - ranks.start_ns[:, :, None]
    if any((since[:, position, :count] < 0).any() for position, count in enumerate(counts)):
        yield "a part of a training step ran before the step"


def _outside(
    values: NDArray[np.int64] | NDArray[np.uint8] | NDArray[np.float64], minimum: int, maximum: int
) -> bool:
    return bool(((values < minimum) | (values > maximum)).any())
