"""Predictions in words: the best algorithm by nodes and size, tables, crossovers, and the question what is best."""

import textwrap
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby
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
from hpccoll.model.machine_file import MachineFile, describe_machine
from hpccoll.model.machine_sections import PublishedSection
from hpccoll.model.nccl_candidates import latency_beyond_formulas
from hpccoll.model.nccl_model import OPERATION_US
from hpccoll.model.predict import Prediction, PredictionPlan, Predictions
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
    sizes = predicted.request.sizes
    by_nodes = _by_nodes(predicted.predictions)
    yield from machine_lines(predicted.machine, predicted.kinds)
    if not predicted.predictions:
        yield from left_out_lines(predicted.left_out)
        return
    is_compared = any(choice.compared for choice in best_choices(predicted))
    if len(by_nodes) > 1 and len(sizes) > 1 and is_compared:
        yield ""
        yield from _map_lines(predicted)
    if len(sizes) == 1:
        yield from _lines_by_nodes(predicted, by_nodes)
    else:
        for predictions in by_nodes.values():
            yield from _lines_by_size(predicted, predictions)
    yield ""
    yield from _notes(predicted)


def _lines_by_nodes(
    predicted: Predictions, by_nodes: Mapping[int, Sequence[Prediction]]
) -> Iterator[str]:
    """Yield a table of the only size, with a row for each number of nodes."""
    predictions = predicted.predictions
    size = format_size(predicted.request.sizes[0])
    yield ""
    yield f"{_setting(predictions[0])}, {size}, by nodes; {_distances(predictions)}"
    by_label = {format_count(nodes, "node"): alike for nodes, alike in by_nodes.items()}
    by_number = {str(nodes): alike for nodes, alike in by_nodes.items()}
    yield from _taken_lines(predicted, by_label)
    yield from _table("nodes", by_number)
    yield from beside_lines(predicted.machine, predictions)


def _lines_by_size(predicted: Predictions, predictions: Sequence[Prediction]) -> Iterator[str]:
    """Yield a table of one number of nodes, with a row for each size, and where algorithms overtake one another."""
    yield ""
    yield f"{_setting(predictions[0])} on {_layout(predictions[0])}; {_distances(predictions)}"
    by_size: dict[str, list[Prediction]] = defaultdict(list)
    for prediction in sorted(predictions, key=lambda prediction: prediction.requested_bytes):
        by_size[format_size(prediction.requested_bytes)].append(prediction)
    yield from _taken_lines(predicted, by_size)
    yield from _table("size", by_size)
    yield from beside_lines(predicted.machine, predictions)
    for crossover in crossovers(predictions):
        yield f"  {_crossover_text(crossover)}"


def machine_lines(machine: MachineFile, kinds: Collection[str]) -> list[str]:
    """Return what the machine is, and where its numbers come from, as a paragraph above predictions of some kinds."""
    first, *paragraphs = describe_machine(machine, simulated=SIMULATED in kinds)
    lines = [first]
    for text in paragraphs:
        lines += textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="  ")
    return lines


def _by_nodes(predictions: Iterable[Prediction]) -> dict[int, list[Prediction]]:
    by_nodes: dict[int, list[Prediction]] = defaultdict(list)
    for prediction in predictions:
        by_nodes[prediction.nodes].append(prediction)
    return by_nodes


def _setting(prediction: Prediction) -> str:
    setting = f"{prediction.collective}, {prediction.dtype}"
    if prediction.mapping:
        setting += f", mapping {prediction.mapping}"
    return setting


def _layout(prediction: Prediction) -> str:
    layout = f"{format_count(prediction.nodes, 'node')} x {prediction.ranks_per_node}"
    if prediction.racks > 1:
        layout += f" in {prediction.racks} racks"
    return layout


def _distances(predictions: Iterable[Prediction]) -> str:
    return distance_range(prediction.distance for prediction in predictions)


def distance_range(distances: Iterable[str]) -> str:
    """Return how far predictions are from measurements: that of the first one, and of the last one."""
    first, *further = dict.fromkeys(distances)
    if not further:
        return first
    return f"{first}, to {further[-1]}"


