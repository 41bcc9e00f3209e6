"""Whether a library does what a tuning table says, by what its ranks sent with the table and without."""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import zip_longest
from pathlib import Path
from typing import Protocol, TypeAlias

from hpccoll.analysis.library_evidence import collective_variables
from hpccoll.analysis.setting import machine_name, recorded_mpi_version
from hpccoll.analysis.strength import exceeds_noise_of_launches
from hpccoll.cases.algorithm_registry import collective
from hpccoll.cases.library_algorithms import library_collective, library_table
from hpccoll.cases.requirements import MPI_LIBRARIES
from hpccoll.extensions.tables.formats.mpich_json import read_mpich_json, write_mpich_json
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
"""What the library did: what the rule says; what it does without the table, by one of its
algorithms; something else; what it does without the table, where there is no rule; nothing that the
messages tell apart; what the rule says, and does so without the table, too; a call that fails or is
wrong only with the table."""

UNCHANGED = DEFAULT, AS_WITHOUT, IGNORED
"""The verdicts on calls that do the same without the table: their times differ by chance alone."""

UNDECIDED = "ignore", "auto"
"""What a rule names that leaves the choice to the library."""

SAME_BYTES, SMALL_BYTES = 0.01, 24
"""The part of the bytes on its busiest connection, and the bytes, by which what a rank sends on one
may differ between two launches."""


Traffic: TypeAlias = Sequence[Sequence[int]]
"""The bytes that each rank sends, by connection."""


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
    # the size that ``bytes`` is about, as MPICH names it; empty for that of Open MPI
    def measure(self) -> str: ...
    @property
    def conditions(self) -> tuple[str, ...]: ...
    @property
    def parameters(self) -> Mapping[str, int | str]: ...
    @property
    def line(self) -> int: ...


@dataclass(frozen=True, slots=True)
class TableGain:
    """What a table gains in a call."""

    factor: float  # the time without the table over that with it
    # whether another launch may differ as much; None without 95 % intervals
    within_noise: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedCall:
    """A call with a table and without."""

    collective: str  # by the project's name
    bytes: int
    ranks: int
    details: str  # what else distinguishes it from the other calls, in words
    # the algorithm that the table names; None if it leaves the call to the library
    rule: str | None
    line: int  # of the rule; 0 without one
    without: tuple[str, ...]  # the algorithms that send what the library does without the table
    ran: tuple[str, ...]  # those that send what it does with the table
    is_recorded: bool  # whether the bytes that ranks sent are known, with the table and without
    verdict: str
    seconds_without: float | None
    seconds: float | None
    intervals: tuple[Interval, Interval]  # of 95 %, without the table and with it
    # None if the call does the same without the table, where times differ by chance alone, or if
    # one of them is unknown
    gain: TableGain | None


def verify_table(
    path: Path, rules: Sequence[Rule], library: str, variables: Collection[str], results: Results
) -> list[VerifiedCall]:
    """Return what a library did in each call that was measured with a table and without, by collective and size.

    Args:
        path: the file of the table, which a variable of a run names.
        rules: its rules, the first that applies counts.
        library: ``openmpi`` or ``mpich``.
        variables: the names of those that let the table count.
        results: results of such runs, and of others without them. All other variables that affect
            collectives must be the same in both kinds; only those of ``variants`` of the library,
            which give calls to the table, may be new.

    Returns:
        none if no call was measured in both ways.
    """
    runs: dict[str, Run] = {}
    deciding: dict[str, dict[str, str]] = {}
    for run in results.runs:
        if recorded_mpi_version(run.provenance).startswith(MPI_LIBRARIES[library][0]):
            runs[run.run_id] = run
            deciding[run.run_id] = {**collective_variables(run), **run.environment}
    own = {*variables, *library_table()["variants"][library]["environment"]}
    table_path = str(path.resolve())
    native = [
        row
        for row in results.rows
        if row.algorithm == NATIVE and row.transport == "mpi" and row.run_id in runs
    ]
    rows_with_table: list[Row] = []
    rows_without: dict[CallKey, list[Row]] = defaultdict(list)
    for row in native:
        has_table = table_path in deciding[row.run_id].values()
        if has_table and row.status != "skipped":
            rows_with_table.append(row)
        elif row.usable and not has_table:
            rows_without[_same_call(row, runs[row.run_id])].append(row)

    def in_common(row: Row, candidate: Row) -> int:
        return _common_variables(deciding[row.run_id], deciding[candidate.run_id], own)

    pairs: list[tuple[CallKey, Row, Row]] = []
    for row in rows_with_table:
        key = _same_call(row, runs[row.run_id])
        candidates = [
            candidate for candidate in rows_without[key] if in_common(row, candidate) >= 0
        ]
        if candidates:
            details = key.without("collective", "requested_bytes", "ranks")
            pairs.append((details, row, max(candidates, key=partial(in_common, row))))
    all_details = [details for details, _, _ in pairs]
    calls = [
        _verify(row, control, rules, library, details.label(all_details))
        for details, row, control in pairs
    ]
    return sorted(calls, key=lambda call: (call.collective, call.ranks, call.bytes, call.details))


