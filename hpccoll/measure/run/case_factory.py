"""Prepares cases to run on the ranks of an attempt, or finds the reason why they cannot run."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, TypeAlias

from mpi4py import MPI

from hpccoll.cases.case import NCCL_TESTS, Case, Job
from hpccoll.cases.catalogue import check_case, moved_dtypes
from hpccoll.cases.memory_estimate import check_memory
from hpccoll.cases.transport_table import REFUSAL_PREFIX
from hpccoll.common.errors import BadInputError, StalledError, UnusableError
from hpccoll.host.cpu_and_memory import available_memory
from hpccoll.measure.ranks import MappedRanks, Ranks, first_reason
from hpccoll.measure.run.prepared_case import PreparedCase, RunSettings
from hpccoll.measure.run.workload_runner import PreparedWorkload, workload_runner
from hpccoll.schedule import BFLOAT16, Layout, is_workload
from hpccoll.transports.gpu_errors import gpu_errors
from hpccoll.transports.stream_wait import CONNECTING, Connecting
from hpccoll.transports.transport_interface import PlanMismatchError

if TYPE_CHECKING:
    from hpccoll.cases.variants import NodeView
    from hpccoll.executor.compiled_executor import ExecutorOptions
    from hpccoll.measure.gpu_assignment import RankGpus
    from hpccoll.measure.run.case_choices import CaseChoices
    from hpccoll.store.raw_results import Attempt, Status
    from hpccoll.transports.gpu import Gpu

Prepared: TypeAlias = "PreparedCase | PreparedWorkload"
"""A case with its plans and buffers on the ranks of a communicator."""


@dataclass(frozen=True, slots=True)
class SkippedCase:
    """A case that cannot be measured, with the reason in words."""

    reason: str
    status: "Status" = "skipped"


class CaseFactory:
    """Prepares the cases of a job; created, used and closed on all ranks together.

    ``attempt`` has the machine and the places of the ranks; ``gpus`` returns their GPUs, for which
    only cases on GPUs ask; ``connecting`` is how first operations over NCCL are waited for;
    ``executor_options`` are as in RunSettings; ``cases`` are those that may be made, by default
    those of the job.
    """

    def __init__(
        self,
        ranks: Ranks,
        job: Job,
        attempt: "Attempt",
        gpus: "Callable[[], RankGpus]",
        connecting: Connecting,
        executor_options: "ExecutorOptions | None" = None,
        cases: Sequence[Case] | None = None,
    ) -> None:
        self.connecting = connecting
        self.settings = RunSettings(
            job.communicator,
            executor_options,
            job.effort,
            connecting,
            largest_bytes_of_nccl_tests(job),
        )
        self.comm = ranks.comm
        self.job = job
        self.attempt = attempt
        self._gpus = gpus
        self._mapped = MappedRanks(ranks.comm, ranks.layout(job.aggregators))
        self._memory_reasons: dict[str, str | None] = {}
        nccl_nodes = self._nodes_of_nccl()
        to_make = job.cases if cases is None else cases
        # The other ranks do not import what decides: they are thousands.
        self._skipped, self._resolved = ranks.run_at_root(
            lambda: self._choices.decide(to_make, nccl_nodes)
        )

    @property
    def gpus(self) -> "RankGpus":
        """The GPUs of the ranks."""
        return self._gpus()

    def _nodes_of_nccl(self) -> "dict[str, NodeView | None]":
        """Return the nodes as NCCL counts them by the element types that it can move; only variants need to know."""
        if self.job.variant is None:
            return {}
        dtypes = dict.fromkeys(case.dtype for case in self.job.cases if case.transport == "nccl")
        return {
            dtype: None if self.gpus.missing_for("nccl", dtype) else self.gpus.node_view
            for dtype in dtypes
        }

    @cached_property
    def _choices(self) -> "CaseChoices":
        """What decides which cases are made; rank 0 and training steps need it."""
        from hpccoll.measure.run.case_choices import CaseChoices

        options = self.settings.executor_options
        return CaseChoices(self.job, self.attempt, options.dtypes if options else ())

    def make(self, case: Case) -> "Prepared | SkippedCase":
        """Return ``case`` with its plan and buffers, or the reason why it is skipped; the same kind on all ranks.

        A case that this machine or library does not support is skipped. If NCCL fails, the case has
        failed: another launch may succeed.
        """
        comm, layout = self._mapped.for_mapping(case.mapping)
        try:
            resolved, choice = self._resolved.get(case.id, (case, None))
            if reason := self._skipped.get(case.id) or next(
                filter(None, self._reasons(case, resolved)), None
            ):
                return SkippedCase(reason)

            def prepare() -> Prepared:
                gpu = None
                if resolved.device == "cuda":
                    gpu = self.gpus.gpu_of_rank
                with gpu_errors(gpu):
                    if is_workload(case.collective):
                        runner = workload_runner(case.collective)
                        files = self.job.models
                        return runner.prepare(
                            comm, layout, case, self._prepare_inside, files, gpu, self.connecting
                        )
                    assumed = self.gpus.assumed(resolved) if gpu else None
                    return PreparedCase(comm, layout, resolved, gpu, self.settings, choice, assumed)

            if resolved.transport != "nccl":
                return prepare()
            return _make_over_nccl(prepare, comm, self.connecting)
        # on all ranks, because it depends on the case and the layout only
        except BadInputError as error:
            return SkippedCase(str(error))
        except PlanMismatchError:  # on all ranks, too
            # A run with right results never needs it.
            from hpccoll.measure.run.schedule_proof import unproven_text

            fault = comm.bcast(unproven_text(resolved, layout) if comm.rank == 0 else None)
            if fault is None:
                raise
            return SkippedCase(fault, "failed")

    def _prepare_inside(
        self, comm: MPI.Intracomm, layout: Layout, inside: Case, gpu: "Gpu | None"
    ) -> PreparedCase:
        from hpccoll.cases.skip_reason import unmet_needs  # few ranks run workloads

        resolved, choice = self._choices.resolve(inside, layout)
        check_case(resolved)
        if reason := unmet_needs(resolved, layout):
            raise UnusableError(f"{resolved.collective} of {layout.workers} ranks", reason)
        return PreparedCase(comm, layout, resolved, gpu, self.settings, choice)

    def _reasons(self, case: Case, resolved: Case) -> Iterator[str | None]:
        """Yield what the machine lacks for ``case``; the first reason counts, and all ranks ask for it together.

        ``resolved`` is the case with the algorithm that a table chose.
        """
        dtypes = moved_dtypes(resolved, self.attempt.layout.workers)
        if resolved.device == "cuda":
            yield from (self.gpus.missing_for(resolved.transport, dtype) for dtype in dtypes)
        if is_workload(case.collective):
            yield from workload_runner(case.collective).missing(
                case, self.job.effort, self.comm, self._gpus
            )
        if BFLOAT16 in dtypes:
            yield first_reason(self.comm, missing_ml_dtypes(BFLOAT16))
        yield self._config_reason(resolved)
        if case.id not in self._memory_reasons:  # the buffers of all rounds of a case are equal
            self._memory_reasons[case.id] = self._memory_reason(resolved)
        yield self._memory_reasons[case.id]

    def _config_reason(self, case: Case) -> str | None:
        if not self.job.communicator or case.transport != "nccl":
            return None
        from hpccoll.cases.communicator_settings import min_nccl_version
        from hpccoll.transports.nccl.communicator_config import missing_for_nccl4py

        return first_reason(self.comm, missing_for_nccl4py(min_nccl_version(self.job.communicator)))

    def _memory_reason(self, case: Case) -> str | None:
        places = self.attempt.places
        aggregators = self.attempt.aggregators
        node = places[self.comm.rank].node
        shared = [("cpu", sum(place.node == node for place in places), available_memory())]
        if case.device == "cuda":
            shared.append(("cuda", self.gpus.ranks_on_gpu, self.gpus.gpu_of_rank.free_bytes))
        reason = None
        workers = self.attempt.ranks - aggregators
        try:
            for device, ranks, free in shared:
                check_memory(
                    [self._with_all_places(case)],
                    workers,
                    ranks,
                    free,
                    device,
                    aggregators,
                    self.job.models,
                )
        except BadInputError as error:
            reason = str(error)
        return first_reason(self.comm, reason)

    def _with_all_places(self, case: Case) -> Case:
        """Return a case whose buffers are as large as all places of ``case`` together."""
        if case.timing != NCCL_TESTS:
            return case
        return replace(case, bytes=max(case.bytes, self.settings.largest_bytes))

    def close(self) -> None:
        if any(case.transport == "nccl" for case in self.job.cases):
            from hpccoll.transports.nccl.communicators import close_all_worlds

            close_all_worlds()  # before the communicators of MPI on which NCCL's are based
        self._mapped.close()


def missing_ml_dtypes(purpose: str) -> str | None:
    """Return the reason why this rank lacks ml-dtypes, which ``purpose`` needs; None if it has it."""
    if find_spec("ml_dtypes") is not None:
        return None
    return f"ml-dtypes is not installed, which {purpose} needs; do: pip install 'hpccoll[compress]'"


def destroy_graphs(prepared: Prepared) -> None:
    """Destroy the CUDA graphs of a case or a workload."""
    for case in prepared.calls:
        case.destroy_graphs()


def _make_over_nccl(
    make: Callable[[], Prepared], comm: MPI.Intracomm, connecting: Connecting
) -> "Prepared | SkippedCase":
    """Return the result of ``make``, or the reason why NCCL refuses it or fails; all ranks call this together."""
    from hpccoll.transports.nccl.nccl_errors import NcclFailedError  # only ranks with GPUs need it

    try:
        return make_unless_refused(make, comm, connecting)
    except NcclFailedError as error:
        return SkippedCase(str(error), "failed")


def make_unless_refused(
    make: Callable[[], Prepared], comm: MPI.Intracomm, connecting: Connecting = CONNECTING
) -> "Prepared | SkippedCase":
    """Return the result of ``make``, or the reason if NCCL refuses its first call; all ranks call this together.

    NCCL decides by values that all ranks share, so that it refuses a call on all of them. The state
    of a communicator after a refused call is undocumented: that on ``comm`` is aborted, and the
    next case gets a new one. ``connecting`` waits for all ranks with a limit.

    Raises:
        StalledError: if a first operation does not complete in time on this rank or another.
        NcclFailedError: on all ranks, if NCCL creates no communicator or reports an error other
            than a refusal; another launch may succeed.
        RuntimeError: if another library reports an error.
    """
    from hpccoll.transports.nccl.communicators import abort_world
    from hpccoll.transports.nccl.nccl_errors import (
        NCCL_EXCEPTIONS,
        REFUSAL_PATTERN,
        NcclRefusedError,
        nccl_error_text,
        raise_nccl_failure,
    )

    made, error_text = None, None
    try:
        made = make()
    except NcclRefusedError as error:  # on all ranks
        return SkippedCase(f"{REFUSAL_PREFIX}: {error}")
    except NCCL_EXCEPTIONS as error:
        # CuPy's class, not imported here
        if isinstance(error, RuntimeError) and type(error).__name__ != "NcclError":
            raise
        error_text = nccl_error_text(error)
    try:
        connecting.await_all()
    except StalledError:
        if made is not None:
            destroy_graphs(made)  # NCCL's abort, which follows, waits for them
        raise
    errors: list[str | None] = comm.allgather(error_text)
    if made is not None and not any(errors):
        connecting.has_connected = True
        return made
    if made is not None:
        made.close()  # before the communicator, because NCCL waits for graphs that use it
    abort_world(comm)
    refusal = next((text for text in errors if text and REFUSAL_PATTERN.search(text)), "")
    if not refusal:
        raise_nccl_failure(errors, "fails")
    return SkippedCase(f"{REFUSAL_PREFIX}: {refusal}")


def largest_bytes_of_nccl_tests(job: Job) -> int:
    """Return the largest size of the cases with the timing nccl-tests; 0 without any."""
    return max((case.bytes for case in job.cases if case.timing == NCCL_TESTS), default=0)


def preflight(ranks: Ranks, job: Job) -> None:
    """Check before the first case that some case can run and every node has memory for the largest one.

    Raises:
        BadInputError: on all ranks, if a node lacks memory, no case can run, or a name in a case is
            unknown.
    """
    ranks.run_at_root(lambda: _check_some_case_runs(ranks, job))
    failure, on_node = None, ranks.ranks_by_node[ranks.node_id]
    try:
        check_memory(
            job.cases,
            job.ranks,
            on_node,
            available_memory(),
            aggregators=job.aggregators,
            models=job.models,
        )
    except BadInputError as error:
        failure = error
    for failure_of_rank in filter(None, ranks.comm.allgather(failure)):
        raise failure_of_rank


def _check_some_case_runs(ranks: Ranks, job: Job) -> None:
    """Check at rank 0 that some case can run."""
    from hpccoll.measure.run.case_choices import check_some_case_runs

    check_some_case_runs(job, ranks.layout(job.aggregators))
