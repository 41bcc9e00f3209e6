"""What a library did of a tuning table, in words."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

from hpccoll.analysis.strength import NOTICEABLE
from hpccoll.analysis.verified_calls import DEFAULT, FAILED, IGNORED, OVERRULED, VerifiedCall
from hpccoll.common.text import Columns, filled_columns, join_words, table_lines, table_of
from hpccoll.common.units import format_count, format_factor, format_seconds, format_size

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
    if not (before and after):
        return f"{format_factor(gain)} (no interval)"
    clear = max(before[0] / after[1], after[0] / before[1]) > 1 and max(gain, 1 / gain) >= NOTICEABLE
    return format_factor(gain) + ("" if clear else " (noise)")


_COLUMNS: Columns[VerifiedCall] = (
    ("size", lambda each: format_size(each.bytes)),
    ("call", lambda each: each.details),
    ("line", lambda each: str(each.line or "")),
    ("table says", lambda each: each.rule or DEFAULT),
    ("without it", lambda each: _ran(each.without)),
    ("with it", lambda each: _ran(each.ran)),
    ("verdict", lambda each: each.verdict),
    ("without", lambda each: format_seconds(each.seconds_without) if each.seconds_without else ""),
    ("with", lambda each: format_seconds(each.seconds) if each.seconds else ""),
    ("gain", _gain),
)


def verified_lines(calls: Sequence[VerifiedCall]) -> Iterator[str]:
    """Yield a line that counts the verdicts, a table for each collective and number of ranks, and what to do."""
    counts = Counter(call.verdict for call in calls)
    yield f"{format_count(len(calls), 'call')}: {join_words(f'{count} {verdict}' for verdict, count in counts.items())}"
    for (name, ranks), group in groupby(calls, lambda each: (each.collective, each.ranks)):
        yield f"{name}, {format_count(ranks, 'rank')}"
        yield from table_lines(*filled_columns(*table_of(_COLUMNS, [*group])))
    yield from (f"{verdict}: do: {remedy}" for verdict, remedy in REMEDIES.items() if counts[verdict])
