"""The raw results of one job: its attempts, each with the outcomes and times of its cases."""

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property, reduce
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from hpccoll.cases.case import Case, Job, Parameter
from hpccoll.schedule import Layout
from hpccoll.store.case_times import CaseTimes
from hpccoll.store.host_names import host_ranges
from hpccoll.store.schema import RANK_RESULT_MERGES, RESULT_MERGES, Merge, OfKind, RankResult

Status: TypeAlias = Literal["ok", "wrong", "skipped", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(RankResult):
    """The outcome of one case in the rounds that measured it; ``times`` is None if nothing was timed."""

    case: Case
    status: Status
    reason: str | None = None
    bytes: int | None = None  # the bytes that the case moved
    params: Mapping[str, Parameter] = field(default_factory=dict)  # including defaults
    # the part of wire_bytes_predicted sent by nodes of workers
    workers_sent_predicted: int | None = None
    workers_received_predicted: int | None = None
    # bytes per operation, by the port counters of each node, [node]
    wire_sent: Sequence[float | None] = ()
    wire_received: Sequence[float | None] = ()
    # likewise per port, [node][port of the attempt]
    port_sent: Sequence[Sequence[float | None]] = ()
    port_received: Sequence[Sequence[float | None]] = ()
    counters: Mapping[str, int | None] | None = (
        None  # congestion counters, summed over all nodes and ``operations`` operations
    )
    # of a prediction, whose interval is not that of repeated measurements
    predicted_low_s: float | None = None
    predicted_high_s: float | None = None
    # of a training step, as JSON: the operations and computations of each stage
    program: str | None = None
    times: CaseTimes | None = None
    # CPU seconds per operation, [rank]
    cpu_s: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))

    @property
    def timed(self) -> bool:
        """Whether the case has a result, right or wrong; all ranks know it, unlike the times."""
        return self.status in ("ok", "wrong")

    @property
    def rounds(self) -> frozenset[int]:
        """The rounds in which the case was measured."""
        return frozenset() if self.times is None else frozenset(self.times.round.tolist())

    def merge(self, later: "Outcome") -> "Outcome":
        """Return the outcome of the rounds of both; those of ``later`` came after these.

        ``CaseResult`` and ``RankResult`` say how their values are joined; CPU time is the mean over
        iterations. The fields of ``COUNTED_FIELDS`` come from the last round that counted bytes or
        recognised the algorithm, all others from the last round; ``executed`` names the algorithms
        of all launches. A round without times changes only the reason.
        """
        reason = _joined(self.reason, later.reason) or None
        if later.times is None:
            latest = later if self.times is None else self
            return replace(latest, reason=reason)
        if self.times is None:
            return later
        results: dict[str, Any] = {}
        for name, merge in RESULT_MERGES.items():
            results[name] = merge(getattr(self, name), getattr(later, name))
        for name, merge in RANK_RESULT_MERGES.items():
            results[name] = _merge_ranks(merge, getattr(self, name), getattr(later, name))
        results |= self._merge_counted(later)
        iterations = len(self.times.round)
        later_iterations = len(later.times.round)
        cpu_s = (iterations * self.cpu_s + later_iterations * later.cpu_s) / (
            iterations + later_iterations
        )
        is_wrong = "wrong" in (self.status, later.status)
        return replace(
            later,
            status="wrong" if is_wrong else later.status,
            reason=reason,
            times=self.times.merge(later.times),
            cpu_s=cpu_s,
            **results,
        )

    def _merge_counted(self, later: "Outcome") -> dict[str, Any]:
        """Return ``COUNTED_FIELDS`` of the rounds of both; those of ``later`` may have run another algorithm."""
        has_counted = self.counters or self.tcp_traffic or self.executed not in (None, "unknown")
        counted = later
        if has_counted and not (later.counters or later.tcp_traffic):
            counted = self
        values = {name: getattr(counted, name) for name in COUNTED_FIELDS}
        executed = [name for name in (self.executed, later.executed) if name and name != "unknown"]
        if len(set(executed)) > 1:
            algorithms = "/".join(executed).split("/")
            values["executed"] = "/".join(dict.fromkeys(algorithms))
            values["evidence"] = _joined(self.evidence, later.evidence)
        return values


