"""The rows and runs that everything after the measurement reads: export, report, model, notebooks.

A row is one case of one attempt; the names of its fields are the contract of ``hpccoll export`` and do not change
within a schema version. Seconds and bytes per second, unscaled; what is absent is ``None``, never NaN and never 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from hpccoll.store.scheduler_log import ScheduledJob
from hpccoll.store.schema import CaseResult

NOT_PLANNED = "left out"
"""The status of what was skipped on purpose as the sweep was planned: it is of no job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row(CaseResult):
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
    mapping: str  # of ranks to nodes: block, cyclic or mixed
    root: int | None
    params: Mapping[str, int | str]  # as asked; what was used by default is in the raw file and the evidence
    variant: str | None
    bytes: int  # what was really moved: the S of algbw
    requested_bytes: int
    ranks: int  # workers
    nodes: int
    ranks_per_node: int | None  # None where the nodes differ
    racks: int  # that hold the workers
    aggregators: int
    iterations: int  # of all rounds
    timing: str  # the rule: 'max' (the longest duration over ranks) or 'span' (latest end minus earliest start)
    median_s: float | None  # the median of the medians of the rounds
    p99_s: float | None
    ci_low_s: float | None  # 95 % confidence interval of the median; of up to 8 rounds it holds theirs
    ci_high_s: float | None
    rounds: int = 1  # that there are
    round_medians_s: tuple[float | None, ...] = ()  # of round 1, 2, ..., None where it is not there
    round_intervals_s: tuple[tuple[float, float] | None, ...] = ()  # the 95 % confidence interval of each of them
    round_run_ids: tuple[str | None, ...] = ()  # the launch that measured it: an interrupted job has several
    algbw_Bps: float | None
    busbw_Bps: float | None
    device_s: float | None = None  # by events of GPUs: the median over iterations of the longest over kept ranks
    cpu_s: float | None  # CPU seconds of a rank per operation, the largest over ranks
    worker_sent_predicted: float | None  # the bytes that a node of workers sends per operation, the mean over these
    worker_sent_measured: float | None
    worker_received_predicted: float | None
    worker_received_measured: float | None
    port_sent: Mapping[str, float]  # what of the measured bytes each port of such a node sends, by name
    status: str  # ok, wrong, failed, skipped, partial (rounds are missing)
    reason: str | None  # why it is not ok
    oversubscribed: bool
    kind: str  # measured, measured on a testbed, measured on a shared GPU, simulated, modelled


FIRST_COLUMNS = (
    "case_id", "run_id", "job", "attempt", "collective", "algorithm", "transport", "device", "dtype", "op",
    "in_place", "mapping", "root", "params", "variant", "bytes", "requested_bytes", "ranks", "nodes",
    "ranks_per_node", "racks", "aggregators", "iterations", "timing", "median_s", "p99_s", "ci_low_s", "ci_high_s",
    "rounds", "round_medians_s", "round_intervals_s", "round_run_ids", "algbw_Bps", "busbw_Bps", "device_s", "cpu_s",
    "wire_bytes_predicted", "wire_bytes_measured", "worker_sent_predicted", "worker_sent_measured",
    "worker_received_predicted", "worker_received_measured", "port_sent", "rack_bytes_predicted", "wrong", "status",
    "reason", "converged", "oversubscribed", "requested", "executed", "evidence", "kind", "floor",
)  # fmt: skip
"""The order of the columns of version 0.1: scripts may read exported CSV by position. Later columns follow these."""

ROW_COLUMNS = tuple(dict.fromkeys((*FIRST_COLUMNS, *(field.name for field in fields(Row)))))
"""The columns of an export, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One attempt at one job: where and with what its rows were measured."""

    run_id: str
    job: str
    attempt: int
    created: str  # ISO 8601, UTC
    status: str  # complete, or partial: it ended before its last case
    kind: str
    machine: str  # one line for the subtitle of a chart: "2 cores of Intel Xeon ... on 1 node (host)"
    path: str  # the raw file
    provenance: Mapping[str, object]  # allow-listed: versions, libraries, hosts, CPU, launcher, git commit, variables
    evidence: Mapping[str, object] | None = None  # what the probe of the library's logs found: results/README.md
    variant: str | None = None  # the environment of the sweep
    environment: Mapping[str, str] = field(default_factory=dict)  # the variables that it sets
    communicator: Mapping[str, int | str] = field(default_factory=dict)  # what it has NCCL's communicators made with

    @property
    def rank_loss(self) -> str | None:
        """How ranks came to be left behind by those of this run, None where none were: nobody asked for so few."""
        behind = self.provenance.get("left_behind")
        return "; ".join(stall["how"] for stall in behind) if isinstance(behind, list) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A planned case without a usable result."""

    case: str  # the case in words
    job: str
    status: str  # failed, wrong, partial, skipped, not run, left out
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProgress:
    """How far a job is, in measurements: the rounds of its cases, all of them where a case is skipped."""

    job: str
    cases: int
    done: int
    total: int
    is_running: bool = False  # somebody measures it now
    rate: float | None = None  # measurements a second of the launch that is at work, None where that is not known


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """What was found below some paths."""

    rows: tuple[Row, ...]
    runs: tuple[Run, ...]
    planned: int  # cases; those skipped by plan not counted
    missing: tuple[Gap, ...] = ()
    skipped: tuple[Gap, ...] = ()  # skipped on purpose, left out of the plan or in the job, each with its reason
    scheduled: tuple[ScheduledJob, ...] = ()  # Slurm's jobs, the last one of a job last
    progress: tuple[JobProgress, ...] = ()  # of each file, and of each job that has none
    damaged: tuple[str, ...] = ()  # files that cannot be read, and lines of journals, each with the reason
    notes: tuple[str, ...] = ()  # what else a reader has to know of the files: copies, files without a digest

    @property
    def done(self) -> tuple[int, int]:
        """How many cases have a result that is right: of those that were planned, and beside them of fewer ranks."""
        fewer = {run.run_id for run in self.runs if run.rank_loss}
        beside = [row.run_id in fewer for row in self.rows if row.status == "ok"]
        return len(beside) - sum(beside), sum(beside)

    def for_job(self, job: str) -> "Results":
        """Return what is there of one job, and is not; what was left out is of none."""
        return Results(
            rows=tuple(row for row in self.rows if row.job == job),
            runs=tuple(run for run in self.runs if run.job == job),
            planned=sum(one.cases for one in self.progress if one.job == job),
            missing=tuple(gap for gap in self.missing if gap.job == job),
            skipped=tuple(gap for gap in self.skipped if gap.job == job and gap.status != NOT_PLANNED),
            scheduled=tuple(scheduled for scheduled in self.scheduled if scheduled.job == job),
            progress=tuple(one for one in self.progress if one.job == job),
        )

    @property
    def measured(self) -> bool:
        """Whether there is a result at all: all cases may have been skipped."""
        return any(row.status in ("ok", "wrong", "partial") for row in self.rows)
