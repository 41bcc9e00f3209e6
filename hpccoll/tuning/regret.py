"""Regret: the time of a choice over that of the best, where noise hides which one that is.

Held against the least of several noisy times any choice seems slow: that is more than its regret. Therefore every round
is also left out once: the others say which choice is the best, and the two are timed in the one that is left out
(cross-validation: M. Stone, Cross-validatory choice and assessment of statistical predictions, J. R. Stat. Soc. B 36
(1974)). What the others take for the best may be slower than the best, so that this is less than the regret, or just as
much. Where rounds agree the two are the same.
"""

import math
from collections.abc import Mapping
from statistics import median

from hpccoll.tuning.measured_choices import Time, Turn, geometric_mean
from hpccoll.tuning.table import Choice


def held_out(there: Mapping[Choice, Time], choice: Choice) -> float | None:
    """Return the least that the regret of ``choice`` may be, as a ratio: the geometric mean over rounds.

    Choices that took no turn in two of its rounds are left out; None where no other is left.
    """
    own = there[choice]
    beside = {other: time for other, time in there.items() if len(time.turns.keys() & own.turns.keys()) > 1}
    turns = sorted(set.intersection(set(own.turns), *(set(time.turns) for time in beside.values())), key=str)
    if len(turns) < 2 or len(beside) < 2:
        return None
    return geometric_mean(
        own.turns[turn] / beside[_best(beside, [other for other in turns if other != turn])].turns[turn]
        for turn in turns
    )


def _best(there: Mapping[Choice, Time], turns: list[Turn]) -> Choice:
    """Return the choice with the least median over ``turns``, each relative to the median of all choices in it."""
    usual = {turn: median(time.turns[turn] for time in there.values()) for turn in turns}
    return min(there, key=lambda one: median(math.log(there[one].turns[turn] / usual[turn]) for turn in turns))
