"""The best of predictions: the fastest algorithm by nodes and size, its lead, and the sizes at which it changes."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from hpccoll.model.machine_file import MachineFile
from hpccoll.model.nccl_model import OPERATION_US
from hpccoll.model.predict import Prediction, Predictions
from hpccoll.model.simulation import BOUNDS
from hpccoll.model.validation import overtaking

REFERENCE = "ring"
"""The algorithm with which the best one is compared where NCCL's own is not."""

TIE = 1.02
"""The ratio of two times up to which neither algorithm is called the faster one."""


@dataclass(frozen=True, slots=True)
class BestChoice:
    """The fastest algorithm for a size on a number of nodes, and how much faster it is than another one."""

    best: Prediction  # its prediction
    other: Prediction | None  # the prediction of the other one; None if there is none
    rivals: Sequence[Prediction]  # what it must be faster than for a clear lead: the other one, or all others
    of_described_gpus: bool = False  # whether its machine is described and has GPUs: messages cost no launch there

    @property
    def clear(self) -> bool:
        """Whether it is faster than its rivals within the whole interval, which formulas do not have."""
        if any(each.of_library for each in (self.best, *self.rivals)):
            return False
        return bool(self.rivals) and all(self.best.times_as_fast_as(each)[1] > 1 for each in self.rivals)

    @property
    def excluded_s(self) -> tuple[float, float] | None:
        """The least and the most seconds of an operation of NCCL that the time of the schedule does not include.

        NCCL's own includes them; where there is no formula of it, as on one node, GPUs still take them.
        """
        if self.ours is None or not (self.library or self.of_described_gpus):
            return None
        least, most = OPERATION_US
        return least * 1e-6, most * 1e-6

    @property
    def library(self) -> Prediction | None:
        """Of the two, NCCL's own algorithm; None if neither is."""
        return next((each for each in (self.best, self.other) if each and each.of_library), None)

    @property
    def ours(self) -> Prediction | None:
        """Of the two, the schedule; None if neither is one."""
        return next((each for each in (self.best, self.other) if each and not each.of_library), None)

    @classmethod
    def of(cls, predictions: Iterable[Prediction]) -> "BestChoice | None":
        """Return the best of some predictions for one size on the same nodes, compared with the second.

        Assumptions are never the best; None without any other prediction.
        """
        ranked = _ranked(predictions)
        return cls(ranked[0], ranked[1] if ranked[1:] else None, ranked[1:]) if ranked else None

    @classmethod
    def against(cls, predictions: Iterable[Prediction]) -> "BestChoice | None":
        """Return the best of some predictions, compared with what a user has, or could have instead.

        A schedule is compared with the algorithm that NCCL takes; without NCCL's own with REFERENCE, or else with the
        second. NCCL's own is compared with the fastest schedule.
        """
        ranked = _ranked(predictions)
        if not ranked:
            return None
        best, others = ranked[0], ranked[1:]
        wanted = [each for each in others if each.of_library != best.of_library]
        wanted += [each for each in others if each.algorithm == REFERENCE]
        other = next(iter([*wanted, *others]), None)
        return cls(best, other, [other] if other else [])


def _ranked(predictions: Iterable[Prediction]) -> list[Prediction]:
    """Return what may be the best, the fastest first."""
    return sorted((each for each in predictions if each.eligible), key=lambda each: each.value_s)


@dataclass(frozen=True, slots=True)
class Crossover:
    """A size from which another algorithm is the best."""

    overtaken: str  # the best algorithm for smaller sizes
    overtaker: str  # the best algorithm for larger sizes
    nbytes: float  # the size, interpolated
    low: float  # the least of the sizes at the ends of the intervals
    high: float  # the largest of them
    everywhere: bool  # whether they cross at both ends of the intervals
    largest: int  # the largest predicted size


def crossovers(predictions: Iterable[Prediction]) -> Iterator[Crossover]:
    """Yield the sizes at which the best algorithm on a number of nodes changes."""
    by_size: dict[int, dict[str, Prediction]] = defaultdict(dict)
    for each in predictions:
        if each.eligible:
            by_size[each.requested_bytes][each.algorithm] = each
    best, last = {}, ""
    for nbytes, times in sorted(by_size.items()):
        fastest = min(times.values(), key=lambda one: one.value_s)
        if last not in times or times[last].value_s > TIE * fastest.value_s:
            last = fastest.algorithm
        best[nbytes] = last
    for (smaller, overtaken), (larger, overtaker) in pairwise(best.items()):
        pairs = {n: (each.get(overtaken), each.get(overtaker)) for n, each in by_size.items()}
        both = {n: (one, other) for n, (one, other) in pairs.items() if one and other}
        if overtaken != overtaker and (found := _crossover(both, math.sqrt(smaller * larger))):
            yield found


def _crossover(both: Mapping[int, tuple[Prediction, Prediction]], near: float) -> Crossover | None:
    """Return the crossover of two algorithms, by size, that is nearest to a size; None if they were about as fast."""
    (overtaken, overtaker), *_ = both.values()
    sizes: dict[str, float] = {}
    for bound in BOUNDS:
        behind = {n: math.log(one.at(bound) / other.at(bound)) for n, (one, other) in both.items()}
        distances = {
            abs(math.log(n / near)): n for n in overtaking(overtaken.algorithm, overtaker.algorithm, behind).sizes
        }
        if distances:
            sizes[bound] = distances[min(distances)]
    if "value" not in sizes:
        return None
    least, most = min(sizes.values()), max(sizes.values())
    return Crossover(
        overtaken.algorithm, overtaker.algorithm, sizes["value"], least, most, len(sizes) == len(BOUNDS), max(both)
    )


def best_choices(
    predicted: Predictions, compare: Callable[[Iterable[Prediction]], BestChoice | None] = BestChoice.of
) -> Iterator[BestChoice]:
    """Yield the best for each number of nodes and size, compared with the second, or as ``compare`` does."""
    has_gpus = has_described_gpus(predicted.machine)
    for nodes in dict.fromkeys(one.nodes for one in predicted.predictions):
        for size in predicted.request.sizes:
            several = (one for one in predicted.predictions if (one.nodes, one.requested_bytes) == (nodes, size))
            if choice := compare(several):
                yield replace(choice, of_described_gpus=has_gpus)


def has_described_gpus(machine: MachineFile) -> bool:
    """Return whether a machine is described, not fitted to measurements, and has GPUs."""
    return machine.kind == "described" and (machine.nccl is not None or machine.machine_class is not None)


def question_rows(predicted: Predictions) -> list[dict[str, Any]]:
    """Return the answer to what is best in SI units: the row of the best one, and its lead over another one."""
    return [_answer(choice) for choice in best_choices(predicted, BestChoice.against)]


def map_cells(predicted: Predictions) -> list[dict[str, Any]]:
    """Return the best for every number of nodes and size: the row of ``question_rows``, and whether it is clear."""
    return [_answer(choice) | {"clear": choice.clear} for choice in best_choices(predicted)]


def _answer(choice: BestChoice) -> dict[str, Any]:
    factors = choice.best.times_as_fast_as(choice.other) if choice.other else (None, None, None)
    compared = dict(zip(("factor", "factor_low", "factor_high"), factors, strict=True))
    about = {"faster_than": choice.other.algorithm if choice.other else None, "schedule_excludes_s": choice.excluded_s}
    return choice.best.to_json() | about | compared