def _map_lines(predicted: Predictions) -> Iterator[str]:
    choices = {
        (choice.best.requested_bytes, choice.best.nodes): choice
        for choice in best_choices(predicted)
    }
    names = dict.fromkeys(choice.best.algorithm for choice in choices.values())
    letters = dict(zip(names, ascii_uppercase, strict=False))
    legend = ", ".join(f"{letter} {name}" for name, letter in letters.items())
    yield f"the best by size and nodes, times as fast as the second (~ not in the whole interval): {legend}"
    nodes = predicted.request.nodes
    rows = []
    for size in predicted.request.sizes:
        cells = [_cell(choices.get((size, number)), letters) for number in nodes]
        rows.append((format_size(size), *cells))
    yield from table_lines(("", *map(str, nodes)), rows)


def _cell(choice: BestChoice | None, letters: Mapping[str, str]) -> str:
    if choice is None:
        return ""
    letter = letters[choice.best.algorithm]
    if choice.compared is None:
        return f"{letter} "
    factor, _, _ = choice.best.times_as_fast_as(choice.compared)
    sign = " " if choice.clear else "~"
    return f"{letter} {factor:.2g}{sign}"


def _table(label: str, rows: Mapping[str, Sequence[Prediction]]) -> Iterator[str]:
    """Yield the times, with bus bandwidth in GB/s behind each, in as many tables as it takes for lines of WIDTH."""
    choices = list(map(BestChoice.of, rows.values()))
    against = list(map(BestChoice.against, rows.values()))
    predictions = list(chain.from_iterable(rows.values()))
    predictions.sort(key=lambda prediction: not prediction.of_library)
    names = dict.fromkeys(prediction.algorithm for prediction in predictions)
    columns = [(f"{name} ", _cells(name, rows.values(), choices)) for name in names]
    columns.append(("its interval", list(map(_interval, choices))))
    if any(choice and choice.library for choice in against):
        columns.append(("ours over NCCL's own", list(map(_over_library, against))))
    else:
        columns.append(("lead over the second", list(map(_lead, choices))))
    yield from tables_within(WIDTH, (label, list(rows)), columns)


def _cells(
    name: str, rows: Iterable[Sequence[Prediction]], choices: Iterable[BestChoice | None]
) -> Sequence[str]:
    """Return the times of an algorithm in all rows, marked where it is the fastest, each with its bus bandwidth."""
    times = []
    rates = []
    for predictions, choice in zip(rows, choices, strict=True):
        prediction = next(
            (prediction for prediction in predictions if prediction.algorithm == name), None
        )
        time = rate = ""
        if prediction:
            time = format_seconds(prediction.value_s)
            rate = _busbw_number(prediction.busbw)
        times.append(f"{time}{_sign(name, choice)}")
        rates.append(rate)
    if not any(rates):
        return times
    time_width = max(map(len, times))
    rate_width = max(map(len, rates)) + 1
    return [
        f"{time:>{time_width}}{rate:>{rate_width}}".rstrip(" ")
        for time, rate in zip(times, rates, strict=True)
    ]


def _sign(name: str, choice: BestChoice | None) -> str:
    """Return the sign behind the time of an algorithm: whether it is the fastest in its row, and how surely."""
    if choice is None or choice.compared is None or choice.best.algorithm != name:
        return " "
    return "*" if choice.clear else "~"


def _busbw_number(busbw: float | None) -> str:
    return "" if busbw is None else f"{busbw / 1e9:.3g}"


def _interval(choice: BestChoice | None) -> str:
    if choice is None:
        return ""
    if choice.best.of_library:
        return "none: a formula"
    return format_interval(choice.best.interval)


def _lead(choice: BestChoice | None) -> str:
    if choice is None:
        return ""
    if choice.compared is None:
        return "alone"
    value, low, high = (f"{ratio:.3g}" for ratio in choice.best.times_as_fast_as(choice.compared))
    return _with_ends(value, low, high)


def _with_ends(value: str, low: str, high: str) -> str:
    if low == high:
        return value
    return f"{value} ({low} to {high})"


