"""Follow: keep a record of the Slurm jobs of a sweep, cancel those that can never start, and leave none behind."""

import math
import re
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from hpccoll.errors import BadInputError
from hpccoll.store.scheduler_log import ScheduledJob, read_scheduled, write_scheduled
from hpccoll.sweep.slurm.controller import ControllerWatch
from hpccoll.sweep.slurm.squeue import (
    COMPLETING,
    LIVE_STATES,
    QueuedJob,
    cancel,
    job_prefix,
    lacks_nodes,
    list_jobs,
    show_job,
)

PERMANENT_REASONS = re.compile(
    r"ReqNodeNotAvail|Partition(Down|Inactive|NodeLimit|TimeLimit)|NodeDown|BadConstraints|DependencyNeverSatisfied"
    r"|JobHeldAdmin|Invalid(Account|QOS)|AccountNotAllowed|QOSNotAllowed|(QOS|Assoc)(Grp|Max)\w*(PerJob|PerNode)\w*"
)
"""Reasons for waiting that only people end: Snakemake would wait with the job for ever."""

MAINTENANCE = "Reserved for maintenance"
"""How the end of a reason sounds that ends by itself."""

NODES_DOWN = "Nodes required for job are DOWN"
"""How a reason begins where nodes are gone; it goes on: DRAINED or reserved for jobs in higher priority partitions."""

MAX_PLUGIN_POLL_S = 180.0
"""How long the Slurm plugin of Snakemake (2.8) waits at most between two looks at its jobs."""

AFTER_END_S = 120.0
"""How long Snakemake may take for what follows an end: waiting for files, and submitting where Slurm is busy."""

AFTER_OUTAGE_S = 10.0
"""How long Snakemake may take for that after an outage of the controller, in which it most likely forgot its jobs."""

OUTAGE_EFFECT_S = 600.0
"""For how long after an outage jobs that have ended are taken for forgotten so soon."""


def _never_starts(job: QueuedJob) -> bool:
    """Return whether a job waits for what only people mend, rather than for other jobs."""
    if job.reason.startswith(NODES_DOWN):
        return lacks_nodes(job.id)
    return bool(PERMANENT_REASONS.fullmatch(job.reason.partition(",")[0])) and MAINTENANCE not in job.reason


