"""The best of predictions: the fastest algorithm by nodes and size, its lead, and the sizes at which it changes."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product

from hpccoll.model.machine_file import MachineFile
from hpccoll.model.nccl_model import OPERATION_US
from hpccoll.model.predict import Prediction, PredictionJson, Predictions
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
    # the prediction that its lead is over; None without one
    compared: Prediction | None
    # what it must be faster than for a clear lead: the compared one, or all others
    rivals: Sequence[Prediction]
    # whether its machine is described and has GPUs: messages cost no launch there
    on_described_gpus: bool = False

    @property
    def clear(self) -> bool:
        """Whether it is faster than its rivals within the whole interval, which formulas do not have."""
        if not self.rivals or any(
            prediction.of_library for prediction in (self.best, *self.rivals)
        ):
            return False
        least_leads = [self.best.times_as_fast_as(rival)[1] for rival in self.rivals]
        return min(least_leads) > 1

    @property
    def excluded_s(self) -> tuple[float, float] | None:
        """The least and the most seconds of an operation of NCCL that the time of the schedule does not include.

        NCCL's own includes them; where there is no formula of it, as on one node, GPUs still take
        them.
        """
        if self.ours is None or not (self.library or self.on_described_gpus):
            return None
        least, most = OPERATION_US
        return least * 1e-6, most * 1e-6

    @property
    def library(self) -> Prediction | None:
        """Of the two, NCCL's own algorithm; None if neither is."""
        return next((prediction for prediction in self._both if prediction.of_library), None)

    @property
    def ours(self) -> Prediction | None:
        """Of the two, the schedule; None if neither is one."""
        return next((prediction for prediction in self._both if not prediction.of_library), None)

    @property
    def _both(self) -> list[Prediction]:
        return [self.best, self.compared] if self.compared else [self.best]

    @classmethod
    def of(cls, predictions: Iterable[Prediction]) -> "BestChoice | None":
        """Return the best of some predictions for one size on the same nodes, compared with the second.

        Assumptions are never the best; None without any other prediction.
        """
        ranked = _ranked(predictions)
        if not ranked:
            return None
        best, *slower = ranked
        return cls(best, slower[0] if slower else None, slower)

    @classmethod
    def against(cls, predictions: Iterable[Prediction]) -> "BestChoice | None":
        """Return the best of some predictions, compared with what a user has, or could have instead.

        A schedule is compared with the algorithm that NCCL takes; without NCCL's own with
        REFERENCE, or else with the second. NCCL's own is compared with the fastest schedule.
        """
        ranked = _ranked(predictions)
        if not ranked:
            return None
        best, *slower = ranked
        contrasting = [
            prediction for prediction in slower if prediction.of_library != best.of_library
        ]
        reference = [prediction for prediction in slower if prediction.algorithm == REFERENCE]
        by_preference = [*contrasting, *reference, *slower]
        return cls(best, by_preference[0] if by_preference else None, by_preference[:1])


def _ranked(predictions: Iterable[Prediction]) -> list[Prediction]:
    """Return what may be the best, the fastest first."""
    eligible = [prediction for prediction in predictions if prediction.eligible]
    return sorted(eligible, key=lambda prediction: prediction.value_s)


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
    for prediction in predictions:
        if prediction.eligible:
            by_size[prediction.requested_bytes][prediction.algorithm] = prediction
    best = _best_by_size(by_size)
    for (smaller, overtaken), (larger, overtaker) in pairwise(best.items()):
        if overtaken == overtaker:
            continue
        both = {
            nbytes: (by_algorithm[overtaken], by_algorithm[overtaker])
            for nbytes, by_algorithm in by_size.items()
            if overtaken in by_algorithm and overtaker in by_algorithm
        }
        if not both:  # no size has a prediction of each
            continue
        crossover = _crossover(overtaken, overtaker, both, math.sqrt(smaller * larger))
        if crossover:
            yield crossover


