"""The rows and runs that export, report, model and notebooks read.

A row is one case of one attempt. The names of its fields are the contract of ``hpccoll export`` and
do not change within a schema version. Values are in seconds and bytes per second; an absent value
is ``None``, never NaN or 0.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

from hpccoll.cases.algorithm_registry import is_workload
from hpccoll.schedule.collective import AUTO
from hpccoll.store.schema import COLUMNS, CaseResult, OfKind

if TYPE_CHECKING:
    from hpccoll.store.scheduler_log import ScheduledJob
    from hpccoll.store.workload_timeline import WorkloadTimeline

NOT_PLANNED = "left out"
"""The status of a case that planning left out on purpose; it belongs to no job."""

RULES = ("max", "span")
"""The rules for the time of a single operation; results are read by one of them: the longest
duration over ranks; the latest end minus the earliest start. Aggregated operations have the longest
duration over ranks."""

MEAN = "mean"
"""The rule of a time that is the mean over iterations and ranks, as the program defines it whose loop measured it."""


PICO = "pico"
"""The source of results of PICO, whose time of an iteration is the longest duration over ranks, too."""

RowKey: TypeAlias = tuple[str, str, str]
"""What identifies a row: its job, run_id and case_id."""

Interval: TypeAlias = tuple[float, float] | None
"""The ends of the 95 % interval of a median in seconds; None with too few iterations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row(CaseResult, OfKind):
    """One case of one attempt."""

    case_id: str
    run_id: str
    job: str
    attempt: int
    collective: str
    algorithm: str  # the bare registered name: ring, never ring/mpi
    transport: str
    device: str
    dtype: str
    op: str | None
    in_place: bool
    mapping: str  # ranks to nodes: block, cyclic or mixed
    root: int | None
    params: Mapping[str, int | str]  # as requested; defaults are in the raw file and the evidence
    variant: str | None
    bytes: int  # the bytes that were moved: the S of algbw
    requested_bytes: int
    ranks: int  # workers
    nodes: int
    ranks_per_node: int | None  # None if the nodes differ
    racks: int  # racks of the workers
    aggregators: int
    iterations: int  # over all rounds
    timing: str  # single, aggregated (many operations back to back), or the loop of another program
    # one of RULES, or MEAN of a loop of another program; None of an imported row: its source says
    # what it is
    rule: str | None
    median_s: float | None  # the median of the medians of the rounds
    p99_s: float | None
    # 95 % confidence interval of the median; with up to 8 rounds it encloses their intervals;
    ci_low_s: float | None
    # of a prediction, the interval of the prediction
    ci_high_s: float | None
    # the digest of the order in which the sum is added: cases of equal orders have equal bits; None
    # if the bits have no order, or it is not known
    order: str | None = None
    ranks_agree: bool | None = None  # whether all ranks add in that order
    rounds: int = 1  # number of measured rounds
    # of rounds 1, 2, ...; None if the round is missing
    round_medians_s: tuple[float | None, ...] = ()
    # 95 % confidence interval of each round
    round_intervals_s: tuple[tuple[float, float] | None, ...] = ()
    # the launch of each round: an interrupted job has several
    round_run_ids: tuple[str | None, ...] = ()
    algbw_Bps: float | None
    busbw_Bps: float | None
    # the median over iterations of how far apart ranks of one clock start
    skew_s: float | None = None
    # by GPU events: the median over iterations of the maximum over ranks
    device_s: float | None = None
    # the part of device_s that two events in a row take, the largest of all GPUs
    device_floor_s: float | None = None
    cpu_s: float | None  # CPU seconds per operation, the maximum over ranks
    # bytes per operation that a node of workers sends, the mean over such nodes
    worker_sent_predicted: float | None
    worker_sent_measured: float | None
    worker_received_predicted: float | None
    worker_received_measured: float | None
    port_sent: Mapping[str, float]  # the measured bytes by the name of the port
    gpu_sm_clock: float | None = None  # the lowest of the GPUs
    gpu_power: float | None = None  # the highest of the GPUs, as the next two
    gpu_temperature: float | None = None
    gpu_nvlink_sent: float | None = None
    # why clocks were lowered, by host and GPU
    gpu_throttled: Mapping[str, Sequence[str]] = field(default_factory=dict)
    # clocks over the median of all GPUs, the low ones
    gpu_slow: Mapping[str, float] = field(default_factory=dict)
    forward_s: float | None = None  # of a training step, as step_times.py defines them
    backward_s: float | None = None
    tail_s: float | None = None  # after the last computation
    communication_s: float | None = None  # of all collectives, added up
    codec_s: float | None = None  # of all codecs of compressed gradients, added up
    # of collectives in which ranks wait for all: see step_waiting.py
    transfer_s: float | None = None
    waiting_s: float | None = None  # what a rank waits for others in them
    last_rank: int | None = None  # the rank with the largest lag
    last_share: float | None = None  # the share of the steps in which no lag was larger
    # that lag: what it does longer in a step than the median of the others
    last_s: float | None = None
    # that rank if it is late: in most steps, by more than chance and the harness make
    late_rank: int | None = None
    late_ranks: tuple[int, ...] = ()  # all late ranks, the largest lag first
    exposed_s: float | None = None  # the median less that of the same step without communication
    exposed_low_s: float | None = None  # an interval from those of both medians
    exposed_high_s: float | None = None
    status: str  # ok, wrong, failed, skipped, partial (rounds are missing)
    reason: str | None  # why it is not ok
    oversubscribed: bool
    # measured, measured on a testbed, measured on a shared GPU, simulated, modelled, imported
    kind: str

    @property
    def key(self) -> RowKey:
        """What identifies the row."""
        return self.job, self.run_id, self.case_id

    @property
    def interval(self) -> Interval:
        """The ends of the interval of its median."""
        return (
            None
            if self.ci_low_s is None or self.ci_high_s is None
            else (self.ci_low_s, self.ci_high_s)
        )

    @property
    def usable(self) -> bool:
        """Whether it may be drawn and compared: it is correct, with a time and a size; rounds may be missing."""
        return (
            self.status in ("ok", "partial")
            and not self.wrong
            and bool(self.median_s)
            and self.bytes > 0
        )

    @property
    def may_answer(self) -> bool:
        """Whether an answer may follow from it.

        It is usable, moves data between ranks, as no floor does, and was not timed by the loop of
        another program.
        """
        return self.usable and not self.floor and self.exchanges_data and self.rule != MEAN

    @property
    def ranked(self) -> bool:
        """Whether it is part of rankings: it may answer, and is not ``auto``, which duplicates another row."""
        return self.may_answer and self.algorithm != AUTO

    @property
    def exchanges_data(self) -> bool:
        """Whether its ranks exchange data: a single worker has no peer, and a row of it is in no ranking."""
        return self.ranks > 1

    @property
    def exposed_share(self) -> float | None:
        """The exposed time of a training step over the time of the step."""
        return (
            self.exposed_s / self.median_s if self.exposed_s is not None and self.median_s else None
        )