def _over_library(choice: BestChoice | None) -> str:
    """Return the fastest schedule, and how fast it is over the algorithm that NCCL takes."""
    if choice is None or choice.library is None:
        return ""
    ours = choice.ours
    if ours is None:
        return "none of ours"
    return f"{ours.algorithm} {_factors(ours, choice.library)}"


def _factors(prediction: Prediction, reference: Prediction) -> str:
    """Return how many times as fast a prediction is as another one, with the least and the most."""
    value, low, high = map(format_factor, prediction.times_as_fast_as(reference))
    return _with_ends(value, low, high)


def _crossover_text(crossover: Crossover) -> str:
    nbytes = format_rounded_size(crossover.nbytes)
    low = format_rounded_size(crossover.low)
    high = format_rounded_size(crossover.high)
    remarks = []
    if low != high:
        remarks.append(f"{low} to {high}")
    if not crossover.everywhere:
        remarks.append("at an end of the intervals they do not cross")
    sizes = f"from {nbytes}{in_brackets(*remarks)} to {format_size(crossover.largest)}"
    return f"{crossover.overtaker} overtakes {crossover.overtaken} {sizes}"


def _notes(predicted: Predictions) -> Iterator[str]:
    yield from _sign_lines(predicted)
    yield from _simulation_lines(predicted.predictions)
    dtype = predicted.request.dtype
    machine = predicted.machine
    if collective(predicted.request.collective).reduces and dtype not in machine.reduction:
        yield f"reductions of {dtype} cost nothing: {machine.name} has no rate for them"
    yield from _library_lines(predicted)
    assumptions = {
        (prediction.algorithm, prediction.assumed): None for prediction in predicted.predictions
    }
    for algorithm, assumed in assumptions:
        if assumed:
            yield from textwrap.wrap(f"{algorithm}: {assumed}; never marked as the fastest", WIDTH)
    yield from left_out_lines(predicted.left_out)


def _sign_lines(predicted: Predictions) -> Iterator[str]:
    """Yield what the signs of the tables mean, or that they have none."""
    if not any(choice.compared for choice in best_choices(predicted)):
        yield "no choice: no size has two algorithms to compare"
        return
    has_formulas = any(prediction.of_library for prediction in predicted.predictions)
    formula = " or next to a formula, which has none" if has_formulas else ""
    signs = f"*: the fastest; ~: the fastest, but not in the whole interval{formula}; behind a time: busbw in GB/s"
    yield from textwrap.wrap(signs, WIDTH)


def _simulation_lines(predictions: Sequence[Prediction]) -> Iterator[str]:
    """Yield which times were simulated in another way than message by message, and on how many nodes."""
    in_waves = [
        prediction
        for prediction in predictions
        if prediction.exact is False and not prediction.stand_ins
    ]
    if in_waves:
        names = dict.fromkeys(prediction.algorithm for prediction in in_waves)
        nodes = sorted({prediction.nodes for prediction in in_waves})
        where = format_counts(nodes, "node")
        yield f"simulated step by step, all ranks at once, on {where}: {', '.join(names)}"
    for name, nodes, sentence in _stand_in_lines(predictions):
        yield from textwrap.wrap(f"{name} on {format_counts(nodes, 'node')}: {sentence}", WIDTH)


def _library_lines(predicted: Predictions) -> Iterator[str]:
    """Yield which times follow from NCCL's formulas, and what the simulated ones do not include beside them."""
    has_simulated = SIMULATED in predicted.kinds
    names = dict.fromkeys(
        prediction.algorithm for prediction in predicted.predictions if prediction.of_library
    )
    if names:
        simulated = f"; simulated times are {EXCLUDED}" if has_simulated else ""
        yield from textwrap.wrap(
            f"{', '.join(names)}: modelled by NCCL's own formulas, which have no interval, with the protocol that "
            f"NCCL takes{simulated}",
            WIDTH,
        )
        yield from latency_lines(predicted.machine)
    elif has_described_gpus(predicted.machine) and has_simulated:
        yield f"simulated times are {EXCLUDED}"


