"""Supervise the Slurm jobs of a sweep: record states, cancel those that can never start, and leave none behind."""

import math
import re
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from hpccoll.common.errors import BadInputError
from hpccoll.store.scheduler_log import ScheduledJob, read_scheduled, write_scheduled
from hpccoll.sweep.slurm import squeue
from hpccoll.sweep.slurm.controller_health import ControllerWatch
from hpccoll.sweep.slurm.squeue import COMPLETING, LIVE_STATES, QueuedJob

PERMANENT_REASONS = re.compile(
    r"ReqNodeNotAvail|Partition(Down|Inactive|NodeLimit|TimeLimit)|NodeDown|BadConstraints|DependencyNeverSatisfied"
    r"|JobHeldAdmin|Invalid(Account|QOS)|AccountNotAllowed|QOSNotAllowed|(QOS|Assoc)(Grp|Max)\w*(PerJob|PerNode)\w*"
)
"""Reasons of pending jobs that only an administrator can resolve: Snakemake would wait forever."""

MAINTENANCE = "Reserved for maintenance"
"""Part of a reason that resolves by itself."""

NODES_DOWN = "Nodes required for job are DOWN"
"""Start of the reason if nodes are gone: "... DOWN, DRAINED or reserved for jobs in higher priority partitions"."""

MAX_PLUGIN_POLL_S = 180.0
"""Maximum seconds between two status queries of Snakemake's Slurm plugin (2.8)."""

AFTER_END_S = 120.0
"""Seconds that Snakemake may need after the end of a job: it waits for files, and submits to a busy Slurm."""

AFTER_OUTAGE_S = 10.0
"""The same after an outage of the controller, in which Snakemake has most likely lost its jobs."""


def _never_starts(job: QueuedJob) -> bool:
    """Return whether the reason of a pending job can only be resolved by an administrator."""
    if job.reason.startswith(NODES_DOWN):
        return squeue.waits_for_nodes(job.id)
    return (
        bool(PERMANENT_REASONS.fullmatch(job.reason.partition(",")[0]))
        and MAINTENANCE not in job.reason
    )


def _print_end(job: ScheduledJob) -> None:
    """Print how a Slurm job ended: Snakemake notices it later."""
    with suppress(OSError):  # a terminal that is gone ends no jobs
        print(f"hpccoll: {job.job}: {job.description}", file=sys.stderr, flush=True)


