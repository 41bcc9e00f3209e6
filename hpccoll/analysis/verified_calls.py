"""Whether a library does what a tuning table says, by what its ranks sent with the table and without."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Protocol

from hpccoll.cases.library_algorithms import library_collective
from hpccoll.cases.skip_reason import COLLECTIVE_VARIABLES
from hpccoll.schedule.collective import NATIVE
from hpccoll.store.call_key import CallKey
from hpccoll.store.rows import Interval, Results, Row

HONOURED, IGNORED, OVERRULED, DEFAULT, NOT_SHOWN = "honoured", "ignored", "overruled", "default", "not shown"
"""What the library did: what the rule says; what it does without the table, by one of its algorithms; something else;
what it does without the table, where there is no rule; nothing that the messages tell apart."""

_DECIDES = re.compile(rf"{COLLECTIVE_VARIABLES.pattern}|MPIR_CVAR_\w*COLL_SELECTION_TUNING_JSON_FILE")
"""The variables by which a run does not leave the choice of algorithms to the library."""

SAME_BYTES, SMALL_BYTES = 0.01, 24
"""The part of the bytes on its busiest connection, and the bytes, by which what a rank sends on one may differ between
two launches."""


class Rule(Protocol):
    """A rule of a table, as its reader gives it; ranges have the first and the last number."""

    @property
    def collective(self) -> str: ...  # by the library's name
    @property
    def algorithm(self) -> str: ...
    @property
    def bytes(self) -> tuple[int, int]: ...
    @property
    def ranks(self) -> tuple[int, int]: ...
    @property
    def nodes(self) -> tuple[int, int]: ...
    @property
    def conditions(self) -> tuple[str, ...]: ...
    @property
    def line(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedCall:
    """A call with a table and without."""

    collective: str  # by the project's name
    bytes: int
    ranks: int
    rule: str | None  # the algorithm that the table names; None if it leaves the call to the library
    line: int  # of the rule; 0 without one
    without: tuple[str, ...]  # the algorithms that send what the library does without the table
    ran: tuple[str, ...]  # those that send what it does with the table
    verdict: str
    seconds_without: float | None
    seconds: float | None
    intervals: tuple[Interval, Interval]  # of 95 %, without the table and with it


def verify_table(path: Path, rules: Sequence[Rule], library: str, results: Results) -> list[VerifiedCall]:
    """Return what a library did in each call that was measured with a table and without, by collective and size.

    Args:
        path: the file of the table, which a variable of a run names.
        rules: its rules, the first that applies counts.
        library: ``openmpi`` or ``mpich``.
        results: results of such runs, and of others that leave collectives to the library.

    Returns:
        none if no call was measured in both ways.
    """
    with_it, plain = set[str](), set[str]()
    for run in results.runs:
        recorded = run.provenance.get("variables")
        variables = {**(recorded if isinstance(recorded, Mapping) else {}), **run.environment}
        if str(path.resolve()) in variables.values():
            with_it.add(run.run_id)
        elif not any(_DECIDES.match(name) for name in variables):
            plain.add(run.run_id)
    pairs = _pairs(results.rows, with_it, plain)
    calls = (_verify(row, other, rules, library_collective(library, row.collective)) for row, other in pairs)
    return sorted(calls, key=lambda call: (call.collective, call.ranks, call.bytes))


def _pairs(rows: Sequence[Row], with_it: set[str], plain: set[str]) -> list[tuple[Row, Row]]:
    native = [row for row in rows if row.algorithm == NATIVE and row.status == "ok"]
    others = {CallKey.of(row).without("variant"): row for row in native if row.run_id in plain}
    mine = ((row, CallKey.of(row).without("variant")) for row in native if row.run_id in with_it)
    return [(row, others[key]) for row, key in mine if key in others]


def _verify(row: Row, other: Row, rules: Sequence[Rule], call: str | None) -> VerifiedCall:
    rule = next((each for each in rules if each.collective == call and _applies(each, row)), None)
    named = rule.algorithm if rule and rule.algorithm not in ("ignore", "auto") else None
    own, forced = _traffic(row).get(""), {**_traffic(other)}
    plain = forced.pop("", None)
    ran, without = (
        tuple(word for word, of in forced.items() if sent and _is_same(of, sent)) for sent in (own, plain)
    )  # fmt: skip
    shown = own and plain and (named is None or named in forced)
    changed = bool(own and plain) and not _is_same(own or (), plain or ())
    if not shown or (rule and not all(_holds(each, row) for each in rule.conditions)):
        verdict = NOT_SHOWN
    elif named in ran:
        verdict = HONOURED
    elif named is None:
        verdict = OVERRULED if changed else DEFAULT
    else:  # what none of the algorithms sends, a layer above them does, of which only the ranks of a node have one
        layered = not without and 1 < row.nodes < row.ranks
        verdict = OVERRULED if changed or layered else IGNORED
    return VerifiedCall(
        collective=row.collective, bytes=row.bytes, ranks=row.ranks, rule=named, line=rule.line if rule else 0,
        without=without, ran=ran, verdict=verdict, seconds_without=other.median_s, seconds=row.median_s,
        intervals=(other.interval, row.interval),
    )  # fmt: skip


def _applies(rule: Rule, row: Row) -> bool:
    """Return whether a rule may apply to a call: nothing of it certainly does not hold."""
    spans = ((rule.bytes, row.bytes), (rule.ranks, row.ranks), (rule.nodes, row.nodes))
    in_spans = all(first <= value <= last for (first, last), value in spans)
    return in_spans and not any(_holds(each, row) is False for each in rule.conditions)


def _holds(condition: str, row: Row) -> bool | None:
    """Return whether a condition of MPICH holds for a call; None if that is not known."""
    kind, _, value = condition.removeprefix("not ").partition("=")
    actual = {
        "comm_type": "intra", "is_commutative": "yes", "is_op_built_in": "yes", "is_block_regular": "yes",
        "is_sendbuf_inplace": "yes" if row.in_place else "no", "count<pow2": "no",
        "comm_size": "pow2" if row.ranks.bit_count() == 1 else "",
        "comm_hierarchy": "parent" if 1 < row.nodes < row.ranks else "flat",
    }.get(kind)  # fmt: skip
    return None if actual is None else (actual == value) != condition.startswith("not ")


def _traffic(row: Row) -> Mapping[str, Sequence[Sequence[int]]]:
    """Return the bytes of each rank by connection, by the algorithm that was forced; ``""`` is the call as it ran."""
    traffic: Mapping[str, Sequence[Sequence[int]]] = json.loads(row.tcp_traffic or "{}")
    return traffic


def _is_same(one: Sequence[Sequence[int]], other: Sequence[Sequence[int]]) -> bool:
    """Return whether each rank sends as many bytes on as many connections."""
    return len(one) == len(other) and all(
        abs(mine - theirs) <= max(SMALL_BYTES, SAME_BYTES * max([*before, *after]))
        for before, after in zip(one, other, strict=True)
        for mine, theirs in zip_longest(before, after, fillvalue=0)
    )
