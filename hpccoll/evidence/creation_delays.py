"""Which ranks delayed the creation of a communicator, and how its time grows with the number of ranks.

All ranks end it nearly together, because they wait for one another: in NCCL's phases ``bootstrap``
and ``allgathers`` each waits for all others. A rank that takes longest there was early. The rank
that is late waits least there; if it took no longer in another phase, it began last. Before 2.22
NCCL logs no phases; then the rank whose time from ``Init START`` is shortest began last.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from statistics import linear_regression, median_high, median_low

from hpccoll.evidence.log_record import CommunicatorCreation

WAITING_PHASES = ("bootstrap", "allgathers")
"""The phases in which a rank waits for all others: its own work there takes a few hundredths of a second."""

_REST = "rest"
"""The time outside of the phases, in which a rank sets its device, but may also wait for ranks of its node or split."""

_MIN_DELAY_S = 0.5
"""The smallest delay that matters: GPUs of a healthy node differ by some tenths of a second in ``alloc``."""

_MIN_SHARE = 0.25
"""The smallest delay that matters, as a share of the usual time of the whole creation."""

_DEVIATIONS = 7.4
"""The smallest distance of an outlier from the median in median absolute deviations: five standard
deviations of a normal distribution, whose standard deviation is 1.4826 of them."""

_WHOLE_SECONDS_S = 2.0
"""The smallest delay that a clock shows which has whole seconds only: each of two differences is off by up to one."""


@dataclass(frozen=True, slots=True)
class CreationDelay:
    """Ranks that delayed a communicator, with their hosts, in the order of ``ranks``.

    ``phase`` is the one in which they took longer; ``longest_s`` is what the slowest of them took
    there, ``usual_s`` the median over all ranks. ``phase`` is None if they began last; then both
    times are those that ranks waited, the longest one and the median. ``delay_s`` is the difference
    of the slowest or latest rank from the median.
    """

    phase: str | None
    ranks: tuple[int, ...]
    hosts: tuple[str, ...]
    longest_s: float
    usual_s: float
    delay_s: float


@dataclass(frozen=True, slots=True)
class CreationGrowth:
    """The time of the largest communicator of each launch, the shortest one over its ranks, by its number of ranks.

    The shortest time has the least waiting for ranks that began late.
    ``exponent`` is the slope of the logarithm of the time over that of the ranks, by least squares.
    """

    seconds: Mapping[int, float]
    exponent: float


def known_values(times: Iterable[float | None]) -> list[float]:
    return [time for time in times if time is not None]


def creation_times_s(creation: CommunicatorCreation) -> list[float]:
    """Return the times of the ranks: NCCL's own, or those by the log's clock if NCCL logs none."""
    return known_values(creation.total_s) or known_values(creation.logged_s)


def creation_delays(creation: CommunicatorCreation) -> list[CreationDelay]:
    """Return the delays of a communicator; none if all its ranks are alike."""
    if not known_values(creation.total_s):
        return _began_last(creation, creation.logged_s, _clock_error_s(creation.logged_s))
    began_last = _began_last(creation, _waiting_s(creation))
    last_ranks = _delaying_ranks(began_last)
    delays: list[CreationDelay] = []
    for phase, times in creation.phases_s.items():
        if phase in WAITING_PHASES:
            continue
        slow = _slow_in_phase(creation, phase, times)
        if phase != _REST or last_ranks >= _delaying_ranks(slow):
            delays += slow
    if not last_ranks & _delaying_ranks(delays):
        delays += began_last
    return delays


def _delaying_ranks(delays: Iterable[CreationDelay]) -> set[int]:
    ranks: set[int] = set()
    for delay in delays:
        ranks.update(delay.ranks)
    return ranks


def _waiting_s(creation: CommunicatorCreation) -> list[float | None]:
    """Return how long each rank waited for others in the creation; None without the times of its phases."""
    waiting: list[float | None] = [None] * len(creation.ranks)
    for phase in WAITING_PHASES:
        for number, time_s in enumerate(creation.phases_s.get(phase, ())):
            if time_s is not None:
                waiting[number] = time_s + (waiting[number] or 0.0)
    return waiting


def _slow_in_phase(
    creation: CommunicatorCreation, phase: str, times: Sequence[float | None]
) -> list[CreationDelay]:
    measured = known_values(times)
    usual_s = median_low(measured)
    limit_s = usual_s + _min_delay_s(creation, measured, usual_s)
    slow = [
        number for number, time_s in enumerate(times) if time_s is not None and time_s >= limit_s
    ]
    longest_s = max(measured)
    return _delays(creation, phase, slow, longest_s, usual_s, longest_s - usual_s)


def _began_last(
    creation: CommunicatorCreation, waiting: Sequence[float | None], error_s: float = 0.0
) -> list[CreationDelay]:
    """Return the ranks for which the others waited, from how long each rank waited, in s with an error of ``error_s``.

    There are none if no rank waited clearly less than the others.
    """
    measured = known_values(waiting)
    if len(measured) < 2:
        return []
    usual_s = median_high(measured)
    limit_s = usual_s - max(error_s, _min_delay_s(creation, measured, usual_s))
    last = [
        number for number, time_s in enumerate(waiting) if time_s is not None and time_s <= limit_s
    ]
    return _delays(creation, None, last, max(measured), usual_s, usual_s - min(measured))


def _min_delay_s(creation: CommunicatorCreation, times: Sequence[float], usual_s: float) -> float:
    """Return the smallest difference from the usual time in s that makes a rank an outlier."""
    deviation_s = median_low([abs(time - usual_s) for time in times])
    usual_total_s = median_low(creation_times_s(creation))
    return max(_MIN_DELAY_S, _MIN_SHARE * usual_total_s, _DEVIATIONS * deviation_s)


def _clock_error_s(times: Iterable[float | None]) -> float:
    has_fractions = any(time_s % 1 for time_s in known_values(times))
    return 0.0 if has_fractions else _WHOLE_SECONDS_S


def _delays(
    creation: CommunicatorCreation,
    phase: str | None,
    numbers: Sequence[int],
    longest_s: float,
    usual_s: float,
    delay_s: float,
) -> list[CreationDelay]:
    if not numbers:
        return []
    ranks = tuple(map(creation.ranks.__getitem__, numbers))
    hosts = dict.fromkeys(map(creation.hosts.__getitem__, numbers))
    return [CreationDelay(phase, ranks, tuple(filter(None, hosts)), longest_s, usual_s, delay_s)]


def _largest(creations: Iterable[CommunicatorCreation]) -> CommunicatorCreation | None:
    """Return the first of the largest communicators: later ones find done what it had to do."""
    return max(creations, key=attrgetter("size"), default=None)


def creation_growth(launches: Iterable[Iterable[CommunicatorCreation]]) -> CreationGrowth | None:
    """Return how the time of the largest communicator grows over launches; None with less than two sizes.

    Of several launches of one size the fastest counts.
    """
    seconds: dict[int, float] = {}
    for creations in launches:
        largest = _largest(creations)
        if largest is None:
            continue
        shortest_s = min(creation_times_s(largest))
        if shortest_s > 0:
            seconds[largest.size] = min(shortest_s, seconds.get(largest.size, math.inf))
    if len(seconds) < 2:
        return None
    by_size = dict(sorted(seconds.items()))
    return CreationGrowth(by_size, _slope(by_size.items()))


def _slope(points: Iterable[tuple[float, float]]) -> float:
    """Return the slope of a straight line through the logarithms of points, by least squares."""
    xs, ys = zip(*points, strict=True)
    slope, _ = linear_regression(list(map(math.log, xs)), list(map(math.log, ys)))
    return slope
