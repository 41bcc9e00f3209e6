"""What is slow in a recorded job, as text and as JSON."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from hpccoll.common.text import first_few, table_lines
from hpccoll.common.units import (
    format_count,
    format_factor,
    format_per_cent,
    format_rounded_size,
    format_seconds,
)
from hpccoll.traces.against_curve import AgainstCurve
from hpccoll.traces.records import Group
from hpccoll.traces.slow import OperationTimes, RankTimes, SlowParts

LATE_SHARE, SLOWER, MAX_SLOWER = 0.5, 1.1, 3
"""Answers name ranks that came last in this share of the operations, and collectives that take so much longer."""
MAX_SIZES = 5
MAX_ROWS = 16
"""The most rows of a table of ranks or groups in a terminal."""


def slow_lines(parts: SlowParts, against: Sequence[AgainstCurve] | None = None) -> Iterator[str]:
    """Yield what is slow in a job; ``against``: beside measurements of the machine, None without any."""
    yield from (f"  {answer}" for answer in slow_answers(parts, against))
    for heading, (head, rows) in slow_tables(parts, against).items():
        yield f"  {heading}:"
        yield from table_lines(head, rows[:MAX_ROWS], indent="    ")
        yield from [f"    and {len(rows) - MAX_ROWS} more"] if len(rows) > MAX_ROWS else []
    yield from (f"  {note}" for note in slow_notes(parts))


def slow_answers(parts: SlowParts, against: Sequence[AgainstCurve] | None = None) -> Iterator[str]:
    """Yield the answers: how long ranks communicate, how much of that they wait, for whom, and beside the machine."""
    if not parts.ranks:
        yield f"{format_count(sum(len(each.operations) for each in parts.times), 'operation')} without times"
        return
    waited = ""
    if parts.transfer_s:
        waited = (
            f"; transfers add up to {format_seconds(parts.transfer_s)}, the rest is waiting for ranks that come later"
        )
    yield f"each rank communicates for {_range([each.communication_s for each in parts.ranks])}{waited}"
    hosts = _hosts(parts)
    for late in (each for each in parts.late if each.share >= LATE_SHARE):
        host = hosts.get(late.rank)
        yield (
            f"rank {late.rank}{f' on {host}' if host else ''} came last in {format_per_cent(late.share)} of the"
            f" operations, by {format_seconds(late.median_s)}"
        )
    slower = [(each.factor, each) for each in against or () if each.factor and each.factor >= SLOWER]
    for factor, each in sorted(slower, key=lambda pair: -pair[0])[:MAX_SLOWER]:
        yield (
            f"{each.collective} of {format_rounded_size(each.bytes)} in group {group_text(each.group)} takes "
            f"{factor:.2g} times what this machine gave ({each.kind})"
        )


def _range(seconds: Sequence[float]) -> str:
    low, high = map(format_seconds, (min(seconds), max(seconds)))
    return low if low == high else f"{low} to {high}"


def _hosts(parts: SlowParts) -> Mapping[int, str | None]:
    return {each.rank: each.host for each in parts.ranks}


def group_text(group: Group) -> str:
    """Return the name of a group, with its description if it has one: ``dp (1)``."""
    return f"{group.description} ({group.name})" if group.description else group.name or "all"


def slow_tables(
    parts: SlowParts, against: Sequence[AgainstCurve] | None = None
) -> dict[str, tuple[list[str], list[list[str]]]]:
    """Return the tables by their headings: collectives, late ranks, ranks, and what the machine gave."""
    hosts = _hosts(parts)
    tables = {
        "collectives": (
            ["group", "collective", "ranks", "operations", "sizes", "transfer", "waiting per rank"],
            [_collective_row(each) for each in parts.times],
        ),
        "late ranks": (
            ["rank", "host", "last in", "by"],
            [
                [
                    str(each.rank), hosts.get(each.rank) or "unknown", format_per_cent(each.share),
                    format_seconds(each.median_s),
                ]
                for each in parts.late
            ],
        ),
        "ranks": (
            ["rank", "host", "communication", "of it waiting", "share", "exposed"],
            [
                [
                    str(each.rank), each.host or "unknown", format_seconds(each.communication_s),
                    "unknown" if each.waiting_s is None else format_seconds(each.waiting_s),
                    *("unknown" if share is None else format_per_cent(share) for share in (each.share, each.exposed)),
                ]
                for each in parts.ranks
            ],
        ),
        "beside this machine": (
            ["group", "collective", "size", "type", "operations", "transfer", "measured", "takes"],
            [
                [
                    group_text(each.group), each.collective, format_rounded_size(each.bytes), each.dtype or "unknown",
                    str(each.operations), format_seconds(each.transfer_s),
                    f"{format_seconds(each.measured_s)}, {each.kind}" if each.measured_s else "not at this size",
                    format_factor(each.factor) if each.factor else "",
                ]
                for each in against or ()
            ],
        ),
    }  # fmt: skip
    return {heading: table for heading, table in tables.items() if table[1]}


def _collective_row(of: OperationTimes) -> list[str]:
    sizes = [*dict.fromkeys(each.bytes for each in of.operations if each.bytes is not None)]
    shown = ", ".join(map(format_rounded_size, sizes))
    if len(sizes) > MAX_SIZES:
        shown = f"{format_rounded_size(min(sizes))} to {format_rounded_size(max(sizes))}"
    transfer = waiting = "unknown"
    if of.waiting:
        transfer = f"{'' if of.is_complete else 'at most '}{format_seconds(float(of.waiting.transfer_s.sum()))}"
        waiting = _range(of.waiting.waiting_s.sum(axis=0).tolist()) if of.is_complete else "unknown"
    return [
        group_text(of.group), of.collective, str(max(len(of.ranks), len(of.group.ranks))), str(len(of.operations)),
        shown or "unknown", transfer, waiting,
    ]  # fmt: skip


def slow_notes(parts: SlowParts) -> Iterator[str]:
    """Yield what limits these figures: clocks, records of some ranks, the begin of the profiler."""
    if parts.residual_s is not None:
        yield (
            f"clocks agree to {format_seconds(parts.residual_s)}, by the ends of collectives: of ranks that come closer"
            " together none is called the last"
        )
    of_host = {each.host: parts.shifts_s.get(each.rank, 0.0) for each in parts.ranks if each.host}
    if len(of_host) > 1 and any(of_host.values()):
        shifts = (f"{host} {format_seconds(shift)}" for host, shift in sorted(of_host.items()))
        yield f"clocks of hosts were shifted: {', '.join(first_few(shifts, 8, 'host'))}"
    if parts.opening:
        yield (
            f"rank {parts.opening.rank} came {format_seconds(parts.opening_late_s)} late to the first operation, "
            f"{parts.opening.collective}: that may be the start of the recorder"
        )
    if any(each.waiting and not each.is_complete for each in parts.times):
        yield "records of some ranks are missing: a transfer is at most what is shown, and may contain waiting"
    for group in parts.unmatched:
        yield f"ranks recorded different operations in group {group_text(group)}: nothing is matched there"


def slow_record(parts: SlowParts, against: Sequence[AgainstCurve] | None = None) -> dict[str, Any]:
    """Return what is slow as JSON has it: seconds, and medians over ranks; what is unknown is null."""
    hosts = _hosts(parts)
    return {
        "step_s": _median(each.step_s for each in parts.ranks), "share": _median(each.share for each in parts.ranks),
        "exposed": _median(each.exposed for each in parts.ranks),
        "waiting_s": _median(each.waiting_s for each in parts.ranks) if parts.transfer_s else None,
        "transfer_s": parts.transfer_s or None,
        "late": [
            {"rank": each.rank, "host": hosts.get(each.rank), "share": each.share, "median_s": each.median_s}
            for each in parts.late
        ],
        "collectives": [
            {"group": of.group.name, "collective": of.collective, "ranks": len(of.ranks),
             "operations": len(of.operations), "transfer_s": float(of.waiting.transfer_s.sum()) if of.waiting else None,
             "all_ranks": of.is_complete}
            for of in parts.times
        ],
        "per_rank": [_rank_record(each) for each in parts.ranks],
        "clock_residual_s": parts.residual_s,
        "against": None if against is None else [
            {"group": each.group.name, "collective": each.collective, "bytes": each.bytes, "dtype": each.dtype,
             "operations": each.operations, "transfer_s": each.transfer_s, "measured_s": each.measured_s,
             "factor": each.factor, "kind": each.kind or None}
            for each in against
        ],
    }  # fmt: skip


def _rank_record(times: RankTimes) -> dict[str, Any]:
    names = ("rank", "host", "communication_s", "waiting_s", "share", "exposed", "step_s")
    return {name: getattr(times, name) for name in names}


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None
