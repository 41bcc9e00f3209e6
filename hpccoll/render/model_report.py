"""Models in words: the fitted machine of each run, its errors on what it has not seen, and promises kept or not."""

import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from statistics import median

from hpccoll.common.text import Columns, filled_columns, in_brackets, join_ends, table_lines, table_of
from hpccoll.common.units import format_count, format_rounded_size, format_seconds, format_size, rate_unit
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
from hpccoll.render.prediction_report import WIDTH, beside_lines, paragraph, published_sentences, with_protocol
from hpccoll.store.sources import SOURCES


def model_lines(model: RunModel) -> Iterator[str]:
    """Yield the model of one run as text: errors on held-out measurements first."""
    files = ", ".join(sorted({"/".join(raw.path.parts[-3:]) for raw in model.raw_results}))
    where = f"{files}: {', '.join(model.measured_on)}, over {model.over}"
    if model.machine is None:
        yield f"{where}: no send_recv of {MIN_SIZES} sizes, not modelled"
        return
    yield where
    yield from _error_lines(model)
    yield "parameters, with 95 % intervals over rounds"
    yield from _parameter_lines(model.machine)
    for work, validated in model.groups.items():
        yield f"{work.text}, measured over predicted time"
        yield from _ratio_table(validated)
        for crossing in validation.find_crossings(validated):
            yield f"  {_crossing_text(crossing)}"
        unpredicted = {f"{one.observation.name}: {one.reason}" for one in validated if one.reason}
        yield from (f"  not predicted: {each}" for each in sorted(unpredicted))


def _error_lines(model: RunModel) -> Iterator[str]:
    held_out, measured = model.held_out, model.machine.measured if model.machine else None
    errors = validation.Errors.of(held_out)
    if errors is None:
        yield "no held-out measurement: nothing but what the model was fitted to; its predictions are not tested"
        return
    nodes = ", ".join(map(str, measured.nodes)) if measured else ""
    yield f"held out: {errors.cases} cases that the fit has not seen (it has seen patterns on {nodes} nodes)"
    groups: dict[str, list[validation.Validated]] = defaultdict(list, all=held_out)
    for one in held_out:
        layout = one.observation.layout
        groups[f"{layout.nodes} x {layout.ranks_per_node or 'mixed'} ranks"].append(one)
    for one in held_out:
        algorithm = one.observation.algorithm.name if one.observation.algorithm else ""
        groups[f"{one.observation.collective} {algorithm}"].append(one)
    of_groups = ((name, of) for name, each in groups.items() if (of := validation.Errors.of(each)))
    yield from table_lines(*table_of(_ERRORS, of_groups))
    if regret := validation.Regret.of(held_out):
        yield regret.text


_ERRORS: Columns[tuple[str, validation.Errors]] = (
    ("", lambda of: of[0]),
    ("cases", lambda of: of[1].cases),
    ("measured/predicted", lambda of: f"{of[1].ratio_median:.2f}"),
    ("error", lambda of: f"{of[1].error_median:.1%}"),
    ("90th %", lambda of: f"{of[1].error_p90:.1%}"),
)


def _parameter_lines(machine: MachineFile) -> Iterator[str]:
    for tier, costs_by_size in machine.tiers.items():
        for costs in costs_by_size:
            yield f"  {TIER_LABELS[tier]}, from {format_size(costs.from_bytes)}: {_costs_text(costs)}"
    sections = {
        "port of a node, each way": machine.port, "uplink of a rack, each way": machine.uplink,
        "messages inside a node together": machine.memory,
        **{f"reduction of {dtype}": rate for dtype, rate in machine.reduction.items()},
    }  # fmt: skip
    for name, section in sections.items():
        if section and section.bytes_per_s:
            yield f"  {name}: {_rate_text(section.bytes_per_s)}"
    if machine.port and machine.port.burst_bytes.value:
        burst = machine.port.burst_bytes
        yield f"  a port lets pass at once after a pause: {_between(burst, lambda n: f'{n / 1024:.3g} KiB')}"
    if cpus := machine.cpus:
        rate = f", which move {_rate_text(cpus.bytes_per_s)} each" if cpus.bytes_per_s else ""
        yield f"  {cpus.cores} CPUs shared by the ranks of {'all nodes' if cpus.of == 'machine' else 'a node'}{rate}"
        added = _between(cpus.contention, lambda factor: f"{factor:.3g}")
        yield f"  each other rank on its CPU adds {added} times a rank's own work"


