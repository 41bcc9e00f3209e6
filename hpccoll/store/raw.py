"""What one job leaves: attempts, each with its outcomes and the times they were made of."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hpccoll.schedule import Layout
from hpccoll.spec.case import Case, Job, Parameter
from hpccoll.store.case_times import CaseTimes
from hpccoll.store.schema import CaseResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(CaseResult):
    """The outcome of one case in the rounds that measured it; ``times`` is None if nothing was timed."""

    case: Case
    status: str  # ok, wrong, skipped, failed
    reason: str | None = None
    bytes: int | None = None  # bytes that the case really moved
    params: Mapping[str, Parameter] = field(default_factory=dict)  # with the defaults that were used
    workers_sent_predicted: int | None = None  # the part of wire_bytes_predicted that nodes of workers send
    workers_received_predicted: int | None = None
    wire_sent: Sequence[float | None] = ()  # bytes per operation by the counters of each node's ports, [node]
    wire_received: Sequence[float | None] = ()
    port_sent: Sequence[Sequence[float | None]] = ()  # the same of each port, [node][port of the attempt]
    port_received: Sequence[Sequence[float | None]] = ()
    counters: Mapping[str, int | None] | None = None  # of congestion, over all nodes and ``operations`` of them
    times: CaseTimes | None = None
    cpu_s: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))  # per operation, [rank]

    @property
    def timed(self) -> bool:
        """Whether there is a result, right or wrong; known on every rank, where times are not."""
        return self.status in ("ok", "wrong")

    @property
    def rounds(self) -> frozenset[int]:
        """The rounds that it was measured in."""
        return frozenset() if self.times is None else frozenset(self.times.round.tolist())

    def merge(self, later: "Outcome") -> "Outcome":
        """Return what became of the case in these rounds and in ``later`` ones.

        Wrong elements add up, CPU time is the mean over iterations, and what is not timed is that of the last round:
        what was counted, and found to have run by that, of the last one in which bytes were counted. A round without
        times changes nothing but the reason.
        """
        reason = "; ".join(dict.fromkeys(filter(None, (self.reason, later.reason)))) or None
        if later.times is None:
            return replace(later if self.times is None else self, reason=reason)
        if self.times is None:
            return later
        n, m = len(self.times.round), len(later.times.round)
        counted = self if self.counters and not later.counters else later
        return replace(
            later,
            **{name: getattr(counted, name) for name in COUNTED_FIELDS},
            status="wrong" if "wrong" in (self.status, later.status) else later.status,
            reason=reason,
            wrong=None if self.wrong is None or later.wrong is None else self.wrong + later.wrong,
            converged=bool(self.converged and later.converged),
            times=self.times.merge(later.times),
            cpu_s=(n * self.cpu_s + m * later.cpu_s) / (n + m),
        )


COUNTED_FIELDS = (
    "wire_bytes_measured", "wire_sent", "wire_received", "port_sent", "port_received", "counters",
    "executed", "evidence",
)  # fmt: skip
"""What an outcome has of the pass in which ports are read: once for each case and launch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLocation:
    """Where one rank ran."""

    host: str
    node: int
    clock: int  # ranks of one number read one clock
    pid: int
    affinity: str  # the CPUs it may use, such as 0-3,8
    rack: int = 0  # of its node, as Slurm's topology has it


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One launch of a job."""

    run_id: str
    number: int
    kind: str
    machine: str
    ranks: int  # aggregators among them
    nodes: int
    ranks_per_node: int | None
    mapping: str
    aggregators: int
    oversubscribed: bool
    places: tuple[RankLocation, ...]
    ports: tuple[str, ...] = ()  # the names of the network ports that hosts have
    provenance: Mapping[str, object]
    evidence: Mapping[str, object] | None = None  # what the probe of the library's logs found, as JSON
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    @property
    def layout(self) -> Layout:
        """Where the ranks are, as algorithms see it."""
        node, rack = (tuple(getattr(place, tier) for place in self.places) for tier in ("node", "rack"))
        return Layout(node, rack, aggregators=self.aggregators)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Last words about a case, or, where ``case_id`` is empty, about the whole attempt."""

    case_id: str
    rank: int  # -1 for the launcher's
    message: str
    attempt: int = 0  # the number of the attempt that it ended; 0 where none began


class DamagedLine(NamedTuple):
    """A line of a journal that cannot be read.

    Args:
        case_id: of the case that was under way, None where there was none.
        description: which line it is, and what is wrong with it.
    """

    case_id: str | None
    description: str


class CaseHistory(NamedTuple):
    """What became of a case in all attempts: in the words of the last one, with the run of each of its rounds."""

    attempt: Attempt
    outcome: Outcome
    runs: Mapping[int, str]