def _stand_in_lines(predictions: Sequence[Prediction]) -> Iterator[tuple[str, list[int], str]]:
    """Yield the algorithms whose times follow from those of fewer ranks, with the nodes and the last such sentence."""
    nodes: dict[str, set[int]] = defaultdict(set)
    sentences: dict[str, str] = {}
    for prediction in predictions:
        if prediction.stand_ins:
            nodes[prediction.algorithm].add(prediction.nodes)
            sentences[prediction.algorithm] = prediction.stand_ins
    for name, sentence in sentences.items():
        yield name, sorted(nodes[name]), sentence


def latency_lines(machine: MachineFile) -> Iterator[str]:
    """Yield that small messages take longer than NCCL's formulas say, where they do."""
    latency_s = latency_beyond_formulas(machine)
    if latency_s:
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
    taken: list[str] = []
    before = None
    for label, predictions in rows.items():
        own = [prediction for prediction in predictions if prediction.of_library]
        if not own:
            continue
        name = with_protocol(min(own, key=lambda prediction: prediction.value_s))
        if name != before:
            taken.append(f"{name} from {label}")
            before = name
    if taken:
        yield from paragraph(f"{_taking(predicted)} {', '.join(taken)}")


def _taking(predicted: Predictions) -> str:
    """Return the words before what NCCL takes, by what it chooses from."""
    if not predicted.has_all_of_library:
        return "as requested NCCL takes"
    if predicted.request.collective == "all_reduce":
        return "of ring and tree NCCL takes"
    return "NCCL takes"


def paragraph(text: str) -> list[str]:
    """Return a text in lines of WIDTH below a table."""
    return textwrap.wrap(
        text, WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False
    )


def with_protocol(prediction: Prediction) -> str:
    """Return an algorithm of NCCL with its protocol: ``nccl_ring (Simple)``; the bare name of any other."""
    if not prediction.of_library:
        return prediction.algorithm
    return f"{prediction.algorithm} ({prediction.params['protocol']})"


def beside_lines(machine: MachineFile, predictions: Sequence[Prediction]) -> Iterator[str]:
    """Yield what NCCL may take on the same nodes and is not modelled, and what was published near; or nothing."""
    published = published_sentences(
        near for prediction in predictions for near in prediction.published
    )
    missing: dict[str, dict[int, None]] = defaultdict(dict)
    for prediction in predictions:
        missing[join_words(prediction.unmodelled)][prediction.nodes] = None
    for names, nodes in missing.items():
        if names:
            text = f"not modelled: {names}, which NCCL may take on {format_counts(nodes, 'node')}"
            if not published:
                text += f"; {_why_none_published(machine)}"
            yield from paragraph(text)
    for sentence in published:
        yield from paragraph(sentence)


def _why_none_published(machine: MachineFile) -> str:
    if machine.network_factor != 1:
        return "published figures do not apply to a scaled network"
    return "nothing published is near these sizes"


def published_sentences(published: Iterable[PublishedSection]) -> list[str]:
    """Return what was published, a sentence for each number of nodes and algorithm, with the sources."""
    by_place: dict[tuple[str, int], list[PublishedSection]] = defaultdict(list)
    for section in published:
        by_place[section.algorithm, section.nodes].append(section)
    sentences = []
    for (algorithm, nodes), sections in by_place.items():
        figures = dict.fromkeys(_published_figure(section) for section in sections)
        sources = dict.fromkeys(source for section in sections for source in section.source)
        where = f"published for machines of this class, {format_count(nodes, 'node')}, {algorithm}"
        sentences.append(f"{where}, busbw in GB/s: {', '.join(figures)} ({', '.join(sources)})")
    return sentences


def _published_figure(section: PublishedSection) -> str:
    """Return the size and the range of the bus bandwidth in GB/s: ``1 GiB: 445 to 459``."""
    low = f"{section.low_bytes_per_s / 1e9:.0f}"
    high = f"{section.high_bytes_per_s / 1e9:.0f}"
    rates = low if low == high else f"{low} to {high}"
    return f"{format_size(section.nbytes)}: {rates}"