def _joined(*texts: str | None) -> str:
    """Return the texts that are not empty, each once."""
    return "; ".join(dict.fromkeys(filter(None, texts)))


def _merge_ranks(
    merge: Merge, earlier: Sequence[float | None], later: Sequence[float | None]
) -> Sequence[float | None]:
    """Return the values of earlier rounds and a later one, [rank]; either may be unknown for all."""
    if not (earlier and later):
        return earlier or later
    return tuple(
        _merge_known(merge, before, after) for before, after in zip(earlier, later, strict=True)
    )


def _merge_known(merge: Merge, earlier: float | None, later: float | None) -> float | None:
    """Return the value of earlier rounds and a later one; where one of them is unknown, the other one."""
    if later is None:
        return earlier
    if earlier is None:
        return later
    merged: float | None = merge(earlier, later)
    return merged


COUNTED_FIELDS = (
    "wire_bytes_measured",
    "wire_sent",
    "wire_received",
    "port_sent",
    "port_received",
    "counters",
    "executed",
    "evidence",
    "tcp_traffic",
)
"""The fields from the pass that reads port counters, which each launch runs once per case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLocation:
    """Where one rank ran."""

    host: str
    node: int
    clock: int  # ranks with equal numbers read one clock
    pid: int
    affinity: str  # the CPUs the rank may use, such as 0-3,8
    rack: int = 0  # the rack of its node in Slurm's topology


def _places_of_layout(layout: Layout, hosts: Sequence[str]) -> Iterator[RankLocation]:
    """Yield the place of each rank; ``hosts`` may name no nodes, or only the first ones."""
    for node, rack in zip(layout.node, layout.rack, strict=True):
        host = hosts[node] if node < len(hosts) else ""
        yield RankLocation(host=host, node=node, clock=0, pid=0, affinity="", rack=rack)


@dataclass(frozen=True, kw_only=True)  # without slots, because cached_property needs a __dict__
class Attempt(OfKind):
    """A stretch of a launch of a job on the same ranks; a launch that loses ranks begins another one."""

    run_id: str
    number: Annotated[int, Meta(ge=1)]
    kind: str
    machine: str
    ranks: Annotated[int, Meta(ge=1)]  # including aggregators
    nodes: Annotated[int, Meta(ge=1)]
    ranks_per_node: int | None
    mapping: str
    aggregators: Annotated[int, Meta(ge=0)]
    oversubscribed: bool
    places: tuple[RankLocation, ...]
    ports: tuple[str, ...] = ()  # the names of the hosts' network ports
    provenance: Mapping[str, Any]
    evidence: Mapping[str, Any] | None = None  # the result of the log probe, as JSON
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    @classmethod
    def not_launched(
        cls,
        number: int,
        kind: str,
        machine: str,
        layout: Layout,
        provenance: Mapping[str, object],
        hosts: Sequence[str] = (),
    ) -> "Attempt":
        """Return the attempt of ranks that hpccoll did not start: predicted ones, or those of another program."""
        return cls(
            run_id=str(uuid.uuid4()),
            number=number,
            kind=kind,
            machine=machine,
            ranks=layout.ranks,
            nodes=layout.nodes,
            ranks_per_node=layout.ranks_per_node,
            mapping=layout.mapping,
            aggregators=layout.aggregators,
            oversubscribed=False,
            places=tuple(_places_of_layout(layout, hosts)),
            provenance=provenance,
        )

    @cached_property
    def layout(self) -> Layout:
        """The layout of the ranks, as algorithms see it."""
        node_of_rank = tuple(location.node for location in self.places)
        rack_of_rank = tuple(location.rack for location in self.places)
        return Layout(node_of_rank, rack_of_rank, aggregators=self.aggregators)

    @cached_property
    def racks(self) -> int:
        """The racks that hold workers."""
        return self.layout.racks


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a case failed, or, if ``case_id`` is empty, why the attempt ended."""

    case_id: str
    rank: int  # -1: the launcher
    message: str
    attempt: int = 0  # the number of the attempt that it ended; 0 if none began


