"""How much of a rank's lag is new in an operation, and how much it brought along from the one before.

Where computing goes on during operations, a rank that was late once remains so until the others
wait for it. The same lag is then seen in several operations, and must be counted once.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from hpccoll.store.waiting import Seconds

FEWEST_REPEATS = 4
"""How often a sequence of operations is repeated, at least, for its places to be told apart."""

FURTHEST = 3.0
"""Deviations further than this many median absolute deviations count as if they were that far: a stall is rare."""


def places_of(ends: NDArray[np.int64], rows: int) -> NDArray[np.int64]:
    """Return the place of each operation in the sequence that is repeated, [operation].

    Args:
        ends: the operations that end a repetition.
        rows: the number of operations.

    If repetitions differ in length, or are too few, all operations have the same place.
    """
    lengths = np.diff(ends)
    is_regular = len(lengths) >= FEWEST_REPEATS and lengths.min() == lengths.max()
    if not is_regular:
        return np.zeros(rows, dtype=np.int64)
    places: NDArray[np.int64] = (np.arange(rows) - ends[0]) % lengths[0]
    return places


def carried_parts(lag_s: Seconds, places: NDArray[np.int64], least_errors: float = 0.0) -> Seconds:
    """Return which part of the lag in the operation before is brought along to each operation, [operation, 1].

    By chance a rank is late to one operation more than to the same one of another step. If it is
    late to the next operation for the same reason, both deviations agree: the part is the slope of
    the one over the other. It is taken for each place in a step by itself, because all wait for one
    another at some places only.

    Args:
        lag_s: by how much each rank is late to each operation, [operation, rank], in seconds.
        places: as ``places_of`` returns them.
        least_errors: how many standard errors a part is above 0, at least; a smaller one counts as
            0.
    """
    deviation_s = np.empty_like(lag_s)
    for rows in _rows_by_place(places):
        deviation_s[rows] = lag_s[rows] - np.median(lag_s[rows], axis=0)
    furthest_s = FURTHEST * np.median(np.abs(deviation_s))
    deviation_s = np.clip(deviation_s, -furthest_s, furthest_s)
    parts = np.zeros((len(lag_s), 1))
    for rows in _rows_by_place(places):
        with_one_before = rows[rows > 0]
        parts[with_one_before] = _slope(
            deviation_s[with_one_before - 1], deviation_s[with_one_before], least_errors
        )
    return parts


def fresh_lags(lag_s: Seconds, parts: Seconds) -> Seconds:
    """Return by how much each rank is newly late to each operation, [operation, rank], in seconds.

    What was brought along never turns a lag into its opposite.

    Args:
        lag_s: by how much each rank is late to each operation, likewise.
        parts: which part of it is brought along to each operation, [operation, 1].
    """
    before_s = np.vstack([np.zeros_like(lag_s[:1]), lag_s[:-1]])
    carried_s = np.clip(parts * before_s, np.minimum(lag_s, 0), np.maximum(lag_s, 0))
    return lag_s - carried_s


def _rows_by_place(places: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    for place in np.unique(places):
        yield np.flatnonzero(places == place)


def _slope(before: Seconds, after: Seconds, least_errors: float) -> float:
    """Return the slope of a line through the origin, from 0 to 1; 0 if it is fewer standard errors above 0."""
    square = float(np.sum(before * before))
    if square == 0:
        return 0.0
    slope = float(np.sum(before * after)) / square
    operations, ranks = before.shape
    # the deviations of an operation are from that of the others
    freedom = max(1, operations * (ranks - 1) - 1)
    residual = float(np.sum((after - slope * before) ** 2))
    if slope < least_errors * np.sqrt(residual / freedom / square):
        return 0.0
    return float(np.clip(slope, 0.0, 1.0))
