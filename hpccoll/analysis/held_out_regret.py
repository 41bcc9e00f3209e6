"""The lower estimate of a regret: what a choice costs compared with what other rounds would have chosen.

Noise makes a regret too large: the fastest of many noisy times was also lucky, and compared with it
every choice seems slow. Therefore each round is left out once: the other rounds select the best
choice, and the round left out compares the two (cross-validation: M. Stone, Cross-validatory choice
and assessment of statistical predictions, J. R. Stat. Soc. B 36 (1974)). The choice so selected may
be slower than the best one, so that this estimate is at most the regret. If the rounds agree, both
are equal.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from statistics import geometric_mean, median
from typing import TypeVar

Option = TypeVar("Option", bound=Hashable)
Round = TypeVar("Round", bound=Hashable)


def held_out_regret(
    seconds: Mapping[Option, Mapping[Round, float]], chosen: Option
) -> float | None:
    """Return the lower estimate of the regret of ``chosen``, as a ratio: the geometric mean over rounds left out.

    Options that share fewer than two rounds with ``chosen`` are ignored; None is returned if no
    other option is left. ``seconds`` has the median time of every round, by option.
    """
    own_times = seconds[chosen]
    rivals = {
        option: times
        for option, times in seconds.items()
        if len(times.keys() & own_times.keys()) > 1
    }
    common = sorted(set(own_times).intersection(*rivals.values()), key=str)
    if len(common) < 2 or len(rivals) < 2:
        return None
    ratios = []
    for left_out in common:
        best = _best(rivals, [number for number in common if number != left_out])
        ratios.append(own_times[left_out] / rivals[best][left_out])
    return geometric_mean(ratios)


def _best(seconds: Mapping[Option, Mapping[Round, float]], rounds: Sequence[Round]) -> Option:
    """Return the option with the least median over ``rounds``, each relative to the median of all options in it."""
    typical: dict[Round, float] = {}
    for number in rounds:
        typical[number] = median(times[number] for times in seconds.values())

    def relative_time(option: Option) -> float:
        times = seconds[option]
        return median(math.log(times[number] / typical[number]) for number in rounds)

    return min(seconds, key=relative_time)