def _common_variables(
    mine: Mapping[str, str], theirs: Mapping[str, str], own: Collection[str]
) -> int:
    """Return how many variables two runs have in common; -1 if they differ by others than ``own``, those of a table."""
    added = mine.items() - theirs.items()
    if theirs.items() <= mine.items() and all(name in own for name, _ in added):
        return len(theirs)
    return -1


def _same_call(row: Row, run: Run) -> CallKey:
    """Return what two rows share that are of one call of one library on one machine, measured or failed."""
    place = f"{machine_name(run.machine, run.provenance)}, {recorded_mpi_version(run.provenance)}"
    return CallKey.of(row, place).without("variant", "executor", "rule")


def _verify(
    row: Row, without_table: Row, rules: Sequence[Rule], library: str, details: str
) -> VerifiedCall:
    call = library_collective(library, row.collective)
    rule = _first_rule(rules, call, row)
    own = _traffic(row).get("")
    forced = dict(_traffic(without_table))
    plain = forced.pop("", None)
    ran = _matching(forced, own)
    without = _matching(forced, plain)
    changed = bool(own and plain) and not _is_same(own or (), plain or ())
    named = None
    if (
        rule
        and rule.algorithm not in UNDECIDED
        and (changed or not _is_default(rule, library, row))
    ):
        named = rule.algorithm
    is_distinct = named is None or (named in forced and len(ran) < len(forced))
    may_apply = not rule or all(_holds(word, row) for word in rule.conditions)
    if not row.usable:
        verdict = FAILED
    elif not own or not plain or not is_distinct or not may_apply:
        verdict = NOT_SHOWN
    elif named in ran:
        verdict = AS_WITHOUT if named in without else HONOURED
    elif named is None:
        verdict = OVERRULED if changed else DEFAULT
    elif changed and any(_decides_on_parts(rule, library, call, named, row) for rule in rules):
        verdict = NOT_SHOWN  # its parts may be others than those that ran when it was forced
    # what none of the algorithms sends, a layer above them does, to which only the ranks of a node
    # belong
    else:
        layered = not without and 1 < row.nodes < row.ranks
        verdict = OVERRULED if changed or layered else IGNORED
    is_left_alone = named is None and verdict != OVERRULED
    is_unchanged = verdict in UNCHANGED or is_left_alone
    return VerifiedCall(
        collective=row.collective,
        bytes=row.bytes,
        ranks=row.ranks,
        details=details,
        rule=named,
        line=rule.line if rule else 0,
        without=without,
        ran=ran,
        is_recorded=bool(own and plain),
        verdict=verdict,
        seconds_without=without_table.median_s,
        seconds=row.median_s,
        intervals=(without_table.interval, row.interval),
        gain=None if is_unchanged else _gain(without_table, row),
    )


def _gain(without_table: Row, row: Row) -> TableGain | None:
    """Return what a table gains in a call; None if a time is unknown."""
    if not row.median_s or not without_table.median_s:
        return None
    factor = without_table.median_s / row.median_s
    before = without_table.interval
    after = row.interval
    if not before or not after:
        return TableGain(factor, None)
    if factor >= 1:
        is_clear = exceeds_noise_of_launches(factor, before[0] / after[1])
    else:
        is_clear = exceeds_noise_of_launches(1 / factor, after[0] / before[1])
    return TableGain(factor, not is_clear)


def changes_nothing(calls: Iterable[VerifiedCall]) -> bool:
    """Return whether a table leaves all calls to the library, and none does anything else."""
    return all(call.rule is None and call.verdict in (DEFAULT, NOT_SHOWN) for call in calls)


def _first_rule(rules: Iterable[Rule], call: str | None, row: Row) -> Rule | None:
    """Return the rule that counts for a call; None if the table has none."""
    for rule in rules:
        if rule.collective == call and _applies(rule, row):
            return rule
    return None


