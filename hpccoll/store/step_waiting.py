"""What the ranks of a training step wait for each other inside its collectives, and which rank comes late.

A rank that computes slowly lets others wait inside their collectives, so that these seem to communicate for longer; on
a slow network all do. The rule is that of ``waiting``, for the collectives in which no rank ends before all have come:

- *transfer*: the shortest duration over the ranks of a group, added up over the collectives of the step. If times of
  some ranks are not kept, it is an upper bound.
- *waiting*: what the collectives of a rank take beyond that.

Both are the largest over ranks, and of that the median over all timed iterations. A barrier precedes each iteration, so
that all ranks count from the same moment, and the order in which they come to a collective is known. The network holds
ranks up, too, and lets them leave a collective one after the other. So a rank has come to the next one when all have
left, at the earliest, and its lag counts if it is larger than the time from the first to the last that left. In a mesh
of several axes, or in a pipeline, a rank may also have waited for ranks of another group: there no rank is named.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hpccoll.store.step_times import Seconds, StepTimes
from hpccoll.store.waiting import SYNCHRONISING, waiting_of

LATE_SHARE, LATE_PART, LATE_S = 0.75, 0.01, 1e-4
"""The share of the steps in which a late rank comes last, at least, and by how much: a part of the step, and seconds,
because driving collectives takes tens of microseconds longer at some ranks than at others."""


@dataclass(frozen=True, slots=True)
class StepWaiting:
    """Transfer and waiting of a training step, and the rank that most often came last; fields of rows."""

    transfer_s: float
    waiting_s: float
    last_rank: int | None = None  # None if no order is known
    # the share of the steps in which it came last to the collective with the largest lag; None if the order is not
    # judged, because ranks also wait for other groups
    last_share: float | None = None
    last_s: float | None = None  # that lag, by how much it came after the median of the others: the median of these

    def late_rank(self, step_s: float | None) -> int | None:
        """Return the rank that is late in steps of so many seconds; None if none is, or it is not known."""
        return self.last_rank if (self.last_share or 0.0) >= LATE_SHARE and is_lag(self.last_s, step_s) else None


def is_lag(lag_s: float | None, step_s: float | None) -> bool:
    """Return whether a lag is more than the harness makes, in steps of so many seconds."""
    return (lag_s or 0.0) >= max(LATE_S, LATE_PART * (step_s or 0.0))


def step_waiting(step: StepTimes, groups: Callable[[str], Sequence[Sequence[int]]]) -> StepWaiting | None:
    """Return what is known of all iterations; None if no group of several ranks has such a collective.

    ``groups`` returns the ranks of each group of an axis of the mesh.
    """
    transfer, waiting = np.zeros_like(step.step_s), np.zeros_like(step.step_s)
    lags, lasts = [], []
    for ranks, begin, end in _collectives(step, groups):
        before = np.pad(end[:, :-1], ((0, 0), (1, 0), (0, 0)))  # when the ranks left the collective before
        came = np.maximum(begin, before.max(axis=2, keepdims=True))
        durations = np.maximum(end - begin, 0.0)
        found = waiting_of(durations.reshape(-1, len(ranks)), came.reshape(-1, len(ranks)))
        transfer[:, ranks] += found.transfer_s.reshape(begin.shape[:2]).sum(axis=1, keepdims=True)
        waiting[:, ranks] += found.waiting_s.reshape(begin.shape).sum(axis=1)
        lag, last = (each.reshape(begin.shape[:2]) for each in (found.late_s, found.last))
        lags.append(np.where(lag > np.ptp(before, axis=2), lag, 0.0))
        lasts.append(step.ranks[ranks][last])
    if not lags:
        return None
    transfer_s, waiting_s = (float(np.median(each.max(axis=1))) for each in (transfer, waiting))
    whole = StepWaiting(transfer_s, waiting_s)
    if len(step.programs) > 1 or len({each["axis"] for each in step.programs[0].operations}) > 1:
        return whole
    lag_s, who = np.concatenate(lags, axis=1), np.concatenate(lasts, axis=1)
    largest = np.arange(len(lag_s)), lag_s.argmax(axis=1)
    lag_s, who = lag_s[largest], who[largest]
    if not (lag_s > 0).any():
        return replace(whole, last_share=0.0)
    rank = int(np.bincount(who[lag_s > 0]).argmax())
    own = lag_s[(who == rank) & (lag_s > 0)]
    return replace(whole, last_rank=rank, last_share=len(own) / len(lag_s), last_s=float(np.median(own)))


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
