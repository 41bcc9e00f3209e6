"""The rank program: runs the cases of a job on all ranks, round by round, and keeps what each one gave."""

import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from operator import itemgetter
from pathlib import Path

import numpy as np

from hpccoll.case import Case, Job, Shape
from hpccoll.errors import BadInputError
from hpccoll.evidence.found import Found
from hpccoll.measure import environment, ports, wire
from hpccoll.measure.gpus import Gpus
from hpccoll.measure.logged import in_full, judged, requested
from hpccoll.measure.loop import Progress, Samples, measure
from hpccoll.measure.maker import Maker
from hpccoll.measure.order import Earlier, check_cases, rounds_left
from hpccoll.measure.ranks import Ranks, names
from hpccoll.measure.subject import CaseSubject
from hpccoll.measure.watchdog import watched
from hpccoll.store.journal import Journal, check_same_job, journal_path, leave_word
from hpccoll.store.raw import Attempt, Failure, Outcome, Raw, Whole
from hpccoll.store.times import Times

SPEAKERS = 8
"""The most ranks that say in a row's reason what is wrong with their result."""

Show = Callable[[Job, Whole, int, int], None]


class Program:
    """One attempt at a job; made and run on all ranks together.

    Args:
        ranks: the ranks.
        job: the cases; those of the shape of these ranks are run.
        out: the raw file to write, None to keep nothing.
        show: called at rank 0 with what became of a case after each of its rounds, how many rounds of cases have been
            measured and how many there are to measure.
        told: returns the signal that tells this rank to end after the round under way of a case, 0 while there is none.
        found: what a probe found of the library's logs; used at rank 0.
        network: by what nodes should talk, ``rdma`` or ``tcp``, None where nobody has said.
    """

    def __init__(
        self, ranks: Ranks, job: Job, out: Path | None, show: Show, told: Callable[[], int] = lambda: 0,
        found: Found | None = None, network: str | None = None,
    ) -> None:  # fmt: skip
        self.ranks, self.job, self.out, self.show, self.told = ranks, job, out, show, told
        self.found, self.network = found, network
        self.comm = ranks.comm
        self.number = 0  # of this attempt
        self.timed = False  # whether there is any result
        self.progress = Progress()
        self.subject: CaseSubject | None = None
        self.journal: Journal | None = None  # at rank 0, where there is an out
        self.raw = Raw(path=out or Path(), job=job)  # the journal's where there is one

    def run(self) -> bool:
        """Measure what is not measured yet, and return whether all of it is there and no result is wrong.

        Where every case is skipped nothing is there.

        Raises:
            BadInputError: on all ranks, where the job cannot be run as it is asked; nothing is lost.
        """
        check_cases(self.job)
        layout = self.ranks.layout(self.job.aggregators)
        shape = Shape(layout.nodes, layout.workers, self.job.aggregators)
        if shape not in self.job.shapes:
            planned = " or ".join(shape.words for shape in self.job.shapes)
            raise BadInputError("launch", shape.words, f"what job {self.job.name} is for: {planned}")
        earlier = self.ranks.at_root(self._open)
        self.timed = earlier.timed
        left = rounds_left(self.job, shape, earlier)
        if not left:
            self.ranks.at_root(self._close)  # an earlier attempt may have ended just before it wrote the results
            return earlier.fine and self.timed
        with watched(self.progress, self._where, self.job.effort.timeout, self.last_words):
            self.number = earlier.attempts + 1
            gpus = Gpus(self.ranks)
            attempt = self._attempt(gpus)
            maker = Maker(self.ranks, self.job, attempt, gpus)
            if self.journal:
                self.journal.begin(attempt)
            else:
                self.raw.attempts.append((attempt, []))
            fine, told = earlier.fine, 0
            skipped: set[str] = set()  # whose other rounds would be, too
            for place, (number, case) in enumerate(left, 1):
                if case.id in skipped:
                    continue
                if told := self.ranks.largest(self.told()):
                    break
                outcome = self._recorded(case, number, maker)
                fine &= outcome.status == "ok" or (outcome.status == "skipped" and number == 1)
                self.timed |= outcome.timed
                if outcome.status == "skipped":
                    skipped.add(case.id)
                if self.comm.rank == 0:
                    self.show(self.job, next(self.raw.wholes(case.id)), place, len(left))
            maker.close()
        if told and self.journal:
            self.journal.end(f"{signal.Signals(told).name} told it to end, as Slurm does before a time limit")
        self.ranks.at_root(self._close)
        return fine and self.timed and not told

    def _attempt(self, gpus: Gpus) -> Attempt:
        found = environment.attempt(self.comm, self.job, self.number, gpus.on_record(self.job.cases))
        provenance = {**found.provenance, "network": self.network}
        return replace(found, provenance=provenance, evidence=self.found.to_json() if self.found else None)

    def _recorded(self, case: Case, number: int, maker: Maker) -> Outcome:
        """Measure a round of ``case`` and put what became of it into the journal."""
        self.progress.case, self.progress.iteration = case.id, 0
        if self.journal:
            self.journal.start(case)
        outcome = self._outcome(case, number, maker)
        if self.journal:
            self.journal.record(outcome)
        elif self.comm.rank == 0:
            self.raw.record(outcome)
        return outcome

    def _open(self) -> Earlier:
        if self.out is None:
            return Earlier()
        earlier = None
        if self.out.exists():
            from hpccoll.store import hdf5

            earlier = hdf5.read(self.out)
            check_same_job(earlier, self.job, self.out)
            if earlier.complete:
                # Whoever wrote it may have ended before it removed its journal.
                journal_path(self.out).unlink(missing_ok=True)
                return Earlier.of(earlier)
        self.journal = Journal(self.out, self.job, earlier)
        self.raw = self.journal.raw
        return Earlier.of(self.raw)

    def _close(self) -> None:
        if self.journal is not None and self.out is not None:
            from hpccoll.store import hdf5

            if self.raw.complete or self.raw.ended:
                hdf5.write(self.raw, self.out)
            self.journal.close(remove=self.raw.complete)

    def _outcome(self, case: Case, number: int, maker: Maker) -> Outcome:
        self.progress.enter("compiling")
        subject = maker.make(case)
        if isinstance(subject, str):
            reason = in_full(subject, self.found, self.job, case)
            return Outcome(case=case, status="skipped", reason=reason, requested=requested(self.job, case))
        self.subject = subject
        samples = measure(subject, self.ranks, self.job.effort.of_a_round, self.progress)
        self.progress.enter("collecting the outcome")
        outcome = self._collect(case, number, subject, samples, maker.attempt)
        subject.close()
        self.subject = None
        return outcome

    def _collect(self, case: Case, number: int, subject: CaseSubject, samples: Samples, attempt: Attempt) -> Outcome:
        wrong = self.comm.allreduce(samples.wrong)
        said = self.comm.allgather(subject.diagnose(names(attempt, case.mapping)) if samples.wrong else None)
        cpu_s = self.comm.gather(samples.cpu_s)
        traffic = self._traffic(subject, samples, attempt)  # after the diagnosis: it changes the buffers
        if self.comm.rank != 0:
            return Outcome(case=case, status="wrong" if wrong else "ok")
        reasons = [words for words in said if words] or ["in an iteration before the last one"]
        if len(reasons) > SPEAKERS:
            reasons[SPEAKERS:] = [f"and {len(reasons) - SPEAKERS} ranks more"]
        sent = traffic.sent if traffic else None
        judgement = judged(
            self.job, case, self.found, subject.evidence(sent),  # of auto the choice says what ran
            nbytes=subject.bytes, workers=subject.layout.workers,
            port_bytes=None if sent is None else sent / subject.layout.nodes,
        )  # fmt: skip
        return Outcome(
            case=case,
            status="wrong" if wrong else "ok",
            reason="; ".join(reasons) if wrong else None,
            bytes=subject.bytes,
            params=subject.params,
            wrong=wrong if subject.checked else None,
            converged=samples.converged,
            wire_bytes_predicted=subject.wire_bytes,
            rack_bytes_predicted=subject.rack_bytes,
            wire_bytes_measured=traffic.sent if traffic else None,
            workers_sent_predicted=subject.worker_bytes("source"),
            workers_received_predicted=subject.worker_bytes("target"),
            wire_sent=traffic.each(ports.SENT) if traffic else (),
            wire_received=traffic.each(ports.RECEIVED) if traffic else (),
            port_sent=traffic.by_port(ports.SENT, attempt.ports) if traffic else (),
            port_received=traffic.by_port(ports.RECEIVED, attempt.ports) if traffic else (),
            counters=traffic.counters if traffic else None,
            requested=judgement.requested,
            executed=judgement.executed,
            evidence=judgement.evidence,
            floor=subject.floor,
            times=Times.of(
                samples.start_ns,
                samples.end_ns,
                one_clock=len({place.clock for place in attempt.places}) == 1,
                workers=attempt.ranks - attempt.aggregators,
                round_number=number,
                device_ns=samples.device_ns if (samples.device_ns >= 0).all() else None,
            ),
            cpu_s=np.array(cpu_s),
        )

    def _traffic(self, subject: CaseSubject, samples: Samples, attempt: Attempt) -> wire.Traffic | None:
        """Return, at rank 0, what crossed between nodes, counted at the first rank of each; None where there is one."""
        nodes = [place.node for place in attempt.places]
        if len(set(nodes)) == 1:
            return None
        me = self.comm.rank
        operations = self.ranks.agree(wire.operations(samples) if me == 0 else 0)
        reads = nodes.index(nodes[me]) == me
        moved = wire.watch(subject, self.ranks, operations, self.progress, ports.find() if reads else ())
        everyone = self.comm.gather((nodes[me], moved) if reads else None)
        if everyone is None:
            return None
        return wire.Traffic(operations, tuple(moved for _, moved in sorted(filter(None, everyone), key=itemgetter(0))))

    def _where(self) -> str:
        return self.subject.where() if self.subject else "no plan yet"

    def last_words(self, message: str) -> None:
        """Print, and put into the journal, what this rank has to say before the job ends; from any thread."""
        with suppress(OSError):  # a full disk or a closed pipe must not keep the job from ending
            print(f"r{self.comm.rank} | {message}", file=sys.stderr, flush=True)
        with suppress(OSError):
            if self.out is not None and journal_path(self.out).exists():  # not where out is a disk of another host
                said = Failure(case_id=self.progress.case, rank=self.comm.rank, message=message, attempt=self.number)
                leave_word(self.out, said)
