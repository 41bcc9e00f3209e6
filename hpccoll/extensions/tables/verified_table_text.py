"""What a library did of a tuning table, in words."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

from hpccoll.common.text import Columns, filled_columns, join_words, table_lines, table_of
from hpccoll.common.units import format_count, format_factor, format_seconds, format_size
from hpccoll.extensions.tables.verified_calls import (
    DEFAULT,
    FAILED,
    IGNORED,
    NOT_SHOWN,
    OVERRULED,
    VerifiedCall,
    changes_nothing,
)

OVER_TCP = {
    "mpich": "MPIR_CVAR_NOLOCAL=1 UCX_TLS=tcp,self FI_PROVIDER=tcp",
    "openmpi": "OMPI_MCA_pml=ob1 OMPI_MCA_btl=tcp,self",
}
"""The variables with which ranks of a node send over TCP, too; MPICH may be built for UCX or for libfabric."""

LEAST_RANKS = 4
"""The fewest ranks on which algorithms differ in what ranks send: on two, nearly all exchange the same halves."""

MOST_NAMED = 3
"""The most algorithms that a cell names if all of them send the same."""

CHANGES_NOTHING = (
    "with the table these calls do what the library does without it: there is nothing to verify; do: to see "
    "whether it follows, make a table of another algorithm"
)

REMEDIES = {
    IGNORED: "look at hpccoll tune --lint, and whether the variables name the table",
    OVERRULED: "give the calls to the table: of Open MPI coll_han_priority 0, of MPICH the compositions (.ch4)",
    FAILED: "leave the algorithm out of the table: hpccoll tune --lint says what it needs",
}
"""What to do about a verdict."""


def _ran(call: VerifiedCall, algorithms: Sequence[str]) -> str:
    """Return the algorithms that send what a call did."""
    if len(algorithms) > MOST_NAMED:
        return f"any of {len(algorithms)}"
    if algorithms:
        return "/".join(algorithms)
    if not call.is_recorded:
        return "unknown"
    return "none of them"


def _gain(call: VerifiedCall) -> str:
    """Return what the table gains, and whether another launch may differ as much."""
    if call.gain is None:
        return ""
    factor = format_factor(call.gain.factor)
    if call.gain.within_noise is None:
        return f"{factor} (no interval)"
    return f"{factor} (noise)" if call.gain.within_noise else factor


_COLUMNS: Columns[VerifiedCall] = (
    ("size", lambda call: format_size(call.bytes)),
    ("call", lambda call: call.details),
    ("line", lambda call: str(call.line or "")),
    ("table says", lambda call: call.rule or DEFAULT),
    ("without it", lambda call: _ran(call, call.without)),
    ("with it", lambda call: _ran(call, call.ran)),
    ("verdict", lambda call: call.verdict),
    ("without", lambda call: format_seconds(call.seconds_without) if call.seconds_without else ""),
    ("with", lambda call: format_seconds(call.seconds) if call.seconds else ""),
    ("gain", _gain),
)


def verified_lines(calls: Sequence[VerifiedCall], library: str) -> Iterator[str]:
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
    yield from _unseen_lines(calls, library)


def _unseen_lines(calls: Sequence[VerifiedCall], library: str) -> Iterator[str]:
    """Yield why calls do not show what they run, and how to measure them so that they do."""
    if calls and changes_nothing(calls):
        yield CHANGES_NOTHING
        return
    unseen = [call for call in calls if call.verdict == NOT_SHOWN]
    if any(not call.is_recorded for call in unseen):
        yield (
            f"{NOT_SHOWN}: algorithms are recognised by what ranks send over TCP, and these ranks shared memory or "
            f"used RDMA; do: {over_tcp(library)}"
        )
    elif any(call.ranks < LEAST_RANKS for call in unseen):
        yield (
            f"{NOT_SHOWN}: on {LEAST_RANKS - 1} or fewer ranks nearly all algorithms send the same; do: make and "
            f"verify a table for {LEAST_RANKS} ranks or more"
        )


def over_tcp(library: str) -> str:
    """Return how to measure calls of a library so that their algorithms are recognised."""
    return (
        f"export {OVER_TCP[library]}, measure on {LEAST_RANKS} ranks or more without the table and with it, and give "
        "both results"
    )
