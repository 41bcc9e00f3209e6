"""What a library did of a tuning table, in words."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

from hpccoll.analysis.strength import NOTICEABLE
from hpccoll.common.text import Columns, filled_columns, join_words, table_lines, table_of
from hpccoll.common.units import format_count, format_factor, format_seconds, format_size
from hpccoll.extensions.tables.verified_calls import (
    DEFAULT,
    FAILED,
    IGNORED,
    OVERRULED,
    VerifiedCall,
)

REMEDIES = {
    IGNORED: "look at hpccoll tune --lint, and whether the variables name the table",
    OVERRULED: "give the calls to the table: of Open MPI coll_han_priority 0, of MPICH the compositions (.ch4)",
    FAILED: "leave the algorithm out of the table: hpccoll tune --lint says what it needs",
}
"""What to do about a verdict."""


def _ran(algorithms: Sequence[str]) -> str:
    return "/".join(algorithms) or "none of them"


def _gain(call: VerifiedCall) -> str:
    """Return the time without the table over that with it, and whether another launch may differ as much."""
    if not call.seconds or not call.seconds_without:
        return ""
    before, after = call.intervals
    gain = call.seconds_without / call.seconds
    factor = format_factor(gain)
    if not (before and after):
        return f"{factor} (no interval)"
    are_disjoint = max(before[0] / after[1], after[0] / before[1]) > 1
    is_noticeable = max(gain, 1 / gain) >= NOTICEABLE
    if are_disjoint and is_noticeable:
        return factor
    return f"{factor} (noise)"


_COLUMNS: Columns[VerifiedCall] = (
    ("size", lambda call: format_size(call.bytes)),
    ("call", lambda call: call.details),
    ("line", lambda call: str(call.line or "")),
    ("table says", lambda call: call.rule or DEFAULT),
    ("without it", lambda call: _ran(call.without)),
    ("with it", lambda call: _ran(call.ran)),
    ("verdict", lambda call: call.verdict),
    ("without", lambda call: format_seconds(call.seconds_without) if call.seconds_without else ""),
    ("with", lambda call: format_seconds(call.seconds) if call.seconds else ""),
    ("gain", _gain),
)


def verified_lines(calls: Sequence[VerifiedCall]) -> Iterator[str]:
    """Yield a line that counts the verdicts, a table for each collective and number of ranks, and what to do."""
    counts = Counter(call.verdict for call in calls)
    verdicts = join_words(f"{count} {verdict}" for verdict, count in counts.items())
    yield f"{format_count(len(calls), 'call')}: {verdicts}"
    for (name, ranks), group in groupby(calls, lambda call: (call.collective, call.ranks)):
        yield f"{name}, {format_count(ranks, 'rank')}"
        head, rows = table_of(_COLUMNS, list(group))
        yield from table_lines(*filled_columns(head, rows))
    for verdict, remedy in REMEDIES.items():
        if counts[verdict]:
            yield f"{verdict}: do: {remedy}"