_RESULTS = tuple(field.name for field in fields(CaseResult))
ROW_COLUMNS = (*(field.name for field in fields(Row) if field.name not in _RESULTS), *_RESULTS)
"""The columns of an export, in order: what was run where and its times, then the results."""

_UNITS = {column.name: column.unit for column in COLUMNS}
_UNIT_OF_SUFFIX = {"s": "s", "ns": "ns", "Bps": "B/s"}


def unit_of(column: str) -> str:
    """Return the unit of a column of rows or raw files; empty if it has none."""
    by_name = _UNITS.get(column) or _UNIT_OF_SUFFIX.get(column.rpartition("_")[2])
    return by_name or ("B" if column.startswith("worker_") else "")


MEANINGS: Mapping[str, str] = {
    **{column.name: column.meaning for column in COLUMNS},
    "run_id": "the launch",
    "job": "the job of the sweep",
    "attempt": "the launch of the job, from 1",
    "in_place": "whether contribution and result share a buffer",
    "mapping": "ranks to nodes: block, cyclic or mixed",
    "params": "the requested parameters; defaults are in the raw file",
    "variant": "named settings of the library",
    "ranks": "workers",
    "nodes": "nodes of the workers",
    "ranks_per_node": "null if the nodes differ",
    "racks": "racks of the workers",
    "order": "digest of the order in which floats are added: equal ones have equal bits; null if not known",
    "ranks_agree": "whether all ranks add in that order",
    "aggregators": "ranks that contribute nothing",
    "iterations": "timed iterations of all rounds",
    "timing": "how operations were timed: single, aggregated, nccl-tests, osu",
    "rule": "max: the longest duration over ranks; span: latest end minus earliest start; mean",
    "median_s": "the median of the medians of the rounds",
    "p99_s": "the 99th percentile over the iterations of all rounds",
    "ci_low_s": "the lower end of the 95 % interval of the median; of a prediction that of the prediction",
    "ci_high_s": "the upper end",
    "rounds": "measured rounds",
    "round_medians_s": "of rounds 1, 2, ...; null if the round is missing",
    "round_intervals_s": "the 95 % interval of each round",
    "round_run_ids": "the launch of each round",
    "algbw_Bps": "bytes over median_s",
    "busbw_Bps": "algbw times the factor of the collective, as of nccl-tests; null if it has none",
    "skew_s": "how far apart ranks of one clock start, the median over iterations",
    "device_s": "by events of the GPU, the longest over ranks, the median over iterations",
    "device_floor_s": "the part of device_s that two events in a row take",
    "cpu_s": "CPU time per operation, the longest over ranks",
    "worker_sent_predicted": "bytes that a node of workers sends per operation, the mean over such nodes",
    "worker_sent_measured": "likewise, by the counters of ports",
    "worker_received_predicted": "bytes that a node of workers receives per operation, the mean",
    "worker_received_measured": "likewise, by the counters of ports",
    "port_sent": "bytes per operation by the name of the port",
    "gpu_sm_clock": "the lowest SM clock of the GPUs in Hz",
    "gpu_power": "the highest mean power of the GPUs in W",
    "gpu_temperature": "the highest temperature of the GPUs in degrees Celsius",
    "gpu_throttled": "why clocks were lowered, by host and GPU",
    "gpu_slow": "clocks over the median of all GPUs, the low ones",
    "forward_s": "of a training step, the forward pass",
    "backward_s": "of a training step, the backward pass",
    "tail_s": "of a training step, after the last computation",
    "communication_s": "of a training step, all collectives added up",
    "codec_s": "of a training step, all codecs added up",
    "transfer_s": "of a training step, collectives in which ranks wait for all, without waiting",
    "waiting_s": "of a training step, what a rank waits for others in them",
    "last_rank": "of a training step, the rank with the largest lag",
    "last_share": "the share of the steps in which no lag was larger",
    "last_s": "that lag: what it does longer in a step than the median of the others",
    "late_rank": "that rank if it is late: in most steps, by more than chance",
    "late_ranks": "all late ranks, the largest lag first",
    "exposed_s": "of a training step, median_s less that of the same step without communication",
    "exposed_low_s": "the lower end of its interval",
    "exposed_high_s": "the upper end of its interval",
    "status": "ok, wrong, failed, skipped, partial (rounds are missing)",
    "oversubscribed": "whether ranks outnumbered the CPUs",
    "kind": "measured, measured on a testbed, measured on a shared GPU, simulated, modelled, imported",
    "converged": "whether the interval of the median became narrow enough within the limits",
    "floor": "whether it is an empty schedule: the cost of the harness",
}
"""What is in a column of an export, a phrase for each; values are in SI units, and absent ones are null."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run(OfKind):
    """One attempt of one job: the machine and the software of its rows."""

    run_id: str
    job: str
    attempt: int
    created: str  # ISO 8601, UTC
    status: str  # complete, or partial: it ended before its last case
    kind: str
    # one line for the subtitle of a chart: "2 cores of Intel Xeon ... on 1 node (host)"
    machine: str
    path: str  # the raw file
    # allow-listed: versions, libraries, hosts, CPU, launcher, git commit, variables
    provenance: Mapping[str, object]
    # the result of the log probe, as evidence_json of a raw file has it
    evidence: Mapping[str, object] | None = None
    variant: str | None = None  # the sweep's variant
    # the environment variables of the variant
    environment: Mapping[str, str] = field(default_factory=dict)
    # its settings of NCCL communicators
    communicator: Mapping[str, int | str] = field(default_factory=dict)
    rank_nodes: tuple[int, ...] = ()  # the node of each rank, as launched
    racks: tuple[int, ...] = ()  # the rack of each node
    # the requested half width of 95 % intervals, relative to the median
    precision: float | None = None

    def rank_name(self, rank: int) -> str:
        """Return a rank as launched in words: ``rank 3 on n17``; without the host if that is unknown."""
        node = self.rank_nodes[rank] if rank < len(self.rank_nodes) else len(self.hosts)
        return f"rank {rank} on {self.hosts[node]}" if node < len(self.hosts) else f"rank {rank}"

    @property
    def hosts(self) -> tuple[str, ...]:
        """Its hosts, one for each node; none if it did not record them."""
        hosts = self.provenance.get("hosts")
        return tuple(map(str, hosts)) if isinstance(hosts, list | tuple) else ()

    @property
    def rank_loss(self) -> str | None:
        """How this run lost ranks, None if it lost none; its cases then have fewer ranks than requested."""
        stalls = self.provenance.get("left_behind")
        return "; ".join(stall["how"] for stall in stalls) if isinstance(stalls, list) else None


class GapJson(TypedDict):
    """A planned case without a usable result, as JSON has it."""

    case: str
    job: str
    status: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A planned case without a usable result."""

    case: str  # the id of the case
    job: str
    status: str  # failed, wrong, partial, skipped, not run, left out
    reason: str

    def to_json(self) -> GapJson:
        """Return it as JSON has it."""
        return {"case": self.case, "job": self.job, "status": self.status, "reason": self.reason}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProgress:
    """The progress of a job in measurements: rounds of cases; a skipped case counts all its rounds as done."""

    job: str
    cases: int
    done: int
    total: int
    is_running: bool = False  # a launch is measuring it
    rate: float | None = None  # measurements per second of the running launch, None if unknown


