"""Predictions in words: the best algorithm by nodes and size, tables, crossovers, and the question what is best."""

import math
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from string import ascii_uppercase
from typing import Any

from hpccoll.cases.algorithm_registry import collective
from hpccoll.common.units import format_count, format_seconds, format_size
from hpccoll.model.algorithm_simulation import BOUNDS
from hpccoll.model.machine_file import Bound, MachineFile
from hpccoll.model.model_report import interpolated_size
from hpccoll.model.predict import Prediction, Predictions
from hpccoll.model.validation import overtaking
from hpccoll.store.schema import MODELLED

REFERENCE = "ring"
"""The algorithm with which the best one is compared."""

TIE = 1.02
"""The ratio of two times up to which neither algorithm is called the faster one."""

WIDTH = 100
"""The width of a paragraph."""


@dataclass(frozen=True, slots=True)
class BestChoice:
    """The fastest algorithm for a size on a number of nodes, and how much faster it is than another one.

    Args:
        best: its prediction.
        other: the prediction of the other one; None if there is none.
    """

    best: Prediction
    other: Prediction | None

    @property
    def clear(self) -> bool:
        """Whether it is faster than another one within the whole interval."""
        return self.other is not None and self.best.times_as_fast_as(self.other)[1] > 1

    @property
    def lead(self) -> str:
        """How many times as fast it is, with the interval."""
        if self.other is None:
            return "alone"
        value, low, high = (f"{ratio:.3g}" for ratio in self.best.times_as_fast_as(self.other))
        return value if low == high else f"{value} ({low} to {high})"

    @classmethod
    def of(cls, predictions: Iterable[Prediction], reference: str | None = None) -> "BestChoice | None":
        """Return the best of some predictions for one size on the same nodes; None without any.

        Args:
            predictions: the predictions; formulas and assumptions are never the best.
            reference: the algorithm to compare with, if it is another one [the second].
        """
        ranked = sorted((each for each in predictions if each.eligible), key=lambda each: each.value_s)
        if not ranked:
            return None
        best, others = ranked[0], ranked[1:]
        named = [each for each in others if each.algorithm == reference]
        return cls(best, next(iter([*named, *others]), None))


@dataclass(frozen=True, slots=True)
class Crossover:
    """A size from which another algorithm is the best.

    Args:
        overtaken: the best algorithm for smaller sizes.
        overtaker: the best algorithm for larger sizes.
        nbytes: the size, interpolated.
        low: the least of the sizes at the ends of the intervals.
        high: the largest of them.
        everywhere: whether they cross at both ends of the intervals.
        largest: the largest predicted size.
    """

    overtaken: str
    overtaker: str
    nbytes: float
    low: float
    high: float
    everywhere: bool
    largest: int

    @property
    def text(self) -> str:
        size, low, high = map(interpolated_size, (self.nbytes, self.low, self.high))
        interval = "" if low == high else f"{low} to {high}"
        never = "" if self.everywhere else "at an end of the intervals they do not cross"
        about = ", ".join(filter(None, (interval, never)))
        sizes = f"from {size}{f' ({about})' * bool(about)} to {format_size(self.largest)}"
        return f"{self.overtaker} overtakes {self.overtaken} {sizes}"


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
    sizes: dict[Bound, float] = {}
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


def report_lines(predicted: Predictions) -> Iterator[str]:
    """Yield the predictions as text: the map of the best, then tables, crossovers and what was left out."""
    request, by_nodes = predicted.request, _by_nodes(predicted.predictions)
    yield from machine_lines(predicted.machine)
    if len(by_nodes) > 1 and len(request.sizes) > 1 and any(choice.other for choice in _choices(predicted)):
        yield ""
        yield from _map_lines(predicted)
    if len(request.sizes) == 1:
        yield ""
        every = predicted.predictions
        yield f"{_setting(every[0])}, {format_size(request.sizes[0])}, by nodes; {_distances(every)}"
        yield from _table("nodes", {str(nodes): each for nodes, each in by_nodes.items()})
    else:
        for each in by_nodes.values():
            yield ""
            yield f"{_setting(each[0])} on {_layout(each[0])}; {_distances(each)}"
            by_size: dict[str, list[Prediction]] = defaultdict(list)
            for one in sorted(each, key=lambda one: one.requested_bytes):
                by_size[format_size(one.requested_bytes)].append(one)
            yield from _table("size", by_size)
            yield from (f"  {crossover.text}" for crossover in crossovers(each))
    yield ""
    yield from _notes(predicted)


