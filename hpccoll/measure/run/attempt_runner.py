"""Runs an attempt: measures cases one after the other on a fixed group of ranks, until it loses one of them."""

import gc
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from hpccoll.cases.case import LOOPS_OF_PROGRAMS, Case, Job
from hpccoll.cases.transport_table import TRANSPORTS
from hpccoll.common.errors import StalledError
from hpccoll.executor.barrier import ExecutorBarrier
from hpccoll.executor.compiled_executor import ExecutorOptions
from hpccoll.measure.ranks import rank_namer
from hpccoll.measure.run.case_factory import CaseFactory, Prepared, SkippedCase
from hpccoll.measure.run.payload import NO_CAUSE
from hpccoll.measure.run.prepared_case import PreparedCase
from hpccoll.measure.run.workload_runner import PreparedWorkload, RoundFindings
from hpccoll.measure.timing_loop import RankProgress, RankSync, Samples, measure, no_plan
from hpccoll.store.case_times import CaseTimes, SummaryRule, samples_of_round, stride_within
from hpccoll.store.raw_results import Attempt, Outcome, Status
from hpccoll.transports.gpu_errors import gpu_errors
from hpccoll.transports.mpi.shared_windows import SharedMemory
from hpccoll.transports.stream_wait import Connecting, poll_until

if TYPE_CHECKING:
    from hpccoll.evidence.probe_result import ProbeResult
    from hpccoll.measure.deadline_sync import DeadlineSync
    from hpccoll.measure.port_traffic import PortTraffic
    from hpccoll.measure.run.call_evidence import CallEvidence
    from hpccoll.measure.run.recovery import RankGroup

MAX_DIAGNOSES = 8
"""The maximum number of ranks whose diagnosis is part of the reason of a row."""


CONNECTION_TRIES = 2
"""In how many cases NCCL may fail to connect the ranks before the others fail without a try."""


