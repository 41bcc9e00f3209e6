"""Expectations of calls of libraries, ours and imported ones: NCCL's own model, or else the fastest of our schedules.

NCCL's ring and tree are those between which NCCL itself chooses by its model. No other library has
a model: its calls are held against the fastest schedule on the same machine, which says what the
network allows, and not what the library does.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from statistics import median
from typing import Annotated, Any, ClassVar

from hpccoll.cases.algorithm_registry import COLLECTIVES
from hpccoll.cases.requested_schedule import DEFAULT_DTYPE
from hpccoll.common.errors import BadInputError
from hpccoll.common.json_schema import described
from hpccoll.common.units import format_count
from hpccoll.judge.held import MACHINE, MODEL, Expected, Held, HeldVerdict, verdict_between
from hpccoll.judge.nccl_expectations import NAME_A_CLASS
from hpccoll.model.machine_file import MachineFile
from hpccoll.model.machine_sections import PublishedSection
from hpccoll.model.nccl_candidates import library_names
from hpccoll.model.nccl_model import RING_STEPS
from hpccoll.model.predict import Prediction, Request, predict
from hpccoll.model.published_rates import published_near
from hpccoll.schedule import DTYPE
from hpccoll.schedule.collective import NATIVE
from hpccoll.store.call_key import CallKey
from hpccoll.store.rows import Results, Row

NCCL_MODEL, FASTEST_SCHEDULE = "NCCL's own model", "the fastest schedule"
"""What a call is held against."""

CLOSE = 0.8, 1.25
"""The ratios of measured and expected time that count as equal: a formula has no interval."""

PAIRWISE = {"peer", "concurrent"}
"""The arguments of collectives whose messages go between pairs of ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedCall(Held):
    """A measured call, held against the fastest of some predictions."""

    KEYS: ClassVar[Mapping[str, str]] = {
        "collective": "row.collective",
        "algorithm": "row.algorithm",
        "params": "row.params",
        "nodes": "row.nodes",
        "ranks_per_node": "row.ranks_per_node",
        "ranks": "row.ranks",
        "racks": "row.racks",
        "aggregators": "row.aggregators",
        "mapping": "row.mapping",
        "in_place": "row.in_place",
        "dtype": "row.dtype",
        "bytes": "row.bytes",
        "median_s": "prediction.value_s",
        "ci_low_s": "prediction.low_s",
        "ci_high_s": "prediction.high_s",
        "busbw_Bps": "expected_busbw",
        "kind": "prediction.kind",
        "distance": "prediction.distance",
        "basis": "basis",
        "unmodelled": "prediction.unmodelled",
        "published": "published",
        "candidates": "candidates",
        "reason": "reason",
        "measured_s": "row.median_s",
        "measured_busbw_Bps": "row.busbw_Bps",
        "measured_algorithm": "row.algorithm",
        "measured_kind": "row.kind",
        "transport": "row.transport",
        "timing": "row.timing",
        "source": "row.source",
        "ratio": "ratio",
        "machine": "measured_on",
    }
    FURTHER: ClassVar[Mapping[str, Any]] = {
        "unmodelled": list[str],
        "published": list[PublishedSection],
        "algorithm": Annotated[str, described("the fastest candidate, else what was measured")],
    }

    row: Row  # the measurement
    measured_on: str  # the machine that was measured
    basis: str  # NCCL_MODEL or FASTEST_SCHEDULE; empty if nothing can be expected
    # the candidates, the fastest first; none if there is a reason
    predictions: Sequence[Prediction]
    # what was published of NCCL near it, on machines of this class
    sections: Sequence[PublishedSection] = ()

    @property
    def prediction(self) -> Prediction | None:
        """The fastest candidate; None without any."""
        return self.predictions[0] if self.predictions else None

    @property
    def candidates(self) -> dict[str, float]:
        """The times of the candidates in seconds, by algorithm."""
        return {candidate.algorithm: candidate.value_s for candidate in self.predictions}

    @property
    def published(self) -> list[dict[str, Any]]:
        """What was published near it, as JSON has it."""
        return [section.model_dump(by_alias=True) for section in self.sections]

    @property
    def expected_busbw(self) -> float | None:
        """The busbw of the expected time; None without an expectation, and of a collective without busbw."""
        if not self.row.busbw_Bps or not self.ratio:
            return None
        return self.row.busbw_Bps * self.ratio

    def to_json(self) -> dict[str, Any]:
        """Return the call in SI units, with the expected time as its median; absent values are None."""
        json = Held.to_json(self)
        json["unmodelled"] = json["unmodelled"] or []
        if self.prediction:
            json |= {"algorithm": self.prediction.algorithm, "params": dict(self.prediction.params)}
        return json


