"""Models in words: the fitted machine of each run, its errors on what it has not seen, and promises kept or not."""

import math
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from hpccoll.common.text import (
    Columns,
    filled_columns,
    in_brackets,
    join_ends,
    table_lines,
    table_of,
)
from hpccoll.common.units import (
    format_count,
    format_rounded_size,
    format_seconds,
    format_size,
    rate_unit,
)
from hpccoll.judge.expectations import Expectation
from hpccoll.judge.library_expectations import (
    CLOSE,
    FASTEST_SCHEDULE,
    NCCL_MODEL,
    ComparedCall,
    LibraryExpectation,
)
from hpccoll.model import validation
from hpccoll.model.machine import TIER_LABELS
from hpccoll.model.machine_file import MachineFile
from hpccoll.model.machine_sections import MessageCostsSection, Quantity
from hpccoll.model.message_patterns import MIN_SIZES
from hpccoll.model.run_model import RunModel
from hpccoll.render.prediction_report import (
    WIDTH,
    beside_lines,
    paragraph,
    published_sentences,
    with_protocol,
)
from hpccoll.store.sources import HPCCOLL, source_named


def model_lines(model: RunModel) -> Iterator[str]:
    """Yield the model of one run as text: errors on held-out measurements first."""
    files = ", ".join(sorted({"/".join(raw.path.parts[-3:]) for raw in model.raw_results}))
    where = f"{files}: {', '.join(model.measured_on)}, over {model.over}"
    if model.machine is None:
        yield f"{where}: no send_recv of {MIN_SIZES} sizes, not modelled"
        return
    yield where
    yield from _error_lines(model)
    basis = "rounds" if not model.machine.own_memory else "runs"
    yield f"parameters, with 95 % intervals over {basis}"
    yield from _parameter_lines(model.machine)
    yield from _unknown_lines(model)
    for work, validated in model.groups.items():
        yield f"{work.text}, measured over predicted time"
        yield from _ratio_table(validated)
        for crossing in validation.find_crossings(validated):
            yield f"  {_crossing_text(crossing)}"
        unpredicted = {
            f"{case.observation.name}: {case.reason}" for case in validated if case.reason
        }
        for sentence in sorted(unpredicted):
            yield f"  not predicted: {sentence}"


def _error_lines(model: RunModel) -> Iterator[str]:
    held_out = model.held_out
    errors = validation.Errors.of(held_out)
    if errors is None:
        yield "no held-out measurement: nothing but what the model was fitted to; its predictions are not tested"
        return
    nodes = ""
    if model.machine and model.machine.measured:
        nodes = ", ".join(map(str, model.machine.measured.nodes))
    yield f"held out: {errors.cases} cases that the fit has not seen (it has seen others on {nodes} nodes)"
    yield from error_table(held_out)
    regret = validation.Regret.of(held_out)
    if regret:
        yield regret.text


def error_table(validated: Sequence[validation.Validated]) -> Iterator[str]:
    """Yield a table of errors: of all, by place, by collective and algorithm, by ports of a rank, and by size."""
    groups: dict[str, list[validation.Validated]] = defaultdict(list, all=list(validated))
    for case in validated:
        layout = case.observation.layout
        groups[f"{layout.nodes} x {layout.ranks_per_node or 'mixed'} ranks"].append(case)
    for case in validated:
        algorithm = case.observation.algorithm.name if case.observation.algorithm else ""
        groups[f"{case.observation.collective} {algorithm}"].append(case)
    for case in validated:
        if "ports" in case.observation.params:
            groups[f"ports: {case.observation.params['ports']}"].append(case)
    for case in sorted(validated, key=lambda case: case.observation.nbytes):
        # sizes that the ranks do not divide are a little smaller than a power of two
        groups[f"about {format_size(1 << round(math.log2(case.observation.nbytes)))}"].append(case)
    rows = []
    for name, cases in groups.items():
        errors_of_group = validation.Errors.of(cases)
        if errors_of_group:
            rows.append((name, errors_of_group))
    yield from table_lines(*table_of(_ERRORS, rows))


_ERRORS: Columns[tuple[str, validation.Errors]] = (
    ("", lambda named: named[0]),
    ("cases", lambda named: named[1].cases),
    ("measured/predicted", lambda named: f"{named[1].ratio_median:.2f}"),
    ("error", lambda named: f"{named[1].error_median:.1%}"),
    ("90th %", lambda named: f"{named[1].error_p90:.1%}"),
    (f"within {validation.CLOSE_FACTOR}x", lambda named: f"{named[1].within_close:.0%}"),
)


