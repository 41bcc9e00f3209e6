"""Expectations of calls of libraries, ours and imported ones: NCCL's own model, or else the fastest of our schedules.

NCCL's ring and tree are those between which NCCL itself chooses by its model. No other library has a model: its calls
are held against the fastest schedule on the same machine, which says what the network allows, and not what the library
does.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from statistics import median
from typing import Any

from hpccoll.cases.algorithm_registry import COLLECTIVES
from hpccoll.cases.requested_schedule import DEFAULT_DTYPE
from hpccoll.common.errors import BadInputError
from hpccoll.common.units import format_count
from hpccoll.model.library_calls import library_names
from hpccoll.model.machine_file import MachineFile
from hpccoll.model.machine_sections import PublishedSection
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


@dataclass(frozen=True, slots=True)
class ComparedCall:
    """A measured call, with the predictions that it is held against."""

    row: Row  # the measurement
    candidates: Sequence[Prediction]  # the predictions, the fastest first; none if there is a reason
    reason: str = ""  # why nothing is expected of this size, where other sizes have an expectation
    published: Sequence[PublishedSection] = ()  # what was published of NCCL near it, on machines of this class

    @property
    def expected(self) -> Prediction | None:
        """The fastest candidate; None without any."""
        return self.candidates[0] if self.candidates else None

    @property
    def ratio(self) -> float | None:
        """Measured over expected time; None without an expectation."""
        return self.row.median_s / self.expected.value_s if self.expected and self.row.median_s else None

    @property
    def expected_busbw(self) -> float | None:
        """The busbw of the expected time; None without an expectation, and of a collective without busbw."""
        return self.row.busbw_Bps * self.ratio if self.row.busbw_Bps and self.ratio else None


@dataclass(frozen=True, slots=True)
class LibraryExpectation:
    """The calls of one collective in one launch, over all sizes and both placements."""

    machine: MachineFile
    measured_on: str  # the machine that was measured
    basis: str  # NCCL_MODEL or FASTEST_SCHEDULE; empty if nothing can be expected
    calls: Sequence[ComparedCall]  # the calls, by size
    reason: str = ""  # why nothing can be expected

    @property
    def by_size(self) -> dict[int, ComparedCall]:
        """The faster placement at each size, without sizes that nothing is expected of."""
        fastest: dict[int, ComparedCall] = {}
        for call in self.calls:
            if call.ratio:
                other = fastest.setdefault(call.row.requested_bytes, call)
                if call.ratio < (other.ratio or 0.0):
                    fastest[call.row.requested_bytes] = call
        return fastest

    @property
    def ratio_median(self) -> float:
        """The median over sizes of measured over expected time; StatisticsError if nothing is expected."""
        return median(call.ratio or 1.0 for call in self.by_size.values())

    @property
    def outside(self) -> list[list[ComparedCall]]:
        """The ranges of sizes whose ratio, with the two digits that are printed, is above CLOSE, or below it."""
        low, high = CLOSE
        ratios = {id(call): round(call.ratio or 1.0, 2) for call in self.by_size.values()}
        sides = groupby(self.by_size.values(), lambda call: (ratios[id(call)] > high) - (ratios[id(call)] < low))
        return [[*calls] for side, calls in sides if side]

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield every call in SI units, with the expected time as its median; absent values are None."""
        for call in self.calls:
            row, expected = call.row, call.expected
            yield {
                "collective": row.collective, "algorithm": expected.algorithm if expected else row.algorithm,
                "params": dict(expected.params if expected else row.params), "nodes": row.nodes,
                "ranks_per_node": row.ranks_per_node, "ranks": row.ranks, "racks": row.racks,
                "aggregators": row.aggregators, "mapping": row.mapping, "in_place": row.in_place, "dtype": row.dtype,
                "bytes": row.bytes, "median_s": expected.value_s if expected else None,
                "ci_low_s": expected.low_s if expected else None, "ci_high_s": expected.high_s if expected else None,
                "busbw_Bps": call.expected_busbw, "kind": expected.kind if expected else None,
                "distance": expected.distance if expected else None, "basis": self.basis or None,
                "unmodelled": list(expected.unmodelled) if expected else [],
                "published": [each.model_dump(by_alias=True) for each in call.published],
                "candidates": {each.algorithm: each.value_s for each in call.candidates},
                "reason": self.reason or call.reason or None, "measured_s": row.median_s,
                "measured_busbw_Bps": row.busbw_Bps, "measured_algorithm": row.algorithm, "measured_kind": row.kind,
                "transport": row.transport, "timing": row.timing, "source": row.source, "ratio": call.ratio,
                "machine": self.measured_on,
            }  # fmt: skip


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
            groups[row.run_id, row.transport, row.requested, *sorted(row.params.items()), key].append(row)
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
    calls = [
        ComparedCall(row, found := candidates.get(row.requested_bytes, ()), "" if found else _unmoved_reason(row),
                     _published(row, machine))
        for row in rows
    ]  # fmt: skip
    return LibraryExpectation(machine, measured_on, basis, calls, reason)


