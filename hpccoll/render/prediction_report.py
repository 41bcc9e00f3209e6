"""Predictions in words: the best algorithm by nodes and size, tables, crossovers, and the question what is best."""

import textwrap
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from string import ascii_uppercase

from hpccoll.cases.algorithm_registry import collective
from hpccoll.common.text import in_brackets, join_words, table_lines, tables_within
from hpccoll.common.units import (
    format_count,
    format_counts,
    format_factor,
    format_interval,
    format_rate,
    format_rounded_size,
    format_seconds,
    format_size,
    format_wait,
)
from hpccoll.model.best_choice import (
    REFERENCE,
    TIE,
    BestChoice,
    Crossover,
    best_choices,
    crossovers,
    has_described_gpus,
)
from hpccoll.model.library_calls import latency_beyond_formulas
from hpccoll.model.machine_file import MachineFile, describe_machine
from hpccoll.model.machine_sections import PublishedSection
from hpccoll.model.nccl_model import OPERATION_US
from hpccoll.model.predict import Prediction, PredictionPlan, Predictions
from hpccoll.model.step_prediction import StepPrediction
from hpccoll.store.schema import SIMULATED

LONG_S = 60.0
"""The expected seconds of simulations from which a line says so before they begin."""

WIDTH = 100
"""The width of a paragraph."""

ADDED = "{:g} to {:g} us".format(*OPERATION_US)
EXCLUDED = f"without the launch and the {ADDED} of NCCL's operation"
"""What simulated times do not include, and those of NCCL's formulas do."""


def prediction_lines(predicted: Predictions) -> Iterator[str]:
    """Yield the predictions as text: the map of the best, then tables, crossovers and what was left out."""
    request, by_nodes = predicted.request, _by_nodes(predicted.predictions)
    yield from machine_lines(predicted.machine, predicted.kinds)
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
        yield from _taken_lines(predicted, {format_count(nodes, "node"): each for nodes, each in by_nodes.items()})
        yield from _table("nodes", {str(nodes): each for nodes, each in by_nodes.items()})
        yield from beside_lines(predicted.machine, every)
    else:
        for each in by_nodes.values():
            yield ""
            yield f"{_setting(each[0])} on {_layout(each[0])}; {distances(each)}"
            by_size: dict[str, list[Prediction]] = defaultdict(list)
            for one in sorted(each, key=lambda one: one.requested_bytes):
                by_size[format_size(one.requested_bytes)].append(one)
            yield from _taken_lines(predicted, by_size)
            yield from _table("size", by_size)
            yield from beside_lines(predicted.machine, each)
            yield from (f"  {_crossover_text(crossover)}" for crossover in crossovers(each))
    yield ""
    yield from _notes(predicted)


def machine_lines(machine: MachineFile, kinds: Collection[str]) -> list[str]:
    """Return what the machine is, and where its numbers come from, as a paragraph above predictions of some kinds."""
    first, *more = describe_machine(machine, simulated=SIMULATED in kinds)
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
    """Yield the times, with bus bandwidth in GB/s behind each, in as many tables as it takes for lines of WIDTH."""
    choices = [BestChoice.of(each) for each in rows.values()]
    against = [BestChoice.against(each) for each in rows.values()]
    every = sorted((one for each in rows.values() for one in each), key=lambda one: not one.of_library)
    names = dict.fromkeys(one.algorithm for one in every)
    columns = [(f"{name} ", _cells(name, rows.values(), choices)) for name in names]
    columns.append(("its interval", [_interval(choice) for choice in choices]))
    if any(choice and choice.library for choice in against):
        columns.append(("ours over NCCL's own", [_over_library(choice) for choice in against]))
    else:
        columns.append(("lead over the second", [_lead(choice) for choice in choices]))
    yield from tables_within(WIDTH, (label, [*rows]), columns)


def _cells(name: str, rows: Iterable[Sequence[Prediction]], choices: Iterable[BestChoice | None]) -> Sequence[str]:
    """Return the times of an algorithm in all rows, marked where it is the fastest, each with its bus bandwidth."""
    ones = [next((one for one in each if one.algorithm == name), None) for each in rows]
    signs = [
        ("*" if choice.clear else "~") if choice and choice.other and choice.best.algorithm == name else " "
        for choice in choices
    ]
    times = [f"{format_seconds(one.value_s) if one else ''}{sign}" for one, sign in zip(ones, signs, strict=True)]
    rates = ["" if one is None or one.busbw is None else f"{one.busbw / 1e9:.3g}" for one in ones]
    widths = max(map(len, times)), max(map(len, rates)) + 1
    return [f"{time:>{widths[0]}}{rate:>{widths[1]}}".rstrip(" ") if any(rates) else time
            for time, rate in zip(times, rates, strict=True)]  # fmt: skip


def _interval(choice: BestChoice | None) -> str:
    if choice is None:
        return ""
    return "none: a formula" if choice.best.of_library else format_interval(choice.best.interval)


def _lead(choice: BestChoice | None) -> str:
    if choice is None:
        return ""
    if choice.other is None:
        return "alone"
    value, low, high = (f"{ratio:.3g}" for ratio in choice.best.times_as_fast_as(choice.other))
    return value if low == high else f"{value} ({low} to {high})"


