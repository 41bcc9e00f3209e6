"""Regret: the time of a choice over that of the best, without what noise alone makes of it.

The least of several noisy times is less than what any of the choices takes on average, and a choice held against it
seems slow. Therefore every round is left out once: the others say which choice is the best, and the two are timed in
the one that is left out (cross-validation: M. Stone, Cross-validatory choice and assessment of statistical predictions,
J. R. Stat. Soc. B 36 (1974)). What is left of noise then goes both ways.
"""

import math
from collections.abc import Mapping
from statistics import median

from hpccoll.choices.table import Choice
from hpccoll.tune.measured import Time, Turn, geometric_mean


def regret(there: Mapping[Choice, Time], choice: Choice) -> float:
    """Return the time of ``choice`` over that of the best of ``there``: the geometric mean over rounds.

    Without two rounds in which all took a turn it is the median over the least median, noise and all.
    """
    turns = sorted(set.intersection(*(set(time.turns) for time in there.values())), key=str)
    if len(turns) < 2:
        return there[choice].seconds / min(time.seconds for time in there.values())
    return geometric_mean(
        there[choice].turns[turn] / there[_best(there, [other for other in turns if other != turn])].turns[turn]
        for turn in turns
    )


def _best(there: Mapping[Choice, Time], turns: list[Turn]) -> Choice:
    """Return the choice with the least median over ``turns``, each relative to the median of all choices in it."""
    usual = {turn: median(time.turns[turn] for time in there.values()) for turn in turns}
    return min(there, key=lambda one: median(math.log(there[one].turns[turn] / usual[turn]) for turn in turns))
