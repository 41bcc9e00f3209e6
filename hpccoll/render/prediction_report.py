"""Predictions in words: the best algorithm by nodes and size, tables, crossovers, and the question what is best."""

import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from string import ascii_uppercase

from hpccoll.cases.algorithm_registry import collective
from hpccoll.common.text import in_brackets, table_lines
from hpccoll.common.units import (
    format_count,
    format_factor,
    format_interval,
    format_rounded_size,
    format_seconds,
    format_size,
    format_wait,
)
from hpccoll.model.best_choice import REFERENCE, TIE, BestChoice, Crossover, best_choices, crossovers
from hpccoll.model.machine_file import MachineFile, describe_machine
from hpccoll.model.predict import Prediction, PredictionPlan, Predictions
from hpccoll.model.step_prediction import StepPrediction
from hpccoll.store.schema import MODELLED

LONG_S = 60.0
"""The expected seconds of simulations from which a line says so before they begin."""

WIDTH = 100
"""The width of a paragraph."""


def prediction_lines(predicted: Predictions) -> Iterator[str]:
    """Yield the predictions as text: the map of the best, then tables, crossovers and what was left out."""
    request, by_nodes = predicted.request, _by_nodes(predicted.predictions)
    yield from machine_lines(predicted.machine)
    if not predicted.predictions:
        yield from left_out_lines(predicted.left_out)
        return
    if len(by_nodes) > 1 and len(request.sizes) > 1 and any(choice.other for choice in best_choices(predicted)):
        yield ""
        yield from _map_lines(predicted)
    if len(request.sizes) == 1:
        yield ""
        every = predicted.predictions
        yield f"{_setting(every[0])}, {format_size(request.sizes[0])}, by nodes; {distances(every)}"
        yield from _table("nodes", {str(nodes): each for nodes, each in by_nodes.items()})
    else:
        for each in by_nodes.values():
            yield ""
            yield f"{_setting(each[0])} on {_layout(each[0])}; {distances(each)}"
            by_size: dict[str, list[Prediction]] = defaultdict(list)
            for one in sorted(each, key=lambda one: one.requested_bytes):
                by_size[format_size(one.requested_bytes)].append(one)
            yield from _table("size", by_size)
            yield from (f"  {_crossover_text(crossover)}" for crossover in crossovers(each))
    yield ""
    yield from _notes(predicted)


def machine_lines(machine: MachineFile) -> list[str]:
    """Return what the machine is, and where its numbers come from, as a paragraph."""
    first, *more = describe_machine(machine)
    return [first, *(line for text in more for line in textwrap.wrap(text, WIDTH, initial_indent="  ",
                                                                     subsequent_indent="  "))]  # fmt: skip


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


def distances(predictions: Iterable[Prediction | StepPrediction]) -> str:
    """Return how far predictions are from measurements: that of the first one, and of the last one."""
    first, *others = dict.fromkeys(each.distance for each in predictions)
    return f"{first}, to {others[-1]}" if others else first


def _map_lines(predicted: Predictions) -> Iterator[str]:
    cells = {(choice.best.requested_bytes, choice.best.nodes): choice for choice in best_choices(predicted)}
    names = list(dict.fromkeys(choice.best.algorithm for choice in cells.values()))
    letters = dict(zip(names, ascii_uppercase, strict=False))
    legend = ", ".join(f"{letter} {name}" for name, letter in letters.items())
    yield f"the best by size and nodes, times as fast as the second (~ not in the whole interval): {legend}"
    nodes = predicted.request.nodes
    rows = ((format_size(size), *(_cell(cells.get((size, n)), letters) for n in nodes))
            for size in predicted.request.sizes)  # fmt: skip
    yield from table_lines(("", *map(str, nodes)), rows)


def _cell(choice: BestChoice | None, letters: Mapping[str, str]) -> str:
    if choice is None:
        return ""
    letter = letters[choice.best.algorithm]
    if choice.other is None:
        return f"{letter} "
    return f"{letter} {choice.best.times_as_fast_as(choice.other)[0]:.2g}{' ' if choice.clear else '~'}"


def _table(label: str, rows: Mapping[str, Sequence[Prediction]]) -> Iterator[str]:
    names = list(dict.fromkeys(one.algorithm for each in rows.values() for one in each))
    head = (label, *(f"{name} " for name in names), "its interval", "lead over the second")
    yield from table_lines(head, (_row(row, names, each) for row, each in rows.items()))


def _row(label: str, names: Sequence[str], predictions: Sequence[Prediction]) -> tuple[str, ...]:
    choice, times = BestChoice.of(predictions), {one.algorithm: one for one in predictions}
    marked = choice.best.algorithm if choice and choice.other else None
    mark = "*" if choice and choice.clear else "~"
    cells = (
        f"{format_seconds(times[name].value_s) if name in times else ''}{mark if name == marked else ' '}"
        for name in names
    )
    return (label, *cells, format_interval(choice.best.interval) if choice else "", _lead(choice) if choice else "")