def _best_by_size(by_size: Mapping[int, Mapping[str, Prediction]]) -> dict[int, str]:
    """Return the best algorithm of each size; that of the size before, if it ties with the fastest one."""
    best = {}
    last = ""
    for nbytes, by_algorithm in sorted(by_size.items()):
        fastest = min(by_algorithm.values(), key=lambda prediction: prediction.value_s)
        if last not in by_algorithm or by_algorithm[last].value_s > TIE * fastest.value_s:
            last = fastest.algorithm
        best[nbytes] = last
    return best


def _crossover(
    overtaken: str,
    overtaker: str,
    predictions: Mapping[int, tuple[Prediction, Prediction]],
    near: float,
) -> Crossover | None:
    """Return the crossover of two algorithms that is nearest to a size; None if they were about as fast.

    ``predictions`` are those of the overtaken and of the overtaking algorithm by size. The
    crossover has a range, because the low and the high ends of the predictions cross at other sizes
    than their values.
    """
    sizes: dict[str, float] = {}
    for bound in BOUNDS:
        log_ratios = {}
        for nbytes, (first, second) in predictions.items():
            log_ratios[nbytes] = math.log(first.at(bound) / second.at(bound))
        crossings = overtaking(overtaken, overtaker, log_ratios).sizes
        if crossings:
            sizes[bound] = min(crossings, key=lambda size: abs(math.log(size / near)))
    if "value" not in sizes:
        return None
    return Crossover(
        overtaken=overtaken,
        overtaker=overtaker,
        nbytes=sizes["value"],
        low=min(sizes.values()),
        high=max(sizes.values()),
        everywhere=len(sizes) == len(BOUNDS),
        largest=max(predictions),
    )


def best_choices(
    predicted: Predictions,
    compare: Callable[[Iterable[Prediction]], BestChoice | None] = BestChoice.of,
) -> Iterator[BestChoice]:
    """Yield the best for each number of nodes and size, compared with the second, or as ``compare`` does."""
    has_gpus = has_described_gpus(predicted.machine)
    together: dict[tuple[int, int], list[Prediction]] = defaultdict(list)
    for prediction in predicted.predictions:
        together[prediction.nodes, prediction.requested_bytes].append(prediction)
    nodes_in_order = dict.fromkeys(prediction.nodes for prediction in predicted.predictions)
    for place in product(nodes_in_order, predicted.request.sizes):
        choice = compare(together.get(place, ()))
        if choice:
            yield replace(choice, on_described_gpus=has_gpus)


def has_described_gpus(machine: MachineFile) -> bool:
    """Return whether a machine is described, not fitted to measurements, and has GPUs."""
    return machine.kind == "described" and (
        machine.nccl is not None or machine.machine_class is not None
    )


class QuestionJson(PredictionJson):
    """The best algorithm of a number of nodes and a size, and its lead over another one, as JSON has it."""

    faster_than: str | None
    schedule_excludes_s: tuple[float, float] | None
    factor: float | None  # how many times as fast
    factor_low: float | None
    factor_high: float | None


def question_rows(predicted: Predictions) -> list[QuestionJson]:
    """Return the answer to what is best in SI units: the row of the best one, and its lead over another one."""
    return [_answer(choice) for choice in best_choices(predicted, BestChoice.against)]


class MapCellJson(QuestionJson):
    """The best algorithm of a number of nodes and a size, and whether it is clear."""

    clear: bool


def map_cells(predicted: Predictions) -> list[MapCellJson]:
    """Return the best for every number of nodes and size: the row of ``question_rows``, and whether it is clear."""
    return [{**_answer(choice), "clear": choice.clear} for choice in best_choices(predicted)]


def _answer(choice: BestChoice) -> QuestionJson:
    answer: QuestionJson = {
        **choice.best.to_json(),
        "faster_than": None,
        "schedule_excludes_s": choice.excluded_s,
        "factor": None,
        "factor_low": None,
        "factor_high": None,
    }
    if choice.compared:
        factor, least, most = choice.best.times_as_fast_as(choice.compared)
        answer["faster_than"] = choice.compared.algorithm
        answer["factor"] = factor
        answer["factor_low"] = least
        answer["factor_high"] = most
    return answer