class SlurmMonitor:
    """Asks Slurm now and then what has become of the jobs of the sweep into ``out``.

    Args:
        out: the directory of the results.
        every_s: seconds between two questions.
        pending_limit_s: seconds that a job may wait for a reason that only people end.
    """

    def __init__(self, out: Path, every_s: float = 30.0, pending_limit_s: float = 60.0) -> None:
        self.out, self.every_s, self.pending_limit_s = out, every_s, pending_limit_s
        self.prefix = job_prefix(out)
        self.controller = ControllerWatch()
        self._outages = 0  # those before Snakemake was started last
        self._known = {job.id: job for job in read_scheduled(out)}
        self._asked = float("-inf")
        self._waits: dict[str, float] = {}  # since when a job has waited without hope
        self._begun = self._answered = time.monotonic()
        self._busy: float | None = None  # since when there were jobs of this sweep
        self._idle: float | None = None  # since when they have ended; None before the first
        self._none: float | None = None  # since when there were none, whether there ever was one or not

    def poll(self) -> None:
        """Ask, unless that was just now; a controller that does not answer is not asked until it does."""
        self.controller.poll()
        if not self.controller.unreachable and time.monotonic() - self._asked >= self.every_s:
            self.poll_now()

    def poll_now(self) -> None:
        with suppress(BadInputError):
            queue = list_jobs(self.prefix)
            self._update(queue)
            self._cancel_stuck(queue)
        self._asked = time.monotonic()

    @property
    def outage(self) -> bool:
        """Whether the controller has ceased to answer since Snakemake was started."""
        return self.controller.outages > self._outages

    @property
    def missed_end(self) -> bool:
        """Whether all jobs of this sweep have ended so long ago that Snakemake will never notice.

        It does not know every state that is an end (PREEMPTED), nor what squeue has dropped, and it forgets its jobs
        where a question is not answered. It waits 10 s longer from look to look: sqrt(20 t) seconds after t seconds.
        What we do not know either, because Slurm has not answered since, is not forgotten.
        """
        if self.outage and self._answered - self.controller.back < OUTAGE_EFFECT_S:
            # A controller may lose a job that it has just taken: there is nothing to be seen of it.
            since = None if self._none is None or self.controller.unreachable else max(self._none, self.controller.back)
            return since is not None and self._answered - since > AFTER_OUTAGE_S
        if self._busy is None or self._idle is None:
            return False
        looks_s = min(MAX_PLUGIN_POLL_S, 20 + math.sqrt(20 * (self._idle - self._busy)))
        return self._answered - self._idle > looks_s + AFTER_END_S

    def restart(self) -> None:
        """End what the Snakemake before may have left: the next has submitted nothing, and writes the same files.

        Raises:
            BadInputError: where Slurm does not answer, or a job has not ended in time.
        """
        self.cancel_and_wait("Snakemake had forgotten it")
        self._busy = self._idle = None
        self._outages = self.controller.outages

    def _update(self, queue: Sequence[QueuedJob]) -> None:
        before = dict(self._known)
        for seen in queue:
            known = self._known.get(seen.id)
            ours = known is not None and known.state == "CANCELLED" and (seen.alive or seen.state == "CANCELLED")
            if not ours and (known is None or known.state != seen.state):
                self._known[seen.id] = self._scheduled(seen)
        there = {job.id for job in queue}
        for job in list(self._known.values()):
            if job.state in LIVE_STATES and job.id not in there:
                self._known[job.id] = replace(job, state="GONE")
        now = self._answered = time.monotonic()
        alive = any(job.alive for job in queue)
        self._none = None if alive else now if self._none is None else self._none
        if alive:
            self._busy, self._idle = self._busy or now, None
        elif self._known != before or self._idle is not None:
            self._busy, self._idle = self._busy or self._begun, self._idle or now
        if before != self._known:
            with suppress(OSError):  # a full disk: the jobs themselves will say so
                write_scheduled(self.out, self._known.values())

    def _scheduled(self, seen: QueuedJob) -> ScheduledJob:
        """Return the record of a job; squeue has its state first, the controller the rest."""
        facts = show_job(seen.id)
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
        """Cancel the jobs that have waited too long for what only people mend; not soon after an outage."""
        if self.controller.settling:
            self._waits.clear()
            return
        now = time.monotonic()
        stuck = {job.id: job for job in queue if job.state == "PENDING" and _never_starts(job)}
        self._waits = {number: self._waits.get(number, now) for number in stuck}
        for number in [number for number, since in self._waits.items() if now - since >= self.pending_limit_s]:
            reason = f"it waited {self.pending_limit_s:g} s, and Slurm says: {stuck[number].reason}"
            self._cancel([stuck[number]], reason)

    def _cancel(self, jobs: Sequence[QueuedJob], reason: str) -> None:
        cancel([job.id for job in jobs])
        for job in jobs:
            known = self._known.get(job.id) or self._scheduled(job)
            self._known[job.id] = replace(known, state="CANCELLED", reason=reason)
        with suppress(OSError):
            write_scheduled(self.out, self._known.values())

    def cancel_all(self, reason: str) -> None:
        """Cancel the jobs that are there now, and wait for none; where Slurm does not answer, whoever is next does."""
        if self.controller.unreachable:
            return
        with suppress(BadInputError):
            self._cancel([job for job in list_jobs(self.prefix) if job.alive and job.state != COMPLETING], reason)

    def end(self, reason: str) -> None:
        """Leave nothing behind, and note how everything ended; where Slurm does not answer, say so."""
        if self.controller.unreachable:
            print("hpccoll: Slurm's controller does not answer: the next sweep cancels the jobs", file=sys.stderr)
            return
        try:
            self.cancel_and_wait(reason)
        except BadInputError as error:
            print(f"hpccoll: {error}", file=sys.stderr)
        self.poll_now()

    def cancel_and_wait(self, reason: str, seconds: float = 60.0) -> list[str]:
        """Cancel every job of sweeps into this directory, wait until each has ended, and return what they were.

        One that Slurm is clearing away is waited for as long, and then left to Slurm.

        Raises:
            BadInputError: where Slurm does not answer, or a job has not ended in time.
        """
        ended: dict[str, str] = {}
        begun = time.monotonic()
        while alive := [job for job in list_jobs(self.prefix) if job.alive]:
            running = [job for job in alive if job.state != COMPLETING]
            waited = time.monotonic() - begun
            if waited > seconds and running:
                numbers = ", ".join(job.id for job in running)
                raise BadInputError("Slurm jobs", numbers, f"ended {seconds:g} s after they were cancelled: see squeue")
            if waited > seconds:
                break
            fresh = [job for job in running if job.id not in ended]
            self._cancel(fresh, reason)
            ended |= {job.id: f"Slurm job {job.id} ({job.job}, {job.state.lower()})" for job in fresh}
            time.sleep(min(0.5 + waited / 10, 5.0))
        return list(ended.values())