def _dtype(row: Row) -> str:
    """Return the type of the elements of a prediction: other programs move bytes."""
    return row.dtype if row.dtype in DTYPE.words else DEFAULT_DTYPE


def _unmoved_reason(row: Row) -> str:
    return COLLECTIVES[row.collective].unmoved_reason(row.requested_bytes, _dtype(row), row.ranks) or ""


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
    mismatch = transport_mismatch(row, machine)
    basis = NCCL_MODEL if row.transport == "nccl" and machine.nccl else FASTEST_SCHEDULE
    usual, each = (machine.geometry and machine.geometry.ranks_per_node) or row.ranks_per_node, row.ranks_per_node
    own = [name.removeprefix("nccl_") for name in library_names(machine, row.collective)]
    reasons = {
        "one rank sends no messages": row.ranks == 1,
        "messages between pairs of ranks are no collective": PAIRWISE & {*COLLECTIVES[row.collective].arguments},
        "its nodes have different numbers of ranks": each is None,
    }
    reasons |= {
        "NCCL's own model is for two nodes and more": row.nodes == 1,
        f"NCCL's own model has {', '.join(RING_STEPS)}": row.collective not in RING_STEPS,
        f"NCCL's own model has no {row.requested} of {row.collective}, which was forced": (
            row.requested not in (None, *own)
        ),
    } if basis == NCCL_MODEL else {
        f"{machine.name} has no section nccl, which NCCL's own model needs": row.transport == "nccl",
        mismatch: bool(mismatch),
    }  # fmt: skip
    reasons[f"the call had {format_count(each, 'rank')} on each node, {machine.name} has {usual}"] = (each or 0) > (
        usual or 0
    )
    reason = next((reason for reason, holds in reasons.items() if holds), "")
    return ("", reason) if reason else (basis, "")


def _candidates(rows: Sequence[Row], machine: MachineFile, basis: str) -> Mapping[int, Sequence[Prediction]]:
    """Return the predictions for calls of all sizes by size, the fastest first.

    Raises:
        BadInputError: if nothing can be predicted.
        KeyboardInterrupt: if the user has interrupted the simulations.
    """
    row, sizes = rows[0], list(dict.fromkeys(row.requested_bytes for row in rows))
    mapping = None if row.mapping == "block" or row.nodes == 1 else row.mapping
    request = Request(
        nodes=[row.nodes], sizes=sizes, collective=row.collective, ranks_per_node=row.ranks_per_node,
        dtype=_dtype(row), mapping=mapping, parameters=_arguments(row),
    )  # fmt: skip
    if basis == NCCL_MODEL:
        request = replace(request, mapping=None, algorithms=library_names(machine, row.collective))
    predicted = predict(machine, request)
    if predicted.interrupted:  # the fastest of some schedules is not the fastest
        raise KeyboardInterrupt
    if basis == NCCL_MODEL:
        found = [
            each for each in predicted.predictions if row.requested in (None, each.algorithm.removeprefix("nccl_"))
        ]
    else:
        found = [each for each in predicted.predictions if each.eligible and not each.of_library]
    by_size: dict[int, list[Prediction]] = defaultdict(list)
    for each in sorted(found, key=lambda each: each.value_s):
        by_size[each.requested_bytes].append(each)
    return by_size


def _arguments(row: Row) -> dict[str, int | str]:
    """Return the arguments of a call that are no options of the program that measured it."""
    known = COLLECTIVES[row.collective].arguments
    return {name: value for name, value in row.params.items() if name in known}
