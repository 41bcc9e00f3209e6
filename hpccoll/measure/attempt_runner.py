"""The sitting: cases measured one after the other by ranks that stay the same, until one of them is left behind."""

import gc
from operator import itemgetter

import numpy as np
from mpi4py import MPI

from hpccoll.evidence.probe_result import ProbeResult
from hpccoll.host import network_ports
from hpccoll.measure import port_traffic
from hpccoll.measure.case_factory import CaseFactory, SkippedCase
from hpccoll.measure.deadline_sync import DeadlineSync
from hpccoll.measure.executed_evidence import full_reason, judge
from hpccoll.measure.prepared_case import PreparedCase
from hpccoll.measure.rank_group import RankGroup
from hpccoll.measure.ranks import Ranks, rank_namer
from hpccoll.measure.timing_loop import RankProgress, RankSync, Samples, measure
from hpccoll.spec.case import Case, Job
from hpccoll.spec.probe_cases import requested_algorithm
from hpccoll.store.case_times import CaseTimes
from hpccoll.store.raw import Attempt, Outcome
from hpccoll.transports.nccl.fault_tolerance import StalledError

MAX_DIAGNOSES = 8
"""The most ranks that say in a row's reason what is wrong with their result."""


class AttemptRunner:
    """The ranks of an attempt and what they measure with; made, used and closed on all of them together.

    Args:
        group: the ranks.
        job: whose cases are measured.
        attempt: that it is.
        found: what a probe of these ranks found of the library's logs; used at rank 0.
        progress: told where this rank is.
    """

    def __init__(
        self, group: RankGroup, job: Job, attempt: Attempt, found: ProbeResult | None, progress: RankProgress
    ) -> None:
        self.group, self.job, self.attempt, self.found, self.progress = group, job, attempt, found, progress
        self._bind_group()
        self.ranks_lost = False
        """Whether a rank was left behind, with which this comes to its end."""
        self._prepared: PreparedCase | None = None
        self._counted_cases: set[str] = set()  # the cases whose bytes were: another round would tell the same

    def _bind_group(self) -> None:
        """Take the ranks of the crew: what knows of their communicator is made with it."""
        self.ranks = self.group.ranks
        self.comm = self.ranks.comm
        self.factory = CaseFactory(self.ranks, self.job, self.attempt, self.group.gpus)
        self.sync = DeadlineSync(self.ranks, self.job.effort.timeout) if _can_part(self.ranks, self.job) else None

    def run_round(self, case: Case, number: int) -> Outcome:
        """Measure round ``number`` of ``case``.

        Raises:
            ExcludedError: where this rank has stalled, and the others have gone on.
        """
        self.progress.enter("compiling")
        prepared = self.factory.make(case)
        if isinstance(prepared, SkippedCase):
            reason = full_reason(prepared.reason, self.found, self.job, case)
            return Outcome(
                case=case, status=prepared.status, reason=reason, requested=requested_algorithm(self.job, case)
            )
        self._prepared = prepared
        sync = self.sync if self.sync and prepared.waits(self.sync.wait) else None
        try:
            outcome = self._measure(case, number, prepared, sync or self.ranks)
        except StalledError as error:
            if sync is None:
                raise
            return self._handle_stall(case, prepared, error, sync)
        prepared.close()
        self._prepared = None
        return outcome

    def _measure(self, case: Case, number: int, prepared: PreparedCase, together: RankSync) -> Outcome:
        samples = measure(prepared, together, self.job.effort.of_a_round, self.progress)
        self.progress.enter("collecting the outcome")
        return self._collect(case, number, prepared, samples, together)

    def where(self) -> str:
        """Return how far the operation under way has come."""
        return self._prepared.progress() if self._prepared else "no plan yet"

    def is_excluded(self) -> bool:
        """Return whether the others have gone on without this rank; from any thread."""
        return self.sync is not None and self.sync.is_excluded()

    def close(self) -> None:
        self.factory.close()
        sync, self.sync = self.sync, None  # the watchdog looks at it, too
        if sync:
            sync.close()

    def _handle_stall(self, case: Case, prepared: PreparedCase, error: StalledError, sync: DeadlineSync) -> Outcome:
        """Have NCCL end what it does, find out who is there, and go on with them."""
        gc.enable()  # the loop has left it off
        where = prepared.progress()
        self.progress.enter("calling the other ranks, for one has stalled")
        prepared.abort()
        self._prepared = None
        self.group.gpus.own.synchronize()  # a rank whose GPU does not even come to this end is the one that is missing
        stall = self.group.regroup(sync, type(error)(f"{error} ({where})"), self.attempt.number, case)
        self.ranks_lost = bool(stall.lost_ranks)
        if not self.ranks_lost:
            self._bind_group()
        return Outcome(case=case, status="failed", reason=stall.words, requested=requested_algorithm(self.job, case))

    def _collect(
        self, case: Case, number: int, prepared: PreparedCase, samples: Samples, together: RankSync
    ) -> Outcome:
        wrong = self.comm.allreduce(samples.wrong)
        said = self.comm.allgather(prepared.diagnose(rank_namer(self.attempt, case.mapping)) if samples.wrong else None)
        cpu_s = self.comm.gather(samples.cpu_s)
        # After the diagnosis, for it changes the buffers.
        traffic = None if case.id in self._counted_cases else self._traffic(prepared, samples, together)
        self._counted_cases.add(case.id)
        if self.comm.rank != 0:
            return Outcome(case=case, status="wrong" if wrong else "ok")
        reasons = [words for words in said if words] or ["in an iteration before the last one"]
        if len(reasons) > MAX_DIAGNOSES:
            reasons[MAX_DIAGNOSES:] = [f"and {len(reasons) - MAX_DIAGNOSES} ranks more"]
        sent = traffic.sent if traffic else None
        judgement = judge(
            self.job, case, self.found, prepared.evidence(sent),  # of auto the choice says what ran
            nbytes=prepared.bytes, workers=prepared.layout.workers,
            port_bytes=None if sent is None else sent / prepared.layout.nodes,
        )  # fmt: skip
        return Outcome(
            case=case,
            status="wrong" if wrong else "ok",
            reason="; ".join(reasons) if wrong else None,
            bytes=prepared.bytes,
            params=prepared.params,
            wrong=wrong if prepared.checked else None,
            converged=samples.converged,
            wire_bytes_predicted=prepared.wire_bytes,
            rack_bytes_predicted=prepared.rack_bytes,
            wire_bytes_measured=traffic.sent if traffic else None,
            workers_sent_predicted=prepared.worker_bytes("source"),
            workers_received_predicted=prepared.worker_bytes("target"),
            wire_sent=traffic.per_node(network_ports.SENT) if traffic else (),
            wire_received=traffic.per_node(network_ports.RECEIVED) if traffic else (),
            port_sent=traffic.by_port(network_ports.SENT, self.attempt.ports) if traffic else (),
            port_received=traffic.by_port(network_ports.RECEIVED, self.attempt.ports) if traffic else (),
            counters=traffic.counters if traffic else None,
            requested=judgement.requested,
            executed=judgement.executed,
            evidence=judgement.evidence,
            floor=prepared.floor,
            times=CaseTimes.from_samples(
                samples.start_ns,
                samples.end_ns,
                one_clock=len({place.clock for place in self.attempt.places}) == 1,
                workers=self.attempt.ranks - self.attempt.aggregators,
                round_number=number,
                device_ns=samples.device_ns if (samples.device_ns >= 0).all() else None,
            ),
            cpu_s=np.array(cpu_s),
        )

    def _traffic(self, prepared: PreparedCase, samples: Samples, together: RankSync) -> port_traffic.PortTraffic | None:
        """Return, at rank 0, what crossed between nodes, counted at the first rank of each; None where there is one."""
        nodes = [place.node for place in self.attempt.places]
        if len(set(nodes)) == 1:
            return None
        me = self.comm.rank
        operations = self.ranks.agree(port_traffic.pass_operations(samples) if me == 0 else 0)
        reads = nodes.index(nodes[me]) == me
        moved = port_traffic.count_traffic(
            prepared, together, operations, self.progress, network_ports.find_ports() if reads else ()
        )
        everyone = self.comm.gather((nodes[me], moved) if reads else None)
        if everyone is None:
            return None
        return port_traffic.PortTraffic(
            operations, tuple(moved for _, moved in sorted(filter(None, everyone), key=itemgetter(0)))
        )


def _can_part(ranks: Ranks, job: Job) -> bool:
    """Return whether ranks can part from one that stalls: over NCCL, where the watchdog may ask MPI, too."""
    over_nccl = any(case.transport == "nccl" for case in job.cases)
    return over_nccl and ranks.comm.size > 1 and MPI.Query_thread() == MPI.THREAD_MULTIPLE
