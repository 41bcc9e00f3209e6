"""Whether a library does what a tuning table says, by what its ranks sent with the table and without."""

import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Protocol

from hpccoll.analysis.library_evidence import collective_variables
from hpccoll.analysis.setting import machine_name, recorded_mpi_version
from hpccoll.cases.algorithm_registry import collective
from hpccoll.cases.library_algorithms import library_collective, library_table
from hpccoll.cases.requirements import MPI_LIBRARIES
from hpccoll.schedule import itemsize
from hpccoll.schedule.collective import NATIVE
from hpccoll.store.call_key import CallKey
from hpccoll.store.rows import Interval, Results, Row, Run

HONOURED = "honoured"
IGNORED = "ignored"
OVERRULED = "overruled"
DEFAULT = "default"
NOT_SHOWN = "not shown"
AS_WITHOUT = "as without it"
FAILED = "failed"
"""What the library did: what the rule says; what it does without the table, by one of its algorithms; something else;
what it does without the table, where there is no rule; nothing that the messages tell apart; what the rule says, and
does so without the table, too; a call that fails or is wrong only with the table."""

UNDECIDED = "ignore", "auto"
"""What a rule names that leaves the choice to the library."""

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
    def measure(self) -> str: ...  # the size that ``bytes`` is about, as MPICH names it; empty for that of Open MPI
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
    details: str  # what else distinguishes it from the other calls, in words
    rule: str | None  # the algorithm that the table names; None if it leaves the call to the library
    line: int  # of the rule; 0 without one
    without: tuple[str, ...]  # the algorithms that send what the library does without the table
    ran: tuple[str, ...]  # those that send what it does with the table
    verdict: str
    seconds_without: float | None
    seconds: float | None
    intervals: tuple[Interval, Interval]  # of 95 %, without the table and with it


def verify_table(
    path: Path, rules: Sequence[Rule], library: str, variables: Collection[str], results: Results
) -> list[VerifiedCall]:
    """Return what a library did in each call that was measured with a table and without, by collective and size.

    Args:
        path: the file of the table, which a variable of a run names.
        rules: its rules, the first that applies counts.
        library: ``openmpi`` or ``mpich``.
        variables: the names of those that let the table count.
        results: results of such runs, and of others without them. Of other variables that affect collectives, both
            kinds have the same; but those of ``variants`` of the library, which give calls to the table, may be new.

    Returns:
        none if no call was measured in both ways.
    """
    runs = {
        run.run_id: run for run in results.runs
        if recorded_mpi_version(run.provenance).startswith(MPI_LIBRARIES[library][0])
    }  # fmt: skip
    deciding = {name: {**collective_variables(run), **run.environment} for name, run in runs.items()}
    own = {*variables, *library_table()["variants"][library]["environment"]}
    native = (row for row in results.rows if (row.algorithm, row.transport) == (NATIVE, "mpi") and row.run_id in runs)
    with_it, plain = list[Row](), defaultdict[CallKey, list[Row]](list)
    for row in native:
        if str(path.resolve()) in deciding[row.run_id].values():
            with_it += [row] if row.status != "skipped" else []
        elif row.usable:
            plain[_same_call(row, runs[row.run_id])].append(row)

    def in_common(row: Row, other: Row) -> int:
        """Return how many variables both runs have; -1 if they differ by more than the table."""
        mine, theirs = deciding[row.run_id].items(), deciding[other.run_id].items()
        return len(theirs) if theirs <= mine and dict(mine - theirs).keys() <= own else -1

    pairs = list[tuple[CallKey, Row, Row]]()
    for row in with_it:
        key = _same_call(row, runs[row.run_id])
        if found := [other for other in plain[key] if in_common(row, other) >= 0]:
            details = key.without("collective", "requested_bytes", "ranks")
            pairs.append((details, row, max(found, key=partial(in_common, row))))
    every = [details for details, *_ in pairs]
    calls = (_verify(row, other, rules, library, details.label(every)) for details, row, other in pairs)
    return sorted(calls, key=lambda call: (call.collective, call.ranks, call.bytes, call.details))


def _same_call(row: Row, run: Run) -> CallKey:
    """Return what two rows share that are of one call of one library on one machine, measured or failed."""
    place = f"{machine_name(run.machine, run.provenance)}, {recorded_mpi_version(run.provenance)}"
    return CallKey.of(row, place).without("variant", "executor", "rule")


