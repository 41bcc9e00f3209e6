"""The report of a model: each run as text and as JSON."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import starmap
from statistics import median
from typing import Any

from hpccoll.errors import BadInputError
from hpccoll.model.fit import MIN_SIZES, fit
from hpccoll.model.machine import TIER_LABELS, Link, MachineModel
from hpccoll.model.observations import Observation, Work, observations
from hpccoll.model.validation import Crossing, Overtaking, Validated, crossings, curves, validate
from hpccoll.spec.case import PYTHON
from hpccoll.store.raw_results import RawResults
from hpccoll.units import format_seconds, format_size


@dataclass(frozen=True)  # without slots, for cached properties
class RunModel:
    """A run, the model fitted to its ping-pongs, and its predictions.

    Args:
        raw_results: the raw results of one environment on one machine: the jobs of a sweep, or files in one directory.
        transport: the transport of the validated observations.
        machine: the fitted machine model.
        validated: the observations with their predictions.
        executor: the executor that measured the observations.
        several_executors: whether the run has a model of the other executor for this transport.
    """

    raw_results: Sequence[RawResults]
    transport: str
    machine: MachineModel
    validated: list[Validated]
    executor: str = PYTHON
    several_executors: bool = False

    @classmethod
    def of(cls, raw_results: Sequence[RawResults]) -> Iterator["RunModel"]:
        """Yield a model for each transport and executor."""
        measured: dict[str, dict[str, list[Observation]]] = defaultdict(lambda: defaultdict(list))
        for one in (one for raw in raw_results for one in observations(raw)):
            measured[one.transport][one.executor].append(one)
        for transport, by_executor in sorted(measured.items()):
            for executor, observed in sorted(by_executor.items()):
                machine = fit(observed)
                validated = validate(observed, machine)
                yield cls(raw_results, transport, machine, validated, executor, len(by_executor) > 1)

    @property
    def over(self) -> str:
        """The transport, with the executor if the run has both."""
        return self.transport + (f" by the {self.executor} executor" if self.several_executors else "")

    @property
    def measured_on(self) -> tuple[str, str]:
        """The kind of the measurement, and the machine."""
        attempt = self.raw_results[0].attempts[0][0]
        return attempt.kind, attempt.machine

    @cached_property
    def groups(self) -> dict[Work, list[Validated]]:
        """The validated observations by their work; a mapping that all of them share is in the work and in no name."""
        by_work: dict[Work, list[Validated]] = defaultdict(list)
        for one in self.validated:
            by_work[one.observation.work].append(one)
        return dict(sorted(starmap(_of_one_mapping, by_work.items())))


def _of_one_mapping(work: Work, validated: list[Validated]) -> tuple[Work, list[Validated]]:
    """Return the work with the mapping that all observations share, and these without it; else both as is."""
    mappings = {one.observation.mapping for one in validated}
    if len(mappings) > 1:
        return work, validated
    bare = [replace(one, observation=replace(one.observation, mapping=None)) for one in validated]
    return work._replace(mapping=mappings.pop() or ""), bare


def models_of(raw_results: Sequence[RawResults]) -> list[RunModel]:
    """Return the model of every run of the raw files; a run without ping-pongs has a model without links.

    Raises:
        BadInputError: if no run has any ping-pongs.
    """
    runs: dict[object, list[RawResults]] = defaultdict(list)
    for raw in raw_results:
        if raw.attempts:
            attempt = raw.attempts[0][0]
            runs[raw.path.parent, attempt.kind, attempt.machine, raw.job.variant].append(raw)
    models = [one for of_run in runs.values() for one in RunModel.of(of_run)]
    if not any(one.machine.links for one in models):
        needed = f"a run that has send_recv of {MIN_SIZES} sizes or more: see workflows/config/model.yaml"
        raise BadInputError("path", ", ".join(str(raw.path) for raw in raw_results), needed)
    return models


UPLINKS = "nodes of a rack share its uplink, which is not modelled: what crosses racks may take longer"


def model_lines(model: RunModel) -> Iterator[str]:
    """Yield the model of one run as text."""
    files = ", ".join(raw.path.name for raw in model.raw_results)
    where = f"{files}: {', '.join(model.measured_on)}, over {model.over}"
    if not model.machine.links:
        yield f"{where}: no send_recv of {MIN_SIZES} sizes, not modelled"
        return
    yield where
    for tier, link in model.machine.links.items():
        yield f"  {TIER_LABELS[tier]}: {_link(link)}"
    folds = (
        f"from {model.machine.folds} pairs of cases" if model.machine.folds else "taken as 0: no pair of cases shows it"
    )
    yield f"  a folded byte: gamma {model.machine.gamma_s * 1e9:.3g} ns, {folds}"
    for work, validated in model.groups.items():
        yield f"{work.text}, measured over modelled time"
        yield from _table(validated)
        if any(one.observation.shares_uplinks for one in validated if one.seconds is not None):
            yield f"  {UPLINKS}"
        for crossing in crossings(validated):
            yield f"  {_crossing_text(crossing)}"
        unmodelled = {f"{one.observation.name}: {one.kind}" for one in validated if one.seconds is None}
        yield from (f"  not modelled: {each}" for each in sorted(unmodelled))


def _link(link: Link) -> str:
    line = f"alpha {format_seconds(link.alpha_s)}, beta {link.beta_s * 1e9:.3g} ns a byte, from ping-pongs"
    off = ", ".join(f"{format_size(nbytes)} {times:.2f}" for nbytes, times in link.outside.items())
    return f"{line} of {link.sizes - len(link.outside)} sizes" + (f"; off that line, times as long: {off}" * bool(off))


def _table(validated: Sequence[Validated]) -> Iterator[str]:
    columns = curves(validated)
    names = {name: name + "*" * any(one.kind == "simulated" for one in columns[name].values()) for name in columns}
    widths = {name: max(9, len(names[name]) + 2) for name in columns}
    sizes = sorted({nbytes for curve in columns.values() for nbytes in curve})
    if not columns:
        return
    yield f"  {'bytes':>10}" + "".join(f"{names[name]:>{widths[name]}}" for name in columns)
    for nbytes in sizes:
        cells = [f"{curve[nbytes].ratio:.2f}" if nbytes in curve else "" for curve in columns.values()]
        yield f"  {nbytes:>10}" + "".join(f"{c:>{w}}" for c, w in zip(cells, widths.values(), strict=True))
    middles = [median(one.ratio or 1.0 for one in curve.values()) for curve in columns.values()]
    yield f"  {'median':>10}" + "".join(f"{m:>{w}.2f}" for m, w in zip(middles, widths.values(), strict=True))
    if any(name != shown for name, shown in names.items()):
        yield "  * simulated from its schedule"


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
    again = f" (back and forth since {_size_text(side.sizes[0])})" if len(side.sizes) > 1 else ""
    return f"from {_size_text(side.sizes[-1])}{again}" if side.sizes else ""


def _size_text(nbytes: float) -> str:
    """Return an interpolated size, which is not exact to the byte."""
    return f"{nbytes / 1024:.3g} KiB" if nbytes < 1000 << 10 else f"{nbytes / (1 << 20):.3g} MiB"


def as_json(model: RunModel) -> dict[str, Any]:
    """Return the model of one run in SI units; absent values are null."""
    machine = model.machine
    measured_kind, machine_name = model.measured_on
    links = {
        TIER_LABELS[tier]: {
            "alpha_s": link.alpha_s,
            "beta_s": link.beta_s,
            "sizes": link.sizes,
            "outside": [{"bytes": nbytes, "times": times} for nbytes, times in link.outside.items()],
        }
        for tier, link in machine.links.items()
    }
    return {
        "files": [str(raw.path) for raw in model.raw_results],
        "kind": "modelled",
        "transport": model.transport,
        "executor": model.executor,
        "measured": measured_kind,
        "machine": machine_name,
        "variant": model.raw_results[0].job.variant,
        "links": links,
        "gamma_s": machine.gamma_s if machine.folds else None,
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
    observation, cost = one.observation, one.observation.cost
    return {
        **_work(observation.work), "shares_uplinks": observation.shares_uplinks, "algorithm": observation.name,
        "params": dict(observation.params), "in_place": observation.in_place, "mapping": observation.mapping,
        "bytes": observation.nbytes,
        "measured_s": observation.seconds, "modelled_s": one.seconds,
        "kind": one.kind if one.seconds is not None else None, "reason": one.kind if one.seconds is None else None,
        "rounds": cost.rounds if cost else None, "sent": cost.sent if cost else None,
        "reduced": cost.reduced if cost else None,
    }  # fmt: skip