def _is_default(rule: Rule, library: str, row: Row) -> bool:
    """Return whether a rule names what the library does without the table.

    Tables of MPICH replace all of its decisions, and repeat its own where nothing is to change.
    """
    if library != "mpich":
        return False
    default = _first_rule(_rules_of_mpich(), rule.collective, row)
    if default is None:
        return False
    return (rule.algorithm, rule.parameters) == (default.algorithm, default.parameters)


@cache
def _rules_of_mpich() -> Sequence[Rule]:
    """Return the rules of a table that changes nothing."""
    return tuple(read_mpich_json(write_mpich_json(())).rules)


def _matching(forced: Mapping[str, Traffic], sent: Traffic | None) -> tuple[str, ...]:
    """Return the forced algorithms that send what a call sent; none if that is unknown."""
    if not sent:
        return ()
    return tuple(algorithm for algorithm, traffic in forced.items() if _is_same(traffic, sent))


def _decides_on_parts(rule: Rule, library: str, call: str | None, algorithm: str, row: Row) -> bool:
    """Return whether a rule may choose how an algorithm does one of the collectives that it calls."""
    composed = library_table()[library].get("composed", {})
    parts = composed.get(call, {}).get(algorithm, ())
    if rule.collective not in parts or rule.algorithm in UNDECIDED:
        return False
    # the sizes of its parts are not those of the call
    first_ranks, last_ranks = rule.ranks
    first_nodes, last_nodes = rule.nodes
    return first_ranks <= row.ranks <= last_ranks and first_nodes <= row.nodes <= last_nodes


def _applies(rule: Rule, row: Row) -> bool:
    """Return whether a rule may apply to a call: nothing of it certainly does not hold."""
    spans = (
        (rule.bytes, _measured_size(rule, row)),
        (rule.ranks, row.ranks),
        (rule.nodes, row.nodes),
    )
    for (first, last), value in spans:
        if not first <= value <= last:
            return False
    return not any(_holds(condition, row) is False for condition in rule.conditions)


def _measured_size(rule: Rule, row: Row) -> int:
    """Return the size of a call that a library compares with that of a rule.

    MPICH does as csel.c of 5.0 says. Open MPI takes 0 for two collectives
    (coll_tuned_decision_dynamic.c).
    """
    size = itemsize(row.dtype)
    count = _count(row)
    if rule.measure == "count":
        return count
    if rule.measure == "avg_msg_size":
        return count * size
    if rule.measure == "total_msg_size":
        counts_elements = rule.collective in library_table()["mpich"]["sizes_in_elements"]
        if counts_elements:
            return count * row.ranks
        return count * size * row.ranks
    if rule.collective in ("alltoallv", "barrier"):
        return 0
    return row.bytes


def _count(row: Row) -> int:
    """Return the elements that a call names: those of the whole buffer, or of a block."""
    return collective(row.collective).elements(row.bytes, itemsize(row.dtype), row.ranks)


def _holds(condition: str, row: Row) -> bool | None:
    """Return whether a condition of MPICH holds for a call; None if that is not known."""
    kind, _, value = condition.removeprefix("not ").partition("=")
    power_of_two = 1 << row.ranks.bit_length() - 1
    facts = {
        "comm_type": "intra",
        "is_commutative": "yes",
        "is_op_built_in": "yes",
        "is_block_regular": "yes",
        "is_sendbuf_inplace": "yes" if row.in_place else "no",
        "count<pow2": "" if _count(row) < power_of_two else "no",
        "comm_size": "pow2" if row.ranks.bit_count() == 1 else "",
        "comm_hierarchy": "parent" if row.nodes < row.ranks else "flat",
    }
    actual = facts.get(kind)
    if actual is None:
        return None
    is_negated = condition.startswith("not ")
    return (actual == value) != is_negated


def _traffic(row: Row) -> Mapping[str, Traffic]:
    """Return the bytes of each rank by connection, by the algorithm that was forced; ``""`` is the call as it ran."""
    traffic: Mapping[str, Traffic] = json.loads(row.tcp_traffic or "{}")
    return traffic


def _is_same(first: Traffic, second: Traffic) -> bool:
    """Return whether each rank sends as many bytes on as many connections."""
    if len(first) != len(second):
        return False
    for sent_first, sent_second in zip(first, second, strict=True):
        tolerance = max(SMALL_BYTES, SAME_BYTES * max([*sent_first, *sent_second], default=0))
        for bytes_first, bytes_second in zip_longest(sent_first, sent_second, fillvalue=0):
            if abs(bytes_first - bytes_second) > tolerance:
                return False
    return True