@dataclass(frozen=True, slots=True)
class RowState(OfKind):
    """What counts of a row where its times do not matter."""

    job: str
    run_id: str
    status: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseStates:
    """The states of the cases below some paths, without their times."""

    rows: "Sequence[RowState | Row]"
    runs: tuple[Run, ...]
    planned: int  # number of cases, without those that planning left out
    missing: tuple[Gap, ...] = ()
    # cases left out by planning or skipped in the job, with the reason
    skipped: tuple[Gap, ...] = ()
    scheduled: tuple["ScheduledJob", ...] = ()  # Slurm's jobs; of one name the latest comes last
    progress: tuple[JobProgress, ...] = ()  # of each file, and of each job without a file

    @property
    def done(self) -> tuple[int, int]:
        """The numbers of correct results: of planned cases, and of cases with fewer ranks after a rank failure."""
        reduced_runs = {run.run_id for run in self.runs if run.rank_loss}
        is_reduced = [row.run_id in reduced_runs for row in self.rows if row.status == "ok"]
        return len(is_reduced) - sum(is_reduced), sum(is_reduced)

    @property
    def measured(self) -> bool:
        """Whether any case was measured: all may have been skipped."""
        return any(row.status in ("ok", "wrong", "partial") for row in self.rows)

    def by_job(self) -> "dict[str, CaseStates]":
        """Return the states of each job that is under way or misses cases, without cases that planning left out."""
        names = ("rows", "runs", "missing", "skipped", "scheduled", "progress")
        parts: dict[str, dict[str, list[Any]]] = {}
        jobs = dict.fromkeys(
            [*(progress.job for progress in self.progress), *(gap.job for gap in self.missing)]
        )
        for job in jobs:
            parts[job] = {name: [] for name in names}
        for name in names:
            for part in getattr(self, name):
                if part.job in parts:
                    parts[part.job][name].append(part)
        return {job: _states_of_job(parts_of_job) for job, parts_of_job in parts.items()}