def _costs_text(costs: MessageCostsSection) -> str:
    times = {"latency": costs.latency_s, "overhead": costs.overhead_s, "gap": costs.gap_s}
    parts = [
        f"{name} {_between(cost, format_seconds)}" for name, cost in times.items() if cost.value or name == "latency"
    ]
    limited = costs.bytes_per_s.value < NO_LIMIT
    return ", ".join([*parts, _rate_text(costs.bytes_per_s) if limited else "as fast as the port"])


NO_LIMIT = 1e14
"""The rate, in bytes a second, from which a rank does not limit its messages."""


def _rate_text(rate: Quantity) -> str:
    return _between(rate, lambda each: f"{each / 1e9:.3g} GB/s" if each >= 1e9 else f"{each / 1e6:.4g} MB/s")


def _between(quantity: Quantity, text: Callable[[float], str]) -> str:
    """Return a quantity with its interval, if that is visible."""
    value, low, high = (text(quantity.at(bound)) for bound in ("value", "low_cost", "high_cost"))
    return value if value == low == high else f"{value} ({low} to {high})"


def _ratio_table(validated: Sequence[validation.Validated]) -> Iterator[str]:
    columns = validation.curves_by_algorithm(validated)
    if not columns:
        return
    rows = [
        (nbytes, *(f"{curve[nbytes].ratio:.2f}" if nbytes in curve else "" for curve in columns.values()))
        for nbytes in sorted({nbytes for curve in columns.values() for nbytes in curve})
    ]
    medians = (f"{median(one.ratio or 1.0 for one in curve.values()):.2f}" for curve in columns.values())
    yield from table_lines(("bytes", *columns), [*rows, ("median", *medians)])


def expectation_lines(expectation: Expectation) -> Iterator[str]:
    """Yield the fraction of a promise that measurements reach, and measured over expected times."""
    run, machine = expectation.run, expectation.machine
    measured_kind, name = run.measured_on
    errors, where = validation.Errors.of(run.validated), f"{name} ({measured_kind}) over {run.over}"
    if errors is None:
        yield f"{where}: no case that {machine.name} can predict"
    else:
        basis = "the description" if machine.kind == "described" else "the fitted machine"
        fractions = f"{1 / errors.ratio_p95:.2g} to {1 / errors.ratio_p5:.2g}, 5th to 95th percentile"
        yield (
            f"this machine gives {1 / errors.ratio_median:.2g} of what {basis} promises (median of {errors.cases} "
            f"cases; {fractions})"
        )
        yield f"  {where}, against {machine.name}; {expectation.within} of {errors.cases} cases in its intervals"
    for work, validated in run.groups.items():
        if any(one.seconds for one in validated):
            yield f"{work.text}, measured over expected time"
            yield from _ratio_table(validated)
    unpredicted = {
        f"{one.observation.name} of {one.observation.collective}: {one.reason}" for one in run.validated if one.reason
    }
    yield from (f"  not predicted: {each}" for each in sorted(unpredicted))


def library_lines(expectations: Sequence[LibraryExpectation]) -> Iterator[str]:
    """Yield what calls of libraries take over what is expected of them, and what the numbers mean."""
    for each in expectations:
        if each.basis:
            yield from _library_table(each)
    unexpected: dict[str, list[LibraryExpectation]] = defaultdict(list)
    for each in expectations:
        if each.reason:
            unexpected[each.reason].append(each)
    for reason, several in unexpected.items():
        calls = "; ".join(dict.fromkeys(map(_library, several)))
        yield from textwrap.wrap(f"not expected, because {reason}: {calls}", WIDTH, subsequent_indent="  ")
        for sentence in published_sentences(near for each in several for call in each.calls for near in call.published):
            yield from paragraph(sentence)
    for basis in dict.fromkeys(each.basis for each in expectations if each.basis):
        yield from textwrap.wrap(_BASIS_NOTES[basis], WIDTH)
    for source in dict.fromkeys(call.row.source for each in expectations if each.basis for call in each.calls):
        if source in SOURCES:
            yield from textwrap.wrap(f"{SOURCES[source].title}: {SOURCES[source].meaning}", WIDTH)


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
    call = " ".join(f"{name}={value}" for name, value in row.params.items())
    where = f"{format_count(row.nodes, 'node')} x {row.ranks_per_node or 'mixed'}"
    words = f"{row.collective} of {row.transport.upper()} on {where}", row.dtype, call, row.variant or ""
    return ", ".join(filter(None, words))


