"""What is slow in a recorded job, as text and as JSON."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypedDict

import numpy as np

from hpccoll.common.json_schema import record_of_fields, typed_dict
from hpccoll.common.text import Columns, first_few, table_lines, table_of, titled_lines
from hpccoll.common.units import (
    format_count,
    format_cpu_list,
    format_factor,
    format_per_cent,
    format_rounded_size,
    format_seconds,
)
from hpccoll.judge.against_curve import AgainstCurve
from hpccoll.judge.held import HeldVerdict
from hpccoll.render.trace_remedies import late_remedy
from hpccoll.store.waiting import LateRank
from hpccoll.traces.late import FEWEST_PARTS, LEAST_OF_COMMUNICATION, Lag
from hpccoll.traces.operation_times import OperationTimes
from hpccoll.traces.recorded_job import Group
from hpccoll.traces.slow import RESOLUTION_S, RankTimes, SlowParts

OPENING_PART = 0.01
"""Answers name the waiting in the first operation if it is more than this part of the longest communication."""

MIXED_SHARE = 0.01
"""Answers name what else is more than this share of the longest communication."""

MAX_SLOWER = 3
"""The most collectives that are slower than expected that answers name."""

CLEARLY_MORE = 1.1
"""Two totals of a late rank are explained that differ by more."""
MAX_SIZES = 5
MAX_ROWS = 16
"""The most rows of a table of ranks or groups in a terminal."""


def slow_lines(parts: SlowParts, against: Sequence[AgainstCurve] | None = None) -> Iterator[str]:
    """Yield what is slow in a job; ``against``: beside measurements of the machine, None without any."""
    for answer in slow_answers(parts, against):
        yield f"  {answer}"
    for heading, (head, rows) in slow_tables(parts, against).items():
        lines = list(table_lines(head, rows[:MAX_ROWS], indent=""))
        if len(rows) > MAX_ROWS:
            lines.append(f"and {len(rows) - MAX_ROWS} more")
        for line in titled_lines(heading, lines):
            yield f"  {line}"
    for note in slow_notes(parts):
        yield f"  {note}"


def slow_answers(parts: SlowParts, against: Sequence[AgainstCurve] | None = None) -> Iterator[str]:
    """Yield the answers: how long ranks communicate, how much of that they wait, for whom, and beside the machine."""
    if not parts.ranks:
        operations = sum(len(times.operations) for times in parts.times)
        yield f"{format_count(operations, 'operation')} without times"
        return
    yield from _communication_answers(parts.ranks)
    longest_s = max(rank.communication_s for rank in parts.ranks)
    if parts.opening and parts.opening[1] > OPENING_PART * longest_s:
        name, late_s = parts.opening
        yield (
            f"one rank came {format_seconds(late_s)} after the others to the first operation, {name}: that may be the"
            " start of its recorder, and makes the waiting longer"
        )
    mixed_s = max(_undivided_s(rank) for rank in parts.ranks)
    if mixed_s > MIXED_SHARE * longest_s:
        yield (
            f"of up to {format_seconds(mixed_s)} it is not known what is transfer and what waiting: of broadcasts,"
            " of messages, of all-to-alls whose blocks may differ, and of operations that not all ranks recorded"
        )
    yield from _late_answers(parts)
    yield from _slower_answers(against or ())


def _communication_answers(ranks: Sequence[RankTimes]) -> Iterator[str]:
    """Yield how long ranks communicate, and how much of that is transfer and waiting."""
    communication = _range(rank.communication_s for rank in ranks)
    answer = f"each rank communicates for {communication}"
    overlap = any(rank.operations_s > (1 + MIXED_SHARE) * rank.communication_s for rank in ranks)
    if overlap:
        operations = _range(rank.operations_s for rank in ranks)
        answer += f", in operations that take {operations}"
    yield answer
    divided = [rank for rank in ranks if rank.transfer_s is not None]
    if divided:
        transfer = _range(rank.transfer_s or 0.0 for rank in divided)
        waited = _range(rank.waiting_s or 0.0 for rank in divided)
        yield f"of that {transfer} is transfer, and {waited} waiting for ranks that come later"


def _undivided_s(rank: RankTimes) -> float:
    """Return the seconds of communication that are not known to be transfer or waiting."""
    transfer_s = rank.transfer_s or 0.0
    waiting_s = rank.waiting_s or 0.0
    return rank.operations_s - transfer_s - waiting_s


def _slower_answers(against: Iterable[AgainstCurve]) -> Iterator[str]:
    """Yield the collectives that take longest beside what the machine gave."""
    slower = [curve for curve in against if curve.verdict is HeldVerdict.SLOWER]
    slower.sort(key=lambda curve: curve.ratio or 0.0, reverse=True)
    for curve in slower[:MAX_SLOWER]:
        size = format_rounded_size(curve.bytes)
        yield (
            f"{curve.collective} of {size} in group {group_text(curve.group)} takes "
            f"{curve.ratio:.2g} times what this machine gave ({curve.kind})"
        )
    if slower:
        yield "do: 'hpccoll diagnose' on the nodes of the job finds those that are slow"


def _late_answers(parts: SlowParts) -> Iterator[str]:
    """Yield which ranks are late, that none is, and for which ranks that is not known."""
    for lag in parts.late:
        yield _late_text(lag, parts)
        yield f"do: {late_remedy(lag, parts.hosts.get(lag.rank))}"
    judged = len(parts.ranks) - len(parts.unjudged)
    if parts.unjudged:
        which = f"rank {format_cpu_list(parts.unjudged)}" if judged else "any rank"
        yield (
            f"whether {which} is late is not known: that takes {FEWEST_PARTS + 1} equal collectives, such as"
            " all-reduces, recorded by all ranks of a group that send each other no messages"
        )
    if judged and not parts.late:
        no_rank = "no other rank" if parts.unjudged else "no rank"
        least = f"{format_per_cent(LEAST_OF_COMMUNICATION)} of the time in operations"
        if parts.least_part is not None:
            least = f"{format_per_cent(parts.least_part)} of the time"
        yield f"{no_rank} is late by {least} or more"


def _late_text(lag: Lag, parts: SlowParts) -> str:
    """Return by how much a rank is late, and in how many operations the others waited for it."""
    name = f"rank {lag.rank}"
    host = parts.hosts.get(lag.rank)
    if host:
        name += f" on {host}"
    total = format_seconds(lag.total_s)
    text = f"{name} is late: after the first operation the others wait {total} for it"
    if lag.part is not None:
        text += f", {format_per_cent(lag.part)} of the time"
    for late_rank in parts.came_last:
        if late_rank.rank == lag.rank:
            text += f", and came last in {late_rank.operations} of its {late_rank.taken} operations"
    return text


def _counts_more_often(last: LateRank, lag: Lag) -> bool:
    """Return whether a rank came last by clearly more than its lag, which does not contain the first operation."""
    if last.rank != lag.rank:
        return False
    late_after_first_s = last.total_s - last.median_s
    return late_after_first_s > CLEARLY_MORE * lag.total_s


def _has_lag_counted_more_often(parts: SlowParts) -> bool:
    for lag in parts.late:
        if any(_counts_more_often(last, lag) for last in parts.came_last):
            return True
    return False


def _range(seconds: Iterable[float]) -> str:
    ordered = sorted(seconds)
    low = format_seconds(ordered[0])
    high = format_seconds(ordered[-1])
    if low == high:
        return low
    return f"{low} to {high}"


def group_text(group: Group) -> str:
    """Return the name of a group, with its description if it has one: ``dp (1)``."""
    if group.description:
        return f"{group.description} ({group.name})"
    return group.name or "all"


def _or_unknown(value: float | None, words: Callable[[float], str]) -> str:
    return "unknown" if value is None else words(value)


def _sizes(times: OperationTimes) -> str:
    sizes = sorted(
        {operation.bytes for operation in times.operations if operation.bytes is not None}
    )
    shown = [format_rounded_size(nbytes) for nbytes in sizes]
    if len(sizes) > MAX_SIZES:
        return f"{shown[0]} to {shown[-1]}"
    return ", ".join(shown) or "unknown"


def _transfer(times: OperationTimes) -> str:
    total_s = _transfer_s(times)
    if total_s is None:
        return "unknown"
    if not times.is_complete:
        return f"at most {format_seconds(total_s)}"
    return format_seconds(total_s)


def _transfer_s(times: OperationTimes) -> float | None:
    """Return the seconds of transfer of all operations; None if they are not divided."""
    if not times.waiting:
        return None
    return float(times.waiting.transfer_s.sum())


def _waiting_per_rank(times: OperationTimes) -> str:
    if not times.waiting or not times.is_complete:
        return "unknown"
    return _range(times.waiting.waiting_s.sum(axis=0))


COLLECTIVE_COLUMNS: Columns[OperationTimes] = (
    ("group", lambda times: group_text(times.group)),
    ("collective", lambda times: times.collective),
    ("ranks", lambda times: max(len(times.ranks), len(times.group.ranks))),
    ("operations", lambda times: len(times.operations)),
    ("sizes", _sizes),
    ("transfer", _transfer),
    ("waiting per rank", _waiting_per_rank),
)
RANK_COLUMNS: Columns[RankTimes] = (
    ("rank", lambda rank: rank.rank),
    ("host", lambda rank: rank.host or "unknown"),
    ("communication", lambda rank: format_seconds(rank.communication_s)),
    ("transfer", lambda rank: _or_unknown(rank.transfer_s, format_seconds)),
    ("waiting", lambda rank: _or_unknown(rank.waiting_s, format_seconds)),
    ("share", lambda rank: _or_unknown(rank.share, format_per_cent)),
    ("exposed", lambda rank: _or_unknown(rank.exposed, format_per_cent)),
)


def _measured(curve: AgainstCurve) -> str:
    if not curve.expected:
        return curve.reason
    return f"{format_seconds(curve.expected.value)}, {curve.kind}"


AGAINST_COLUMNS: Columns[AgainstCurve] = (
    ("group", lambda curve: group_text(curve.group)),
    ("collective", lambda curve: curve.collective),
    ("size", lambda curve: format_rounded_size(curve.bytes)),
    ("type", lambda curve: curve.dtype or "unknown"),
    ("operations", lambda curve: curve.operations),
    ("transfer", lambda curve: format_seconds(curve.measured)),
    ("measured", _measured),
    ("takes", lambda curve: format_factor(curve.ratio) if curve.ratio else ""),
)


def slow_tables(
    parts: SlowParts, against: Sequence[AgainstCurve] | None = None
) -> dict[str, tuple[list[str], list[list[str]]]]:
    """Return the tables by their headings: collectives, who came last, ranks, and what the machine gave."""
    tables = {
        "collectives": table_of(COLLECTIVE_COLUMNS, parts.times),
        "who came last": table_of(_last_columns(parts.hosts), parts.came_last),
        "ranks": table_of(RANK_COLUMNS, parts.ranks),
        "beside this machine": table_of(AGAINST_COLUMNS, against or ()),
    }
    return {heading: (head, rows) for heading, (head, rows) in tables.items() if rows}


def _last_columns(hosts: Mapping[int, str | None]) -> Columns[LateRank]:
    return (
        ("rank", lambda late: late.rank),
        ("host", lambda late: hosts.get(late.rank) or "unknown"),
        ("last in", lambda late: f"{late.operations} of {late.taken}"),
        ("after the others by", lambda late: format_seconds(late.median_s)),
        ("in all", lambda late: format_seconds(late.total_s)),
    )


def slow_notes(parts: SlowParts) -> Iterator[str]:
    """Yield what limits these figures: clocks, records of some ranks, the begin of the profiler."""
    if parts.residual_s is not None:
        yield f"{_clocks_text(parts, parts.residual_s)}: of ranks that come closer together none is called the last"
    shifts = {rank.host: parts.shifts_s.get(rank.rank, 0.0) for rank in parts.ranks if rank.host}
    if len(shifts) > 1 and any(shifts.values()):
        host_shifts = [f"{host} {format_seconds(shift)}" for host, shift in sorted(shifts.items())]
        shown = ", ".join(first_few(host_shifts, 8, "host"))
        yield f"clocks of hosts were shifted: {shown}"
    if _has_lag_counted_more_often(parts):
        yield (
            "what a late rank brings along from one operation to the next counts once in the time that others wait for"
            " it, and in each operation among those who came last"
        )
    if any(times.waiting and not times.is_complete for times in parts.times):
        yield "records of some ranks are missing: a transfer is at most what is shown, and may contain waiting"
    for group, count in parts.unmatched.items():
        yield f"{format_count(count, 'operation')} of group {group_text(group)} left out: ranks recorded different ones"


def _clocks_text(parts: SlowParts, residual_s: float) -> str:
    """Return how far clocks are apart, and to what the ends of collectives align them; not below what is recorded."""
    aligned_s = max(residual_s, RESOLUTION_S)
    aligned = f"to {format_seconds(aligned_s)} by the ends of collectives"
    shifts_s = parts.shifts_s.values()
    difference_s = max(shifts_s, default=0.0) - min(shifts_s, default=0.0)
    if difference_s <= aligned_s:
        return f"clocks agree {aligned}"
    return f"clocks differ by up to {format_seconds(difference_s)}, and were aligned {aligned}"


class LastRankJson(TypedDict):
    """A rank that came last, as JSON has it."""

    rank: int
    host: str | None
    share: float | None  # of the operations
    median_s: float | None
    total_s: float
    operations: int


class LateRankJson(LastRankJson):
    """A late rank, with how often it came last."""

    part: float | None  # of the time


class CollectiveTimesJson(TypedDict):
    """The operations of a group with one collective."""

    group: str
    collective: str
    ranks: int
    all_ranks: bool
    operations: int
    transfer_s: float | None


class _Shares(TypedDict):
    share: float | None
    exposed: float | None


class SlowFiguresJson(_Shares):
    """Medians over ranks; shares are those of the window of the record."""

    step_s: float | None
    waiting_s: float | None
    transfer_s: float | None


class _SlowKeys(SlowFiguresJson):
    late: list[LateRankJson]
    late_unknown: list[int]
    came_last: list[LastRankJson]
    collectives: list[CollectiveTimesJson]
    clock_residual_s: float | None
    source: str


def slow_json_record() -> Any:
    """Return the type of what is slow in a job, as JSON has it."""
    rank = record_of_fields("RankTimesJson", RankTimes, changed=_Shares)
    curve = AgainstCurve.json_record()
    ranks = list[rank]  # type: ignore[valid-type]  # made of its keys
    curves = list[curve]  # type: ignore[valid-type]
    return typed_dict("SlowJson", {"per_rank": ranks, "against": curves | None}, _SlowKeys)


def slow_record(parts: SlowParts, against: Sequence[AgainstCurve] | None = None) -> dict[str, Any]:
    """Return what is slow as JSON has it: seconds, and medians over ranks; what is unknown is null."""
    curves = None
    if against is not None:
        curves = [curve.to_json() for curve in against]
    record: dict[str, Any] = {}
    for name in ("step_s", "waiting_s", "share", "exposed", "transfer_s"):
        record[name] = _median(getattr(rank, name) for rank in parts.ranks)
    record["late"] = [_late_record(lag, parts) for lag in parts.late]
    record["late_unknown"] = list(parts.unjudged)
    record["came_last"] = [_last_record(late_rank, parts) for late_rank in parts.came_last]
    record["collectives"] = [_collective_record(times) for times in parts.times]
    record["per_rank"] = [_rank_record(rank) for rank in parts.ranks]
    record["clock_residual_s"] = parts.residual_s
    record["against"] = curves
    return record


def _rank_record(rank: RankTimes) -> dict[str, Any]:
    return rank._asdict() | {"share": rank.share, "exposed": rank.exposed}


def _collective_record(times: OperationTimes) -> CollectiveTimesJson:
    return {
        "group": times.group.name,
        "collective": times.collective,
        "ranks": len(times.ranks),
        "all_ranks": times.is_complete,
        "operations": len(times.operations),
        "transfer_s": _transfer_s(times),
    }


def _last_record(late_rank: LateRank, parts: SlowParts) -> LastRankJson:
    host = parts.hosts.get(late_rank.rank)
    return {
        "rank": late_rank.rank,
        "host": host,
        "share": late_rank.share,
        "median_s": late_rank.median_s,
        "total_s": late_rank.total_s,
        "operations": late_rank.operations,
    }


def _late_record(lag: Lag, parts: SlowParts) -> LateRankJson:
    """Return a late rank as JSON has it, with how often it came last."""
    record: LateRankJson = {
        "rank": lag.rank,
        "host": parts.hosts.get(lag.rank),
        "share": None,
        "median_s": None,
        "total_s": lag.total_s,
        "operations": 0,
        "part": lag.part,
    }
    for late_rank in parts.came_last:
        if late_rank.rank == lag.rank:
            record["share"] = late_rank.share
            record["median_s"] = late_rank.median_s
            record["operations"] = late_rank.operations
    return record


def _median(values: Iterable[float | None]) -> float | None:
    measured = [value for value in values if value is not None]
    return float(np.median(measured)) if measured else None
