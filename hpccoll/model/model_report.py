"""The report of a model: the fitted machine of each run, and how well it predicts what it has not seen."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import starmap
from pathlib import Path
from statistics import median
from typing import Any

from hpccoll.cases.case import PYTHON
from hpccoll.common.errors import BadInputError
from hpccoll.common.units import format_seconds, format_size
from hpccoll.model.fit import MIN_SIZES, Fit, fit
from hpccoll.model.machine import TIER_LABELS
from hpccoll.model.machine_file import DeclaredSections, MachineFile, MessageCostsSection, Quantity
from hpccoll.model.observations import Observation, Work, observations
from hpccoll.model.validation import Crossing, Errors, Overtaking, Regret, Validated, crossings, curves, validate
from hpccoll.store.raw_results import RawResults


@dataclass(frozen=True)  # without slots, for cached properties
class RunModel:
    """The measurements of one transport and executor on one machine, the machine fitted to them, and its predictions.

    Args:
        raw_results: the raw results of one environment on one machine.
        transport: the transport of the validated observations.
        fit: the fit; None without ping-pongs.
        validated: the observations with their predictions.
        executor: the executor that measured the observations.
        several_executors: whether the run has a model of the other executor for this transport.
    """

    raw_results: Sequence[RawResults]
    transport: str
    fit: Fit | None
    validated: list[Validated]
    executor: str = PYTHON
    several_executors: bool = False

    @property
    def over(self) -> str:
        """The transport, with the executor if the run has both."""
        return self.transport + (f" by the {self.executor} executor" if self.several_executors else "")

    @property
    def measured_on(self) -> tuple[str, str]:
        """The kind of the measurement, and the machine."""
        attempt = self.raw_results[0].attempts[0][0]
        return attempt.kind, attempt.machine

    @property
    def held_out(self) -> list[Validated]:
        """The observations that the fit has not seen."""
        return [one for one in self.validated if one.held_out]

    @cached_property
    def groups(self) -> dict[Work, list[Validated]]:
        """The validated observations by their work; a mapping that all of them share is in the work and in no name."""
        by_work: dict[Work, list[Validated]] = defaultdict(list)
        for one in self.validated:
            by_work[one.observation.work].append(one)
        return dict(sorted(starmap(_of_one_mapping, by_work.items())))

    def machine_file(self) -> MachineFile:
        """Return the fitted machine with its errors on held-out measurements.

        Raises:
            BadInputError: if the run has no ping-pongs.
        """
        if self.fit is None:
            raise _no_ping_pongs(self.raw_results)
        numbers: dict[str, float] = {}
        if errors := Errors.of(self.held_out):
            numbers |= {
                "cases": errors.cases, "ratio_median": errors.center, "error_median": errors.typical,
                "error_p90": errors.large, "ratio_p5": errors.low, "ratio_p95": errors.high,
            }  # fmt: skip
        if regret := Regret.of(self.held_out):
            numbers |= {"regret_mean": regret.mean, "regret_most": regret.most, "regret_held_out": regret.held_out}
        return self.fit.machine.model_copy(update={"validation": numbers})


def _of_one_mapping(work: Work, validated: list[Validated]) -> tuple[Work, list[Validated]]:
    """Return the work with the mapping that all observations share, and these without it; else both as is."""
    mappings = {one.observation.mapping for one in validated}
    if len(mappings) > 1:
        return work, validated
    bare = [replace(one, observation=replace(one.observation, mapping=None)) for one in validated]
    return work._replace(mapping=mappings.pop() or ""), bare


def models_of(
    raw_results: Sequence[RawResults],
    declared: DeclaredSections | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[RunModel]:
    """Return a model for each machine, environment, transport and executor of the raw files.

    Args:
        raw_results: the raw results.
        declared: sections of the machine file that replace fitted ones.
        progress: is called with the number of predictions done, and of all.

    Raises:
        BadInputError: if no run has any ping-pongs.
    """
    runs: dict[object, list[RawResults]] = defaultdict(list)
    for raw in raw_results:
        if raw.attempts:
            attempt = raw.attempts[0][0]
            runs[attempt.kind, attempt.machine, raw.job.variant].append(raw)
    measured: list[tuple[list[RawResults], str, str, list[Observation], bool]] = []
    for of_run in runs.values():
        by_executor: dict[tuple[str, str], list[Observation]] = defaultdict(list)
        for one in (one for raw in of_run for one in observations(raw)):
            by_executor[one.transport, one.executor].append(one)
        transports = [transport for transport, _ in by_executor]
        for (transport, executor), observed in sorted(by_executor.items()):
            measured.append((of_run, transport, executor, observed, transports.count(transport) > 1))
    total, done, models = sum(len(observed) for *_, observed, _ in measured), 0, []
    for of_run, transport, executor, observed, several in measured:
        fitted = fit(observed, of_run[0].attempts[0][0].machine)
        validated = [Validated(one, None, "the run has no ping-pong") for one in observed]
        if fitted:
            if declared:
                fitted = replace(fitted, machine=fitted.machine.declaring(declared))
            report = None if progress is None else lambda number, before=done: progress(before + number, total)
            validated = validate(observed, fitted.machine.machine(), fitted.used, report)
        models.append(RunModel(of_run, transport, fitted, validated, executor, several))
        done += len(observed)
    if not any(one.fit for one in models):
        raise _no_ping_pongs(raw_results)
    return models


def _no_ping_pongs(raw_results: Sequence[RawResults]) -> BadInputError:
    needed = f"a run that has send_recv of {MIN_SIZES} sizes or more: see workflows/config/calibrate.yaml"
    return BadInputError("path", ", ".join(str(raw.path) for raw in raw_results), needed)


def model_lines(model: RunModel) -> Iterator[str]:
    """Yield the model of one run as text: errors on held-out measurements first."""
    files = ", ".join(sorted({_short(raw.path) for raw in model.raw_results}))
    where = f"{files}: {', '.join(model.measured_on)}, over {model.over}"
    if model.fit is None:
        yield f"{where}: no send_recv of {MIN_SIZES} sizes, not modelled"
        return
    yield where
    yield from _error_lines(model)
    yield "parameters, with 95 % intervals over rounds"
    yield from _parameter_lines(model.fit.machine)
    for work, validated in model.groups.items():
        yield f"{work.text}, measured over predicted time"
        yield from ratio_table(validated)
        for crossing in crossings(validated):
            yield f"  {_crossing_text(crossing)}"
        unpredicted = {f"{one.observation.name}: {one.reason}" for one in validated if one.reason}
        yield from (f"  not predicted: {each}" for each in sorted(unpredicted))


def _short(path: Path) -> str:
    return "/".join(path.parts[-3:])


def _error_lines(model: RunModel) -> Iterator[str]:
    """Yield how far held-out measurements are from predictions: all, and by nodes and by algorithm."""
    held_out, measured = model.held_out, model.fit.machine.measured if model.fit else None
    errors = Errors.of(held_out)
    if errors is None:
        yield "no held-out measurement: nothing but what the model was fitted to; its predictions are not tested"
        return
    nodes = ", ".join(map(str, measured.nodes)) if measured else ""
    yield f"held out: {errors.cases} cases that the fit has not seen (it has seen patterns on {nodes} nodes)"
    yield f"  {'':<34}{'cases':>6}{'measured/predicted':>20}{'error':>8}{'90th %':>8}"
    yield _error_row("all", errors)
    groups: dict[str, list[Validated]] = defaultdict(list)
    for one in held_out:
        layout = one.observation.layout
        groups[f"{layout.nodes} x {layout.ranks_per_node or 'mixed'} ranks"].append(one)
    for one in held_out:
        groups[f"{one.observation.collective} {one.observation.algorithm.name if one.observation.algorithm else ''}"
               ].append(one)  # fmt: skip
    for name, each in groups.items():
        if of_group := Errors.of(each):
            yield _error_row(name, of_group)
    if regret := Regret.of(held_out):
        yield regret.text


def _error_row(name: str, errors: Errors) -> str:
    return f"  {name:<34}{errors.cases:>6}{errors.center:>20.2f}{errors.typical:>8.1%}{errors.large:>8.1%}"


def _parameter_lines(machine: MachineFile) -> Iterator[str]:
    for tier, segments in machine.tiers.items():
        for segment in segments:
            yield f"  {TIER_LABELS[tier]}, from {format_size(segment.from_bytes)}: {_segment_text(segment)}"
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


def _segment_text(segment: MessageCostsSection) -> str:
    parts = [f"latency {_between(segment.latency_s, format_seconds)}"]
    parts += [f"overhead {_between(segment.overhead_s, format_seconds)}"] if segment.overhead_s.value else []
    parts += [f"gap {_between(segment.gap_s, format_seconds)}"] if segment.gap_s.value else []
    limited = segment.bytes_per_s.value < NO_LIMIT
    return ", ".join([*parts, _rate_text(segment.bytes_per_s) if limited else "as fast as the port"])


NO_LIMIT = 1e14
"""The rate, in bytes a second, from which a rank does not limit its messages."""


def _rate_text(rate: Quantity) -> str:
    return _between(rate, lambda each: f"{each / 1e9:.3g} GB/s" if each >= 1e9 else f"{each / 1e6:.4g} MB/s")


def _between(quantity: Quantity, text: Callable[[float], str]) -> str:
    """Return a quantity with its interval, if that is visible."""
    value, low, high = (text(quantity.at(bound)) for bound in ("value", "low_cost", "high_cost"))
    return value if value == low == high else f"{value} ({low} to {high})"


def ratio_table(validated: Sequence[Validated]) -> Iterator[str]:
    """Yield a table of measured over predicted time: a row for each size, a column for each algorithm of one work."""
    columns = curves(validated)
    widths = {name: max(9, len(name) + 2) for name in columns}
    sizes = sorted({nbytes for curve in columns.values() for nbytes in curve})
    if not columns:
        return
    yield f"  {'bytes':>10}" + "".join(f"{name:>{widths[name]}}" for name in columns)
    for nbytes in sizes:
        cells = [f"{curve[nbytes].ratio:.2f}" if nbytes in curve else "" for curve in columns.values()]
        yield f"  {nbytes:>10}" + "".join(f"{c:>{w}}" for c, w in zip(cells, widths.values(), strict=True))
    middles = [median(one.ratio or 1.0 for one in curve.values()) for curve in columns.values()]
    yield f"  {'median':>10}" + "".join(f"{m:>{w}.2f}" for m, w in zip(middles, widths.values(), strict=True))


def _crossing_text(crossing: Crossing) -> str:
    """Return which of two overtakes, as text; if model and measurement differ, for each of them."""
    sides = {"modelled": crossing.modelled, "measured": crossing.measured}
    text = {side: (_overtaking_text(crossing, of), _sizes_text(of)) for side, of in sides.items()}
    if len({who for who, _ in text.values()}) > 1:
        return "; ".join(f"{side}: {' '.join(filter(None, phrases))}" for side, phrases in text.items())
    who, _ = text["modelled"]
    return f"{who}: {', '.join(f'{side} {sizes}' for side, (_, sizes) in text.items())}"


def _overtaking_text(crossing: Crossing, side: Overtaking) -> str:
    one, other = crossing.pair
    if side.overtaker is None:
        return f"{one} and {other} take the same"
    slower = other if side.overtaker == one else one
    return f"{side.overtaker} {'overtakes' if side.sizes else 'is always ahead of'} {slower}"


def _sizes_text(side: Overtaking) -> str:
    again = f" (back and forth since {interpolated_size(side.sizes[0])})" if len(side.sizes) > 1 else ""
    end = f" to {format_size(side.largest)}"
    return f"from {interpolated_size(side.sizes[-1])}{end}{again}" if side.sizes else ""


def interpolated_size(nbytes: float) -> str:
    """Return an interpolated size, which is not exact to the byte."""
    return f"{nbytes / 1024:.3g} KiB" if nbytes < 1000 << 10 else f"{nbytes / (1 << 20):.3g} MiB"


def as_json(model: RunModel) -> dict[str, Any]:
    """Return the model of one run in SI units; absent values are null."""
    measured_kind, machine_name = model.measured_on
    return {
        "files": [str(raw.path) for raw in model.raw_results],
        "kind": "simulated",
        "transport": model.transport,
        "executor": model.executor,
        "measured": measured_kind,
        "machine": machine_name,
        "variant": model.raw_results[0].job.variant,
        "machine_file": model.machine_file().model_dump(mode="json", by_alias=True) if model.fit else None,
        "rows": [_row(one) for one in model.validated],
        "crossings": [
            {
                **_work(work), "algorithms": each.pair,
                "modelled": {"overtaker": each.modelled.overtaker, "bytes": each.modelled.sizes},
                "measured": {"overtaker": each.measured.overtaker, "bytes": each.measured.sizes},
            }
            for work, validated in model.groups.items()
            for each in crossings(validated)
        ],
    }  # fmt: skip


def _work(work: Work) -> dict[str, Any]:
    return {name: value if value != "" else None for name, value in work._asdict().items()}


def _row(one: Validated) -> dict[str, Any]:
    observation = one.observation
    return {
        **_work(observation.work), "algorithm": observation.name, "params": dict(observation.params),
        "in_place": observation.in_place, "mapping": observation.mapping, "bytes": observation.nbytes,
        "measured_s": observation.seconds, "predicted_s": one.seconds, "reason": one.reason or None,
        "held_out": one.held_out,
    }  # fmt: skip