def machine_lines(machine: MachineFile) -> Iterator[str]:
    """Yield what the machine is, and where its numbers come from."""
    measured, errors = machine.measured, machine.validation
    if measured is None:
        yield f"{machine.name}: {machine.kind}, not measured; times are simulated, intervals those of its numbers"
        yield from textwrap.wrap(machine.source or "", WIDTH, initial_indent="  ", subsequent_indent="  ")
        return
    sizes = f"{format_size(measured.smallest_bytes)} to {format_size(measured.largest_bytes)}"
    yield (
        f"{machine.name}: fitted ({measured.kind}, {measured.transport}) on {_listed(measured.nodes)} nodes x "
        f"{_listed(measured.ranks_per_node)}, {sizes}; times are simulated"
    )
    if "error_median" in errors:
        yield (
            f"  held out: {errors.get('cases', 0):.0f} measurements, error {errors['error_median']:.0%} (median), "
            f"{errors.get('error_p90', math.nan):.0%} (90th percentile); intervals include measured over predicted, "
            f"{errors.get('ratio_p5', 1):.2f} to {errors.get('ratio_p95', 1):.2f}"
        )
    else:
        yield "  nothing was held out: the intervals are those of the fit, and may be too narrow"


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))


def _by_nodes(predictions: Iterable[Prediction]) -> dict[int, list[Prediction]]:
    by_nodes: dict[int, list[Prediction]] = defaultdict(list)
    for each in predictions:
        by_nodes[each.nodes].append(each)
    return by_nodes


def _setting(one: Prediction) -> str:
    mapping = f", mapping {one.mapping}" if one.mapping else ""
    return f"{one.collective}, {one.dtype}{mapping}"


def _layout(one: Prediction) -> str:
    racks = f" in {one.racks} racks" if one.racks > 1 else ""
    return f"{format_count(one.nodes, 'node')} x {one.ranks_per_node}{racks}"


def _distances(predictions: Iterable[Prediction]) -> str:
    """Return how far predictions are from measurements: that of the first one, and of the last one."""
    words = list(dict.fromkeys(each.distance for each in predictions))
    return words[0] if len(words) == 1 else f"{words[0]}, to {words[-1]}"


def map_cells(predicted: Predictions) -> list[dict[str, Any]]:
    """Return the best for every number of nodes and size: the row of ``question_rows``, and whether it is clear."""
    return [_answer(choice) | {"clear": choice.clear} for choice in _choices(predicted)]


def _map_lines(predicted: Predictions) -> Iterator[str]:
    """Yield the best algorithm for every size and number of nodes, as letters with the lead."""
    cells = {(choice.best.requested_bytes, choice.best.nodes): choice for choice in _choices(predicted)}
    names = list(dict.fromkeys(choice.best.algorithm for choice in cells.values()))
    letters = dict(zip(names, ascii_uppercase, strict=False))
    legend = ", ".join(f"{letter} {name}" for name, letter in letters.items())
    yield f"the best by size and nodes, times as fast as the second (~ not in the whole interval): {legend}"
    yield f"  {'':>10}" + "".join(f"{nodes:>9}" for nodes in predicted.request.nodes)
    for size in predicted.request.sizes:
        row = (_cell(cells.get((size, nodes)), letters) for nodes in predicted.request.nodes)
        yield f"  {format_size(size):>10}" + "".join(f"{cell:>9}" for cell in row)


def _cell(choice: BestChoice | None, letters: Mapping[str, str]) -> str:
    if choice is None:
        return ""
    if choice.other is None:
        return f"{letters[choice.best.algorithm]} "
    lead = f"{choice.best.times_as_fast_as(choice.other)[0]:.2g}"
    return f"{letters[choice.best.algorithm]} {lead}{' ' if choice.clear else '~'}"


def _table(label: str, rows: Mapping[str, Sequence[Prediction]]) -> Iterator[str]:
    """Yield times of algorithms; the best of a row is marked, with its interval and its lead."""
    names = list(dict.fromkeys(one.algorithm for each in rows.values() for one in each))
    widths = {name: max(10, len(name) + 2) for name in names}
    yield (
        f"  {label:>10}"
        + "".join(f"{name:>{widths[name]}} " for name in names)
        + "  its interval         lead over the second"
    )
    for row, each in rows.items():
        choice, times = BestChoice.of(each), {one.algorithm: one for one in each}
        cells = []
        for name in names:
            is_best = choice and choice.other and choice.best.algorithm == name
            mark = ("*" if choice.clear else "~") if choice and is_best else " "
            cells.append(f"{format_seconds(times[name].value_s) if name in times else '':>{widths[name]}}{mark}")
        end = f"  {_interval(choice.best):<20} {choice.lead}" if choice else ""
        yield f"  {row:>10}" + "".join(cells) + end


