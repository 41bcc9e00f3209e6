"""Plausibility checks: the values of a file are compared with each other and with the job.

A digest proves that a file holds what was written. These checks serve files without a digest, and files that some
program wrote with a right digest and wrong content.
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

from hpccoll.cases.algorithm_registry import collective
from hpccoll.cases.case import AGGREGATED, Case, Job
from hpccoll.schedule.reduction import itemsize
from hpccoll.store.case_times import CaseTimes
from hpccoll.store.raw_results import Attempt, Outcome
from hpccoll.store.schema import RANK_RESULT_MERGES, RESULT_COLUMNS
from hpccoll.store.step_times import stage_programs

TypeTest = Callable[[Any], bool]

_COUNTS = tuple(column.name for column in RESULT_COLUMNS if column.dtype == "int64")
STATUSES = ("ok", "wrong", "skipped", "failed")


class ImplausibleError(ValueError):
    """A value that no measurement gives; the message names it."""


def check_types(record: Any) -> None:
    """Check that the fields of a dataclass, and of nested dataclasses, have their annotated types.

    Raises:
        ImplausibleError: for the first field of another type.
    """
    for name, type_name, matches in _field_tests(type(record)):  # type: ignore[arg-type]  # a class is hashable
        value = getattr(record, name)
        if not matches(value):
            raise ImplausibleError(f"{name} is {value!r:.80}, which is no {type_name}")


@lru_cache
def _field_tests(dataclass: Hashable) -> Sequence[tuple[str, str, TypeTest]]:
    """Return the name, the type's name and the type test of each field of a dataclass."""
    hints = get_type_hints(dataclass)
    names = [field.name for field in dataclasses.fields(dataclass) if field.init]  # type: ignore[arg-type]
    return [(name, getattr(hints[name], "__name__", str(hints[name])), _type_test(hints[name])) for name in names]


