"""Waiting and transfer of collectives that many ranks recorded: who came last, and what is left when waiting is out.

The time that a rank spends in a collective includes its waiting for ranks that come later; the last
one to come does not wait. If no rank can end before all have come, the transfer takes at most the
shortest duration over ranks. What another rank spends beyond that, it waits.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from hpccoll.common.errors import UnusableError

SYNCHRONISING = frozenset(
    {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "all_to_all_v", "barrier"}
)
"""The collectives in which no rank ends before all have come; a broadcast, a reduce or a message bounds nothing."""

LATE_PART, LATE_S = 0.01, 1e-4
"""By how much a late rank comes last, at least: a part of the step, and seconds. Driving
collectives takes tens of microseconds longer at some ranks."""

NO_RANK = -1

Seconds: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Waiting:
    """Transfer and waiting of operations, in seconds."""

    transfer_s: NDArray[np.float64]  # [operation]: the shortest duration over ranks
    # of shape [operation, rank]: own duration less the shortest; NaN where a rank has no record
    waiting_s: NDArray[np.float64]
    # of shape [operation]: the position of the rank that came last; NO_RANK: the order is not known
    last: NDArray[np.int64]
    late_s: NDArray[np.float64]  # [operation]: by how much it came after the median of the others


def waiting_of(
    durations_s: NDArray[np.float64],
    starts_s: NDArray[np.float64] | None = None,
    resolution_s: float = 0.0,
) -> Waiting:
    """Return waiting and transfer of operations in which no rank ends before all have come.

    Args:
        durations_s: the time of each rank in each operation, [operation, rank], in seconds; NaN
            where it has no record. If all of a row are recorded, the shortest bounds the transfer;
            if some are not, it may contain waiting too.
        starts_s: when each rank came, by one clock, likewise. Without it all ranks are taken to end
            together: the rank with the shortest duration came last.
        resolution_s: the uncertainty of the order: if the last rank and the one before it differ by
            less, or by nothing, none is called the last.

    Raises:
        UnusableError: if an operation has no duration at all, or if a time is negative or infinite.
    """
    durations = np.asarray(durations_s, dtype=np.float64)
    if durations.ndim != 2 or np.isnan(durations).all(axis=1).any():
        raise UnusableError("durations", "each operation needs the time of one rank at least")
    if np.isinf(durations).any() or (durations < 0).any():
        raise UnusableError("durations", "the time of an operation is negative or infinite")
    transfer = np.nanmin(durations, axis=1) if len(durations) else np.empty(0)
    arrival = -durations if starts_s is None else np.asarray(starts_s, dtype=np.float64)
    last, late = _last_arrivals(arrival, resolution_s)
    return Waiting(transfer, durations - transfer[:, None], last, late)


def _last_arrivals(arrival: Seconds, resolution_s: float) -> tuple[NDArray[np.int64], Seconds]:
    """Return ``last`` and ``late_s`` of ``Waiting``; ``arrival`` is [operation, rank], NaN without a record."""
    last = np.full(len(arrival), NO_RANK)
    late = np.full(len(arrival), np.nan)
    recorded = np.count_nonzero(~np.isnan(arrival), axis=1)
    rows = np.flatnonzero(recorded > 1)
    ordered = np.sort(arrival[rows], axis=1)  # NaN comes last
    place_of_last = recorded[rows] - 1
    operations = np.arange(len(rows))
    latest = ordered[operations, place_of_last]
    before_latest = ordered[operations, place_of_last - 1]
    median = (
        ordered[operations, (place_of_last - 1) // 2] + ordered[operations, place_of_last // 2]
    ) / 2
    is_clear = latest - before_latest > resolution_s
    clear_rows = rows[is_clear]
    last[clear_rows] = np.nanargmax(arrival[clear_rows], axis=1)
    late[clear_rows] = (latest - median)[is_clear]
    return last, late


@dataclass(frozen=True, slots=True)
class LateRank:
    """How often a rank came last, and by how much."""

    rank: int
    operations: int  # in which it came last
    taken: int  # in which it took part
    # over the operations in which it came last, by how much after the median of the others
    median_s: float
    total_s: float  # of all of them

    @property
    def share(self) -> float:
        """The share of its operations in which it came last."""
        return self.operations / self.taken


def late_ranks(waitings: Sequence[tuple[Waiting, Sequence[int]]]) -> list[LateRank]:
    """Return the ranks that came last in some operation, those first that cost the others most.

    Each element is a ``Waiting`` with the rank at each position: groups of a job hold different
    ranks.
    """
    late_s: dict[int, list[float]] = {}
    taken: Counter[int] = Counter()
    for waiting, ranks in waitings:
        taken.update(dict.fromkeys(ranks, len(waiting.last)))
        for position, rank in enumerate(ranks):
            late_of_rank_s = waiting.late_s[waiting.last == position]
            if len(late_of_rank_s):
                late_s.setdefault(rank, []).extend(late_of_rank_s.tolist())
    by_rank = [
        LateRank(rank, len(times_s), taken[rank], float(np.median(times_s)), sum(times_s))
        for rank, times_s in late_s.items()
    ]
    return sorted(by_rank, key=lambda late: (-late.total_s, late.rank))


def beyond_others(seconds: Seconds) -> Seconds:
    """Return by how much each rank, along the last axis, is beyond the median of the others."""
    ordered = np.sort(seconds, axis=-1)
    place = seconds.argsort(axis=-1).argsort(axis=-1)
    ranks = seconds.shape[-1]
    low = _ordered_others(ordered, place, (ranks - 2) // 2)
    high = _ordered_others(ordered, place, (ranks - 1) // 2)
    beyond: Seconds = seconds - (low + high) / 2
    return beyond


def _ordered_others(ordered: Seconds, place: NDArray[np.int64], index: int) -> Seconds:
    """Return, for each rank, the value with this index among the ordered values of the others.

    ``place`` is where the value of each rank is in ``ordered``: the values of the others move down
    from there.
    """
    index_with_own = index + (place <= index)
    values: Seconds = np.take_along_axis(ordered, index_with_own, axis=-1)
    return values


def is_lag(lag_s: float | None, step_s: float | None) -> bool:
    """Return whether a lag is more than the harness causes in steps of this length."""
    return (lag_s or 0.0) >= max(LATE_S, LATE_PART * (step_s or 0.0))
