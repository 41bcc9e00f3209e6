"""Comparison of two rows in the rounds in which one launch measured both, and the rule for a clear winner."""

from collections.abc import Sequence
from typing import TypeAlias

from hpccoll.store.rows import Interval, Row
from hpccoll.store.statistics import RoundStatistics, median_ratio

RoundKey: TypeAlias = tuple[str, int]
"""The run that measured a round, and the number of the round."""


def disjoint(faster: Interval, slower: Interval) -> bool:
    """Return whether ``faster`` ends before ``slower`` begins; False if either is unknown."""
    if faster is None or slower is None:
        return False
    return faster[1] < slower[0]


def round_statistics(row: Row) -> dict[RoundKey, RoundStatistics]:
    """Return the statistics of each round of a row with a time; those of the row if its rounds are unknown."""
    parts = zip(row.round_medians_s, row.round_intervals_s, row.round_run_ids, strict=True)
    rounds: dict[RoundKey, RoundStatistics] = {}
    for number, (median, interval, run) in enumerate(parts, 1):
        if median is not None and run is not None:
            rounds[run, number] = RoundStatistics(median, interval)
    if not rounds and row.median_s is not None:
        rounds[row.run_id, 1] = RoundStatistics(row.median_s, row.interval)
    return rounds


def paired_rounds(
    first: Row, second: Row
) -> dict[RoundKey, tuple[RoundStatistics, RoundStatistics]]:
    """Return the statistics of both rows in each round in which one launch measured both."""
    rounds_of_second = round_statistics(second)
    pairs = {}
    for key, statistics in round_statistics(first).items():
        if key in rounds_of_second:
            pairs[key] = statistics, rounds_of_second[key]
    return pairs


def round_ratios(row: Row, base: Row) -> list[float]:
    """Return the time of ``row`` over that of ``base`` in each common round; without one, that of their medians."""
    pairs = paired_rounds(row, base).values()
    if pairs:
        return [first.median / second.median for first, second in pairs]
    return [(row.median_s or 0.0) / (base.median_s or 1.0)]


def time_ratio(row: Row, base: Row) -> float:
    """Return the time of ``row`` over that of ``base``: the median of the ratios of their rounds."""
    return median_ratio(round_ratios(row, base))


def clearly_faster(row: Row, rival: Row) -> bool:
    """Return whether ``row`` is clearly faster than ``rival``, by the rule of ``is_clear_lead``."""
    return is_clear_lead(list(paired_rounds(row, rival).values()))


def clearly_faster_anywhere(row: Row, rival: Row) -> bool:
    """Return whether ``row`` is clearly faster than ``rival``: of different launches, if intervals are disjoint."""
    pairs = list(paired_rounds(row, rival).values())
    if not pairs:
        return disjoint(row.interval, rival.interval)
    return is_clear_lead(pairs)


def is_clear_lead(pairs: Sequence[tuple[RoundStatistics, RoundStatistics]]) -> bool:
    """Return whether the first of each pair is clearly faster: in every round its median is below the other's interval.

    With one round, the intervals must be disjoint, because chance alone often puts a median below
    an interval. A round without an interval has no winner.
    """
    if not pairs:
        return False
    if len(pairs) == 1:
        first, second = pairs[0]
        return disjoint(first.interval, second.interval)
    return all(disjoint((first.median, first.median), second.interval) for first, second in pairs)