def waiting_lines(plan: PredictionPlan) -> Iterator[str]:
    """Yield how long the simulations of a plan will take if that is long, and which algorithms take most of it."""
    seconds = plan.seconds_by_algorithm()
    total = rest = sum(seconds.values())
    if total < LONG_S:
        return
    longest: list[str] = []
    kept = list(seconds)
    while len(kept) > 1 and rest > min(LONG_S, total / 2):
        longest.append(kept.pop(0))
        rest -= seconds[longest[-1]]
    text = f"the simulations take about {format_wait(total)}"
    if longest:
        ranks = max(
            planned.simulation.layout.workers
            for planned in plan.planned
            if planned.algorithm in longest
        )
        verb = "takes" if len(longest) == 1 else "take"
        text += f": {', '.join(longest)} on {ranks:,} ranks {verb} most of it; "
        text += f"-a {','.join(kept)} takes about {format_wait(rest)}"
    yield f"{text}; Ctrl-C prints what is complete"


def question_lines(predicted: Predictions) -> Iterator[str]:
    """Yield the answer to what is best: for each number of nodes a line for each size, and what NCCL has beside it."""
    numbers = predicted.machine.validation
    error = (
        f", error {numbers['error_median']:.0%} on held-out cases"
        if "error_median" in numbers
        else ""
    )
    for _, choices in groupby(
        best_choices(predicted, BestChoice.against), key=lambda choice: choice.best.nodes
    ):
        bests = []
        for choice in choices:
            best = choice.best
            where = f"{format_size(best.requested_bytes)} {best.collective} on {_layout(best)}"
            answer = _answer(choice)
            if choice.library:
                answer = f"{_taking(predicted)} {_library_answer(choice, choice.library)}"
            yield f"{where}: {answer}; {predicted.machine.name}: {best.far}{error}"
            bests.append(best)
        yield from beside_lines(predicted.machine, bests)
    if any(prediction.of_library for prediction in predicted.predictions):
        yield from latency_lines(predicted.machine)


def _answer(choice: BestChoice) -> str:
    best = choice.best
    lead = "the only one predicted"
    if choice.compared:
        lead = _lead_words(choice, choice.compared)
    answer = f"{best.algorithm}, {lead}; {_time(best)}"
    if choice.excluded_s and not best.of_library:
        answer += f" {EXCLUDED}"
    return answer


def _lead_words(choice: BestChoice, reference: Prediction) -> str:
    """Return how fast the best is beside another one: ``1.40x as fast as the flat ring (1.32x to 1.51x)``."""
    best = choice.best
    value, low, high = best.times_as_fast_as(reference)
    if not choice.clear:
        times = "not clearly faster than"
    elif value > TIE:
        times = f"{format_factor(value)} as fast as"
    else:
        times = "as fast as"
    is_flat = reference.algorithm == REFERENCE and best.ranks_per_node > 1 and best.nodes > 1
    name = f"the flat {reference.algorithm}" if is_flat else reference.algorithm
    return f"{times} {name} ({format_factor(low)} to {format_factor(high)})"


def _library_answer(choice: BestChoice, own: Prediction) -> str:
    """Return what NCCL takes, and then what a schedule would give instead."""
    taken = f"{with_protocol(own)}: {_time(own)}"
    ours = choice.ours
    if ours is None:
        return taken
    _, low, high = ours.times_as_fast_as(own)
    factor = f"{_factors(ours, own)} as fast"
    if low <= 1 <= high:
        factor += ", which is not clear"
    return f"{taken}; {ours.algorithm} would be {factor}: {_time(ours)} {EXCLUDED}"


def _time(prediction: Prediction) -> str:
    """Return the time with its interval, the bus bandwidth and the kind of a prediction."""
    interval = "no interval"
    if not prediction.of_library:
        interval = format_interval(prediction.interval)
    parts = [f"{format_seconds(prediction.value_s)} ({interval})"]
    if prediction.busbw:
        parts.append(f"busbw {format_rate(prediction.busbw)}")
    parts.append(prediction.kind)
    return ", ".join(parts)
