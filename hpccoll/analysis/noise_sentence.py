"""The noise of results in one sentence, which stands below the answers."""

from statistics import median

from hpccoll.cases.case import LEAST_ITERATIONS
from hpccoll.common.units import TWICE
from hpccoll.store.rows import Results

WEAK_SPREAD = 1.5
"""The ratio of the slowest to the fastest round of a case, as a median over cases, from which on evidence is weak."""

WEAK_SHARE = 0.5
"""The share of intervals wider than requested above which evidence is weak."""

LOW_SPREAD, LOW_SHARE = 1.05, 0.1
"""The ratio of the slowest to the fastest round, and the share of wide intervals, below which noise is low."""


def noise_sentence(results: Results) -> str:
    """Return one sentence on how far the rounds of a case differ, and how many intervals are wide; empty without rows.

    Floors, rows without a correct time and rows of single ranks, from which nothing follows, are left out.
    """
    measured = results.ours.rows
    rows = [row for row in measured if row.answers]
    if not rows:
        return ""
    times = [[time for time in row.round_medians_s if time] for row in rows]
    spreads = [max(of_rounds) / min(of_rounds) for of_rounds in times if len(of_rounds) > 1]
    bare = sum(row.interval is None for row in rows)
    wide = sum(row.converged is False and row.interval is not None for row in rows)
    floors = sorted({row.algorithm for row in measured if row.floor})
    without = f" ({' and '.join(floors)} left out)" if floors else ""
    intervals = f"; {wide} of {len(rows)} intervals{without} are wider than requested" if wide else ""
    if bare:
        needed = f"which takes {LEAST_ITERATIONS} iterations in each round"
        intervals += f"; {bare} of {len(rows)} times{without} have no 95 % interval, {needed}"
    spread, wide_share = median(spreads) if spreads else 1.0, (wide + bare) / len(rows)
    weak = spread >= WEAK_SPREAD or wide_share > WEAK_SHARE
    low = spreads and spread < LOW_SPREAD and wide_share < LOW_SHARE
    word = "Weak evidence" if weak else "Low noise" if low else "Some noise" if spreads else "Noise"
    if not spreads:
        return f"{word}: each case was measured in one round, and noise is therefore unknown{intervals}."
    return (
        f"{word}: between the rounds of a case, times differ by {_percent_or_factor(spread)} (median) and at "
        f"most by {_percent_or_factor(max(spreads))}{intervals}."
    )


def _percent_or_factor(ratio: float) -> str:
    """Return a ratio from 1 on in words: ``8 %``, or from 2 on ``a factor of 2.3``."""
    return f"{100 * (ratio - 1):.0f} %" if ratio < TWICE else f"a factor of {ratio:.{0 if ratio >= 10 else 1}f}"