class DamagedLine(NamedTuple):
    """A line of a journal that cannot be read."""

    # the case that was running when the line was written; None if there was none
    case_id: str | None
    description: str  # the line number and the damage


class CaseHistory(NamedTuple):
    """The outcome of a case over all attempts, and what it means to its job."""

    attempt: Attempt  # the one that last timed it
    outcome: Outcome
    runs: Mapping[int, str]  # the id of the run of each measured round
    # that of its row: partial if it is correct and misses rounds, else that of the outcome
    status: str
    reason: str | None  # why it is not ok

    @classmethod
    def of(
        cls, job: Job, attempt: Attempt, outcome: Outcome, runs: Mapping[int, str] | None = None
    ) -> "CaseHistory":
        """Return the history of an outcome; ``runs`` [all of them the run of ``attempt``]."""
        if runs is None:
            runs = dict.fromkeys(outcome.rounds, attempt.run_id)
        status, reason = _status_and_reason(outcome, len(runs), job.effort.rounds)
        return cls(attempt, outcome, runs, status, reason)

    def with_failure(self, failure: str | None) -> "CaseHistory":
        """Return the history with a further reason why it is not ok, if there is one."""
        if self.status == "ok" or not failure:
            return self
        return self._replace(reason=f"{self.reason}; {failure}" if self.reason else failure)


def _status_and_reason(outcome: Outcome, measured: int, requested: int) -> tuple[str, str | None]:
    """Return the status of an outcome with ``measured`` of the ``requested`` rounds, and why it is not ok."""
    if outcome.status != "ok":
        return outcome.status, outcome.reason
    if measured == requested or outcome.source:  # another program has its own number of rounds
        return "ok", None  # a failed round has been measured since
    missing = f"{measured} of {requested} rounds"
    return "partial", f"{missing}; {outcome.reason}" if outcome.reason else missing