def _over_library(choice: BestChoice | None) -> str:
    """Return the fastest schedule, and how fast it is over the algorithm that NCCL takes."""
    if choice is None or choice.library is None:
        return ""
    ours = choice.ours
    return f"{ours.algorithm} {_factors(ours, choice.library)}" if ours else "none of ours"


def _factors(one: Prediction, other: Prediction) -> str:
    """Return how many times as fast a prediction is as another one, with the least and the most."""
    value, low, high = (format_factor(ratio) for ratio in one.times_as_fast_as(other))
    return value + in_brackets("" if low == high else f"{low} to {high}")


def _crossover_text(crossover: Crossover) -> str:
    nbytes, low, high = (format_rounded_size(size) for size in (crossover.nbytes, crossover.low, crossover.high))
    never = "" if crossover.everywhere else "at an end of the intervals they do not cross"
    about = in_brackets("" if low == high else f"{low} to {high}", never)
    sizes = f"from {nbytes}{about} to {format_size(crossover.largest)}"
    return f"{crossover.overtaker} overtakes {crossover.overtaken} {sizes}"


def _notes(predicted: Predictions) -> Iterator[str]:
    predictions = predicted.predictions
    if any(choice.other for choice in best_choices(predicted)):
        formula = " or next to a formula, which has none" if any(one.of_library for one in predictions) else ""
        signs = f"*: the fastest; ~: the fastest, but not in the whole interval{formula}; behind a time: busbw in GB/s"
        yield from textwrap.wrap(signs, WIDTH)
    else:
        yield "no choice: no size has two algorithms to compare"
    in_waves = [one for one in predictions if one.exact is False and not one.stand_ins]
    if stepwise := dict.fromkeys(one.algorithm for one in in_waves):
        nodes = sorted({one.nodes for one in in_waves})
        where = format_counts(nodes, "node")
        yield f"simulated step by step, all ranks at once, on {where}: {', '.join(stepwise)}"
    for name, nodes, sentence in _stand_in_lines(predictions):
        yield from textwrap.wrap(f"{name} on {format_counts(nodes, 'node')}: {sentence}", WIDTH)
    dtype, machine = predicted.request.dtype, predicted.machine
    if collective(predicted.request.collective).reduces and dtype not in machine.reduction:
        yield f"reductions of {dtype} cost nothing: {machine.name} has no rate for them"
    if library := dict.fromkeys(one.algorithm for one in predictions if one.of_library):
        simulated = f"; simulated times are {EXCLUDED}" if SIMULATED in predicted.kinds else ""
        yield from textwrap.wrap(
            f"{', '.join(library)}: modelled by NCCL's own formulas, which have no interval, with the protocol that "
            f"NCCL takes{simulated}",
            WIDTH,
        )
        yield from latency_lines(machine)
    elif has_described_gpus(machine) and SIMULATED in predicted.kinds:
        yield f"simulated times are {EXCLUDED}"
    for assumed in dict.fromkeys((one.algorithm, one.assumed) for one in predictions if one.assumed):
        yield from textwrap.wrap(f"{assumed[0]}: {assumed[1]}; never marked as the fastest", WIDTH)
    yield from left_out_lines(predicted.left_out)


def _stand_in_lines(predictions: Sequence[Prediction]) -> Iterator[tuple[str, list[int], str]]:
    """Yield the algorithms whose times follow from those of fewer ranks, with the nodes and the last such sentence."""
    nodes: dict[str, set[int]] = defaultdict(set)
    sentences: dict[str, str] = {}
    for one in predictions:
        if one.stand_ins:
            nodes[one.algorithm].add(one.nodes)
            sentences[one.algorithm] = one.stand_ins
    for name, sentence in sentences.items():
        yield name, sorted(nodes[name]), sentence


def latency_lines(machine: MachineFile) -> Iterator[str]:
    """Yield that small messages take longer than NCCL's formulas say, where they do."""
    if latency_s := latency_beyond_formulas(machine):
        yield from textwrap.wrap(
            f"NCCL's formulas take at most 14 us for a message between nodes, {machine.name} has "
            f"{format_seconds(latency_s)}: NCCL's own are slower than modelled where latency matters",
            WIDTH,
        )


def left_out_lines(left_out: Mapping[str, Sequence[int]]) -> Iterator[str]:
    """Yield a line for each reason for which numbers of nodes were left out."""
    for reason, nodes in left_out.items():
        yield f"left out on {format_counts(nodes, 'node')}: {reason}"


def _taken_lines(predicted: Predictions, rows: Mapping[str, Sequence[Prediction]]) -> Iterator[str]:
    """Yield what NCCL takes: an algorithm with its protocol, and the first of the rows from which on it does."""
    taken: list[tuple[str, str]] = []
    for label, several in rows.items():
        own = min((one for one in several if one.of_library), key=lambda one: one.value_s, default=None)
        if own and (not taken or taken[-1][0] != with_protocol(own)):
            taken.append((with_protocol(own), label))
    if taken:
        names = ", ".join(f"{name} from {label}" for name, label in taken)
        yield from paragraph(f"{_taking(predicted)} {names}")