class SlurmMonitor:
    """Polls the states of the Slurm jobs of the sweep into ``out``.

    A job whose reason for pending is permanent is cancelled after ``pending_limit_s`` seconds.
    """

    def __init__(self, out: Path, every_s: float = 30.0, pending_limit_s: float = 60.0) -> None:
        self.out = out
        self.every_s = every_s
        self.pending_limit_s = pending_limit_s
        self.prefix = squeue.job_prefix(out)
        self.controller = ControllerWatch()
        self._outages = 0  # before the last start of Snakemake
        self._known = {job.id: job for job in read_scheduled(out)}
        self._asked = float("-inf")
        self._waits: dict[str, float] = {}  # when a job's permanent reason was first seen
        self._begun = self._answered = time.monotonic()
        self._submitted: float | None = None  # when the first job of this Snakemake was seen
        self._quiet: float | None = None  # since when no job is alive

    def poll(self) -> None:
        """Query Slurm if the interval has passed and the controller answers."""
        self.controller.poll()
        if not self.controller.unreachable and time.monotonic() - self._asked >= self.every_s:
            self.poll_now()

    def poll_now(self) -> None:
        with suppress(BadInputError):
            queue = squeue.list_jobs(self.prefix)
            self._update(queue)
            self._cancel_stuck(queue)
        self._asked = time.monotonic()

    @property
    def outage(self) -> bool:
        """Whether the controller has stopped answering since Snakemake was started."""
        return self.controller.outages > self._outages

    @property
    def missed_end(self) -> bool:
        """Whether all jobs ended so long ago that Snakemake will never notice.

        Snakemake does not know all final states (PREEMPTED), misses jobs that squeue has dropped,
        and loses jobs if a query fails. Its polling interval grows by 10 s each time: sqrt(20 t)
        seconds after t seconds. As long as Slurm has not answered again, nothing counts as missed.
        """
        if self._quiet is None or self.controller.unreachable:
            return False
        if self.outage:  # a controller may lose a job that it has just accepted, without any trace
            return self._answered - max(self._quiet, self.controller.back) > AFTER_OUTAGE_S
        if self._submitted is None:
            return False
        interval_s = min(MAX_PLUGIN_POLL_S, 20 + math.sqrt(20 * (self._quiet - self._submitted)))
        return self._answered - self._quiet > interval_s + AFTER_END_S

    def restart(self) -> None:
        """Cancel the jobs of the previous Snakemake: the next one writes the same files.

        Raises:
            BadInputError: if Slurm does not answer, or a job does not end in time.
        """
        self.cancel_and_wait("Snakemake had lost it")
        self._submitted = None
        self._outages = self.controller.outages

    def _update(self, queue: Sequence[QueuedJob]) -> None:
        before = dict(self._known)
        failed: list[ScheduledJob] = []
        for seen in queue:
            recorded = self._known.get(seen.id)
            ours = (
                recorded is not None
                and recorded.state == "CANCELLED"
                and (seen.alive or seen.state == "CANCELLED")
            )
            if not ours and (recorded is None or recorded.state != seen.state):
                self._known[seen.id] = self._scheduled(seen)
                # A job that ended before the first query is one of an earlier sweep.
                was_alive = self._asked > float("-inf") and (
                    recorded is None or recorded.state in LIVE_STATES
                )
                if was_alive and not seen.alive and seen.state != "COMPLETED":
                    failed.append(self._known[seen.id])
        there = {job.id for job in queue}
        for job in list(self._known.values()):
            if job.state in LIVE_STATES and job.id not in there:
                self._known[job.id] = replace(job, state="GONE")
        now = self._answered = time.monotonic()
        if any(job.alive for job in queue):
            self._submitted, self._quiet = self._submitted or now, None
        elif self._known != before:  # a job may have begun and ended since the last query
            self._submitted, self._quiet = self._submitted or self._begun, now
        else:
            self._quiet = self._quiet or now
        if before != self._known:
            with suppress(OSError):  # the disk is full: the jobs report that themselves
                write_scheduled(self.out, self._known.values())
        for job in failed:
            _print_end(job)

    def _scheduled(self, seen: QueuedJob) -> ScheduledJob:
        """Return the record of a job: its state from squeue, which is newer, and the rest from the controller."""
        facts = squeue.show_job(seen.id)
        reason = facts.get("Reason", seen.reason)
        return ScheduledJob(
            job=seen.job,
            id=seen.id,
            state=seen.state,
            reason="" if reason in ("None", "TimeLimit") else reason,
            hosts="" if facts.get("NodeList", "(null)") == "(null)" else facts["NodeList"],
            limit=facts.get("TimeLimit", ""),
            log=facts.get("StdOut", ""),
        )

    def _cancel_stuck(self, queue: Sequence[QueuedJob]) -> None:
        """Cancel jobs whose permanent reason has lasted too long, except shortly after an outage."""
        if self.controller.settling:
            self._waits.clear()
            return
        now = time.monotonic()
        stuck = {job.id: job for job in queue if job.state == "PENDING" and _never_starts(job)}
        self._waits = {number: self._waits.get(number, now) for number in stuck}
        for number in [
            number for number, since in self._waits.items() if now - since >= self.pending_limit_s
        ]:
            reason = f"it was pending for {self.pending_limit_s:g} s; Slurm's reason: {stuck[number].reason}"
            self._cancel([stuck[number]], reason)
            _print_end(self._known[number])

    def _cancel(self, jobs: Sequence[QueuedJob], reason: str) -> None:
        squeue.cancel([job.id for job in jobs])
        for job in jobs:
            recorded = self._known.get(job.id)
            # the job may have begun since the last query
            if recorded is None or recorded.state != job.state:
                recorded = self._scheduled(job)
            self._known[job.id] = replace(recorded, state="CANCELLED", reason=reason)
        with suppress(OSError):
            write_scheduled(self.out, self._known.values())

    def cancel_all(self, reason: str) -> None:
        """Cancel the current jobs without waiting; if Slurm does not answer, the next sweep cancels them."""
        if self.controller.unreachable:
            return
        with suppress(BadInputError):
            self._cancel(
                [
                    job
                    for job in squeue.list_jobs(self.prefix)
                    if job.alive and job.state != COMPLETING
                ],
                reason,
            )

    def end(self, reason: str) -> None:
        """Cancel all jobs and record their final states; print a line if Slurm does not answer."""
        if self.controller.unreachable:
            print(
                "hpccoll: Slurm's controller does not answer: the next sweep cancels the jobs",
                file=sys.stderr,
            )
            return
        try:
            self.cancel_and_wait(reason)
        except BadInputError as error:
            print(f"hpccoll: {error}", file=sys.stderr)
        self.poll_now()

    def cancel_and_wait(self, reason: str, seconds: float = 60.0) -> list[str]:
        """Cancel all jobs of sweeps into this directory, wait for their end, and return their descriptions.

        Jobs in the state COMPLETING are waited for as long, and then left to Slurm.

        Raises:
            BadInputError: if Slurm does not answer, or a job does not end in time.
        """
        ended: dict[str, str] = {}
        begun = time.monotonic()
        while alive := [job for job in squeue.list_jobs(self.prefix) if job.alive]:
            running = [job for job in alive if job.state != COMPLETING]
            waited = time.monotonic() - begun
            if waited > seconds and running:
                numbers = ", ".join(job.id for job in running)
                raise BadInputError(
                    "Slurm jobs",
                    numbers,
                    f"ended {seconds:g} s after they were cancelled: see squeue",
                )
            if waited > seconds:
                break
            fresh = [job for job in running if job.id not in ended]
            self._cancel(fresh, reason)
            ended |= {
                job.id: f"Slurm job {job.id} ({job.job}, {job.state.lower()})" for job in fresh
            }
            time.sleep(min(0.5 + waited / 10, 5.0))
        return list(ended.values())