def _unknown_lines(model: RunModel) -> Iterator[str]:
    """Yield what the measurements do not tell, and which of them a machine is not fitted to."""
    machine = model.machine
    if machine and machine.measured and machine.measured.undetermined:
        yield "the measurements do not determine"
        for words in machine.measured.undetermined:
            yield f"  {words}"
    if model.left_out:
        yield "not fitted"
        for reason, count in sorted(model.left_out.items()):
            yield f"  {count}: {reason}"


def _parameter_lines(machine: MachineFile) -> Iterator[str]:
    yield from _tier_lines(machine.tiers)
    if machine.larger_jobs:
        yield f"  in jobs of {format_count(machine.larger_jobs.from_nodes, 'node')} and more"
        yield from _tier_lines(machine.larger_jobs.tiers)
    sections = {
        "port of a node, each way": machine.port,
        "uplink of a rack, each way": machine.uplink,
        "messages inside a node together": machine.memory,
    }
    for dtype, reduction in machine.reduction.items():
        sections[f"reduction of {dtype}"] = reduction
    for name, section in sections.items():
        if section and section.bytes_per_s:
            yield f"  {name}: {_rate_text(section.bytes_per_s)}"
    yield from _collective_lines(machine)
    if machine.port and machine.port.burst_bytes.value:
        burst = _between(machine.port.burst_bytes, lambda nbytes: f"{nbytes / 1024:.3g} KiB")
        yield f"  a port lets pass at once after a pause: {burst}"
    cpus = machine.cpus
    if cpus:
        where = "all nodes" if cpus.of == "machine" else "a node"
        text = f"{cpus.cores} CPUs shared by the ranks of {where}"
        if cpus.bytes_per_s:
            text += f", which move {_rate_text(cpus.bytes_per_s)} each"
        yield f"  {text}"
        added = _between(cpus.contention, lambda factor: f"{factor:.3g}")
        yield f"  each other rank on its CPU adds {added} times a rank's own work"


def _collective_lines(machine: MachineFile) -> Iterator[str]:
    """Yield what only fits to collectives have."""
    if machine.start_skew_s:
        skew = _between(machine.start_skew_s, format_seconds)
        yield f"  ranks start apart by, for each doubling of their number: {skew}"
    memory = machine.own_memory
    if memory is None:
        return
    rates = {
        "copies on a rank": memory.copied_bytes_per_s,
        f"new memory of a rank, above {format_size(memory.kept_bytes)}": memory.new_bytes_per_s,
        "new memory of the other ranks of a node": memory.new_bytes_per_s_of_node,
    }
    for name, rate in rates.items():
        if rate:
            yield f"  {name}: {_rate_text(rate)}"


def _tier_lines(tiers: Mapping[Any, Sequence[MessageCostsSection]]) -> Iterator[str]:
    for tier, costs_by_size in tiers.items():
        for costs in costs_by_size:
            yield f"  {TIER_LABELS[tier]}, from {format_size(costs.from_bytes)}: {_costs_text(costs)}"


def _costs_text(costs: MessageCostsSection) -> str:
    parts = [f"latency {_between(costs.latency_s, format_seconds)}"]
    if costs.overhead_s.value:
        parts.append(f"overhead {_between(costs.overhead_s, format_seconds)}")
    if costs.gap_s.value:
        parts.append(f"gap {_between(costs.gap_s, format_seconds)}")
    if costs.bytes_per_s.value < NO_LIMIT:
        parts.append(_rate_text(costs.bytes_per_s))
    else:
        parts.append("as fast as the port")
    return ", ".join(parts)


NO_LIMIT = 1e14
"""The rate, in bytes a second, from which a rank does not limit its messages."""


def _rate_text(rate: Quantity) -> str:
    return _between(rate, _bytes_per_s_text)


def _bytes_per_s_text(rate: float) -> str:
    if rate >= 1e9:
        return f"{rate / 1e9:.3g} GB/s"
    return f"{rate / 1e6:.4g} MB/s"


def _between(quantity: Quantity, text: Callable[[float], str]) -> str:
    """Return a quantity with its interval, if that is visible."""
    value = text(quantity.at("value"))
    low = text(quantity.at("low_cost"))
    high = text(quantity.at("high_cost"))
    if value == low == high:
        return value
    return f"{value} ({low} to {high})"


def _ratio_table(validated: Sequence[validation.Validated]) -> Iterator[str]:
    """Yield a table of measured over predicted times: a row for each size, a column for each algorithm."""
    columns = validation.curves_by_algorithm(validated)
    if not columns:
        return
    sizes = {nbytes for curve in columns.values() for nbytes in curve}
    rows: list[list[object]] = []
    for nbytes in sorted(sizes):
        ratios = [
            f"{curve[nbytes].ratio:.2f}" if nbytes in curve else "" for curve in columns.values()
        ]
        rows.append([nbytes, *ratios])
    medians = []
    for curve in columns.values():
        median_ratio = median(case.ratio or 1.0 for case in curve.values())
        medians.append(f"{median_ratio:.2f}")
    rows.append(["median", *medians])
    yield from table_lines(("bytes", *columns), rows)