def _library_table(expectation: LibraryExpectation) -> Iterator[str]:
    row, (low, high) = expectation.calls[0].row, CLOSE
    outside = ", ".join(map(_range_text, expectation.outside)) or "no size"
    placements = {call.row.in_place for call in expectation.calls}
    faster = ", each by the faster placement" if len(placements) > 1 else ""
    yield (
        f"{_library(expectation)}: {expectation.ratio_median:.2f} times as long as {_BASES[expectation.basis]} "
        f"(median of {format_count(len(expectation.by_size), 'size')}{faster}); outside {low} to {high}: {outside}"
    )
    measured = in_brackets(row.kind + (f" from {row.source}" if row.imported else ""), f"{row.timing} timing")
    distance = join_ends(dict.fromkeys(call.expected.distance for call in expectation.calls if call.expected))
    yield f"  {expectation.measured_on}{measured}, against {expectation.machine.name}: {distance}"
    yield from table_lines(*_library_cells(expectation))
    if without := [call for call in expectation.calls if call.reason]:
        sizes = join_ends(dict.fromkeys(format_size(call.row.requested_bytes) for call in without))
        yield f"  nothing expected of {sizes}: {without[-1].reason}"
    yield from beside_lines(
        expectation.machine, [call.expected for call in expectation.by_size.values() if call.expected]
    )


def _range_text(calls: Sequence[ComparedCall]) -> str:
    ratios = sorted(call.ratio or 1.0 for call in calls)
    return f"{join_ends(format_size(call.row.requested_bytes) for call in calls)} ({join_ends(map(_ratio, ratios))})"


def _ratio(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"


def _library_cells(expectation: LibraryExpectation) -> tuple[list[str], list[list[str]]]:
    """Return a table with a line for each size: the expected time and busbw, then those measured of each placement."""
    by_size: dict[int, dict[bool, ComparedCall]] = defaultdict(dict)
    for call in expectation.calls:
        if call.expected:
            by_size[call.row.requested_bytes][call.row.in_place] = call
    placements = sorted({in_place for calls in by_size.values() for in_place in calls})
    rates = [rate for call in expectation.calls for rate in (call.row.busbw_Bps, call.expected_busbw) if rate]
    scale, unit = rate_unit(max(rates, default=0.0))
    names = {False: "out of place", True: "in place"} if len(placements) > 1 else dict.fromkeys(placements, "measured")

    def rate(busbw: float | None) -> str:
        return f"{busbw / scale:.3g}" if busbw else ""

    head = ["size", "expected", unit, "by", *(word for each in placements for word in (names[each], unit, "ratio"))]
    body = []
    for size, calls in by_size.items():
        call = next(iter(calls.values()))
        expected = call.candidates[0]
        time, by = format_seconds(expected.value_s), with_protocol(expected)
        body.append([format_size(size), time, rate(call.expected_busbw), by])
        for each in placements:
            row = calls[each].row if each in calls else None
            measured = [format_seconds(row.median_s or 0.0), rate(row.busbw_Bps)] if row else ["", ""]
            body[-1] += [*measured, _ratio(calls[each].ratio if row else None)]
    return filled_columns(head, body)


def _crossing_text(crossing: validation.Crossing) -> str:
    sides = {"modelled": crossing.modelled, "measured": crossing.measured}
    text = {side: (_overtaking_text(crossing, of), _sizes_text(of)) for side, of in sides.items()}
    if len({who for who, _ in text.values()}) > 1:
        return "; ".join(f"{side}: {' '.join(filter(None, phrases))}" for side, phrases in text.items())
    who, _ = text["modelled"]
    return f"{who}: {', '.join(f'{side} {sizes}' for side, (_, sizes) in text.items())}"


def _overtaking_text(crossing: validation.Crossing, side: validation.Overtaking) -> str:
    one, other = crossing.pair
    if side.overtaker is None:
        return f"{one} and {other} take the same"
    slower = other if side.overtaker == one else one
    return f"{side.overtaker} {'overtakes' if side.sizes else 'is always ahead of'} {slower}"


def _sizes_text(side: validation.Overtaking) -> str:
    again = f" (back and forth since {format_rounded_size(side.sizes[0])})" if len(side.sizes) > 1 else ""
    end = f" to {format_size(side.largest)}"
    return f"from {format_rounded_size(side.sizes[-1])}{end}{again}" if side.sizes else ""
