"""What is slow in a recorded job, as text and as JSON."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from hpccoll.common.text import Columns, first_few, table_lines, table_of
from hpccoll.common.units import (
    format_count,
    format_cpu_list,
    format_factor,
    format_per_cent,
    format_rounded_size,
    format_seconds,
)
from hpccoll.judge.against_curve import AgainstCurve
from hpccoll.store.waiting import LateRank
from hpccoll.traces.late import FEWEST_PARTS, LEAST_OF_COMMUNICATION, Lag
from hpccoll.traces.operation_times import OperationTimes
from hpccoll.traces.records import Group
from hpccoll.traces.slow import RESOLUTION_S, RankTimes, SlowParts

OPENING_PART, MIXED_SHARE, SLOWER, MAX_SLOWER = 0.01, 0.01, 1.1, 3
"""Answers name the waiting in the first operation if it is more than a part of the longest communication, what else is
more than a share of it, and collectives that take so much longer."""
CLEARLY_MORE = 1.1
"""Two totals of a late rank are explained that differ by more."""
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
    several = any(each.operations_s > (1 + MIXED_SHARE) * each.communication_s for each in parts.ranks)
    together = f", in operations that take {_range(each.operations_s for each in parts.ranks)}" if several else ""
    yield f"each rank communicates for {_range(each.communication_s for each in parts.ranks)}{together}"
    known = [(each.transfer_s, each.waiting_s) for each in parts.ranks if each.transfer_s is not None]
    if known:
        transfer, waited = (_range(each[n] or 0.0 for each in known) for n in (0, 1))
        yield f"of that {transfer} is transfer, and {waited} waiting for ranks that come later"
    longest_s = max(each.communication_s for each in parts.ranks)
    if parts.opening and parts.opening[1] > OPENING_PART * longest_s:
        name, late_s = parts.opening
        yield (
            f"one rank came {format_seconds(late_s)} after the others to the first operation, {name}: that may be the"
            " start of its recorder, and makes the waiting longer"
        )
    mixed = [each.operations_s - (each.transfer_s or 0.0) - (each.waiting_s or 0.0) for each in parts.ranks]
    if max(mixed) > MIXED_SHARE * longest_s:
        yield (
            f"of up to {format_seconds(max(mixed))} it is not known what is transfer and what waiting: of broadcasts,"
            " of messages, of all-to-alls whose blocks may differ, and of operations that not all ranks recorded"
        )
    yield from _late_answers(parts)
    slower = [(each.factor, each) for each in against or () if each.factor and each.factor >= SLOWER]
    for factor, each in sorted(slower, key=lambda pair: -pair[0])[:MAX_SLOWER]:
        yield (
            f"{each.collective} of {format_rounded_size(each.bytes)} in group {group_text(each.group)} takes "
            f"{factor:.2g} times what this machine gave ({each.kind})"
        )


def _late_answers(parts: SlowParts) -> Iterator[str]:
    """Yield which ranks are late, that none is, and of which ranks that is not known."""
    yield from (_late_text(lag, parts) for lag in parts.late)
    judged = len(parts.ranks) - len(parts.unjudged)
    if parts.unjudged:
        which = f"rank {format_cpu_list(parts.unjudged)}" if judged else "any rank"
        yield (
            f"whether {which} is late is not known: that takes {FEWEST_PARTS + 1} equal collectives, such as"
            " all-reduces, which all of a group recorded, none of whom sends messages to another"
        )
    if judged and not parts.late:
        other = "other " if parts.unjudged else ""
        least = f"{format_per_cent(LEAST_OF_COMMUNICATION)} of the time in operations"
        if parts.least_part is not None:
            least = f"{format_per_cent(parts.least_part)} of the time"
        yield f"no {other}rank is late by {least} or more"


def _late_text(lag: Lag, parts: SlowParts) -> str:
    """Return by how much a rank is late, and in how many operations the others waited for it."""
    host = parts.hosts.get(lag.rank)
    place = f" on {host}" if host else ""
    total = format_seconds(lag.total_s)
    text = f"rank {lag.rank}{place} is late: after the first operation the others wait {total} for it"
    if lag.part is not None:
        text += f", {format_per_cent(lag.part)} of the time"
    for each in parts.came_last:
        if each.rank == lag.rank:
            text += f", and came last in {each.operations} of its {each.taken} operations"
    return text


def _counts_more_often(last: LateRank, lag: Lag) -> bool:
    """Return whether a rank came last by clearly more than its lag; the first operation is no part of the latter."""
    return last.rank == lag.rank and last.total_s - last.median_s > CLEARLY_MORE * lag.total_s


def _range(seconds: Iterable[float]) -> str:
    ordered = sorted(seconds)
    low, high = format_seconds(ordered[0]), format_seconds(ordered[-1])
    return low if low == high else f"{low} to {high}"


def group_text(group: Group) -> str:
    """Return the name of a group, with its description if it has one: ``dp (1)``."""
    return f"{group.description} ({group.name})" if group.description else group.name or "all"


def _known(value: float | None, words: Callable[[float], str]) -> str:
    return "unknown" if value is None else words(value)


def _sizes(of: OperationTimes) -> str:
    sizes = sorted({each.bytes for each in of.operations if each.bytes is not None})
    shown = map(format_rounded_size, sizes)
    return " to ".join([*shown][:: len(sizes) - 1]) if len(sizes) > MAX_SIZES else ", ".join(shown) or "unknown"


def _transfer(of: OperationTimes) -> str:
    total = float(of.waiting.transfer_s.sum()) if of.waiting else None
    return f"{'' if of.is_complete or total is None else 'at most '}{_known(total, format_seconds)}"


COLLECTIVE_COLUMNS: Columns[OperationTimes] = (
    ("group", lambda of: group_text(of.group)), ("collective", lambda of: of.collective),
    ("ranks", lambda of: max(len(of.ranks), len(of.group.ranks))), ("operations", lambda of: len(of.operations)),
    ("sizes", _sizes), ("transfer", _transfer),
    ("waiting per rank",
     lambda of: _range(of.waiting.waiting_s.sum(axis=0)) if of.waiting and of.is_complete else "unknown"),
)  # fmt: skip
RANK_COLUMNS: Columns[RankTimes] = (
    ("rank", lambda of: of.rank), ("host", lambda of: of.host or "unknown"),
    ("communication", lambda of: format_seconds(of.communication_s)),
    ("transfer", lambda of: _known(of.transfer_s, format_seconds)),
    ("waiting", lambda of: _known(of.waiting_s, format_seconds)),
    ("share", lambda of: _known(of.share, format_per_cent)),
    ("exposed", lambda of: _known(of.exposed, format_per_cent)),
)  # fmt: skip
AGAINST_COLUMNS: Columns[AgainstCurve] = (
    ("group", lambda of: group_text(of.group)), ("collective", lambda of: of.collective),
    ("size", lambda of: format_rounded_size(of.bytes)), ("type", lambda of: of.dtype or "unknown"),
    ("operations", lambda of: of.operations), ("transfer", lambda of: format_seconds(of.transfer_s)),
    ("measured", lambda of: f"{format_seconds(of.measured_s)}, {of.kind}" if of.measured_s else "not at this size"),
    ("takes", lambda of: format_factor(of.factor) if of.factor else ""),
)  # fmt: skip


def slow_tables(
    parts: SlowParts, against: Sequence[AgainstCurve] | None = None
) -> dict[str, tuple[list[str], list[list[str]]]]:
    """Return the tables by their headings: collectives, who came last, ranks, and what the machine gave."""
    last = [
        [str(of.rank), parts.hosts.get(of.rank) or "unknown", f"{of.operations} of {of.taken}",
         *map(format_seconds, (of.median_s, of.total_s))]
        for of in parts.came_last
    ]  # fmt: skip
    tables = {
        "collectives": table_of(COLLECTIVE_COLUMNS, parts.times),
        "who came last": (["rank", "host", "last in", "after the others by", "in all"], last),
        "ranks": table_of(RANK_COLUMNS, parts.ranks), "beside this machine": table_of(AGAINST_COLUMNS, against or ()),
    }  # fmt: skip
    return {heading: table for heading, table in tables.items() if table[1]}


def slow_notes(parts: SlowParts) -> Iterator[str]:
    """Yield what limits these figures: clocks, records of some ranks, the begin of the profiler."""
    if parts.residual_s is not None:
        yield f"{_clocks_text(parts, parts.residual_s)}: of ranks that come closer together none is called the last"
    of_host = {each.host: parts.shifts_s.get(each.rank, 0.0) for each in parts.ranks if each.host}
    if len(of_host) > 1 and any(of_host.values()):
        shifts = (f"{host} {format_seconds(shift)}" for host, shift in sorted(of_host.items()))
        yield f"clocks of hosts were shifted: {', '.join(first_few(shifts, 8, 'host'))}"
    if any(_counts_more_often(each, lag) for lag in parts.late for each in parts.came_last):
        yield (
            "what a late rank brings along from one operation to the next counts once in the time that others wait for"
            " it, and in each operation among those who came last"
        )
    if any(each.waiting and not each.is_complete for each in parts.times):
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


def slow_record(parts: SlowParts, against: Sequence[AgainstCurve] | None = None) -> dict[str, Any]:
    """Return what is slow as JSON has it: seconds, and medians over ranks; what is unknown is null."""
    return {
        **{name: _median(getattr(each, name) for each in parts.ranks)
           for name in ("step_s", "waiting_s", "share", "exposed", "transfer_s")},
        "late": [_late_record(lag, parts) for lag in parts.late],
        "late_unknown": list(parts.unjudged),
        "came_last": [_last_record(each, parts) for each in parts.came_last],
        "collectives": [
            {"group": of.group.name, "collective": of.collective, "ranks": len(of.ranks), "all_ranks": of.is_complete,
             "operations": len(of.operations), "transfer_s": float(of.waiting.transfer_s.sum()) if of.waiting else None}
            for of in parts.times
        ],
        "per_rank": [{**each._asdict(), "share": each.share, "exposed": each.exposed} for each in parts.ranks],
        "clock_residual_s": parts.residual_s,
        "against": None if against is None else [
            {**each._asdict(), "group": each.group.name, "kind": each.kind or None, "factor": each.factor}
            for each in against
        ],
    }  # fmt: skip


def _last_record(each: LateRank, parts: SlowParts) -> dict[str, Any]:
    return {
        "rank": each.rank, "host": parts.hosts.get(each.rank), "share": each.share, "median_s": each.median_s,
        "total_s": each.total_s, "operations": each.operations,
    }  # fmt: skip


def _late_record(lag: Lag, parts: SlowParts) -> dict[str, Any]:
    """Return a late rank as JSON has it, with how often it came last."""
    record = {"share": None, "median_s": None, "operations": 0}
    for each in parts.came_last:
        if each.rank == lag.rank:
            record = _last_record(each, parts)
    return record | {"rank": lag.rank, "host": parts.hosts.get(lag.rank), "part": lag.part, "total_s": lag.total_s}


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None
