"""When resources are free, and how messages that use them at once share them, as arrays over the resources.

Sums in another order differ by rounding, and what comes first must not depend on it. So times up to
an ``instant`` apart count as one. It is a duration of the operation, not a part of the time of day:
then a step takes the same whenever it begins.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.floating]


class Clocks:
    """When each resource of one kind is free, and the last pause before that, into which earlier work fits.

    Lanes take turns wave by wave, so that a message may come after others that begin later.
    """

    def __init__(self, free: Floats, instant_s: float, *, in_order: bool) -> None:
        self.free = free
        self.pause, self.pause_end = np.zeros(len(free)), np.zeros(len(free))
        self.instant_s, self.in_order = instant_s, in_order

    def reserve(self, which: Ints | slice, begin: Floats, work: Floats) -> Floats:
        """Return when each of some different resources has done a work that can begin at ``begin``."""
        free = self.free[which]
        if self.in_order:
            end: Floats = np.maximum(begin, free)
            end += work
            self.free[which] = end
            return end
        early = np.maximum(begin, self.pause[which]) + work
        fits = early <= self.pause_end[which] + self.instant_s
        end = np.where(fits, early, np.maximum(begin, free) + work)
        idle = ~fits & (begin > free + self.instant_s)
        self.pause_end[which] = np.where(idle, begin, self.pause_end[which])
        self.pause[which] = np.where(idle, free, np.where(fits, early, self.pause[which]))
        self.free[which] = np.where(fits, free, end)
        return end


class Sharing:
    """How messages share the resources of one kind; it holds for all waves of messages between the same ranks."""

    def __init__(self, clocks: Clocks, which: Ints) -> None:
        self.clocks = clocks
        self.distinct = len(which) < 2 or int(np.bincount(which).max()) == 1
        are_all = np.array_equal(which, np.arange(len(clocks.free)))
        self.which: Ints | slice = slice(None) if are_all else which
        if not self.distinct:
            self.order = np.argsort(which, kind="stable")
            ordered = which[self.order]
            self.first = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
            self.resources = ordered[self.first]
            # how many messages use each of them
            self.users = np.diff(np.r_[self.first, len(which)])

    def service(self, work: Floats, *, queue: bool) -> Callable[[Floats], Floats]:
        """Return the function of when messages can begin that returns when each has passed its resource.

        Those that begin together share it, or ``queue`` in listed order; others follow. Each needs
        it for ``work`` seconds, or all for as many.
        """
        if self.distinct:
            return partial(self.clocks.reserve, self.which, work=work)
        works = np.broadcast_to(work, len(self.order))[self.order]
        shared = np.add.reduceat(works, self.first)

        def serve(begin: Floats) -> Floats:
            begins = begin[self.order]
            end = np.empty_like(begin)
            low = np.minimum.reduceat(begins, self.first)
            if not queue and (begins - np.repeat(low, self.users)).max() <= self.clocks.instant_s:
                end[self.order] = np.repeat(
                    self.clocks.reserve(self.resources, low, shared), self.users
                )
            else:
                end[self.order] = self._serve_in_turn(begins, works, together=not queue)
            return end

        return serve

    def _serve_in_turn(self, begins: Floats, works: Floats, *, together: bool) -> Floats:
        """Return the ends of works that are ordered by resource."""
        resource = np.repeat(self.resources, self.users)
        order = np.lexsort((begins, resource))
        resources = resource[order]
        is_next_resource = resources[1:] != resources[:-1]
        begins_later = np.diff(begins[order]) > self.clocks.instant_s
        leads = np.r_[True, is_next_resource | begins_later]
        # listed order among those that begin together
        order = order[np.lexsort((order, leads.cumsum()))]
        leads |= not together
        first = np.flatnonzero(leads)
        resources = resources[first]
        begins = begins[order][first]
        works = np.add.reduceat(works[order], first)
        places = np.flatnonzero(np.r_[True, resources[1:] != resources[:-1]])
        turn = np.arange(len(resources)) - np.repeat(places, np.diff(np.r_[places, len(resources)]))
        ends = np.empty_like(begins)
        for number in range(int(turn.max()) + 1):
            now = np.flatnonzero(turn == number)
            ends[now] = self.clocks.reserve(resources[now], begins[now], works[now])
        end = np.empty_like(ends, shape=len(order))
        end[order] = ends[leads.cumsum() - 1]
        return end

    def raise_to(self, times: Floats, at_least: Floats) -> None:
        """Raise the times of the resources to those of their messages."""
        if self.distinct:
            times[self.which] = np.maximum(times[self.which], at_least)
        else:
            highest = np.maximum.reduceat(at_least[self.order], self.first)
            times[self.resources] = np.maximum(times[self.resources], highest)