def _interval(one: Prediction) -> str:
    low, high = (format_seconds(end) for end in (one.low_s or one.value_s, one.high_s or one.value_s))
    return f"{low} to {high}"


def _notes(predicted: Predictions) -> Iterator[str]:
    """Yield what the columns are, and what was left out."""
    predictions = predicted.predictions
    if any(choice.other for choice in _choices(predicted)):
        yield "*: the fastest; ~: the fastest, but not in the whole interval"
    else:
        yield "no advice: no size has two algorithms that were simulated, so that there is nothing to compare"
    stepwise = dict.fromkeys(one.algorithm for one in predictions if one.exact is False)
    if stepwise:
        nodes = sorted({one.nodes for one in predictions if one.exact is False})
        yield f"simulated step by step, all ranks at once, on {_listed(nodes)} nodes: {', '.join(stepwise)}"
    dtype, machine = predicted.request.dtype, predicted.machine
    if collective(predicted.request.collective).reduces and dtype not in machine.reduction:
        yield f"reductions of {dtype} cost nothing: {machine.name} has no rate for them"
    if any(one.kind == MODELLED for one in predictions):
        yield "nccl_ring, nccl_tree: modelled, NCCL's own model, by the fastest protocol; never marked as the fastest"
    for assumed in dict.fromkeys((one.algorithm, one.assumed) for one in predictions if one.assumed):
        yield from textwrap.wrap(f"{assumed[0]}: {assumed[1]}; never marked as the fastest", WIDTH)
    yield from left_out_lines(predicted)


def left_out_lines(predicted: Predictions) -> Iterator[str]:
    """Yield a line for each algorithm and reason for which it was left out."""
    for (name, reason), nodes in predicted.left_out.items():
        yield f"left out on {_listed(nodes)} nodes: {name}: {reason}"


def question_lines(predicted: Predictions) -> Iterator[str]:
    """Yield the answer to what is best: a line for each size and number of nodes."""
    numbers = predicted.machine.validation
    error = f", error {numbers['error_median']:.0%} on held-out cases" if "error_median" in numbers else ""
    for choice in _choices(predicted, REFERENCE):
        best, other = choice.best, choice.other
        where = f"{format_size(best.requested_bytes)} {best.collective} on {_layout(best)}"
        lead = ", the only one predicted"
        if other:
            value, low, high = best.times_as_fast_as(other)
            flat = other.algorithm == REFERENCE and best.ranks_per_node > 1 and best.nodes > 1
            times = f"{value:.3g} times as fast as" if value > TIE else "as fast as"
            times = times if choice.clear else "not clearly faster than"
            lead = f", {times} {'the flat ' * flat}{other.algorithm} ({low:.3g} to {high:.3g})"
        time = f"{format_seconds(best.value_s)} ({_interval(best)}), {best.kind}"
        yield f"{where}: {best.algorithm}{lead}; {time}; {predicted.machine.name}: {best.distance}{error}"


def question_rows(predicted: Predictions) -> list[dict[str, Any]]:
    """Return the answer to what is best in SI units: the row of the best one, and its lead over another one."""
    return [_answer(choice) for choice in _choices(predicted, REFERENCE)]


def _answer(choice: BestChoice) -> dict[str, Any]:
    factors = choice.best.times_as_fast_as(choice.other) if choice.other else (None, None, None)
    compared = dict(zip(("factor", "factor_low", "factor_high"), factors, strict=True))
    return choice.best.row() | {"faster_than": choice.other.algorithm if choice.other else None} | compared


def _choices(predicted: Predictions, reference: str | None = None) -> Iterator[BestChoice]:
    """Yield the best for each number of nodes and size, compared with a reference [the second]."""
    for each in _by_nodes(predicted.predictions).values():
        for size in predicted.request.sizes:
            choice = BestChoice.of((one for one in each if one.requested_bytes == size), reference)
            if choice:
                yield choice