def expectation_lines(expectation: Expectation) -> Iterator[str]:
    """Yield the fraction of a promise that measurements reach, and measured over expected times."""
    run, machine = expectation.run, expectation.machine
    measured_kind, name = run.measured_on
    where = f"{name} ({measured_kind}) over {run.over}"
    errors = validation.Errors.of(run.validated)
    if errors is None:
        yield f"{where}: no case that {machine.name} can predict"
    else:
        basis = "the description" if machine.kind == "described" else "the fitted machine"
        fractions = (
            f"{1 / errors.ratio_p95:.2g} to {1 / errors.ratio_p5:.2g}, 5th to 95th percentile"
        )
        yield (
            f"this machine gives {1 / errors.ratio_median:.2g} of what {basis} promises (median of {errors.cases} "
            f"cases; {fractions})"
        )
        yield f"  {where}, against {machine.name}; {expectation.within} of {errors.cases} cases in its intervals"
        if machine.measured:
            yield from error_table(run.validated)
    for work, validated in run.groups.items():
        if any(case.seconds for case in validated):
            yield f"{work.text}, measured over expected time"
            yield from _ratio_table(validated)
    unpredicted = set()
    for case in run.validated:
        if case.reason:
            unpredicted.add(
                f"{case.observation.name} of {case.observation.collective}: {case.reason}"
            )
    for sentence in sorted(unpredicted):
        yield f"  not predicted: {sentence}"


def library_lines(expectations: Sequence[LibraryExpectation]) -> Iterator[str]:
    """Yield what calls of libraries take over what is expected of them, and what the numbers mean."""
    with_basis = [expectation for expectation in expectations if expectation.basis]
    for expectation in with_basis:
        yield from _library_table(expectation)
    unexpected: dict[str, list[LibraryExpectation]] = defaultdict(list)
    for expectation in expectations:
        if expectation.reason:
            unexpected[expectation.reason].append(expectation)
    for reason, several in unexpected.items():
        names = "; ".join(dict.fromkeys(map(_library, several)))
        yield from textwrap.wrap(
            f"not expected, because {reason}: {names}", WIDTH, subsequent_indent="  "
        )
        calls = [call for expectation in several for call in expectation.calls]
        for sentence in published_sentences(section for call in calls for section in call.sections):
            yield from paragraph(sentence)
    for basis in dict.fromkeys(expectation.basis for expectation in with_basis):
        yield from textwrap.wrap(_BASIS_NOTES[basis], WIDTH)
    for source in dict.fromkeys(
        call.row.source for expectation in with_basis for call in expectation.calls
    ):
        if source and source != HPCCOLL:
            described = source_named(source)
            yield from textwrap.wrap(f"{described.title}: {described.meaning}", WIDTH)


_BASES = {NCCL_MODEL: "NCCL's own model says", FASTEST_SCHEDULE: "the fastest schedule would take"}
"""What a call is held against, in words."""
_BASIS_NOTES = {
    NCCL_MODEL: "by nccl_ring, nccl_tree: modelled, the faster one, which NCCL would choose of the two by its own "
    "model, which has no interval",
    FASTEST_SCHEDULE: "the library's call has no model: expected is the fastest of our schedules, simulated, which "
    "says what the network allows, and not what the library does",
}
"""What that means."""


def _library(expectation: LibraryExpectation) -> str:
    """Return the calls in words: ``all_reduce of NCCL on 2 nodes x 8, float32``."""
    row = expectation.calls[0].row
    ranks_per_node = row.ranks_per_node or "mixed"
    where = f"{format_count(row.nodes, 'node')} x {ranks_per_node}"
    call = f"{row.collective} of {row.transport.upper()} on {where}"
    params = [f"{name}={value}" for name, value in row.params.items()]
    return ", ".join(filter(None, (call, row.dtype, " ".join(params), row.variant)))