def _type_test(hint: Any) -> TypeTest:
    """Return the test of an annotated type; for a nested dataclass the test raises the error of ``check_types``."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in _SPECIAL_TESTS:
        return _SPECIAL_TESTS[hint]
    if origin in (Union, types.UnionType):
        tests = [_type_test(argument) for argument in arguments]
        return lambda value: any(test(value) for test in tests)
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
"""The tests of types for which isinstance() is wrong: to Python, True is an int."""


Violation = tuple[str, bool]
"""The message of a possible violation, and True if the value violates the rule."""


def _raise_first(violations: Iterable[Violation]) -> None:
    for message, is_violated in violations:
        if is_violated:
            raise ImplausibleError(message)


def check_attempt(attempt: Attempt) -> None:
    """Check that an attempt is plausible.

    Raises:
        ImplausibleError: for its first implausible value.
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
    """Check outcomes against a job.

    Args:
        job: the job of the outcomes.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self._cases = frozenset(map(_case_id_without_shape, job.cases))

    def __call__(self, attempt: Attempt, outcome: Outcome) -> None:
        """Check that ``attempt`` can have measured ``outcome``.

        Raises:
            ImplausibleError: for the first implausible value.
        """
        check_types(outcome)
        times, case = outcome.times, outcome.case
        _raise_first(_status_violations(outcome))
        _raise_first([(f"the job has no case {case.id!r:.300}", _case_id_without_shape(case) not in self._cases)])
        _raise_first(_count_violations(outcome))
        _raise_first(
            (f"{name} has values of {len(values)} of {attempt.ranks} ranks", len(values) not in (0, attempt.ranks))
            for name, values in ((name, getattr(outcome, name)) for name in RANK_RESULT_MERGES)
        )
        if times is not None:
            workers = attempt.ranks - attempt.aggregators
            _raise_first([(f"{outcome.bytes} bytes were moved of {case.bytes}", not _is_valid_size(outcome, workers))])
            _raise_first(_times_violations(times, self.job, attempt.ranks, workers))
            _raise_first(_timeline_violations(times, outcome.program, workers))


def _case_id_without_shape(case: Case) -> str:
    """Return the id of a case without ranks and nodes: after a rank failure fewer ranks measure it."""
    return replace(case, ranks=None, nodes=None).id


def _status_violations(outcome: Outcome) -> Iterator[Violation]:
    status, timed = outcome.status, outcome.times is not None
    yield f"the status of a case is {status!r:.80}", status not in STATUSES
    yield f"a case is {status}, and has {'times' if timed else 'no times'}", timed != outcome.timed
    yield f"a case is ok, and {outcome.wrong} elements are wrong", status == "ok" and bool(outcome.wrong)
    yield "a case is wrong, and none of its elements is", status == "wrong" and outcome.wrong == 0


def _is_valid_size(outcome: Outcome, workers: int) -> bool:
    """Return True if the moved bytes are the maximum number of whole elements within the requested size."""
    case, family = outcome.case, collective(outcome.case.collective)
    if outcome.bytes is None:
        return False
    if family.token or "traffic" in family.arguments:  # one element, or blocks with a rounded mean
        return 0 <= outcome.bytes <= 2 * max(case.bytes, 16)
    size = itemsize(case.dtype)
    return outcome.bytes == family.elements(case.bytes, size, workers) * family.blocks(workers) * size


def _count_violations(outcome: Outcome) -> Iterator[Violation]:
    counts = {
        name: getattr(outcome, name) for name in (*_COUNTS, "workers_sent_predicted", "workers_received_predicted")
    } | {f"counter {name}": value for name, value in (outcome.counters or {}).items()}
    yield from ((f"{name} is {value}", value is not None and value < 0) for name, value in counts.items())
    operations, aggregated = outcome.operations, outcome.case.timing == AGGREGATED
    several = operations is not None and operations > 1
    yield f"an iteration has {operations} operations", operations == 0 or (several and not aggregated)
    for name in (
        "wire_sent", "wire_received", "port_sent", "port_received", "cpu_s", "predicted_low_s", "predicted_high_s",
        *RANK_RESULT_MERGES,
    ):  # fmt: skip
        values = np.atleast_1d(np.array(getattr(outcome, name), np.float64))  # None becomes nan
        invalid = values[(values < 0) | np.isinf(values)]
        yield f"{name} holds {', '.join(f'{value:g}' for value in invalid[:1])}", bool(invalid.size)


def _times_violations(times: CaseTimes, job: Job, ranks: int, workers: int) -> Iterator[Violation]:
    """Yield the violations of times; each test assumes that the tests before it passed."""
    n, stride = len(times.max_ns), times.rank_stride
    kept = -(-ranks // stride) if stride > 0 else 0
    yield (
        f"times of {kept} ranks, every {stride}th, are kept in {n} iterations",
        not (n and kept) or stride & (stride - 1) > 0,
    )
    summaries = times.min_ns, times.median_ns, times.slowest_rank, times.round
    yield "its times are of different iterations", any(values.shape != (n,) for values in (times.max_ns, *summaries))
    samples = times.start_ns, times.end_ns
    yield "its times are of different ranks", any(values.shape != (n, kept) for values in samples)
    optional = (times.span_ns, (n,)), (times.device_ns, (n, kept))
    yield "its times by other rules are of different ranks", any(v.size and v.shape != shape for v, shape in optional)
    # The extremes cover all workers, so the durations of the kept ranks lie within them.
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
    short = times.span_ns.size and (times.span_ns < times.max_ns).any()
    yield "the span is shorter than an operation", bool(short)
    yield "a GPU took less than nothing", bool((times.device_ns < 0).any())


def _timeline_violations(times: CaseTimes, program: str | None, workers: int) -> Iterator[Violation]:
    """Yield the violations of the timeline of a training step; each test assumes that the tests before it passed."""
    if not times.event_ns.size:
        return
    try:
        programs = stage_programs(program or "")
    except (ValueError, TypeError, KeyError, AttributeError):
        yield f"the program of a training step is {program!r:.80}", True
        return
    events = [each.events for each in programs]
    shape = (*times.start_ns.shape, max(events, default=0))
    yield f"{len(programs)} stages have {workers} ranks", not programs or workers % len(programs) > 0
    yield f"its timeline has {times.event_ns.shape[2]} events of {shape[2]}", times.event_ns.shape != shape
    ranks = range(0, workers, times.rank_stride)
    counts = [events[rank * len(programs) // workers] for rank in ranks]
    since = times.event_ns - times.start_ns[:, :, None]
    early = any((since[:, position, :count] < 0).any() for position, count in enumerate(counts))
    yield "a part of a training step ran before the step", early


def _outside(values: NDArray[Any], minimum: int, maximum: int) -> bool:
    return bool(((values < minimum) | (values > maximum)).any())
