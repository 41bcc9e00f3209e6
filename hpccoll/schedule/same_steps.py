"""Whether two schedules have the same steps: the same messages, folds and copies in the same order on every rank."""

from collections.abc import Iterator
from itertools import zip_longest

import numpy as np

from hpccoll.schedule.group_composition import form_of
from hpccoll.schedule.schedule import NotVectorisedError, Schedule
from hpccoll.schedule.step import Index, Part, Send, Step, drop_null_peers, rewrite

FEW_RANKS = 16
"""The most ranks on which schedules are compared without what does nothing: on few ranks, algorithms
coincide that differ on many, and on many it would take long."""


def have_same_steps(first: Schedule, second: Schedule) -> bool:
    """Return whether two schedules have the same steps, on up to FEW_RANKS ranks but for what does nothing.

    The first difference ends the comparison: only schedules that are equal, or differ late, take
    long.
    """
    layout = first.layout
    if (layout, first.units) != (second.layout, second.units):
        return False
    if layout.ranks <= FEW_RANKS:
        return all(_do_the_same(first, second, me) for me in range(layout.ranks))
    if first.vectorised and second.vectorised:
        try:
            return _are_alike(first, second, np.arange(layout.ranks))
        except NotVectorisedError:
            pass
    return all(_are_alike(first, second, me) for me in range(layout.ranks))


def _do_the_same(first: Schedule, second: Schedule, me: int) -> bool:
    """Return whether a rank does the same in two schedules."""
    for a, b in zip_longest(_acting_steps(first, me), _acting_steps(second, me)):
        if a is None or b is None or not _are_equal(a, b):
            return False
    return True


def _acting_steps(schedule: Schedule, me: int) -> Iterator[Step]:
    """Yield the steps of a rank that do something, each with its sends first.

    Sends read what was there before the step, so only their own order counts, and that of the rest.
    """
    for step in schedule.steps(me):
        acting = rewrite(drop_null_peers(step), lambda peer: peer, _without_empty_ranges)
        sends = [action for action in acting.actions if isinstance(action, Send)]
        arrivals = [action for action in acting.actions if not isinstance(action, Send)]
        if acting.actions:
            yield Step(*sends, *arrivals)


def _without_empty_ranges(part: Part) -> Part:
    ranges = tuple(units for units in part.ranges if units.first < units.last)
    return Part(part.buffer, ranges)


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
