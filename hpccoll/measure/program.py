"""The rank program: runs the cases of a job on all ranks, one after the other, and keeps what each one gave."""

import os
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
from mpi4py import MPI

from hpccoll.case import Case, Job
from hpccoll.errors import BadInputError
from hpccoll.measure import environment
from hpccoll.measure.catalogue import check_case, check_memory, unmet
from hpccoll.measure.loop import Progress, Samples, measure
from hpccoll.measure.loop import Times as LocalTimes
from hpccoll.measure.machine import available_memory
from hpccoll.measure.subject import CaseSubject
from hpccoll.measure.watchdog import watch
from hpccoll.schedule import Layout
from hpccoll.store.journal import Journal, append, check_same_job, failure_event, journal_path
from hpccoll.store.raw import Attempt, Failure, Outcome, Times

LAUNCHERS = {
    "PMI_SIZE": "mpiexec of MPICH",
    "OMPI_COMM_WORLD_SIZE": "mpirun of Open MPI",
    "SLURM_STEP_NUM_TASKS": "srun",
}
"""The variables by which a launcher tells a rank how many it has started."""

Answer = TypeVar("Answer")
Show = Callable[[Job, Attempt, Outcome, int, int], None]


class Ranks:
    """The other ranks, as the loop needs them."""

    def __init__(self, comm: MPI.Intracomm) -> None:
        self.comm = comm
        self.barrier = comm.Barrier

    def gather(self, local: LocalTimes) -> LocalTimes | None:
        everyone = np.empty((self.comm.size, *local.shape), local.dtype) if self.comm.rank == 0 else None
        self.comm.Gather(np.ascontiguousarray(local), everyone)
        return None if everyone is None else np.moveaxis(everyone, 0, -1)

    def agree(self, more: int) -> int:
        return int(self.comm.bcast(more))


def check_launch(comm: MPI.Intracomm, job: Job) -> None:
    """See that the launcher, the MPI library and the job mean the same ranks.

    Raises:
        BadInputError: where a rank is alone although others were started, or there are not as many as the job says.
    """
    for variable, launcher in LAUNCHERS.items():
        started = os.environ.get(variable, "1")
        if started.isdigit() and int(started) > 1 and comm.size == 1:
            library = environment.mpi_library()
            raise BadInputError(
                "launcher",
                f"{launcher}, {started} ranks",
                f"each rank believes it is alone; use the launcher of {library['version']} ({library['path']}), "
                "or on Slurm the --mpi type that it speaks (srun --mpi=list)",
            )
    if comm.size != job.ranks:
        raise BadInputError("ranks", comm.size, f"job {job.name} is for {job.ranks}")