@dataclass(slots=True, kw_only=True)
class RawResults:
    """One raw file or journal; of each case an attempt has one outcome, of all the rounds that it measured."""

    path: Path
    job: Job
    attempts: list[tuple[Attempt, list[Outcome]]] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    started: list[str] = field(default_factory=list)  # case ids whose measurement was begun and has not ended, in order
    is_running: bool = False  # somebody is writing it now
    damage: list["DamagedLine"] = field(default_factory=list)  # lines of a journal that could not be read
    notes: list[str] = field(default_factory=list)  # what a reader of its figures has to know of the file
    _places: dict[str, list[tuple[int, int]]] = field(default_factory=dict, init=False, repr=False, compare=False)
    _placed: list[int] = field(default_factory=list, init=False, repr=False, compare=False)  # outcomes of each attempt

    def record(self, outcome: Outcome) -> None:
        """Take what became of a case in a round of the last attempt."""
        last, outcomes = len(self.attempts) - 1, self.attempts[-1][1]
        case_id = outcome.case.id
        self.started = [started for started in self.started if started != case_id]
        for at, place in self._of_cases().get(case_id, ())[-1:]:
            if at == last:
                outcomes[place] = outcomes[place].merge(outcome)
                return
        outcomes.append(outcome)

    def _of_cases(self) -> Mapping[str, Sequence[tuple[int, int]]]:
        """Return where the outcomes of each case are, (attempt, place in it): found once, for jobs have thousands."""
        self._placed += [0] * (len(self.attempts) - len(self._placed))
        for at, (_, outcomes) in enumerate(self.attempts):
            for place in range(self._placed[at], len(outcomes)):
                self._places.setdefault(outcomes[place].case.id, []).append((at, place))
            self._placed[at] = len(outcomes)
        return self._places

    def histories(self, case_id: str | None = None) -> Iterator[CaseHistory]:
        """Yield what became of each case that has an outcome, or of that one."""
        found = self._of_cases()
        for places in found.values() if case_id is None else filter(None, [found.get(case_id)]):
            parts = [(self.attempts[at][0], self.attempts[at][1][place]) for at, place in places]
            runs = {number: attempt.run_id for attempt, outcome in parts for number in outcome.rounds}
            timed = [attempt for attempt, outcome in parts if outcome.times is not None]  # whose ports and hosts it has
            yield CaseHistory(
                (timed or [parts[-1][0]])[-1], reduce(Outcome.merge, (outcome for _, outcome in parts)), runs
            )

    @property
    def measured(self) -> dict[str, frozenset[int]]:
        """The rounds of each case that has an outcome; all where it was skipped, none where it failed."""
        every = frozenset(range(1, self.job.effort.rounds + 1))
        rounds: dict[str, frozenset[int]] = {}
        for outcome in (outcome for _, outcomes in self.attempts for outcome in outcomes):
            if outcome.status != "failed":
                rounds[outcome.case.id] = rounds.get(outcome.case.id, frozenset()) | outcome.rounds
        return {case_id: found or every for case_id, found in rounds.items()}

    @property
    def failed_cases(self) -> set[str]:
        """The ids of the cases of which a round failed, without ending its attempt, and has not been measured since."""
        outcomes = [outcome for _, outcomes in self.attempts for outcome in outcomes]
        said = {outcome.case.id for outcome in outcomes if outcome.reason and outcome.status in ("ok", "failed")}
        return said - self.done

    @property
    def done(self) -> set[str]:
        """The ids of the cases of the job whose every round has an outcome."""
        rounds = self.measured
        return {case.id for case in self.job.cases if len(rounds.get(case.id, ())) == self.job.effort.rounds}

    @property
    def unrecovered_damage(self) -> list[str]:
        """What is damaged and has not been measured again since, in a sentence each."""
        done = self.done
        return [damage.description for damage in self.damage if damage.case_id is None or damage.case_id not in done]

    @property
    def measurements(self) -> int:
        """How many rounds of cases of the job have an outcome."""
        rounds = self.measured
        return sum(len(rounds.get(case.id, ())) for case in self.job.cases)

    @property
    def complete(self) -> bool:
        return self.done >= {case.id for case in self.job.cases}

    @property
    def stop_reason(self) -> str | None:
        """Why the last attempt ended before its last case, as far as anybody said."""
        last = self.attempts[-1][0].number if self.attempts else 0
        said = [failure.message for failure in self.failures if not failure.case_id and failure.attempt in (last, 0)]
        return "; ".join(dict.fromkeys(said)) or None

    @property
    def interrupted(self) -> bool:
        """Whether the last attempt was told to end, and did."""
        last = self.attempts[-1][0].number if self.attempts else None
        return any(not f.case_id and f.rank == 0 and f.attempt == last for f in self.failures)

    def failure_reason(self, case_id: str) -> str | None:
        """Return why a case has no outcome although it was begun, or None where it never was."""
        said: dict[str, set[int]] = {}
        for failure in self.failures:
            if failure.case_id == case_id:
                said.setdefault(failure.message, set()).add(failure.rank)
        if said:
            ranks = {message: ", ".join(map(str, sorted(who))) for message, who in said.items()}
            return "; ".join(f"rank{'s' * (',' in who)} {who}: {message}" for message, who in ranks.items())
        if self.is_running and [case_id] == self.started[-1:]:
            return None
        why = f": {self.stop_reason}" if self.stop_reason else ", without a word"
        return f"the job ended while it ran{why}" if case_id in self.started else None
