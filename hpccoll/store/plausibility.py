"""Plausible: whether what a file holds can have been measured.

A digest tells that a file is what was written. These checks are for files that carry none, and for whatever wrote a
file with a right digest and a wrong content: they compare values with one another and with the job.
"""

import dataclasses
import types
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from hpccoll.schedule import collective
from hpccoll.schedule.reduction import itemsize
from hpccoll.spec.case import Case, Job
from hpccoll.store.case_times import CaseTimes
from hpccoll.store.raw import Attempt, Outcome
from hpccoll.store.schema import RESULT_COLUMNS

TypeTest = Callable[[Any], bool]

_COUNTS = tuple(column.name for column in RESULT_COLUMNS if column.dtype == "int64")
STATUSES = ("ok", "wrong", "skipped", "failed")


class ImplausibleError(ValueError):
    """A value that cannot have been measured; the message names it."""


def check_types(record: Any) -> None:
    """See that the fields of a dataclass, and of those in it, hold what they are annotated with.

    Raises:
        ImplausibleError: names the first field that does not.
    """
    for name, word, fits in _field_tests(type(record)):  # type: ignore[arg-type]  # a class is hashable
        value = getattr(record, name)
        if not fits(value):
            raise ImplausibleError(f"{name} is {value!r:.80}, which is no {word}")


@lru_cache
def _field_tests(of: Hashable) -> Sequence[tuple[str, str, TypeTest]]:
    """Return the fields of a dataclass, what they are annotated with, and what sees that they hold it."""
    hints = get_type_hints(of)
    names = [field.name for field in dataclasses.fields(of) if field.init]  # type: ignore[arg-type]
    return [(name, getattr(hints[name], "__name__", str(hints[name])), _type_test(hints[name])) for name in names]


def _type_test(hint: Any) -> TypeTest:
    """Return what says whether a value is of a type as it is annotated; of a dataclass ``check_types`` says more."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in _SPECIAL_TESTS:
        return _SPECIAL_TESTS[hint]
    if origin in (Union, types.UnionType):
        several = [_type_test(argument) for argument in arguments]
        return lambda value: any(fits(value) for fits in several)
    if origin in (tuple, Sequence):
        each = _type_test(arguments[0])
        return lambda value: isinstance(value, tuple if origin is tuple else (list, tuple)) and all(map(each, value))
    if origin is Mapping:
        each = _type_test(arguments[1])
        return lambda value: isinstance(value, dict) and all(map(each, value.values()))
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return lambda value: isinstance(value, hint) and _has_valid_types(value)
    of = origin or hint
    return lambda value: isinstance(value, of)


def _has_valid_types(record: Any) -> bool:
    check_types(record)
    return True


_SPECIAL_TESTS: Mapping[Any, TypeTest] = {
    Any: lambda _: True,
    object: lambda _: True,
    int: lambda value: isinstance(value, int) and not isinstance(value, bool),
    float: lambda value: isinstance(value, int | float) and not isinstance(value, bool),
}
"""What says so of types whose values are none of a class alone: to Python, True is an int."""


Violation = tuple[str, bool]
"""What would be wrong, in words, and whether it is."""


def _raise_first(complaints: Iterable[Violation]) -> None:
    for complaint, holds in complaints:
        if holds:
            raise ImplausibleError(complaint)


def check_attempt(attempt: Attempt) -> None:
    """See that an attempt can be one.

    Raises:
        ImplausibleError: says why it cannot.
    """
    check_types(attempt)
    ranks, aggregators = attempt.ranks, attempt.aggregators
    _raise_first(
        (
            (
                f"attempt {attempt.number} has {len(attempt.places)} places of {ranks} ranks",
                len(attempt.places) != ranks,
            ),
            (f"an attempt has the number {attempt.number}", attempt.number < 1),
            (f"{aggregators} of {ranks} ranks are aggregators", not 0 <= aggregators < ranks),
            (f"{ranks} ranks ran on {attempt.nodes} nodes", not 1 <= attempt.nodes <= ranks),
            (
                f"attempt {attempt.number} was created at {attempt.created!r:.80}",
                not _is_utc_timestamp(attempt.created),
            ),
        )
    )


def _is_utc_timestamp(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


class OutcomeCheck:
    """Sees that outcomes can be those of a job's cases.

    Args:
        job: of which they are.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self._cases = frozenset(map(_case_id_without_shape, job.cases))

    def __call__(self, attempt: Attempt, outcome: Outcome) -> None:
        """See that ``outcome`` can have been measured in ``attempt``.

        Raises:
            ImplausibleError: says why it cannot.
        """
        check_types(outcome)
        times, case = outcome.times, outcome.case
        _raise_first(_status_violations(outcome))
        _raise_first([(f"the job has no case {case.id!r:.300}", _case_id_without_shape(case) not in self._cases)])
        _raise_first(_count_violations(outcome))
        if times is not None:
            workers = attempt.ranks - attempt.aggregators
            _raise_first([(f"{outcome.bytes} bytes were moved of {case.bytes}", not _is_valid_size(outcome, workers))])
            _raise_first(_times_violations(times, self.job, attempt.ranks, workers))