@dataclass(frozen=True, slots=True)
class LibraryExpectation:
    """The calls of one collective in one launch, over all sizes and both placements."""

    machine: MachineFile
    calls: Sequence[ComparedCall]  # the calls, by size, of one basis; at least one
    reason: str = ""  # why nothing can be expected of any of them

    @property
    def basis(self) -> str:
        """What the calls are held against, as each of them has it."""
        return self.calls[0].basis

    @property
    def by_size(self) -> dict[int, ComparedCall]:
        """The faster placement at each size, without sizes that nothing is expected of."""
        fastest: dict[int, ComparedCall] = {}
        for call in self.calls:
            if call.ratio:
                best = fastest.setdefault(call.row.requested_bytes, call)
                if call.ratio < (best.ratio or 0.0):
                    fastest[call.row.requested_bytes] = call
        return fastest

    @property
    def ratio_median(self) -> float:
        """The median over sizes of measured over expected time; StatisticsError if nothing is expected."""
        return median(call.ratio or 1.0 for call in self.by_size.values())

    @property
    def outside(self) -> list[list[ComparedCall]]:
        """The ranges of sizes whose ratio is above CLOSE, or below it."""
        ranges = []
        for verdict, calls in groupby(self.by_size.values(), lambda call: call.verdict):
            if verdict is not HeldVerdict.AS_EXPECTED:
                ranges.append(list(calls))
        return ranges

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield every call in SI units, with the expected time as its median; absent values are None."""
        for call in self.calls:
            yield call.to_json()


def library_expectations(
    results: Results, machine: MachineFile, progress: Callable[[int, int], None] | None = None
) -> Iterator[LibraryExpectation]:
    """Yield the calls of libraries among results with what is expected of them on a machine.

    Raises:
        KeyboardInterrupt: if the user has interrupted the simulations for one of them.
    """
    machines = {run.run_id: run.machine for run in results.runs}
    groups: dict[object, list[Row]] = defaultdict(list)
    for row in results.rows:
        measured = row.usable and not (row.predicted or row.load)  # under load nothing is expected
        if row.algorithm == NATIVE and measured and row.collective in COLLECTIVES:
            key = CallKey.of(row).without("requested_bytes", "in_place")
            groups[
                row.run_id, row.transport, row.requested, *sorted(row.params.items()), key
            ].append(row)
    for number, rows in enumerate(groups.values(), 1):
        yield _expectation(rows, machine, machines.get(rows[0].run_id, ""))
        if progress:
            progress(number, len(groups))


def _expectation(rows: Sequence[Row], machine: MachineFile, measured_on: str) -> LibraryExpectation:
    rows = sorted(rows, key=lambda row: (row.requested_bytes, row.in_place))
    basis, reason = _basis(rows[0], machine)
    candidates: Mapping[int, Sequence[Prediction]] = {}
    if basis:
        try:
            candidates = _candidates(rows, machine, basis)
        except BadInputError as error:
            basis, reason = "", str(error)
    calls = []
    for row in rows:
        predictions = candidates.get(row.requested_bytes, ())
        reason_of_size = "" if predictions else _unmoved_reason(row)
        expected, verdict = _expected(row, predictions, machine)
        call = ComparedCall(
            row=row,
            measured_on=measured_on,
            basis=basis,
            predictions=predictions,
            sections=_published(row, machine),
            measured=row.median_s,
            expected=expected,
            verdict=verdict,
            reason=reason or reason_of_size,
        )
        calls.append(call)
    return LibraryExpectation(machine, calls, reason)


def _expected(
    row: Row, predictions: Sequence[Prediction], machine: MachineFile
) -> tuple[Expected | None, HeldVerdict]:
    """Return what is expected of a call, and the verdict on the ratio with the two digits that are printed."""
    if not predictions or not row.median_s:
        return None, HeldVerdict.CANNOT_TELL
    fastest = predictions[0]
    low_s, high_s = fastest.interval
    origin = MODEL if fastest.of_library else MACHINE
    ratio = round(row.median_s / fastest.value_s, 2)
    return Expected(low_s, fastest.value_s, high_s, origin, (machine.name,)), verdict_between(
        ratio, *CLOSE
    )


def _dtype(row: Row) -> str:
    """Return the type of the elements of a prediction: other programs move bytes."""
    return row.dtype if row.dtype in DTYPE.words else DEFAULT_DTYPE


def _unmoved_reason(row: Row) -> str:
    return (
        COLLECTIVES[row.collective].unmoved_reason(row.requested_bytes, _dtype(row), row.ranks)
        or ""
    )


def _published(row: Row, machine: MachineFile) -> Sequence[PublishedSection]:
    """Return what was published near a call of NCCL."""
    if row.transport != "nccl" or row.ranks_per_node is None:
        return ()
    return published_near(machine, row.collective, row.nodes, row.ranks_per_node, row.bytes)


def transport_mismatch(row: Row, machine: MachineFile) -> str:
    """Return that a machine has the costs of another transport than that of a row; empty if it has those."""
    transport = row.transport if row.device == "cpu" else f"{row.transport} on {row.device}"
    if machine.transport == transport:
        return ""
    return f"{machine.name} has the costs of {machine.transport}, the call was one of {transport}"


def _basis(row: Row, machine: MachineFile) -> tuple[str, str]:
    """Return what a call is held against; empty with the reason why there is nothing."""
    has_model = row.transport == "nccl" and machine.nccl is not None
    basis = NCCL_MODEL if has_model else FASTEST_SCHEDULE
    reason = (
        _incomparable_reason(row)
        or _no_basis_reason(row, machine, basis)
        or _too_many_ranks(row, machine)
    )
    if reason:
        return "", reason
    return basis, ""


def _incomparable_reason(row: Row) -> str:
    """Return why a call is held against nothing, whatever the machine is; empty if it can be."""
    if row.ranks == 1:
        return "one rank sends no messages"
    if not PAIRWISE.isdisjoint(COLLECTIVES[row.collective].arguments):
        return "messages between pairs of ranks are not a collective"
    if row.ranks_per_node is None:
        return "its nodes have different numbers of ranks"
    return ""


def _no_basis_reason(row: Row, machine: MachineFile, basis: str) -> str:
    """Return why NCCL's model, or a schedule on a machine, says nothing of a call; empty if it says something."""
    if basis != NCCL_MODEL:
        if row.transport == "nccl":
            reason = f"{machine.name} has no section nccl, which NCCL's own model needs"
            if machine.machine_class is None:
                reason += f"; {NAME_A_CLASS}"
            return reason
        return transport_mismatch(row, machine)
    if row.nodes == 1:
        return "NCCL's own model is for two nodes and more"
    if row.collective not in RING_STEPS:
        return f"NCCL's own model has {', '.join(RING_STEPS)}"
    modelled = [name.removeprefix("nccl_") for name in library_names(machine, row.collective)]
    if row.requested not in (None, *modelled):
        return f"NCCL's own model has no {row.requested} of {row.collective}, which was forced"
    return ""