def _library_table(expectation: LibraryExpectation) -> Iterator[str]:
    row = expectation.calls[0].row
    low, high = CLOSE
    outside = ", ".join(map(_range_text, expectation.outside)) or "no size"
    basis = f"median of {format_count(len(expectation.by_size), 'size')}"
    placements = {call.row.in_place for call in expectation.calls}
    if len(placements) > 1:
        basis += ", each by the faster placement"
    yield (
        f"{_library(expectation)}: {expectation.ratio_median:.2f} times as long as {_BASES[expectation.basis]} "
        f"({basis}); outside {low} to {high}: {outside}"
    )
    kind = row.kind
    if row.imported:
        kind += f" from {row.source}"
    measured = f"{expectation.calls[0].measured_on}{in_brackets(kind, f'{row.timing} timing')}"
    distances: dict[str, None] = {}
    unexpected_sizes: dict[str, None] = {}
    reason = ""
    for call in expectation.calls:
        if call.prediction:
            distances[call.prediction.distance] = None
        if call.reason:
            unexpected_sizes[format_size(call.row.requested_bytes)] = None
            reason = call.reason
    yield f"  {measured}, against {expectation.machine.name}: {join_ends(distances)}"
    yield from table_lines(*_library_cells(expectation))
    if unexpected_sizes:
        yield f"  nothing expected of {join_ends(unexpected_sizes)}: {reason}"
    predictions = [call.prediction for call in expectation.by_size.values() if call.prediction]
    yield from beside_lines(expectation.machine, predictions)


def _range_text(calls: Sequence[ComparedCall]) -> str:
    sizes = join_ends(format_size(call.row.requested_bytes) for call in calls)
    ratios = sorted(call.ratio or 1.0 for call in calls)
    range_of_ratios = join_ends(map(_ratio, ratios))
    return f"{sizes} ({range_of_ratios})"


def _ratio(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"


def _library_cells(expectation: LibraryExpectation) -> tuple[list[str], list[list[str]]]:
    """Return a table with a line for each size: the expected time and busbw, then those measured of each placement."""
    by_size: dict[int, dict[bool, ComparedCall]] = defaultdict(dict)
    for call in expectation.calls:
        if call.prediction:
            by_size[call.row.requested_bytes][call.row.in_place] = call
    placements = sorted({call.row.in_place for call in expectation.calls if call.prediction})
    scale, unit = rate_unit(_highest_rate(expectation.calls))

    def rate_text(busbw: float | None) -> str:
        return f"{busbw / scale:.3g}" if busbw else ""

    head = ["size", "expected", unit, "by"]
    for in_place in placements:
        name = "measured"
        if len(placements) > 1:
            name = "in place" if in_place else "out of place"
        head += [name, unit, "ratio"]
    body = []
    for size, calls in by_size.items():
        first = next(iter(calls.values()))
        prediction = first.predictions[0]
        time = format_seconds(prediction.value_s)
        cells = [
            format_size(size),
            time,
            rate_text(first.expected_busbw),
            with_protocol(prediction),
        ]
        for in_place in placements:
            if in_place in calls:
                call = calls[in_place]
                cells += [
                    format_seconds(call.row.median_s or 0.0),
                    rate_text(call.row.busbw_Bps),
                    _ratio(call.ratio),
                ]
            else:
                cells += ["", "", ""]
        body.append(cells)
    return filled_columns(head, body)


def _highest_rate(calls: Iterable[ComparedCall]) -> float:
    """Return the highest measured or expected bandwidth of calls; 0 if none has a bandwidth."""
    highest = 0.0
    for call in calls:
        highest = max(highest, call.row.busbw_Bps or 0.0, call.expected_busbw or 0.0)
    return highest


def _crossing_text(crossing: validation.Crossing) -> str:
    modelled_words = _overtaking_text(crossing, crossing.modelled)
    modelled_sizes = _sizes_text(crossing.modelled)
    measured_words = _overtaking_text(crossing, crossing.measured)
    measured_sizes = _sizes_text(crossing.measured)
    if modelled_words == measured_words:
        return f"{modelled_words}: modelled {modelled_sizes}, measured {measured_sizes}"
    in_model = " ".join(filter(None, (modelled_words, modelled_sizes)))
    in_measurement = " ".join(filter(None, (measured_words, measured_sizes)))
    return f"modelled: {in_model}; measured: {in_measurement}"


def _overtaking_text(crossing: validation.Crossing, side: validation.Overtaking) -> str:
    first, second = crossing.pair
    if side.overtaker is None:
        return f"{first} and {second} take the same"
    slower = second if side.overtaker == first else first
    verb = "overtakes" if side.sizes else "is always ahead of"
    return f"{side.overtaker} {verb} {slower}"


def _sizes_text(side: validation.Overtaking) -> str:
    if not side.sizes:
        return ""
    text = f"from {format_rounded_size(side.sizes[-1])} to {format_size(side.largest)}"
    if len(side.sizes) > 1:
        text += f" (back and forth since {format_rounded_size(side.sizes[0])})"
    return text