@dataclass(slots=True, kw_only=True)
class RawResults:
    """The content of a raw file or journal: per attempt one outcome of each case, over all its rounds."""

    path: Path
    job: Job
    attempts: list[tuple[Attempt, list[Outcome]]] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    # ids of cases that started and have no outcome, in order
    started: list[str] = field(default_factory=list)
    is_running: bool = False  # a process is writing the file
    damage: list["DamagedLine"] = field(default_factory=list)  # unreadable lines of a journal
    notes: list[str] = field(default_factory=list)  # remarks on the file for readers of its figures
    _positions: dict[str, list[tuple[int, int]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    # outcomes per attempt
    _indexed: list[int] = field(default_factory=list, init=False, repr=False, compare=False)

    def begin(self, attempt: Attempt) -> None:
        """Add an attempt without outcomes; ``record`` adds outcomes to it."""
        self.attempts.append((attempt, []))

    def start(self, case: Case) -> None:
        """Add a case to those that started and have no outcome, until ``record`` adds its outcome."""
        self.started.append(case.id)

    def record(self, outcome: Outcome) -> None:
        """Add the outcome of a case in a round of the last attempt."""
        case_id = outcome.case.id
        self.started = [started for started in self.started if started != case_id]
        _, outcomes = self.attempts[-1]
        place = self.place(case_id)
        if place is not None:
            attempt, index = place
            if attempt == len(self.attempts) - 1:
                outcomes[index] = outcomes[index].merge(outcome)
                return
        outcomes.append(outcome)

    def add_provenance(self, facts: Mapping[str, object]) -> None:
        """Add to the provenance of the last attempt what is known only at its end."""
        attempt, outcomes = self.attempts[-1]
        self.attempts[-1] = replace(attempt, provenance={**attempt.provenance, **facts}), outcomes

    def _index_cases(self) -> Mapping[str, Sequence[tuple[int, int]]]:
        """Return the positions (attempt, index) of each case's outcomes; indexed once, because jobs have thousands."""
        new_attempts = len(self.attempts) - len(self._indexed)
        self._indexed += [0] * new_attempts
        for attempt, (_, outcomes) in enumerate(self.attempts):
            for index in range(self._indexed[attempt], len(outcomes)):
                positions = self._positions.setdefault(outcomes[index].case.id, [])
                positions.append((attempt, index))
            self._indexed[attempt] = len(outcomes)
        return self._positions

    def place(self, case_id: str) -> tuple[int, int] | None:
        """Return where the last outcome of a case is: the index of its attempt, and its own there; None without one."""
        places = self._index_cases().get(case_id)
        return places[-1] if places else None

    def histories(self, case_id: str | None = None) -> Iterator[CaseHistory]:
        """Yield the history of each case that has an outcome, or of the case ``case_id``.

        A launch of another program has a history of its own: it may have run on another machine.
        """
        positions_by_case = self._index_cases()
        case_ids = [case_id] if case_id is not None else list(positions_by_case)
        for name in case_ids:
            ours: list[tuple[int, int]] = []
            for position in positions_by_case.get(name, ()):
                attempt, _ = self.attempts[position[0]]
                if attempt.imported:
                    yield self._history([position])
                else:
                    ours.append(position)
            if ours:
                yield self._history(ours)

    def _history(self, positions: Sequence[tuple[int, int]]) -> CaseHistory:
        """Return the history of a case with outcomes at ``positions`` (attempt, index)."""
        outcomes = []
        runs: dict[int, str] = {}
        timed = None
        for number, index in positions:
            attempt, outcomes_of_attempt = self.attempts[number]
            outcome = outcomes_of_attempt[index]
            outcomes.append(outcome)
            runs |= dict.fromkeys(outcome.rounds, attempt.run_id)
            if outcome.times is not None:
                timed = attempt  # its ports and hosts are those of the result
        if timed is None:
            last, _ = positions[-1]
            timed, _ = self.attempts[last]
        return CaseHistory.of(self.job, timed, reduce(Outcome.merge, outcomes), runs)

    @property
    def measured(self) -> dict[str, frozenset[int]]:
        """The measured rounds of each case with an outcome: all if it was skipped; failed cases are left out."""
        all_rounds = frozenset(range(1, self.job.effort.rounds + 1))
        rounds: dict[str, frozenset[int]] = {}
        for outcome in self._outcomes():
            if outcome.status != "failed":
                case_id = outcome.case.id
                # another program has its own number
                added = all_rounds if outcome.source else outcome.rounds
                rounds[case_id] = rounds.get(case_id, frozenset()) | added
        return {case_id: measured or all_rounds for case_id, measured in rounds.items()}

    def _outcomes(self) -> Iterator[Outcome]:
        """Yield the outcomes of all attempts."""
        for _, outcomes in self.attempts:
            yield from outcomes

    @property
    def failed_cases(self) -> set[str]:
        """The ids of cases with a round that failed without ending its attempt, and was not measured since."""
        failed = set()
        for outcome in self._outcomes():
            if outcome.reason and outcome.status in ("ok", "failed"):
                failed.add(outcome.case.id)
        return failed - self.done

    @property
    def done(self) -> set[str]:
        """The ids of the job's cases with an outcome of every round."""
        rounds = self.measured
        requested = self.job.effort.rounds
        return {case.id for case in self.job.cases if len(rounds.get(case.id, ())) == requested}

    @property
    def unrecovered_damage(self) -> list[str]:
        """Descriptions of the damaged lines whose cases have not been measured again since."""
        if not self.damage:
            return []
        done = self.done
        return [
            line.description
            for line in self.damage
            if line.case_id is None or line.case_id not in done
        ]

    @property
    def measurements(self) -> int:
        """The number of measured rounds over all cases of the job."""
        rounds = self.measured
        return sum(len(rounds.get(case.id, ())) for case in self.job.cases)

    @property
    def complete(self) -> bool:
        return self.done >= {case.id for case in self.job.cases}

    @property
    def stop_reason(self) -> str | None:
        """Why the last attempt ended before its last case, or the next one before its first, if a note says so."""
        last = self._last_number or 0
        messages = []
        for failure in self.failures:
            may_be_last = not failure.attempt or failure.attempt >= last
            if not failure.case_id and may_be_last:
                messages.append(failure.message)
        return "; ".join(dict.fromkeys(messages)) or None

    @property
    def interrupted(self) -> bool:
        """Whether a signal ended the last attempt."""
        last = self._last_number
        ending = [
            failure for failure in self.failures if not failure.case_id and failure.attempt == last
        ]
        return any(failure.rank == 0 for failure in ending)

    @property
    def _last_number(self) -> int | None:
        """The number of the last attempt; None without one."""
        if not self.attempts:
            return None
        attempt, _ = self.attempts[-1]
        return attempt.number

    def hosts_of(self, ranks: Iterable[int], number: int) -> str:
        """Return where ranks of an attempt ran: `` on n[1-2], n7``; empty on one node, or if that is unknown.

        The ``number`` 0 is that of the last attempt.
        """
        attempts = [attempt for attempt, _ in self.attempts if number in (0, attempt.number)]
        if not attempts or attempts[-1].nodes <= 1:
            return ""
        places = attempts[-1].places
        hosts = {places[rank].host for rank in ranks if 0 <= rank < len(places)}
        if not hosts or not all(hosts):
            return ""
        return f" on {host_ranges(hosts)}"

    def failure_reasons(self) -> "FailureReasons":
        """Return why cases that started have no outcome."""
        return FailureReasons(self)


class FailureReasons:
    """Why cases of a job that started have no outcome; the notes are sorted by case once, as jobs have thousands.

    Args:
        raw: the results of the job, which do not change any more.
    """

    def __init__(self, raw: RawResults) -> None:
        self._raw = raw
        self._started = frozenset(raw.started)
        stop_reason = raw.stop_reason
        self._why_ended = f": {stop_reason}" if stop_reason else ", and no rank left a message"
        self._notes: dict[str, list[Failure]] = {}
        for failure in raw.failures:
            self._notes.setdefault(failure.case_id, []).append(failure)

    @property
    def noted(self) -> frozenset[str]:
        """The ids of the cases on which a rank left a note."""
        return frozenset(self._notes)

    def of(self, case_id: str) -> str | None:
        """Return why a case that started has no outcome; None if it never started or is running."""
        if notes := self._notes.get(case_id):
            return self._noted(notes)
        if case_id not in self._started:
            return None
        if self._raw.is_running and self._raw.started[-1] == case_id:
            return None
        return f"the job ended while it ran{self._why_ended}"

    def _noted(self, notes: Iterable[Failure]) -> str:
        """Return the messages of notes, each with the ranks that left it and where these ran."""
        ranks_of: dict[tuple[str, int], set[int]] = {}
        for note in notes:
            ranks_of.setdefault((note.message, note.attempt), set()).add(note.rank)
        parts = []
        for (message, number), ranks in ranks_of.items():
            word = "rank" if len(ranks) == 1 else "ranks"
            numbers = ", ".join(map(str, sorted(ranks)))
            parts.append(f"{word} {numbers}{self._raw.hosts_of(ranks, number)}: {message}")
        return "; ".join(parts)
