"""Whether two schedules have the same steps: the same messages, folds and copies in the same order on every rank."""

from itertools import zip_longest

import numpy as np

from hpccoll.schedule.group_composition import form_of
from hpccoll.schedule.schedule import NotVectorisedError, Schedule
from hpccoll.schedule.step import Index, Step


def have_same_steps(first: Schedule, second: Schedule) -> bool:
    """Return whether two schedules have the same steps.

    The first difference ends the comparison: only schedules that are equal, or differ late, take
    long.
    """
    if (first.layout, first.units) != (second.layout, second.units):
        return False
    if first.vectorised and second.vectorised:
        try:
            return _are_alike(first, second, np.arange(first.layout.ranks))
        except NotVectorisedError:
            pass
    return all(_are_alike(first, second, me) for me in range(first.layout.ranks))


def _are_alike(first: Schedule, second: Schedule, me: Index) -> bool:
    for a, b in zip_longest(first.steps(me), second.steps(me)):
        if a is None or b is None or not _are_equal(a, b):
            return False
    return True


def _are_equal(a: Step, b: Step) -> bool:
    """Return whether two steps have the same actions; one may name a peer or unit of all ranks by a single number."""
    form, numbers = form_of(a)
    other_form, other_numbers = form_of(b)
    if form != other_form:
        return False
    return all(np.all(x == y) for x, y in zip(numbers, other_numbers, strict=True))