def _states_of_job(parts: Mapping[str, list[Any]]) -> CaseStates:
    skipped = tuple(gap for gap in parts["skipped"] if gap.status != NOT_PLANNED)
    states: dict[str, Any] = {name: tuple(values) for name, values in parts.items()} | {
        "skipped": skipped
    }
    return CaseStates(**states, planned=sum(progress.cases for progress in parts["progress"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Results(CaseStates):
    """The results below some paths."""

    rows: tuple[Row, ...]
    damaged: tuple[str, ...] = ()  # unreadable files and damaged lines of journals, with the reason
    notes: tuple[str, ...] = ()  # further remarks on files: copies, files without a digest
    timelines: Mapping[RowKey, "WorkloadTimeline"] = field(default_factory=dict, compare=False)
    """A median iteration of each workload."""

    @property
    def ours(self) -> "Results":
        """The results that hpccoll measured: what answers, tables and findings are made from."""
        runs = tuple(run for run in self.runs if run.ours)
        return replace(self, rows=tuple(row for row in self.rows if row.ours), runs=runs)

    @property
    def choosable(self) -> "Results":
        """The results among which a table chooses: ours; without any, those of PICO, which times as we do."""
        ours = self.ours
        if ours.rows:
            return ours
        rows: list[Row] = []
        for row in self.rows:
            if row.source == PICO:
                rows.append(row)
        return replace(self, rows=tuple(rows))

    @property
    def without_workloads(self) -> "Results":
        """The results without workloads, whose algorithms are not a choice for a size."""
        return replace(
            self, rows=tuple(row for row in self.rows if not is_workload(row.collective))
        )