def _case_id_without_shape(case: Case) -> str:
    """Return the id of a case but for its ranks and nodes: those that are left of a launch measure it, too."""
    return replace(case, ranks=None, nodes=None).id


def _status_violations(outcome: Outcome) -> Iterator[Violation]:
    status, timed = outcome.status, outcome.times is not None
    yield f"the status of a case is {status!r:.80}", status not in STATUSES
    yield f"a case is {status}, and has {'times' if timed else 'no times'}", timed != outcome.timed
    yield f"a case is ok, and {outcome.wrong} elements are wrong", status == "ok" and bool(outcome.wrong)
    yield "a case is wrong, and none of its elements is", status == "wrong" and outcome.wrong == 0


def _is_valid_size(outcome: Outcome, workers: int) -> bool:
    """Return whether so many bytes are those of whole elements, the most that the size asked for has room for."""
    case, family = outcome.case, collective(outcome.case.collective)
    if outcome.bytes is None:
        return False
    if family.token or "traffic" in family.arguments:  # one element, or blocks whose mean is rounded
        return 0 <= outcome.bytes <= 2 * max(case.bytes, 16)
    size = itemsize(case.dtype)
    return outcome.bytes == family.elements(case.bytes, size, workers) * family.blocks(workers) * size


def _count_violations(outcome: Outcome) -> Iterator[Violation]:
    counts = {
        name: getattr(outcome, name) for name in (*_COUNTS, "workers_sent_predicted", "workers_received_predicted")
    } | {f"counter {name}": value for name, value in (outcome.counters or {}).items()}
    yield from ((f"{name} is {value}", value is not None and value < 0) for name, value in counts.items())
    for name in ("wire_sent", "wire_received", "port_sent", "port_received", "cpu_s"):
        values = np.array(getattr(outcome, name), np.float64)  # None becomes nan
        strange = values[(values < 0) | np.isinf(values)]
        yield f"{name} holds {', '.join(f'{value:g}' for value in strange[:1])}", bool(strange.size)


def _times_violations(times: CaseTimes, job: Job, ranks: int, workers: int) -> Iterator[Violation]:
    """Yield complaints of times; each presumes that those before it do not hold."""
    n, stride = len(times.max_ns), times.rank_stride
    kept = -(-ranks // stride) if stride > 0 else 0
    yield (
        f"times of {kept} ranks, every {stride}th, are kept in {n} iterations",
        not (n and kept) or stride & (stride - 1) > 0,
    )
    each = times.min_ns, times.median_ns, times.slowest_rank, times.round
    yield "its times are of different iterations", any(values.shape != (n,) for values in (times.max_ns, *each))
    both = times.start_ns, times.end_ns
    yield "its times are of different ranks", any(values.shape != (n, kept) for values in both)
    some = (times.span_ns, (n,)), (times.device_ns, (n, kept))
    yield "its times by other rules are of different ranks", any(v.size and v.shape != shape for v, shape in some)
    # Ranks are kept from a power of two on; what all did lies within the extremes over all.
    durations = (times.end_ns - times.start_ns)[:, : -(-workers // stride)]
    ordered = (times.min_ns >= 0) & (times.min_ns <= times.median_ns) & (times.median_ns <= times.max_ns)
    yield "an operation took less than nothing", bool((times.end_ns < times.start_ns).any())
    yield "a clock showed less than nothing", bool((times.start_ns < 0).any())
    yield "the shortest, median and longest time are in no order", not ordered.all()
    outside = (durations < times.min_ns[:, None]) | (durations > times.max_ns[:, None])
    yield "the time of a rank is outside of the extremes", bool(outside.any())
    yield "a rank that is not there was the slowest", _outside(times.slowest_rank, 0, workers - 1)
    yield f"a round is none of {job.effort.rounds}", _outside(times.round, 1, job.effort.rounds)
    if stride == 1:
        rows = np.arange(n)
        yield "the longest time is no rank's", bool((durations[rows, times.slowest_rank] != times.max_ns).any())
    yield "the span is shorter than an operation", bool(times.span_ns.size and (times.span_ns < times.max_ns).any())
    yield "a GPU took less than nothing", bool((times.device_ns < 0).any())


def _outside(values: NDArray[Any], least: int, most: int) -> bool:
    return bool(((values < least) | (values > most)).any())
