"""The best of predictions: the fastest algorithm by nodes and size, its lead, and the sizes at which it changes."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from hpccoll.model.predict import Prediction, Predictions
from hpccoll.model.simulation import BOUNDS
from hpccoll.model.validation import overtaking

REFERENCE = "ring"
"""The algorithm with which the best one is compared."""

TIE = 1.02
"""The ratio of two times up to which neither algorithm is called the faster one."""


@dataclass(frozen=True, slots=True)
class BestChoice:
    """The fastest algorithm for a size on a number of nodes, and how much faster it is than another one."""

    best: Prediction  # its prediction
    other: Prediction | None  # the prediction of the other one; None if there is none

    @property
    def clear(self) -> bool:
        """Whether it is faster than another one within the whole interval."""
        return self.other is not None and self.best.times_as_fast_as(self.other)[1] > 1

    @classmethod
    def of(cls, predictions: Iterable[Prediction], reference: str | None = None) -> "BestChoice | None":
        """Return the best of some predictions for one size on the same nodes, and ``reference`` or else the second.

        Formulas and assumptions are never the best; None without any other prediction.
        """
        ranked = sorted((each for each in predictions if each.eligible), key=lambda each: each.value_s)
        if not ranked:
            return None
        best, others = ranked[0], ranked[1:]
        named = [each for each in others if each.algorithm == reference]
        return cls(best, next(iter([*named, *others]), None))


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
        behind = {n: math.log(one.seconds[bound] / other.seconds[bound]) for n, (one, other) in both.items()}
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


def best_choices(predicted: Predictions, reference: str | None = None) -> Iterator[BestChoice]:
    """Yield the best for each number of nodes and size, compared with a reference [the second]."""
    for nodes in dict.fromkeys(one.nodes for one in predicted.predictions):
        for size in predicted.request.sizes:
            several = (one for one in predicted.predictions if (one.nodes, one.requested_bytes) == (nodes, size))
            if choice := BestChoice.of(several, reference):
                yield choice


def question_rows(predicted: Predictions) -> list[dict[str, Any]]:
    """Return the answer to what is best in SI units: the row of the best one, and its lead over another one."""
    return [_answer(choice) for choice in best_choices(predicted, REFERENCE)]


def map_cells(predicted: Predictions) -> list[dict[str, Any]]:
    """Return the best for every number of nodes and size: the row of ``question_rows``, and whether it is clear."""
    return [_answer(choice) | {"clear": choice.clear} for choice in best_choices(predicted)]


def _answer(choice: BestChoice) -> dict[str, Any]:
    factors = choice.best.times_as_fast_as(choice.other) if choice.other else (None, None, None)
    compared = dict(zip(("factor", "factor_low", "factor_high"), factors, strict=True))
    return choice.best.to_json() | {"faster_than": choice.other.algorithm if choice.other else None} | compared
