"""What the ranks of a training step wait for each other inside its collectives, and which rank comes late.

A rank that computes slowly lets others wait inside their collectives, so that these seem to
communicate for longer; on a slow network all do. The rule is that of ``waiting``, for the
collectives in which no rank ends before all have come:

- *transfer*: the shortest duration over the ranks of a group, added up over the collectives of the
  step. If times of some ranks are not kept, it is an upper bound.
- *waiting*: what the collectives of a rank take beyond that.

Both are the largest over ranks, and of that the median over all timed iterations. A barrier
precedes each iteration, so that all ranks count from the same moment.

The *lag* of a rank in a step is what it does longer than the median of the others of its group
until its last operation begins (or its first, if it catches up), without waiting: what lies between
two computations, after the operations that began before. So lags of many collectives add up. If
ranks leave a collective one after the other, as on a slow network, that makes no lag. An operation
that waited for another one counts from when it was ready. The lag is at most what the rank comes
later to all collectives, because a computation that is hidden delays no other rank. In a mesh of
several axes, or in a pipeline, a rank may also have waited for ranks of another group: there no
rank is named.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hpccoll.extensions.steps.results.step_times import Seconds, StepTimes
from hpccoll.store.waiting import LATE_S, SYNCHRONISING, beyond_others, is_lag, waiting_of

LATE_SHARE = 0.75
"""The share of the steps in which a late rank comes last, at least; if several are late, among as many last ones."""

SURE = 4.0
"""How many standard errors the lag of a late rank is from 0, at least, with as few steps as were measured."""


@dataclass(frozen=True, slots=True)
class StepWaiting:
    """Transfer and waiting of a training step, and the rank with the largest lag; fields of rows."""

    transfer_s: float
    waiting_s: float
    last_rank: int | None = None  # the rank with the largest lag; None if no order is known
    # the share of the steps in which it had the largest lag of its group; None: not judged, ranks
    # wait for other groups
    last_share: float | None = None
    last_s: float | None = None  # its lag, the median over all steps
    # that rank if it is late: in most steps, by more than chance and the harness make
    late_rank: int | None = None
    # all late ranks, the largest lag first; at most half of a group
    late_ranks: tuple[int, ...] = ()


def step_waiting(
    step: StepTimes, groups: Callable[[str], Sequence[Sequence[int]]]
) -> StepWaiting | None:
    """Return transfer and waiting over all iterations; None unless a group of two or more ranks synchronises.

    ``groups`` returns the ranks of each group of an axis of the mesh.
    """
    transfer = np.zeros_like(step.step_s)
    waiting = np.zeros_like(step.step_s)
    later = np.zeros_like(step.step_s)
    groups_seen: dict[tuple[int, ...], None] = {}
    for ranks, begin, end in _collectives(step, groups):
        groups_seen[tuple(ranks)] = None
        # when the ranks left the collective before
        before = np.pad(end[:, :-1], ((0, 0), (1, 0), (0, 0)))
        came = np.maximum(begin, before.max(axis=2, keepdims=True))
        durations = np.maximum(end - begin, 0.0)
        parts = waiting_of(durations.reshape(-1, len(ranks)))
        transfer[:, ranks] += parts.transfer_s.reshape(begin.shape[:2]).sum(axis=1, keepdims=True)
        waiting[:, ranks] += parts.waiting_s.reshape(begin.shape).sum(axis=1)
        later[:, ranks] += np.maximum(beyond_others(came), 0.0).sum(axis=1)
    if not groups_seen:
        return None
    whole = StepWaiting(_median_of_largest(transfer), _median_of_largest(waiting))
    if (
        len(step.programs) > 1
        or len({operation["axis"] for operation in step.programs[0].operations}) > 1
    ):
        return whole
    lags = _lags(step, [list(group) for group in groups_seen], later)
    late = tuple(dict.fromkeys(lag.rank for lag in lags if lag.is_late))
    foremost = lags[0]
    if not foremost.is_late and not foremost.share:
        return replace(whole, last_share=0.0)
    return replace(
        whole,
        last_rank=foremost.rank,
        last_share=foremost.share,
        last_s=foremost.seconds,
        late_rank=foremost.rank if foremost.is_late else None,
        late_ranks=late,
    )


def _median_of_largest(seconds: Seconds) -> float:
    """Return the median over iterations of the largest over ranks."""
    return float(np.median(seconds.max(axis=1)))


@dataclass(frozen=True, slots=True)
class _Lag:
    """The lag of a rank in its group."""

    is_late: bool
    seconds: float  # the median over all steps
    share: float  # of the steps in which it is the largest of its group
    rank: int

    @property
    def order(self) -> tuple[bool, bool, float]:
        """What orders lags: late ranks first, then those that come last in most steps."""
        return self.is_late, self.is_late or self.share >= LATE_SHARE, self.seconds


def _lags(step: StepTimes, groups: Sequence[list[int]], later: Seconds) -> list[_Lag]:
    """Return the lags of all ranks until their first and until their last operation, the foremost first."""
    step_s = _median_of_largest(step.step_s)
    lags: list[_Lag] = []
    for own in _own_s(step):
        for group in groups:
            lag_s = np.minimum(beyond_others(own[:, group]), later[:, group])
            largest = np.maximum(lag_s.max(axis=1, keepdims=True), 1e-9)
            shares = (lag_s >= largest).mean(axis=0).tolist()
            medians = np.median(lag_s, axis=0).tolist()
            ranks = step.ranks[group].tolist()
            lags += map(_Lag, _are_late(lag_s, step_s), medians, shares, ranks)
    lags.sort(key=lambda lag: lag.order, reverse=True)
    return lags


def _are_late(lag_s: Seconds, step_s: float) -> list[bool]:
    """Return which ranks of a group are late; if several are, each is among as many latest ones in most steps."""
    median = np.median(lag_s, axis=0)
    ranks = lag_s.shape[1]
    by_lag = (-median).argsort(kind="stable").tolist()
    candidates = [rank for rank in by_lag if is_lag(median[rank], step_s)]
    most = min(len(candidates), ranks // 2)
    late: list[int] = []
    for several in range(1, most + 1):
        latest = candidates[:several]
        last = latest[-1]
        if not _is_sure(lag_s[:, last], float(median[last])):
            break
        # of as many latest ranks in each step
        least = np.partition(lag_s, -several, axis=1)[:, [-several]]
        shares = (lag_s[:, latest] >= least).mean(axis=0)
        if (shares >= LATE_SHARE).all():
            late = latest
    return [rank in late for rank in range(ranks)]


def _own_s(step: StepTimes) -> Iterator[Seconds]:
    """Yield what ranks do themselves until their first and last operation begin, [iteration, rank]."""
    ranks = np.arange(len(step.ranks))
    ready, begin, end = np.moveaxis(step.operations_of(0, ranks), 3, 0)
    ends_before = np.pad(end[..., :-1], ((0, 0), (0, 0), (1, 0)))
    held = np.maximum.accumulate(ends_before, axis=2) > ready
    moment = np.where(held | (begin - ready < LATE_S), ready, begin)
    computed = step.computations_of(0, ranks)
    for until in (moment[..., 0], moment.max(axis=2)):
        own = until.copy()
        for number in range(1, computed.shape[2]):
            resumed = computed[:, :, number, 0]
            began = np.where(moment < resumed[..., None], moment, 0.0).max(axis=2)
            waited = resumed - np.maximum(computed[:, :, number - 1, 1], began)
            own -= np.where(resumed <= until, np.maximum(waited, 0.0), 0.0)
        yield own


def _is_sure(lag_s: Seconds, median: float) -> bool:
    """Return whether lags of steps are beyond 0 by more than chance: their t, as the normal deviate of the same chance.

    The deviate is that of Wallace (Bounds on normal approximations to Student's and the chi-square
    distributions, 1959). An outlier counts as two medians from the median.
    """
    freedom = len(lag_s) - 1
    if median > 0:
        kept = np.clip(lag_s, -median, 3 * median)
    else:
        kept = lag_s
    mean = kept.mean()
    if freedom < 1 or mean <= 0:
        return False
    variance = max(float(kept.var(ddof=1)), 1e-24)
    squared_t = len(kept) * mean**2 / variance
    squared_deviate = freedom * np.log1p(squared_t / freedom)
    return bool(squared_deviate >= SURE**2)


def _collectives(
    step: StepTimes, groups: Callable[[str], Sequence[Sequence[int]]]
) -> Iterator[tuple[Sequence[int], Seconds, Seconds]]:
    """Yield the positions of the ranks of each group, and when these began and ended its collectives.

    Times are [iteration, collective, rank]; the collectives follow each other.
    """
    for stage, program in enumerate(step.programs):
        numbers_of_axis: dict[str, list[int]] = defaultdict(list)
        for number, operation in enumerate(program.operations):
            if operation["collective"] in SYNCHRONISING:
                numbers_of_axis[operation["axis"]].append(number)
        for axis, numbers in numbers_of_axis.items():
            for group in groups(axis):
                ranks = np.flatnonzero(np.isin(step.ranks, group) & (step.stages == stage))
                if len(ranks) > 1:
                    times = step.operations_of(stage, ranks)[:, :, numbers, 1:]
                    begin, end = np.moveaxis(times, (3, 2), (0, 2))
                    yield ranks.tolist(), begin, end
