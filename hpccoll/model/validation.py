"""Validation: measured times that the fit has not seen, and predicted ones; what choosing by the model costs."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, count, pairwise
from statistics import geometric_mean

import numpy as np

from hpccoll.analysis.held_out_regret import held_out_regret
from hpccoll.model.critical_path import MOST_MESSAGES
from hpccoll.model.machine import Machine
from hpccoll.model.memory_work import memory_work, seconds_beside_messages
from hpccoll.model.observations import Observation
from hpccoll.model.operation_work import has_habits, operation_work
from hpccoll.model.path_times import (
    MachineCosts,
    largest_fold_of_ports,
    sums_paths,
    times_along_path,
)
from hpccoll.model.simulation import simulate
from hpccoll.model.traffic import TooManyMessagesError
from hpccoll.model.unknown_messages import (
    other_peers_reason,
    schedules_of,
    several_schedules_reason,
    unknown_tiers_reason,
    unmet_reason,
)
from hpccoll.schedule import Cut, itemsize, out_of_place
from hpccoll.store.schema import ADDRESSES, IMPORTED

TOLERANCE = 1e-9
"""The relative difference up to which two times are equal: sums in another order differ by rounding."""


CLOSE_FACTOR = 1.8
"""By which factor measured and predicted times differ at most that are called close."""


@dataclass(frozen=True, slots=True)
class Validated:
    """An observation and its prediction."""

    observation: Observation
    seconds: float | None  # the predicted time; None without a prediction
    reason: str = ""  # why there is no prediction
    held_out: bool = True  # whether the fit has not seen it

    @property
    def ratio(self) -> float | None:
        """Measured over predicted."""
        return self.observation.seconds / self.seconds if self.seconds else None


@dataclass(frozen=True, slots=True)
class Errors:
    """How far measured times are from predicted ones."""

    cases: int
    ratio_median: float  # the median of measured over predicted
    error_median: float  # the median of the relative errors
    error_p90: float  # their 90th percentile
    ratio_p5: float  # the 5th percentile of measured over predicted
    ratio_p95: float  # the 95th percentile
    # the part of the measured times that is within ``CLOSE_FACTOR`` times the predicted one
    within_close: float

    @classmethod
    def of(cls, validated: Iterable[Validated]) -> "Errors | None":
        """Return the errors of the observations that have a prediction; None without any."""
        ratios = np.array([case.ratio for case in validated if case.ratio], float)
        if not len(ratios):
            return None
        ratio_p5, ratio_median, ratio_p95 = map(float, np.percentile(ratios, (5, 50, 95)))
        error_median, error_p90 = map(float, np.percentile(np.abs(ratios - 1), (50, 90)))
        is_close = np.abs(np.log(ratios)) < math.log(CLOSE_FACTOR)
        return cls(
            len(ratios),
            ratio_median,
            error_median,
            error_p90,
            ratio_p5,
            ratio_p95,
            float(is_close.mean()),
        )


@dataclass(frozen=True, slots=True)
class Regret:
    """What choosing the algorithm by the model costs: measured time of the choice over that of the best."""

    choices: int  # the number of settings, each a work at a size
    mean: float  # the geometric mean over them; noise makes it too large
    most: float  # the largest
    # the lower estimate of the mean, by cross-validation over rounds; the mean itself without
    # rounds
    held_out: float

    @property
    def text(self) -> str:
        """The sentence: the mean, with the lower estimate if they differ."""
        mean, least = f"{self.mean:.3f}", f"{self.held_out:.3f}"
        noise = "" if mean == least else f" at most, {least} at least, because of noise"
        settings = f"geometric mean of {self.choices} settings; the largest {self.most:.2f}"
        return (
            f"choosing by the model costs {mean} times the best measured time{noise} ({settings})"
        )

    @classmethod
    def of(cls, validated: Iterable[Validated]) -> "Regret | None":
        """Return the regret over all works and sizes with several algorithms; None without any."""
        settings: dict[object, list[Validated]] = defaultdict(list)
        for case in validated:
            if case.seconds:
                settings[_setting_of(case.observation)].append(case)
        costs = []
        for setting in settings.values():
            names = {case.observation.name for case in setting}
            if len(names) > 1:
                costs.append(_cost(setting))
        if not costs:
            return None
        most, least = zip(*costs, strict=True)
        return cls(len(costs), geometric_mean(most), max(most), geometric_mean(least))


def _setting_of(observation: Observation) -> object:
    """Return what observations share among which a choice is made: a work, and a size.

    Those of another program share their launch as well: another launch may have had other nodes.
    """
    launch = ""
    if observation.kind == IMPORTED:
        launch = observation.key[1]
    return observation.work, observation.nbytes, launch


def _cost(setting: Sequence[Validated]) -> tuple[float, float]:
    """Return the regret at one size of one work, and its lower estimate."""
    chosen = min(range(len(setting)), key=lambda place: setting[place].seconds or math.inf)
    measured = [case.observation.seconds for case in setting]
    cost = measured[chosen] / min(measured)
    rounds = {
        place: dict(enumerate(case.observation.rounds_s)) for place, case in enumerate(setting)
    }
    least = held_out_regret(rounds, chosen)
    if least is None:
        return cost, cost
    return cost, min(max(1.0, least), cost)


@dataclass(frozen=True, slots=True)
class Overtaking:
    """Which of two algorithms is faster for large vectors, and from which size on, by the model or as measured."""

    # the faster one at the largest size at which they differ; None if they never differ
    overtaker: str | None
    # the sizes in bytes at which they cross; none if one is always faster, several if they cross
    # again
    sizes: tuple[float, ...]
    largest: int  # the largest size at which both are known


@dataclass(frozen=True, slots=True)
class Crossing:
    """Two algorithms that cross, by the model or as measured."""

    pair: tuple[str, str]
    modelled: Overtaking
    measured: Overtaking


NOT_SIMULATED = {
    ADDRESSES: "messages of addresses are not simulated",
    "torus": "the links of a torus are not simulated",
}
"""Why observations with a parameter have no prediction by simulation."""


def validate(
    observed: Sequence[Observation],
    machine: Machine,
    fitted: Iterable[Observation] = (),
    progress: Callable[[], object] = lambda: None,
) -> list[Validated]:
    """Return every observation with its prediction, and whether the machine was fitted to it."""
    seen = {id(observation) for observation in fitted}
    validated = []
    for observation in observed:
        reason = unpredicted_reason(observation, machine)
        seconds = None
        if not reason:
            times, reason = times_or_reason(observation, [machine])
            seconds = times[0] if times else None
        validated.append(Validated(observation, seconds, reason, id(observation) not in seen))
        progress()
    return validated


def count_progress(
    progress: Callable[[int, int], object] | None, total: int
) -> Callable[[], object]:
    """Return the function that reports, each time it is called, that one more of all is done."""
    done = count(1)
    return lambda: progress and progress(next(done), total)


def predicted_seconds(observation: Observation, machine: Machine) -> float:
    """Return the predicted time of what was observed."""
    (seconds,) = predicted_times(observation, [machine])
    return seconds


def times_or_reason(
    observation: Observation, machines: Sequence[Machine]
) -> tuple[Sequence[float], str]:
    """Return the predicted times of what was observed: see ``predicted_times``; without any, the reason."""
    try:
        return predicted_times(observation, machines), ""
    except TooManyMessagesError:
        return (), f"more than {MOST_MESSAGES} messages"


def predicted_times(observation: Observation, machines: Sequence[Machine]) -> list[float]:
    """Return the predicted times of what was observed, on machines that differ in their costs only.

    Raises:
        TooManyMessagesError: if a program did more than its schedule says, with too many messages to
            find their path.
    """
    if machines[0].path and has_habits(observation):
        return _times_of_work(observation, machines)
    slices = schedules_of(observation)
    call = observation.call
    if not call.collective.in_place:
        slices = tuple(out_of_place(call, schedule) for schedule in slices)
    lanes = len(slices) * int(observation.params.get("channels", 1))
    window = int(observation.params.get("window", 1))
    size = itemsize(observation.dtype)
    elements = call.collective.elements(observation.nbytes, size, observation.layout.workers)
    cut = Cut(call, elements, slices[0].units, lanes, size)
    in_job = [
        machine.in_job(observation.layout.nodes, observation.ports, observation.torus)
        for machine in machines
    ]
    if sums_paths(in_job[0], slices, cut):
        times = times_along_path(slices[0], cut, in_job, observation.dtype)
    else:
        times = [
            simulate(slices, cut, machine, window, observation.dtype).seconds for machine in in_job
        ]
    if in_job[0].start_skew_s or in_job[0].own_memory:
        fold = largest_fold_of_ports(tuple(slices), cut, observation.ports)
        memory = memory_work(call, observation.name_of_algorithm, observation.nbytes, fold)
        for place, machine in enumerate(in_job):
            times[place] += seconds_beside_messages(machine, observation.layout, memory)
    return times


def _times_of_work(observation: Observation, machines: Sequence[Machine]) -> list[float]:
    """Return the times of an operation whose program did more than its schedule says."""
    work, memory = operation_work(observation)
    layout = observation.layout
    times = []
    for machine in machines:
        in_job = machine.in_job(layout.nodes, observation.ports_at_once, observation.torus)
        along_path_s = MachineCosts(in_job, observation.dtype).work_s(work)
        times.append(along_path_s + seconds_beside_messages(in_job, layout, memory))
    return times


def unpredicted_reason(observation: Observation, machine: Machine) -> str:
    """Return why nothing can be predicted of what was observed; nothing if something can."""
    if observation.algorithm is None:
        return "the algorithm of the library is unknown"
    if observation.layout.workers == 1:
        return "one rank sends no messages"
    if int(observation.params.get("copies", 0)) > 0:
        return "copies on a rank are not modelled"
    if machine.path is None:
        for name, reason in NOT_SIMULATED.items():
            if name in observation.params:
                return reason
    reason = other_peers_reason(observation) or unmet_reason(observation)
    reason = reason or _unknown_ports_reason(observation, machine)
    if _is_only_known_along_paths(observation):
        reason = reason or several_schedules_reason(observation)
    return reason or unknown_tiers_reason(observation, machine.tiers)


def _unknown_ports_reason(observation: Observation, machine: Machine) -> str:
    if observation.ports == 1:
        return ""
    if machine.path is None:
        return "several ports of a rank are not simulated"
    if machine.path.further_port_s is None:
        return "the machine was not fitted to several ports of a rank"
    return ""


def _is_only_known_along_paths(observation: Observation) -> bool:
    """Return whether an operation has costs that sums along paths have, and simulations do not."""
    return observation.ports > 1 or observation.torus is not None or has_habits(observation)


def curves_by_algorithm(validated: Iterable[Validated]) -> dict[str, dict[int, Validated]]:
    """Return the faster placement of every algorithm at each size, without observations that have no prediction."""
    fastest: dict[str, dict[int, Validated]] = defaultdict(dict)
    for case in validated:
        if case.seconds is not None:
            curve = fastest[case.observation.name]
            best = curve.setdefault(case.observation.nbytes, case)
            if case.observation.seconds < best.observation.seconds:
                curve[case.observation.nbytes] = case
    return {name: dict(sorted(curve.items())) for name, curve in fastest.items()}


def find_crossings(validated: Iterable[Validated]) -> Iterator[Crossing]:
    """Yield the pairs of curves_by_algorithm that cross, by the model or as measured."""
    for (a, first), (b, second) in combinations(curves_by_algorithm(validated).items(), 2):
        sizes = sorted(first.keys() & second.keys())
        if len(sizes) < 2:
            continue
        modelled = {}
        measured = {}
        for size in sizes:
            case, case_of_second = first[size], second[size]
            modelled[size] = math.log((case.seconds or 1) / (case_of_second.seconds or 1))
            measured[size] = _measured_lead(case.observation, case_of_second.observation)
        crossing = Crossing((a, b), overtaking(a, b, modelled), overtaking(a, b, measured))
        if crossing.modelled.sizes or crossing.measured.sizes:
            yield crossing


def _measured_lead(first: Observation, second: Observation) -> float:
    """Return the logarithm of the time of one over that of another; 0, a tie, if their rounds disagree on the sign."""
    ratios = [mine / theirs for mine, theirs in zip(first.rounds_s, second.rounds_s, strict=False)]
    if ratios and min(ratios) <= 1 <= max(ratios):
        return 0.0
    return math.log(first.seconds / second.seconds)


def overtaking(a: str, b: str, behind: Mapping[int, float]) -> Overtaking:
    """Return which of two algorithms overtakes the other, and at which sizes.

    ``behind`` is by size the logarithm of the time of ``a`` over that of ``b``. Its changes of sign
    are interpolated over log sizes; after a tie, the faster one overtakes at the tie.
    """
    leads = {n: lead if abs(lead) > TOLERANCE else 0.0 for n, lead in sorted(behind.items())}
    last = 0.0
    sizes = []
    for n, m in pairwise(leads):
        last = leads[n] or last
        if last * leads[m] < 0:
            part = (math.log(m) - math.log(n)) * leads[n] / (leads[n] - leads[m])
            sizes.append(math.exp(math.log(n) + part))
    overtaker = None
    for lead in leads.values():
        if lead:
            overtaker = b if lead > 0 else a
    return Overtaking(overtaker, tuple(sizes), max(leads))
