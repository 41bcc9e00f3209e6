"""The choice of ranges of sizes: where each choice gains more than the noise.

Between measured sizes, times are interpolated linearly in log(time) over log(bytes); a cut between
two ranges lies at the crossing of the lines of their choices.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hpccoll.analysis.choice_table import ChoiceRange
from hpccoll.analysis.measured_choices import Curves, MeasuredSetting, comparable_seconds
from hpccoll.analysis.setting import Choice

MIN_CUT_PRICE = 0.03
"""The smallest gain that justifies another range: a relative time, summed over the measured sizes of the range."""

DIGITS = 4
"""The decimals of ratios in a table, which are for people."""

RULE = (
    "Ranges minimise the sum of log(time / best time) over the measured sizes plus a price for each cut. The price is "
    f"the median over sizes of the noise of the ratio of the two best choices, and at least {MIN_CUT_PRICE}. The noise "
    "is half the spread of the ratio over the rounds that measured both: 0.05 for ratios from 1.02 to 1.12. With fewer "
    "than two such rounds it is the root of the sum of squares of their half 95 % intervals, or half spreads between "
    "runs, relative. Times are compared by the median of their ratios to the fastest over the rounds that measured "
    "both: at ratios of 1.1 to one of 10 us, a time counts as 11 us. A cut lies where the times of its choices cross, "
    "interpolated linearly in log time over log bytes. If native was measured, a first range of another choice costs a "
    "cut, too. One set of ranges serves both placements unless sets of their own cost less by more than the price of a "
    "cut. The last range reaches beyond the measured sizes. Below them native is the choice, and without native "
    "measured, that of the first range. If the strength is weak or none, the choice is not shown to be the faster one."
)

Times = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SizeRanges:
    """The ranges of one setting, or of both placements of one call."""

    ranges: tuple[ChoiceRange, ...]  # the ranges, ascending; together they cover all sizes
    cost: float  # the minimum that RULE describes, as a mean over placements
    price: float  # the price of a cut


def choose_ranges(*placements: MeasuredSetting) -> SizeRanges:
    """Return the ranges, by RULE, that serve one setting, or both placements of a call at the same sizes.

    Raises:
        ValueError: if no choice was measured in all placements.
    """
    sizes = placements[0].sizes
    price = max(MIN_CUT_PRICE, *map(ratio_noise, placements))
    choices = _common_choices(placements)
    excess, mean_logs = _mean_log_times(placements, choices)
    is_native = [choice.is_native for choice in choices]
    entry = np.where(is_native, 0.0, price * any(is_native))
    rows = _cheapest_rows(excess, price, entry)
    starts = [place for place in range(len(sizes)) if place == 0 or rows[place] != rows[place - 1]]
    ends = [*starts[1:], len(sizes)]
    firsts = [0]
    for start in starts[1:]:
        around = slice(start - 1, start + 1)
        before = mean_logs[rows[start - 1], around]
        after = mean_logs[rows[start], around]
        firsts.append(_cut(sizes[around], before, after))
    ranges = []
    for first, below, start, end in zip(firsts, [*firsts[1:], None], starts, ends, strict=True):
        row = rows[start]
        over_best = float(np.exp(excess[row, start:end].mean()))
        chosen = ChoiceRange(
            first=first,
            below=below,
            choice=choices[row],
            sizes=tuple(sizes[start:end]),
            over_best=round(over_best, DIGITS),
            over_native=_over_native(choices, mean_logs[:, start:end], row),
            unpaired=_unpaired_labels(placements, choices[row], sizes[start:end]),
        )
        ranges.append(chosen)
    cuts = len(starts) - 1
    cost = float(excess[rows, range(len(sizes))].sum() + price * cuts + entry[rows[0]])
    return SizeRanges(tuple(ranges), cost, price)


def _common_choices(placements: Sequence[MeasuredSetting]) -> list[Choice]:
    """Return the choices that were measured in all placements, in the order of the first one."""
    first, *later = placements
    return [
        choice for choice in first.curves if all(choice in measured.curves for measured in later)
    ]


def _mean_log_times(
    placements: Sequence[MeasuredSetting], choices: Sequence[Choice]
) -> tuple[Times, Times]:
    """Return means over placements, each as [choice, size].

    The first are the logarithms of the times over the best time, which may be of a choice that is
    not in all placements; the second are the logarithms of the times.
    """
    sizes = placements[0].sizes
    excess, logs = [], []
    for measured in placements:
        log_of_choice = dict(zip(measured.curves, log_times(measured.curves, sizes), strict=True))
        best = np.min(list(log_of_choice.values()), axis=0)
        log_of_common = np.array([log_of_choice[choice] for choice in choices])
        excess.append(log_of_common - best)
        logs.append(log_of_common)
    return np.mean(excess, axis=0), np.mean(logs, axis=0)


def log_times(curves: Curves, sizes: Sequence[int]) -> Times:
    """Return the logarithm of each choice's seconds at ``sizes``, [choice, size]; infinite outside its own sizes."""
    log_sizes = np.log(sizes)
    seconds = {}
    for size in sizes:
        measured = {choice: curve[size] for choice, curve in curves.items() if size in curve}
        seconds[size] = comparable_seconds(measured)
    rows = []
    for choice, curve in curves.items():
        log_seconds = np.log([seconds[size][choice] for size in curve])
        rows.append(
            np.interp(log_sizes, np.log(list(curve)), log_seconds, left=np.inf, right=np.inf)
        )
    return np.array(rows)