def _lead(choice: BestChoice) -> str:
    if choice.other is None:
        return "alone"
    value, low, high = (f"{ratio:.3g}" for ratio in choice.best.times_as_fast_as(choice.other))
    return value if low == high else f"{value} ({low} to {high})"


def _crossover_text(crossover: Crossover) -> str:
    nbytes, low, high = (format_rounded_size(size) for size in (crossover.nbytes, crossover.low, crossover.high))
    never = "" if crossover.everywhere else "at an end of the intervals they do not cross"
    about = in_brackets("" if low == high else f"{low} to {high}", never)
    sizes = f"from {nbytes}{about} to {format_size(crossover.largest)}"
    return f"{crossover.overtaker} overtakes {crossover.overtaken} {sizes}"


def _notes(predicted: Predictions) -> Iterator[str]:
    predictions = predicted.predictions
    if any(choice.other for choice in best_choices(predicted)):
        yield "*: the fastest; ~: the fastest, but not in the whole interval"
    else:
        yield "no choice: no size has two algorithms that were simulated, so that there is nothing to compare"
    stepwise = dict.fromkeys(one.algorithm for one in predictions if one.exact is False)
    if stepwise:
        nodes = sorted({one.nodes for one in predictions if one.exact is False})
        yield f"simulated step by step, all ranks at once, on {', '.join(map(str, nodes))} nodes: {', '.join(stepwise)}"
    dtype, machine = predicted.request.dtype, predicted.machine
    if collective(predicted.request.collective).reduces and dtype not in machine.reduction:
        yield f"reductions of {dtype} cost nothing: {machine.name} has no rate for them"
    if any(one.kind == MODELLED for one in predictions):
        yield "nccl_ring, nccl_tree: modelled, NCCL's own model, by the fastest protocol; never marked as the fastest"
    for assumed in dict.fromkeys((one.algorithm, one.assumed) for one in predictions if one.assumed):
        yield from textwrap.wrap(f"{assumed[0]}: {assumed[1]}; never marked as the fastest", WIDTH)
    yield from left_out_lines(predicted.left_out)


def left_out_lines(left_out: Mapping[str, Sequence[int]]) -> Iterator[str]:
    """Yield a line for each reason for which numbers of nodes were left out."""
    for reason, nodes in left_out.items():
        yield f"left out on {', '.join(map(str, nodes))} nodes: {reason}"


def waiting_lines(plan: PredictionPlan) -> Iterator[str]:
    """Yield how long the simulations of a plan will take if that is long, and which algorithms take most of it."""
    seconds = plan.seconds_by_algorithm()
    total = rest = sum(seconds.values())
    if total < LONG_S:
        return
    longest: list[str] = []
    kept = [*seconds]
    while len(kept) > 1 and rest > min(LONG_S, total / 2):
        longest.append(kept.pop(0))
        rest -= seconds[longest[-1]]
    text = f"the simulations take about {format_wait(total)}"
    if longest:
        ranks = max(each.simulation.layout.workers for each in plan.planned if each.algorithm in longest)
        text += f": {', '.join(longest)} on {ranks:,} ranks {'takes' if len(longest) == 1 else 'take'} most of it; "
        text += f"-a {','.join(kept)} takes about {format_wait(rest)}"
    yield f"{text}; Ctrl-C prints what is complete"


def question_lines(predicted: Predictions) -> Iterator[str]:
    """Yield the answer to what is best: a line for each size and number of nodes."""
    numbers = predicted.machine.validation
    error = f", error {numbers['error_median']:.0%} on held-out cases" if "error_median" in numbers else ""
    for choice in best_choices(predicted, REFERENCE):
        best, other = choice.best, choice.other
        where = f"{format_size(best.requested_bytes)} {best.collective} on {_layout(best)}"
        lead = ", the only one predicted"
        if other:
            value, low, high = best.times_as_fast_as(other)
            flat = other.algorithm == REFERENCE and best.ranks_per_node > 1 and best.nodes > 1
            times = f"{format_factor(value)} as fast as" if value > TIE else "as fast as"
            times = times if choice.clear else "not clearly faster than"
            lead = f", {times} {'the flat ' * flat}{other.algorithm} ({format_factor(low)} to {format_factor(high)})"
        time = f"{format_seconds(best.value_s)} ({format_interval(best.interval)}), {best.kind}"
        yield f"{where}: {best.algorithm}{lead}; {time}; {predicted.machine.name}: {best.distance}{error}"