def _taking(predicted: Predictions) -> str:
    """Return the words before what NCCL takes, by what it chooses from."""
    if not predicted.has_all_of_library:
        return "as requested NCCL takes"
    return "of ring and tree NCCL takes" if predicted.request.collective == "all_reduce" else "NCCL takes"


def paragraph(text: str) -> list[str]:
    """Return a text in lines of WIDTH below a table."""
    return textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)


def with_protocol(one: Prediction) -> str:
    """Return an algorithm of NCCL with its protocol: ``nccl_ring (Simple)``; the bare name of any other."""
    return f"{one.algorithm} ({one.params['protocol']})" if one.of_library else one.algorithm


def beside_lines(machine: MachineFile, predictions: Sequence[Prediction]) -> Iterator[str]:
    """Yield what NCCL may take on as many nodes and is not modelled, and what was published near; or nothing."""
    published = published_sentences(near for one in predictions for near in one.published)
    without = "published figures do not apply to a scaled network"
    without = without if machine.network_factor != 1 else "nothing published is near these sizes"
    missing: dict[str, dict[int, None]] = defaultdict(dict)
    for one in predictions:
        missing[join_words(one.unmodelled)][one.nodes] = None
    for names, nodes in missing.items():
        if names:
            where = f"not modelled: {names}, which NCCL may take on {format_counts(nodes, 'node')}"
            yield from paragraph(where if published else f"{where}; {without}")
    for sentence in published:
        yield from paragraph(sentence)


def published_sentences(published: Iterable[PublishedSection]) -> list[str]:
    """Return what was published, a sentence for each number of nodes and algorithm, with the sources."""
    figures: dict[tuple[str, int], dict[str, None]] = defaultdict(dict)
    sources: dict[tuple[str, int], dict[str, None]] = defaultdict(dict)
    for near in published:
        low, high = (f"{rate / 1e9:.0f}" for rate in (near.low_bytes_per_s, near.high_bytes_per_s))
        key = near.algorithm, near.nodes
        figures[key][f"{format_size(near.nbytes)}: {low}{'' if low == high else f' to {high}'}"] = None
        sources[key].update(dict.fromkeys(near.source))
    return [
        f"published for machines of this class, {format_count(near_nodes, 'node')}, {algorithm}, busbw in GB/s: "
        f"{', '.join(figures[algorithm, near_nodes])} ({', '.join(several)})"
        for (algorithm, near_nodes), several in sources.items()
    ]


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
    """Yield the answer to what is best: for each number of nodes a line for each size, and what NCCL has beside it."""
    numbers = predicted.machine.validation
    error = f", error {numbers['error_median']:.0%} on held-out cases" if "error_median" in numbers else ""
    for _, choices in groupby(best_choices(predicted, BestChoice.against), key=lambda choice: choice.best.nodes):
        bests = []
        for choice in choices:
            best = choice.best
            where = f"{format_size(best.requested_bytes)} {best.collective} on {_layout(best)}"
            own = choice.library
            answer = f"{_taking(predicted)} {_library_answer(choice, own)}" if own else _answer(choice)
            yield f"{where}: {answer}; {predicted.machine.name}: {best.far}{error}"
            bests.append(best)
        yield from beside_lines(predicted.machine, bests)
    if any(one.of_library for one in predicted.predictions):
        yield from latency_lines(predicted.machine)


def _answer(choice: BestChoice) -> str:
    best, other = choice.best, choice.other
    lead = ", the only one predicted"
    if other:
        value, low, high = best.times_as_fast_as(other)
        flat = other.algorithm == REFERENCE and best.ranks_per_node > 1 and best.nodes > 1
        times = f"{format_factor(value)} as fast as" if value > TIE else "as fast as"
        times = times if choice.clear else "not clearly faster than"
        lead = f", {times} {'the flat ' * flat}{other.algorithm} ({format_factor(low)} to {format_factor(high)})"
    excluded = f" {EXCLUDED}" if choice.excluded_s and not best.of_library else ""
    return f"{best.algorithm}{lead}; {_time(best)}{excluded}"


def _library_answer(choice: BestChoice, own: Prediction) -> str:
    """Return what NCCL takes, and then what a schedule would give instead."""
    taken, ours = f"{with_protocol(own)}: {_time(own)}", choice.ours
    if ours is None:
        return taken
    _, low, high = ours.times_as_fast_as(own)
    sure = ", which is not clear" if low <= 1 <= high else ""
    return f"{taken}; {ours.algorithm} would be {_factors(ours, own)} as fast{sure}: {_time(ours)} {EXCLUDED}"


def _time(one: Prediction) -> str:
    """Return the time with its interval, the bus bandwidth and the kind of a prediction."""
    interval = "no interval" if one.of_library else format_interval(one.interval)
    busbw = f", busbw {format_rate(one.busbw)}" if one.busbw else ""
    return f"{format_seconds(one.value_s)} ({interval}){busbw}, {one.kind}"