class Program:
    """One attempt at a job; made and run on all ranks together.

    Args:
        comm: the ranks.
        job: the cases.
        out: the raw file to write, None to keep nothing.
        show: called at rank 0 with each outcome as it is there, its place in the order and the number of cases.
    """

    def __init__(self, comm: MPI.Intracomm, job: Job, out: Path | None, show: Show) -> None:
        self.comm, self.job, self.out, self.show = comm, job, out, show
        self.ranks = Ranks(comm)
        self.progress = Progress()
        self.subject: CaseSubject | None = None
        self.journal: Journal | None = None  # at rank 0, where there is an out

    def run(self) -> bool:
        """Measure what is not measured yet, and return whether every case of this attempt ended well.

        Raises:
            BadInputError: on all ranks, where the job cannot be run as it is asked; nothing is lost.
        """
        check_launch(self.comm, self.job)
        for case in self.job.cases:
            check_case(case)
        done, crashed, number = self._at_root(self._open)
        left = self._order(done, crashed)
        if not left:
            return True
        attempt = environment.attempt(self.comm, self.job, number)
        watch(self.progress, self._where, self.job.effort.timeout, self.last_words)
        if self.journal:
            self.journal.begin(attempt)
        fine = True
        for place, case in enumerate(left, 1):
            self.progress.case, self.progress.iteration = case.id, 0
            if self.journal:
                self.journal.start(case)
            outcome = self._outcome(case, attempt)
            fine &= outcome.status != "wrong"
            if self.journal:
                self.journal.record(outcome)
            if self.comm.rank == 0:
                self.show(self.job, attempt, outcome, place, len(left))
        self.progress.enter("writing the results")
        self._at_root(self._close)
        return fine

    def _at_root(self, do: Callable[[], Answer]) -> Answer:
        """Do something at rank 0, and return its answer, or raise its complaint, on all ranks."""
        answer: Answer | None = None
        complaint: BadInputError | None = None
        if self.comm.rank == 0:
            try:
                answer = do()
            except BadInputError as error:
                complaint = error
        complaint, answer = self.comm.bcast((complaint, answer))
        if complaint is not None:
            raise complaint
        return answer  # type: ignore[return-value]  # rank 0 answered, or complained

    def _open(self) -> tuple[set[str], set[str], int]:
        """Return the cases that are done, those that an earlier attempt began, and the number of this attempt."""
        if self.out is None:
            return set(), set(), 1
        earlier = None
        if self.out.exists():
            from hpccoll.store import hdf5  # noqa: PLC0415  h5py is for rank 0 alone

            earlier = hdf5.read(self.out)
            check_same_job(earlier, self.job, self.out)
            if earlier.complete:
                return earlier.done, set(), 0
        self.journal = Journal(self.out, self.job, earlier)
        raw = self.journal.raw
        return raw.done, set(raw.started), 1 + max((attempt.number for attempt, _ in raw.attempts), default=0)

    def _close(self) -> None:
        if self.journal is not None and self.out is not None:
            from hpccoll.store import hdf5  # noqa: PLC0415  h5py is for rank 0 alone

            hdf5.write(self.journal.raw, self.out)
            self.journal.close(remove=self.journal.raw.complete)

    def _order(self, done: set[str], crashed: set[str]) -> list[Case]:
        """Return the cases that are left, shuffled; those that ended an earlier attempt come last."""
        order = list(self.job.cases)
        random.Random(self.job.seed).shuffle(order)  # noqa: S311  an order, not a secret
        return sorted((case for case in order if case.id not in done), key=lambda case: case.id in crashed)

    def _outcome(self, case: Case, attempt: Attempt) -> Outcome:
        layout = Layout(tuple(place.node for place in attempt.places))
        if reason := unmet(case, layout) or self._too_large(case, attempt):
            return Outcome(case=case, status="skipped", reason=reason)
        self.progress.enter("compiling")
        self.subject = subject = CaseSubject(self.comm, layout, case)
        samples = measure(subject, self.ranks, self.job.effort, self.progress)
        self.progress.enter("collecting the outcome")
        outcome = self._collect(case, subject, samples, attempt)
        subject.close()
        self.subject = None
        return outcome

    def _too_large(self, case: Case, attempt: Attempt) -> str | None:
        """Return that a node lacks the memory for its ranks' buffers, or None; the same on all ranks."""
        node = attempt.places[self.comm.rank].node
        crowd = sum(place.node == node for place in attempt.places)
        complaint = None
        try:
            check_memory(case, crowd, available_memory())
        except BadInputError as error:
            complaint = str(error)
        return next(filter(None, self.comm.allgather(complaint)), None)

    def _collect(self, case: Case, subject: CaseSubject, samples: Samples, attempt: Attempt) -> Outcome:
        wrong = self.comm.allreduce(samples.wrong)
        said = self.comm.allgather(subject.diagnose() if samples.wrong else None)
        cpu_s = self.comm.gather(samples.cpu_s)
        if self.comm.rank != 0:
            return Outcome(case=case, status="wrong" if wrong else "ok")
        reasons = [words for words in said if words] or ["in an iteration before the last one"]
        executed, evidence = subject.evidence()
        return Outcome(
            case=case,
            status="wrong" if wrong else "ok",
            reason="; ".join(reasons) if wrong else None,
            bytes=subject.bytes,
            params=subject.params,
            wrong=wrong,
            converged=samples.converged,
            wire_bytes_predicted=subject.wire_bytes(),
            executed=executed,
            evidence=evidence,
            floor=subject.floor,
            times=Times.of(
                samples.start_ns, samples.end_ns, one_clock=len({place.clock for place in attempt.places}) == 1
            ),
            cpu_s=np.array(cpu_s),
        )

    def _where(self) -> str:
        return self.subject.plan.where() if self.subject else "no plan yet"

    def last_words(self, message: str) -> None:
        """Print, and put into the journal, what this rank has to say before the job ends; from any thread."""
        print(f"r{self.comm.rank} | {message}", file=sys.stderr, flush=True)
        if self.out is not None and journal_path(self.out).exists():
            failure = Failure(case_id=self.progress.case, rank=self.comm.rank, message=message)
            append(journal_path(self.out), failure_event(failure))