def _verify(row: Row, other: Row, rules: Sequence[Rule], library: str, details: str) -> VerifiedCall:
    call = library_collective(library, row.collective)
    rule = next((each for each in rules if each.collective == call and _applies(each, row)), None)
    named = rule.algorithm if rule and rule.algorithm not in UNDECIDED else None
    own, forced = _traffic(row).get(""), {**_traffic(other)}
    plain = forced.pop("", None)
    ran, without = (
        tuple(word for word, of in forced.items() if sent and _is_same(of, sent)) for sent in (own, plain)
    )  # fmt: skip
    shown = own and plain and (named is None or (named in forced and len(ran) < len(forced)))
    changed = bool(own and plain) and not _is_same(own or (), plain or ())
    if not row.usable:
        verdict = FAILED
    elif not shown or (rule and not all(_holds(each, row) for each in rule.conditions)):
        verdict = NOT_SHOWN
    elif named in ran:
        verdict = AS_WITHOUT if named in without else HONOURED
    elif named is None:
        verdict = OVERRULED if changed else DEFAULT
    elif changed and any(_decides_on_parts(each, library, call, named, row) for each in rules):
        verdict = NOT_SHOWN  # its parts may be others than those that ran when it was forced
    else:  # what none of the algorithms sends, a layer above them does, of which only the ranks of a node have one
        layered = not without and 1 < row.nodes < row.ranks
        verdict = OVERRULED if changed or layered else IGNORED
    return VerifiedCall(
        collective=row.collective, bytes=row.bytes, ranks=row.ranks, details=details, rule=named,
        line=rule.line if rule else 0, without=without, ran=ran, verdict=verdict, seconds_without=other.median_s,
        seconds=row.median_s, intervals=(other.interval, row.interval),
    )  # fmt: skip


def _decides_on_parts(rule: Rule, library: str, call: str | None, algorithm: str, row: Row) -> bool:
    """Return whether a rule may choose how an algorithm does one of the collectives that it calls."""
    parts = library_table()[library].get("composed", {}).get(call, {}).get(algorithm, ())
    spans = (rule.ranks, row.ranks), (rule.nodes, row.nodes)  # the sizes of its parts are not those of the call
    fits = all(first <= value <= last for (first, last), value in spans)
    return fits and rule.collective in parts and rule.algorithm not in UNDECIDED


def _applies(rule: Rule, row: Row) -> bool:
    """Return whether a rule may apply to a call: nothing of it certainly does not hold."""
    spans = ((rule.bytes, _measured_size(rule, row)), (rule.ranks, row.ranks), (rule.nodes, row.nodes))
    in_spans = all(first <= value <= last for (first, last), value in spans)
    return in_spans and not any(_holds(each, row) is False for each in rule.conditions)


def _measured_size(rule: Rule, row: Row) -> int:
    """Return the size of a call that a library compares with that of a rule.

    MPICH does as csel.c of 5.0 says. Open MPI takes 0 for two collectives (coll_tuned_decision_dynamic.c).
    """
    size, count = itemsize(row.dtype), _count(row)
    of_total = 1 if rule.collective in library_table()["mpich"]["sizes_in_elements"] else size
    measures = {"count": count, "avg_msg_size": count * size, "total_msg_size": count * of_total * row.ranks}
    return measures.get(rule.measure, 0 if rule.collective in ("alltoallv", "barrier") else row.bytes)


def _count(row: Row) -> int:
    """Return the elements that a call names: those of the whole buffer, or of a block."""
    return collective(row.collective).elements(row.bytes, itemsize(row.dtype), row.ranks)


def _holds(condition: str, row: Row) -> bool | None:
    """Return whether a condition of MPICH holds for a call; None if that is not known."""
    kind, _, value = condition.removeprefix("not ").partition("=")
    actual = {
        "comm_type": "intra", "is_commutative": "yes", "is_op_built_in": "yes", "is_block_regular": "yes",
        "is_sendbuf_inplace": "yes" if row.in_place else "no",
        "count<pow2": "" if _count(row) < 1 << row.ranks.bit_length() - 1 else "no",
        "comm_size": "pow2" if row.ranks.bit_count() == 1 else "",
        "comm_hierarchy": "parent" if row.nodes < row.ranks else "flat",
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
