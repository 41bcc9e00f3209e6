"""What the ranks of a training step wait for each other inside its collectives, and which rank comes late.

A rank that computes slowly lets others wait inside their collectives, so that these seem to communicate for longer; on
a slow network all do. The rule is that of ``waiting``, for the collectives in which no rank ends before all have come:

- *transfer*: the shortest duration over the ranks of a group, added up over the collectives of the step. If times of
  some ranks are not kept, it is an upper bound.
- *waiting*: what the collectives of a rank take beyond that.

Both are the largest over ranks, and of that the median over all timed iterations. A barrier precedes each iteration, so
that all ranks count from the same moment.

The *lag* of a rank in a step is what it does longer than the median of the others of its group until its last operation
begins (or its first, if it catches up), without waiting: what lies between two computations, after the operations that
began before. So lags of many collectives add up. If ranks leave a collective one after the other, as on a slow network,
that makes no lag.
An operation that waited for another one counts from when it was ready. The lag is at most what the rank comes later to
all collectives, because a computation that is hidden delays no other rank. In a mesh of several axes, or in a pipeline,
a rank may also have waited for ranks of another group: there no rank is named.
"""

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
    # the share of the steps in which it had the largest lag of its group; None: not judged, ranks wait for other groups
    last_share: float | None = None
    last_s: float | None = None  # its lag, the median over all steps
    late_rank: int | None = None  # that rank if it is late: in most steps, by more than chance and the harness make
    late_ranks: tuple[int, ...] = ()  # all late ranks, the largest lag first; at most half of a group


def step_waiting(step: StepTimes, groups: Callable[[str], Sequence[Sequence[int]]]) -> StepWaiting | None:
    """Return what is known of all iterations; None if no group of several ranks has such a collective.

    ``groups`` returns the ranks of each group of an axis of the mesh.
    """
    transfer, waiting, later = (np.zeros_like(step.step_s) for _ in range(3))
    of_groups: dict[tuple[int, ...], None] = {}
    for ranks, begin, end in _collectives(step, groups):
        of_groups[tuple(ranks)] = None
        before = np.pad(end[:, :-1], ((0, 0), (1, 0), (0, 0)))  # when the ranks left the collective before
        came = np.maximum(begin, before.max(axis=2, keepdims=True))
        durations = np.maximum(end - begin, 0.0)
        found = waiting_of(durations.reshape(-1, len(ranks)))
        transfer[:, ranks] += found.transfer_s.reshape(begin.shape[:2]).sum(axis=1, keepdims=True)
        waiting[:, ranks] += found.waiting_s.reshape(begin.shape).sum(axis=1)
        later[:, ranks] += np.maximum(beyond_others(came), 0.0).sum(axis=1)
    if not of_groups:
        return None
    transfer_s, waiting_s = (float(np.median(each.max(axis=1))) for each in (transfer, waiting))
    whole = StepWaiting(transfer_s, waiting_s)
    if len(step.programs) > 1 or len({each["axis"] for each in step.programs[0].operations}) > 1:
        return whole
    judged: list[tuple[bool, float, float, int]] = []
    for own in _own_s(step):
        for group in map(list, of_groups):
            lag_s = np.minimum(beyond_others(own[:, group]), later[:, group])
            share = (lag_s >= np.maximum(lag_s.max(axis=1, keepdims=True), 1e-9)).mean(axis=0).tolist()
            are_late = _are_late(lag_s, float(np.median(step.step_s.max(axis=1))))
            judged += zip(are_late, np.median(lag_s, axis=0).tolist(), share, step.ranks[group].tolist(), strict=True)
    judged.sort(key=lambda each: (each[0], each[0] or each[2] >= LATE_SHARE, each[1]), reverse=True)
    late = tuple(dict.fromkeys(rank for is_late, *_, rank in judged if is_late))
    is_late, lag, share, rank = judged[0]
    if not (is_late or share):
        return replace(whole, last_share=0.0)
    first = rank if is_late else None
    return replace(whole, last_rank=rank, last_share=share, last_s=lag, late_rank=first, late_ranks=late)


def _are_late(lag_s: Seconds, step_s: float) -> list[bool]:
    """Return which ranks of a group are late; of several, each is among as many latest ones in most steps."""
    median = np.median(lag_s, axis=0)
    candidates = [each for each in (-median).argsort(kind="stable").tolist() if is_lag(median[each], step_s)]
    late: list[int] = []
    for several in range(1, min(len(candidates), lag_s.shape[1] // 2) + 1):
        latest = candidates[:several]
        if not _is_sure(lag_s[:, latest[-1]], float(median[latest[-1]])):
            break
        least = np.partition(lag_s, -several, axis=1)[:, [-several]]  # of as many latest ranks in each step
        if ((lag_s[:, latest] >= least).mean(axis=0) >= LATE_SHARE).all():
            late = latest
    return [each in late for each in range(lag_s.shape[1])]


def _own_s(step: StepTimes) -> Iterator[Seconds]:
    """Yield what ranks do themselves until their first and last operation begin, [iteration, rank]."""
    ranks = np.arange(len(step.ranks))
    ready, begin, end = np.moveaxis(step.operations_of(0, ranks), 3, 0)
    held = np.maximum.accumulate(np.pad(end[..., :-1], ((0, 0), (0, 0), (1, 0))), axis=2) > ready
    moment, computed = np.where(held | (begin - ready < LATE_S), ready, begin), step.computations_of(0, ranks)
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

    The deviate is that of Wallace (Bounds on normal approximations to Student's and the chi-square distributions,
    1959). An outlier counts as two medians from the median.
    """
    freedom, kept = len(lag_s) - 1, np.clip(lag_s, -median, 3 * median) if median > 0 else lag_s
    if freedom < 1 or kept.mean() <= 0:
        return False
    squared_t = len(kept) * kept.mean() ** 2 / max(float(kept.var(ddof=1)), 1e-24)
    return bool(freedom * np.log1p(squared_t / freedom) >= SURE**2)


def _collectives(
    step: StepTimes, groups: Callable[[str], Sequence[Sequence[int]]]
) -> Iterator[tuple[Sequence[int], Seconds, Seconds]]:
    """Yield the positions of the ranks of each group, and when these began and ended its collectives.

    Times are [iteration, collective, rank]; the collectives follow each other.
    """
    for stage, program in enumerate(step.programs):
        of_axis: dict[str, list[int]] = {}
        for number, each in enumerate(program.operations):
            if each["collective"] in SYNCHRONISING:
                of_axis.setdefault(each["axis"], []).append(number)
        for axis, numbers in of_axis.items():
            for group in groups(axis):
                ranks = np.flatnonzero(np.isin(step.ranks, group) & (step.stages == stage))
                if len(ranks) > 1:
                    times = step.operations_of(stage, ranks)[:, :, numbers, 1:]
                    begin, end = np.moveaxis(times, (3, 2), (0, 2))
                    yield ranks.tolist(), begin, end
