"""Whether two schedules have the same steps: the same messages, folds and copies in the same order on every rank."""

from itertools import zip_longest

import numpy as np

from hpccoll.schedule.group_composition import form_of
from hpccoll.schedule.schedule import NotVectorisedError, Schedule
from hpccoll.schedule.step import Index, Step


def have_same_steps(one: Schedule, other: Schedule) -> bool:
    """Return whether two schedules have the same steps.

    The first difference ends the comparison: only schedules that are equal, or differ late, take long.
    """
    if (one.layout, one.units) != (other.layout, other.units):
        return False
    if one.vectorised and other.vectorised:
        try:
            return _are_alike(one, other, np.arange(one.layout.ranks))
        except NotVectorisedError:
            pass
    return all(_are_alike(one, other, me) for me in range(one.layout.ranks))


def _are_alike(one: Schedule, other: Schedule, me: Index) -> bool:
    steps = zip_longest(one.steps(me), other.steps(me))
    return all(a is not None and b is not None and _are_equal(a, b) for a, b in steps)


def _are_equal(one: Step, other: Step) -> bool:
    """Return whether two steps have the same actions; one may name a peer or unit of all ranks by a single number."""
    (form, numbers), (other_form, other_numbers) = form_of(one), form_of(other)
    return form == other_form and all(np.all(a == b) for a, b in zip(numbers, other_numbers, strict=True))