def _too_many_ranks(row: Row, machine: MachineFile) -> str:
    """Return that the nodes of a call had more ranks than those of a machine have; empty if they had not."""
    if machine.geometry is None or (row.ranks_per_node or 0) <= machine.geometry.ranks_per_node:
        return ""
    ranks = format_count(row.ranks_per_node, "rank")
    return (
        f"the call had {ranks} on each node, {machine.name} has {machine.geometry.ranks_per_node}"
    )


def _candidates(
    rows: Sequence[Row], machine: MachineFile, basis: str
) -> Mapping[int, Sequence[Prediction]]:
    """Return the predictions for calls of all sizes by size, the fastest first.

    Raises:
        BadInputError: if nothing can be predicted.
        KeyboardInterrupt: if the user has interrupted the simulations.
    """
    row = rows[0]
    sizes = list(dict.fromkeys(row.requested_bytes for row in rows))
    mapping = None if row.mapping == "block" or row.nodes == 1 else row.mapping
    request = Request(
        nodes=[row.nodes],
        sizes=sizes,
        collective=row.collective,
        ranks_per_node=row.ranks_per_node,
        dtype=_dtype(row),
        mapping=mapping,
        parameters=_arguments(row),
    )
    if basis == NCCL_MODEL:
        request = replace(request, mapping=None, algorithms=library_names(machine, row.collective))
    predicted = predict(machine, request)
    if predicted.interrupted:  # the fastest of some schedules is not the fastest
        raise KeyboardInterrupt

    def is_candidate(prediction: Prediction) -> bool:
        if basis == NCCL_MODEL:
            return row.requested in (None, prediction.algorithm.removeprefix("nccl_"))
        return prediction.eligible and not prediction.of_library

    by_size: dict[int, list[Prediction]] = defaultdict(list)
    for prediction in sorted(predicted.predictions, key=lambda prediction: prediction.value_s):
        if is_candidate(prediction):
            by_size[prediction.requested_bytes].append(prediction)
    return by_size


def _arguments(row: Row) -> dict[str, int | str]:
    """Return the parameters of a call that are arguments of its collective, not options of the program."""
    arguments = COLLECTIVES[row.collective].arguments
    return {name: value for name, value in row.params.items() if name in arguments}