def ratio_noise(measured: MeasuredSetting) -> float:
    """Return the relative uncertainty of the ratio of the two fastest: median over sizes; 0 for a single choice."""
    noises = []
    for size in measured.sizes:
        times = measured.times_at(size)
        fastest = sorted(times, key=comparable_seconds(times).__getitem__)[:2]
        noise = 0.0
        if len(fastest) == 2:
            best, second = fastest
            noise = times[best].ratio_noise(times[second])
        noises.append(noise)
    return float(np.median(noises))


def _cheapest_rows(excess: Times, price: float, entry: Times) -> list[int]:
    """Return a row for each column of ``excess``, [row, column], so that the sum of costs is least.

    A change of the row costs ``price``, and beginning with a row its ``entry``.
    """
    total = excess[:, 0] + entry
    origins = []
    for column in excess.T[1:]:
        best = int(total.argmin())
        stay = total <= total[best] + price
        origins.append(np.where(stay, np.arange(len(total)), best))
        total = np.where(stay, total, total[best] + price) + column
    rows = [int(total.argmin())]
    for origin in reversed(origins):
        rows.append(int(origin[rows[-1]]))
    return rows[::-1]


def _cut(sizes: Sequence[int], before: Times, after: Times) -> int:
    """Return the first size of the choice ``after``: the crossing of its line with that of ``before``.

    If only one of them was measured at both sizes, the other takes over where its measurements end;
    if neither was, the cut lies in the middle.
    """
    fraction = _crossing(before, after)
    cut = sizes[0] * (sizes[1] / sizes[0]) ** fraction
    return int(np.clip(np.ceil(cut), sizes[0] + 1, sizes[1]))


def _crossing(before: Times, after: Times) -> float:
    """Return where a cut lies between two sizes: 0 at the first, 1 at the second."""
    continues, was_measured = np.isfinite([before[1], after[0]])
    if continues and was_measured:
        lead_before = after[0] - before[0]
        lead_after = before[1] - after[1]
        both = lead_before + lead_after
        fraction: float = lead_before / both if both > 0 else 0.5
        return fraction
    if continues:
        return 1.0
    return 0.0 if was_measured else 0.5


def _unpaired_labels(
    placements: Sequence[MeasuredSetting], choice: Choice, sizes: Sequence[int]
) -> tuple[str, ...]:
    """Return the labels of choices that no launch measured together with ``choice`` in one of the placements."""
    labels: list[str] = []
    for measured in placements:
        labels += _unpaired(measured.curves, choice, sizes)
    return tuple(dict.fromkeys(labels))


def _unpaired(curves: Curves, choice: Choice, sizes: Sequence[int]) -> Iterator[str]:
    """Yield the labels of choices that no launch measured together with ``choice`` at one of their common ``sizes``."""
    chosen = curves[choice]
    for rival, curve in curves.items():
        if rival == choice:
            continue
        common = [size for size in sizes if size in chosen and size in curve]
        if not all(chosen[size].shares_launch(curve[size]) for size in common):
            yield rival.label


def _over_native(choices: Sequence[Choice], logs: Times, row: int) -> float | None:
    native_choices = [number for number, choice in enumerate(choices) if choice.is_native]
    if not native_choices:
        return None
    chosen = logs[row]
    native = logs[native_choices].min(axis=0)
    if not np.isfinite([chosen, native]).all():
        return None
    mean_log_ratio = (chosen - native).mean()
    return round(float(np.exp(mean_log_ratio)), DIGITS)