class AttemptRunner:
    """An attempt on a group of ranks; created, used and closed on all of them together.

    ``probe_result`` is that of a log probe of the same ranks, used at rank 0; ``progress`` is kept
    up to date for the watchdog; without ``executor_options`` Python runs plans in host memory.
    """

    def __init__(
        self,
        group: "RankGroup",
        job: Job,
        attempt: Attempt,
        probe_result: "ProbeResult | None",
        progress: RankProgress,
        executor_options: ExecutorOptions | None = None,
    ) -> None:
        self.group = group
        self.job = job
        self.attempt = attempt
        self.executor_options = executor_options
        self.probe_result = probe_result
        self.progress = progress
        self._bind_group()
        self.ranks_lost = False
        """Whether the group has lost a rank, which ends the attempt."""
        self._has_connected = False  # whether NCCL has connected all ranks in this attempt
        self._unconnected: list[str] = []  # the cases in which it did not, while it never had
        # the cases whose bytes were counted: one round is enough
        self._counted_cases: set[str] = set()

    def _bind_group(self) -> None:
        self.ranks = self.group.ranks
        self.comm = self.ranks.comm
        self._barrier: ExecutorBarrier | None = None
        self.sync = self.group.sync(self.job)
        group = self.group
        shape = group.shape
        cases = [case for case in self.job.cases if self.job.shape(case) == shape]
        self.factory = CaseFactory(
            self.ranks,
            self.job,
            self.attempt,
            lambda: group.gpus,
            self._connecting(),
            self.executor_options,
            cases,
        )

    def _connecting(self) -> Connecting:
        """Return how ranks wait for first operations: with a limit and names if a stream queues them."""
        if not any(TRANSPORTS[case.transport].graphs for case in self.job.cases):
            return Connecting()
        from hpccoll.measure.run.connecting import NcclConnecting

        return NcclConnecting(self.ranks, self.progress, self.job.effort.timeout, self.sync)

    def run_round(self, case: Case, number: int) -> Outcome:
        """Measure round ``number`` of ``case``.

        Raises:
            ExcludedError: if this rank has stalled and the others have gone on without it.
            GpuFailedError: on a rank whose GPU has failed; the launch ends with it, because MPI and
                NCCL cannot free what a failed GPU holds, and the GPUs of other ranks may have
                failed, too.
        """
        if case.transport == "nccl" and len(self._unconnected) >= CONNECTION_TRIES:
            reason = f"NCCL did not connect the ranks in {' and '.join(self._unconnected)}"
            return self._unmeasured(case, "failed", reason)
        self.progress.enter("lowering")
        try:
            prepared = self.factory.make(case)
        except StalledError as error:
            if self.sync is None:
                raise
            return self._handle_stall(case, None, error, self.sync)
        if isinstance(prepared, SkippedCase):
            return self._unmeasured(case, prepared.status, prepared.reason)
        self.progress.where = prepared.progress
        on_stream = prepared.set_wait(self.sync.wait if self.sync else self._wait)
        sync = self.sync if on_stream else None
        with gpu_errors(prepared.gpu):
            try:
                outcome = self._measure(case, number, prepared, sync or self.ranks)
                prepared.close()
            except StalledError as error:
                if sync is None:
                    raise
                outcome = self._handle_stall(case, prepared, error, sync)
        self.progress.where = no_plan  # a reference to the case would keep its GPU memory
        return outcome

    def _wait(self, done: Callable[[], bool], error: Callable[[], str | None]) -> None:
        """Wait for an operation of ranks that cannot go on without one another: the watchdog names the place first."""
        poll_until(done, error, self.job.effort.timeout)

    def _unmeasured(self, case: Case, status: Status, reason: str) -> Outcome:
        if self.comm.rank:
            return Outcome(case=case, status=status, reason=reason)
        from hpccoll.cases.probe_cases import requested_algorithm  # only rank 0 keeps results
        from hpccoll.measure.run.executed_evidence import full_reason

        return Outcome(
            case=case,
            status=status,
            reason=full_reason(reason, self.probe_result, self.job, case),
            requested=requested_algorithm(self.job, case),
        )

    def _measure(self, case: Case, number: int, prepared: Prepared, sync: RankSync) -> Outcome:
        loop = prepared.loop(sync, self._executor_barrier, self.progress)
        monitor = self.group.gpus.monitor if prepared.gpu else None
        if isinstance(prepared, PreparedCase):
            effort = prepared.effort_of_round
            begin = None
        else:
            effort = prepared.effort(self.job.effort)
            begin = prepared.begin
        with _load(case):
            samples = measure(
                loop.run,
                sync,
                effort,
                self.progress,
                monitor=monitor,
                begin=begin,
                rule=self._summary_rule(case, number),
            )
        self.progress.enter("collecting the outcome")
        activity = monitor.activity(prepared.operations_with_check) if monitor else {}
        return self._collect(case, number, prepared, samples, sync, activity)

    def _summary_rule(self, case: Case, number: int) -> SummaryRule:
        """Return how the times of a round are summarised."""
        return SummaryRule(
            number,
            clocks=[place.clock for place in self.attempt.places],
            workers=self.attempt.ranks - self.attempt.aggregators,
            limit=samples_of_round(self.job.effort.rounds),
            has_mean=case.timing in LOOPS_OF_PROGRAMS,
        )

    def is_excluded(self) -> bool:
        """Return whether the others have gone on without this rank, which is stuck; callable from any thread."""
        return self.sync is not None and self.sync.verdict_has_come()

    def _executor_barrier(self) -> ExecutorBarrier:
        """Return the barrier of the compiled loop, created when first used; all ranks call this together."""
        if self._barrier is None:
            options = self.executor_options or ExecutorOptions(oversubscribed=True)
            self._barrier = ExecutorBarrier(self.comm, SharedMemory(self.comm), options)
        return self._barrier

    def _close_barrier(self) -> None:
        if self._barrier:
            self._barrier.close()
            self._barrier = None

    def close(self) -> None:
        self.factory.close()
        self._close_barrier()
        sync, self.sync = self.sync, None  # the watchdog's thread reads it, too
        if sync:
            sync.control_comm.Free()

    def _handle_stall(
        self, case: Case, prepared: "Prepared | None", error: StalledError, sync: "DeadlineSync"
    ) -> Outcome:
        """Go on with the ranks that still respond, and return the outcome of the case: failed.

        If all ranks respond and NCCL has never connected them, a rank may have been late, or NCCL
        may have failed: after CONNECTION_TRIES such stalls, cases fail without a try.
        """
        gc.enable()  # the timing loop has disabled it
        self.progress.enter("regrouping after a stall")
        self._has_connected |= self.factory.connecting.has_connected
        description = self.group.recover(prepared, sync, error, self.attempt.number, case)
        self.ranks_lost = self.group.ranks.comm.size < self.comm.size
        if not self.ranks_lost:
            if case.transport == "nccl" and not self._has_connected:
                self._unconnected.append(case.id)
            self._close_barrier()
            self._bind_group()
        return self._unmeasured(case, "failed", description)

    def _collect(
        self,
        case: Case,
        number: int,
        prepared: Prepared,
        samples: Samples,
        sync: RankSync,
        activity: Mapping[str, float],
    ) -> Outcome:
        """Return the outcome of a round: all of it at rank 0, its status elsewhere; ``activity`` is of this GPU."""
        workload = None
        if not isinstance(prepared, PreparedCase):
            workload = prepared
        # before the workload runs again, to count bytes
        times = self._times(workload, samples, sync)
        name = rank_namer(self.attempt, case.mapping)
        findings = RoundFindings()
        counts: Mapping[str, int] = {}
        if workload:
            findings = workload.findings(sync, samples.iterations, name, self.progress)
            counts = workload.counts()
        # Few calls of MPI: where ranks share cores, each waits until all of them have had one.
        sums = np.array([samples.wrong, *counts.values()], np.int64)
        self.comm.Allreduce(MPI.IN_PLACE, sums)
        wrong_of_ranks, *counted = sums.tolist()
        wrong = wrong_of_ranks + findings.wrong
        diagnosis = None
        if samples.wrong:
            diagnosis = prepared.diagnose(name)
        reports = self.comm.gather((samples.cpu_s / prepared.operations, activity, diagnosis))
        # The counting pass comes after the diagnosis because it changes the buffers.
        traffic = recognition = None
        if case.id not in self._counted_cases:
            traffic = self._traffic(prepared, samples, sync)
            recognition = None
            if isinstance(prepared, PreparedCase):
                recognition = self._recognition(prepared, samples)
        self._counted_cases.add(case.id)
        if times is None or reports is None:  # not rank 0
            return Outcome(case=case, status="wrong" if wrong else "ok")
        cpu_s, activities, diagnoses = zip(*reports, strict=True)
        from hpccoll.cases.probe_cases import requested_algorithm  # only rank 0 keeps results
        from hpccoll.measure.run.executed_evidence import judge
        from hpccoll.store.gpu_throttling import lowered_round

        reasons = [reason for reason in (*findings.reasons, *diagnoses) if reason] or [
            "in an iteration before the last one"
        ]
        if wrong and isinstance(prepared, PreparedCase):
            # A run with right results never needs it.
            from hpccoll.measure.run.schedule_proof import unproven_text

            fault = unproven_text(prepared.case, prepared.layout)
            if fault:
                reasons = [fault, *(reason.replace(f": {NO_CAUSE}", "") for reason in reasons)]
        if len(reasons) > MAX_DIAGNOSES:
            reasons[MAX_DIAGNOSES:] = [f"and {len(reasons) - MAX_DIAGNOSES} more ranks"]
        executed, evidence = judge(
            self.job, case, self.probe_result, prepared, traffic, recognition
        )
        return Outcome(
            case=case,
            status="wrong" if wrong else "ok",
            reason="; ".join(reasons) if wrong else None,
            bytes=prepared.bytes,
            params=prepared.params,
            floor=prepared.floor,
            load=case.load,
            executor=prepared.executor,
            operations=prepared.operations,
            times=times.with_training(findings.step_arrays),
            converged=samples.converged,
            cpu_s=np.array(cpu_s),
            wrong=wrong if prepared.checked else None,
            requested=requested_algorithm(self.job, case),
            executed=executed,
            evidence=evidence,
            tcp_traffic=json.dumps(recognition.traffic, separators=(",", ":"))
            if recognition
            else None,
            wire_bytes_predicted=prepared.wire_bytes,
            rack_bytes_predicted=prepared.rack_bytes,
            workers_sent_predicted=prepared.worker_bytes("source"),
            workers_received_predicted=prepared.worker_bytes("target"),
            program=json.dumps(workload.description()) if workload else None,
            lowered_rounds=lowered_round(number, activities),
            **_counts_of_ranks(counts, counted),
            **findings.results,
            **(traffic.results(self.attempt.ports) if traffic else {}),
            **_by_name(activities),
        )

    def _times(
        self, workload: PreparedWorkload | None, samples: Samples, sync: RankSync
    ) -> CaseTimes | None:
        """Return the times of a round at rank 0, None elsewhere: of a workload with those within it."""
        if workload is None:
            return samples.times
        events = workload.events(samples.iterations)
        limit = samples_of_round(self.job.effort.rounds)
        stride = stride_within(limit, samples.iterations, self.comm.size, max(1, events.shape[1]))
        events_of_ranks = sync.gather_kept(events, stride)
        if samples.times is None or events_of_ranks is None:
            return None
        return samples.times.with_events(np.moveaxis(events_of_ranks, 0, 1), stride)

    def _traffic(
        self, prepared: Prepared, samples: Samples, sync: RankSync
    ) -> "PortTraffic | None":
        """Return, at rank 0, the traffic between nodes, counted at the first rank of each; None on a single node."""
        nodes = [place.node for place in self.attempt.places]
        if len(set(nodes)) == 1:
            return None
        from hpccoll.host import network_ports
        from hpccoll.measure import port_traffic

        me = self.comm.rank
        iterations = self.ranks.agree(port_traffic.pass_iterations(samples) if me == 0 else 0)
        reads = nodes.index(nodes[me]) == me
        changes = port_traffic.count_traffic(
            prepared, sync, iterations, self.progress, network_ports.find_ports() if reads else ()
        )
        gathered = self.comm.gather((nodes[me], changes) if reads else None)
        if gathered is None:
            return None
        by_node = tuple(changes for _, changes in sorted(filter(None, gathered), key=itemgetter(0)))
        return port_traffic.PortTraffic(iterations * prepared.operations, by_node)

    def _recognition(self, prepared: PreparedCase, samples: Samples) -> "CallEvidence | None":
        if prepared.algorithm is not None:
            return None
        from hpccoll.measure.port_traffic import median_s

        # only of the library's own calls
        from hpccoll.measure.run.call_evidence import call_evidence

        # Rank 0 knows the times of all ranks; a mapping may number ranks otherwise in the
        # communicator of the case.
        call_s = self.comm.bcast(median_s(samples) if self.comm.rank == 0 else None)
        return call_evidence(prepared, call_s, self.progress)


def _load(case: Case) -> AbstractContextManager[object]:
    """Return what computes beside a case until it is closed: a thread that multiplies matrices, or nothing."""
    if case.load is None:
        return nullcontext()
    from hpccoll.measure.matrix_multiplication import Gemm

    return closing(Gemm.until_closed())


def _counts_of_ranks(names: Iterable[str], sums: Iterable[int]) -> dict[str, Any]:
    """Return the results that ranks have counted; None where there was nothing to count."""
    return {name: number or None for name, number in zip(names, sums, strict=True)}


def _by_name(activities: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Return the results of all ranks by their names, [rank], with None where a rank has none."""
    return {
        name: tuple(activity.get(name) for activity in activities)
        for name in dict.fromkeys(name for activity in activities for name in activity)
    }
