"""Which ranks of a recorded job are late: those that others wait for, again and again, without having waited.

From one operation that the ranks of a group leave together to another one they spend the same time.
What a rank spends less in operations than the others, it did something else, while they waited for
it; no clock is needed for that. A rank that another group held up spent as much in the operations
of that one, and is not late.

A job is divided into parts, into its steps where these are known. A rank is late if it is late in
most of them, by more than chance and by more than GPUs differ. Ranks are compared where they do the
same: in no group that contains a smaller one, nor among those that exchange messages, as the stages
of a pipeline do.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hpccoll.store.waiting import Seconds, beyond_others
from hpccoll.traces.carried_lags import carried_parts, fresh_lags, places_of
from hpccoll.traces.operation_times import OperationTimes
from hpccoll.traces.recorded_job import MESSAGES, RecordedOperation
from hpccoll.traces.shared_operations import (
    DEVIATION,
    ERROR_OF_MEDIAN,
    Integers,
    RankRecords,
    SharedOperations,
)

FEWEST_PARTS, MAX_PARTS = 3, 12
"""The parts of a job; with fewer ones a late rank cannot be told from chance."""

LEAST_PART, LEAST_S = 0.02, 1e-4
"""By how much a late rank is late, at least: a part of the time, as GPUs differ, and seconds in a part of the job."""

LEAST_UNSURE_PART = 0.03
"""Likewise where the order of operations is not recorded, or blocks of ranks differ: what part of a
lag is seen again, or comes from a larger block, is then known less well."""

LEAST_OF_COMMUNICATION = 0.2
"""Likewise, as a part of the time in operations, where no record says how much time passed."""

LATE_SHARE = 0.75
"""The share of the parts in which a late rank is late, at least, and later than the others."""

SURE = 4.0
"""How many standard errors the lag of a late rank is from 0, at least, with as few parts as there
are: its t, as the normal deviate of the same chance (Wallace, Bounds on normal approximations to
Student's and the chi-square distributions, 1959)."""

OWN_PART = 0.5
"""The part of its lag that a late rank did not wait for others, at least."""


SURELY_CARRIED = 3.0
"""How many standard errors the part of a lag that is brought along is above 0, at least, if the total leaves it out."""


class Lag(NamedTuple):
    """By how much a rank is late."""

    rank: int
    part: float | None  # of the time; None where no record says how much time passed
    # after the first operation; what it brings along to several operations counts once
    total_s: float
    parts: int  # of the job: in the median part it is late by this much


class Lags(NamedTuple):
    """Which ranks are late."""

    late: Sequence[Lag]  # the latest first
    judged: Collection[int]  # the ranks that could be judged late or not
    # of the time, by which a late rank is late; None: of that in operations
    least_part: float | None


def find_lags(
    timed: Iterable[RecordedOperation],
    times: Sequence[OperationTimes],
    shifts_s: Mapping[int, float],
    steps: int,
) -> Lags:
    """Return the late ranks, and those that could be judged.

    Args:
        timed: all operations with durations.
        times: the same, by groups, with their waiting.
        shifts_s: the shift of the clock of each rank, in seconds; empty if clocks are not aligned.
        steps: the steps in the record, 1 if they are unknown.
    """
    records = _records_by_rank(timed, times)
    lags = dict[int, Lag]()
    judged = set[int]()
    least_parts = set[float | None]()
    for ranks, members in _comparable(times, records):
        shared = SharedOperations(ranks, members, records, shifts_s)
        bounds = _part_bounds(shared.step_ends(), steps)
        if len(bounds) <= FEWEST_PARTS:
            continue
        judged |= {*ranks}
        least_parts.add(_least_part(shared))
        for lag in _lags_of(shared, bounds):
            if lag.rank not in lags or lags[lag.rank].total_s < lag.total_s:
                lags[lag.rank] = lag
    late = sorted(lags.values(), key=lambda lag: (-lag.total_s, lag.rank))
    known_parts = []
    for part in least_parts:
        if part is not None:
            known_parts.append(part)
    return Lags(late, judged, max(known_parts, default=None))


def _records_by_rank(
    timed: Iterable[RecordedOperation], times: Iterable[OperationTimes]
) -> dict[int, RankRecords]:
    """Return the operations of each rank, with their waiting where it is known, and their whole duration elsewhere."""
    costs_s = dict[int, float]()
    bounded = set[int]()
    for group_times in times:
        waiting = None
        if group_times.is_complete:
            waiting = group_times.waiting
        columns = {rank: column for column, rank in enumerate(group_times.ranks)}
        if waiting is None:
            for operation in group_times.operations:
                for record in operation.records.values():
                    costs_s[id(record)] = record.duration_s or 0.0
            continue
        for operation, waiting_s in zip(
            group_times.operations, waiting.waiting_s.tolist(), strict=True
        ):
            for rank, record in operation.records.items():
                costs_s[id(record)] = waiting_s[columns[rank]]
                bounded.add(id(record))
    by_rank = defaultdict[int, list[RecordedOperation]](list)
    for operation_record in timed:
        by_rank[operation_record.rank].append(operation_record)
    return {rank: RankRecords(operations, costs_s, bounded) for rank, operations in by_rank.items()}


def _comparable(
    times: Iterable[OperationTimes], records: Mapping[int, RankRecords]
) -> Iterator[tuple[tuple[int, ...], list[OperationTimes]]]:
    """Yield sets of ranks that do the same, with the collectives of all of them.

    Where the order of operations is not known, each collective is judged by itself.
    """
    by_ranks = defaultdict[tuple[int, ...], list[OperationTimes]](list)
    partners = set[frozenset[int]]()  # pairs of ranks that exchange messages, or may do so
    for group_times in times:
        if group_times.is_complete and group_times.collective not in MESSAGES:
            by_ranks[tuple(group_times.ranks)].append(group_times)
        elif group_times.collective in MESSAGES:
            partners |= _pairs(group_times)
    waited = [
        ranks
        for ranks, members in by_ranks.items()
        if any(times.waiting is not None for times in members)
    ]
    for ranks in waited:
        has_smaller = any(frozenset(smaller) < frozenset(ranks) for smaller in waited)
        if has_smaller or any(pair <= frozenset(ranks) for pair in partners):
            continue
        if all(records[rank].keys is not None for rank in ranks):
            yield ranks, by_ranks[ranks]
        else:
            for times_of_kind in by_ranks[ranks]:
                if times_of_kind.waiting is not None:
                    yield ranks, [times_of_kind]


def _pairs(messages: OperationTimes) -> set[frozenset[int]]:
    """Return the pairs of ranks that exchange messages; none if each one does with all others, as in an all-to-all."""
    peers = defaultdict[int, set[int | None]](set)
    for operation in messages.operations:
        for rank, record in operation.records.items():
            peers[rank].add(record.peer)
    group = messages.group
    ranks = len(group.ranks) or group.size
    if ranks > 2 and all(len(peers_of_rank) == ranks - 1 for peers_of_rank in peers.values()):
        return set()
    if group.has_job_ranks and not any(None in peers_of_rank for peers_of_rank in peers.values()):
        pairs = set[frozenset[int]]()
        for rank, peers_of_rank in peers.items():
            for peer in peers_of_rank:
                if peer is not None:
                    pairs.add(frozenset((rank, peer)))
        return pairs
    # who exchanges messages with whom is not known
    members = group.ranks if group.has_job_ranks else messages.ranks
    return {frozenset(pair) for pair in combinations(members, 2)}


def _part_bounds(step_ends: Integers, steps: int) -> Integers:
    """Return the rows at which parts of a job begin, and that after the last one; fewer than two if nothing repeats.

    A part has the same number of steps; the last step ends the last part.
    """
    wanted = min(MAX_PARTS, steps if steps >= FEWEST_PARTS else MAX_PARTS)
    stride = max(1, -(-len(step_ends) // (wanted + 1)))
    return np.unique(step_ends[::-stride])


def _lags_of(shared: SharedOperations, bounds: Integers) -> Iterator[Lag]:
    """Yield the late ranks, in parts of the job with these bounds."""
    # a rank that waits less than the others is late
    waited_lags_s = -beyond_others(shared.waited_s())
    places = places_of(shared.step_ends(), shared.rows)
    seen_s, own_s = _fresh_by_part(
        shared, waited_lags_s, carried_parts(waited_lags_s, places), bounds
    )
    lag_s = np.minimum(seen_s, own_s)
    is_own = np.median(own_s, axis=0) >= OWN_PART * np.median(seen_s, axis=0)
    parts = len(bounds) - 1
    judged_share = float(bounds[-1] - bounds[0]) / shared.rows
    wall_s = shared.wall_s
    least_s = max(LEAST_S, _least_s(shared) * judged_share / parts)
    late_columns = np.flatnonzero(_are_late(lag_s, least_s) & is_own).tolist()
    if not late_columns:
        return
    # what seems to be brought along by chance must not make a lag small that is much larger than
    # chance
    carried = carried_parts(waited_lags_s, places, SURELY_CARRIED)
    median_s = np.median(
        np.minimum(*_fresh_by_part(shared, waited_lags_s, carried, bounds)), axis=0
    )
    for column in late_columns:
        total_s = float(median_s[column]) * parts / judged_share
        yield Lag(shared.ranks[column], total_s / wall_s if wall_s else None, total_s, parts)


def _fresh_by_part(
    shared: SharedOperations, waited_lags_s: Seconds, carried: Seconds, bounds: Integers
) -> tuple[Seconds, Seconds]:
    """Return by how much ranks are newly late by their waiting, and by all that they spend in operations.

    Both are [part, rank], in seconds; of each lag the ``carried`` part is left out.
    """
    spent_lags_s = -beyond_others(shared.spent_s())
    seen_s = _by_part(fresh_lags(waited_lags_s, carried), bounds)
    own_s = _by_part(fresh_lags(spent_lags_s, carried) - shared.larger_transfer_s(), bounds)
    return seen_s, own_s


def _by_part(table: Seconds, bounds: Integers) -> Seconds:
    """Return the sums over the operations of each part, [part, rank]."""
    sums: Seconds = np.add.reduceat(table[: bounds[-1]], bounds[:-1], axis=0)
    return sums


def _least_part(shared: SharedOperations) -> float | None:
    """Return by which part of the time a late rank is late, at least; None if the time is not known."""
    if shared.wall_s is None:
        return None
    is_unsure = not shared.is_ordered or shared.has_unequal_blocks
    return LEAST_UNSURE_PART if is_unsure else LEAST_PART


def _least_s(shared: SharedOperations) -> float:
    """Return by how much a late rank is late over the whole record, at least."""
    least_part = _least_part(shared)
    if shared.wall_s is None or least_part is None:
        return LEAST_OF_COMMUNICATION * shared.communication_s()
    return shared.wall_s * least_part


def _are_late(lag_s: Seconds, least_s: float) -> NDArray[np.bool_]:
    """Return which ranks are late, by their lags, [part, rank], in seconds.

    They are late in most parts, and then later than all others; the lags of all ranks say what
    chance makes. At most half of the ranks are late: the others set the pace.
    """
    parts, ranks = lag_s.shape
    median_s = np.median(lag_s, axis=0)
    furthest = 4 * DEVIATION * float(np.median(np.abs(lag_s - median_s)))
    usual_s = np.clip(lag_s, median_s - furthest, median_s + furthest)
    freedom = (parts - 1) * (ranks - 1)
    error_s = ERROR_OF_MEDIAN * np.sqrt(float(np.mean((usual_s - median_s) ** 2)) / (parts - 1))
    squared_t = (median_s / max(error_s, 1e-12)) ** 2
    is_sure = freedom * np.log1p(squared_t / freedom) >= SURE**2
    is_often = (lag_s >= least_s).mean(axis=0) >= LATE_SHARE
    candidates = (median_s >= least_s) & is_sure & is_often
    if not 0 < candidates.sum() <= ranks / 2:
        return np.zeros(ranks, dtype=bool)
    latest_s = usual_s[:, ~candidates].max(axis=1, keepdims=True)
    late: NDArray[np.bool_] = candidates & ((usual_s >= latest_s).mean(axis=0) >= LATE_SHARE)
    return late
