"""A prepared case: its plan for the ranks, with its buffers and the check of its result."""

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from mpi4py import MPI

from hpccoll.cases.case import AGGREGATED, COMPILED, NCCL_TESTS, OSU, PYTHON, Case, Effort
from hpccoll.cases.catalogue import GRAPH, PROTOCOL, call_of
from hpccoll.cases.memory_estimate import GENERATIONS
from hpccoll.cases.planned_schedule import PlannedSchedule, cached_crossings, planned_schedule
from hpccoll.cases.transport_table import NATIVE_TRANSPORT, TRANSPORTS
from hpccoll.common.errors import BadInputError, StalledError
from hpccoll.executor.compiled_executor import CompiledExecutor, ExecutorOptions
from hpccoll.executor.loop import ExecutorLoop
from hpccoll.measure.run.guards import guards_of
from hpccoll.measure.run.payload import Array, Payload
from hpccoll.measure.run.result_check import Check
from hpccoll.measure.timing_loop import PythonLoop, RankProgress, RankSync
from hpccoll.schedule import REDUCTIONS, Layout, dtype_of, unequal_wire_bytes, wire_bytes
from hpccoll.schedule.collective import NATIVE
from hpccoll.schedule.operation import Operation
from hpccoll.transports.stream_wait import CONNECTING, Connecting, Wait

if TYPE_CHECKING:
    from hpccoll.cases.communicator_settings import CommunicatorSettings
    from hpccoll.executor.barrier import ExecutorBarrier
    from hpccoll.measure.run.nccl_tests_timing import NcclTestsTiming
    from hpccoll.measure.run.osu_timing import OsuLoop
    from hpccoll.measure.run.result_check_gpu import GpuCheck
    from hpccoll.measure.run.stream_timing import StreamTiming
    from hpccoll.transports.gpu import Gpu
    from hpccoll.transports.guarded_memory import GuardedBuffer
    from hpccoll.transports.nccl.stream_plan import StreamPlan
    from hpccoll.transports.nccl.transport import NcclTransportBase
    from hpccoll.transports.transport_interface import Transport, TransportPlan


@dataclass(frozen=True, slots=True)
class RunSettings:
    """How the cases of a job are run; without ``executor_options`` Python runs plans in host memory.

    ``connecting`` is how first operations over NCCL are waited for. ``largest_bytes`` is the
    largest size of the cases with the timing nccl-tests.
    """

    communicator: "CommunicatorSettings" = field(default_factory=dict)
    executor_options: ExecutorOptions | None = None
    effort: Effort = field(default_factory=Effort)
    connecting: Connecting = CONNECTING
    largest_bytes: int = 0


DEFAULT_SETTINGS = RunSettings()


class PreparedCase:
    """A case with its plan and buffers on the ranks of ``comm``, which create and close it together.

    ``case`` does not have the algorithm ``auto``: if a tuning table chose it, ``choice`` says why.
    ``gpu`` is that of this rank for a case of device cuda, None in host memory. ``assumed`` is an
    assumption about the machine that only the user vouches for; it becomes part of the evidence.

    ``bytes`` is the size S that is moved; ``params`` has all parameters, defaults included. With
    ``floor`` nothing is moved. ``operations`` are timed in each iteration; its check may need
    further ones.

    Raises:
        BadInputError: on all ranks, if there is too little memory, or the transport cannot run the
            case.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        layout: Layout,
        case: Case,
        gpu: "Gpu | None" = None,
        settings: RunSettings = DEFAULT_SETTINGS,
        choice: str | None = None,
        assumed: str | None = None,
    ) -> None:
        self.case = case
        self.layout = layout
        self.rank = comm.rank
        self.gpu = gpu
        self._comm = comm
        self.choice = choice
        self.assumed = assumed
        self._settings = settings
        planned = planned_schedule(case, layout)
        self.algorithm = planned.algorithm if planned else None  # None: the library's own
        self.protocol = planned.protocol if planned else None
        self.floor = self.algorithm is not None and self.algorithm.floor
        self.operation = self._operation(planned)
        operation = self.operation
        self.bytes = operation.call.bytes(operation.count, operation.dtype.itemsize)
        self.params = self._all_parameters()
        # the library's barrier has no buffer
        self.checked = not (operation.collective.token and self.algorithm is None)
        silent = self.floor or not self.checked
        self.payload = Payload(
            operation.call, operation.reduction, operation.dtype, operation.count, comm.rank, silent
        )
        communicator, self._memory = settings.communicator, None
        self._places = 1
        self._further: list[StreamPlan] = []
        if case.timing == NCCL_TESTS:
            from hpccoll.measure.run.nccl_tests_timing import NcclTestsCounts, places_of_calls

            communicator, self._memory = _nccl_tests_communicator(comm, communicator)
            counts = NcclTestsCounts.of(settings.effort)
            self._places = places_of_calls(self.bytes, settings.largest_bytes, counts)
        self.transport = make_transport(
            case, comm, gpu, replace(settings, communicator=communicator), self.protocol
        )
        self.src, self.dst, self.plan = self._plan()
        self._compiled = (
            self.plan.executor if isinstance(self.plan.executor, CompiledExecutor) else None
        )
        self.executor = COMPILED if self._compiled else PYTHON
        expected: Array = self.dst[self._result_span()]
        self.result = expected if len(self.plan.result) == len(expected) else self.plan.result
        self.filled_by_caller = False
        self.guards = list(guards_of(self._guarded(), self.rank))
        try:
            self.check = self._check()
            self._make_further_plans()
            self._timing = self._stream_timing(settings.effort)
        except StalledError:
            self.destroy_graphs()  # and no more: kernels use the buffers until NCCL is aborted
            raise
        except BaseException:
            if self._stream_plan:  # over MPI, only all ranks together can free what they hold
                # the graphs and registered buffers, before their communicator is aborted
                self.close_alone()  # other ranks may not have failed
            raise
        self._bind_calls()

    def _bind_calls(self) -> None:
        """Bind what the timing loop calls, because calls through this object would add to the measured time."""
        on_stream = self._timing
        self.run = (on_stream or self.plan).run
        checked = on_stream or self.check
        self.reset = checked.reset
        self.wrong = checked.wrong
        self.device_ns = on_stream.device_ns if on_stream else lambda: -1
        self.operations = on_stream.operations if on_stream else 1
        self.operations_with_check = on_stream.operations_with_check if on_stream else 1

    def _all_parameters(self) -> Mapping[str, Any]:
        """Return the parameters of the case, with the defaults of an algorithm of ours."""
        if self.algorithm is None or self.floor:
            return dict(self.case.params)
        defaults: dict[str, int | str] = {
            "channels": self.operation.channels,
            "window": self.operation.window,
        }
        if TRANSPORTS[self.case.transport].graphs:
            defaults[GRAPH] = 0
        if self.protocol:
            defaults[PROTOCOL] = self.protocol
        return {**defaults, **self.algorithm.parameters, **self.case.params}

    def _operation(self, planned: PlannedSchedule | None) -> Operation:
        case = self.case
        dtype = dtype_of(self.case.dtype)
        call = call_of(self.case, self.layout.workers)
        family = call.collective
        op = case.op or "sum"
        if self.floor:
            op = "sum"  # a floor folds nothing, and so has no average to divide
        if family.idempotent:
            # A barrier may receive the token of a rank twice, whatever was requested.
            op = "max"
        # an empty schedule leaves one buffer unchanged in either placement
        in_place = case.in_place or self.floor
        count = family.elements(case.bytes, dtype.itemsize, self.layout.workers)
        slices, channels, window = (
            (planned.slices, planned.channels, planned.window) if planned else ((), 1, 1)
        )
        return Operation(
            call, self.layout, slices, count, dtype, REDUCTIONS[op], in_place, channels, window
        )

    def _plan(self) -> tuple[Array, Array, "TransportPlan"]:
        operation = self.operation
        transport = self.transport
        lengths = [operation.elements(name, self.rank) for name in ("src", "dst")]
        # The places of both buffers have the same offsets, as in nccl-tests.
        self._stride = max(lengths)
        further = (self._places - 1) * self._stride
        try:
            src, dst = (
                transport.empty(length + further if length else 0, operation.dtype)
                for length in lengths
            )
            plan = transport.plan(operation, src, dst)
        except BadInputError:  # on all ranks: too little memory; other cases may run
            transport.close()
            raise
        self._whole = src, dst
        return src[: lengths[0]], dst[: lengths[1]], plan

    @property
    def _stream_plan(self) -> "StreamPlan | None":
        """The plan if it queues its work on a stream of the GPU; None if it does not, or there is no GPU."""
        if self.gpu is None:
            return None
        from hpccoll.transports.nccl.stream_plan import StreamPlan

        if not isinstance(self.plan, StreamPlan):
            return None
        return self.plan

    def _make_further_plans(self) -> None:
        """Make the plans of the places after the first one, which only NCCL's transports have."""
        if self._places == 1:
            return
        self._settings.connecting.await_all()  # of MPI's calls, which follow, none has a limit
        transport = cast("NcclTransportBase", self.transport)
        for number in range(1, self._places):
            src, dst = (buffer[number * self._stride :] for buffer in self._whole)
            self._further.append(transport.further_plan(self.operation, src, dst))

    @property
    def effort_of_round(self) -> Effort:
        """How long a round takes."""
        effort = self._settings.effort
        if self.case.timing == OSU:
            from hpccoll.measure.run.osu_timing import osu_effort

            return osu_effort(effort, self.bytes)
        if self.case.timing == NCCL_TESTS:
            from hpccoll.measure.run.nccl_tests_timing import nccl_tests_effort

            return nccl_tests_effort(effort)
        return effort.of_a_round

    @property
    def calls(self) -> "list[PreparedCase]":
        """The calls that this consists of: itself."""
        return [self]

    def loop(
        self, sync: RankSync, barrier: Callable[[], "ExecutorBarrier"], progress: RankProgress
    ) -> "ExecutorLoop | OsuLoop | PythonLoop":
        """Return the loop that times the operation; all ranks call this together.

        ``barrier`` returns the barrier of the compiled loop; ``progress`` is kept up to date.
        """
        if self.case.timing == OSU:
            from hpccoll.measure.run.osu_timing import OsuLoop

            effort = self.effort_of_round
            return OsuLoop(
                self, self._comm, progress, effort.warmup + effort.min_iterations, self._compiled
            )
        if self.case.timing == NCCL_TESTS and self._timing is not None:
            progress.enter("warming up")
            cast("NcclTestsTiming", self._timing).warm_up()
        if self._compiled and isinstance(self.check, Check):
            return ExecutorLoop(
                self._compiled, self.check, GENERATIONS, barrier(), progress.numbers
            )
        return PythonLoop(self, sync, progress)

    def _result_span(self) -> slice:
        """Return the span of dst that must hold the result of this rank, derived from the case."""
        operation = self.operation
        # a collective of the MPI library itself
        if self.algorithm is None and self.case.transport != "nccl":
            from hpccoll.transports.mpi.library_calls import result_span

            return result_span(operation, self.rank)
        return operation.span(
            "dst", operation.call.target(self.rank, operation.api_cut.units), self.rank
        )

    def _guarded(self) -> list["GuardedBuffer"]:
        """Return the buffers, each with the span of it that the operation may write.

        In place, and for a schedule, all of dst may be written: what is not part of the result is
        workspace. Out of place, a library gets only the span of the result.
        """
        guarded = [*self.transport.guarded]
        if self.algorithm is None and not self.operation.in_place and self._places == 1:
            guarded[1:2] = [dst.narrow(self._result_span()) for dst in guarded[1:2]]
        return guarded

    def _check(self) -> "Check | GpuCheck":
        operation = self.operation
        in_place = self.case.in_place
        filled = self.dst[
            operation.span("dst", self.payload.filled_units(in_place=in_place), self.rank)
        ]
        buffers = self.payload, self.src, filled, self.result
        generation = zlib.crc32(self.case.id.encode()) % GENERATIONS
        if self.gpu:
            # only ranks with GPUs need it
            from hpccoll.measure.run.result_check_gpu import GpuCheck

            return GpuCheck(
                *buffers, self.gpu, in_place=in_place, generation=generation, guards=self.guards
            )
        return Check(*buffers, in_place=in_place, generation=generation, guards=self.guards)

    @property
    def contribution(self) -> Array:
        """The part of the buffers, in host memory, that holds what this rank contributes."""
        operation = self.operation
        if not operation.in_place:
            return self.src
        return self.dst[
            operation.span("dst", operation.call.source(self.rank, self.payload.units), self.rank)
        ]

    def fill_by_caller(self) -> None:
        """Leave the buffers in host memory to the caller: only what the operation must not write is checked."""
        self.filled_by_caller = True
        if isinstance(self.check, Check):
            self.check.fills, self.check.compared = [], []

    def _stream_timing(self, effort: Effort) -> "StreamTiming | NcclTestsTiming | None":
        if self.gpu is None or self._stream_plan is None:
            return None
        from hpccoll.measure.run.nccl_tests_timing import NcclTestsCounts, NcclTestsTiming
        from hpccoll.measure.run.stream_timing import StreamTiming

        if self.case.timing == NCCL_TESTS:
            return NcclTestsTiming(
                [self._stream_plan, *self._further], self.check, NcclTestsCounts.of(effort)
            )
        operations = None
        if self.case.timing == AGGREGATED:
            operations = effort.operations
        return StreamTiming(
            self._stream_plan, self.gpu, self.check, operations, in_place=self.operation.in_place
        )

    def set_wait(self, wait: Wait) -> bool:
        """Make runs wait for queued work with ``wait``; return whether they can, which needs a stream."""
        if self._timing:
            self._timing.wait_by(wait)
        return self._timing is not None

    def destroy_graphs(self) -> None:
        """Destroy the CUDA graphs of the plan, if any, before NCCL is aborted."""
        if self._stream_plan:
            self._stream_plan.destroy_graphs()

    def close(self) -> None:
        """Free the plan, the buffers and what the transport holds; all ranks call this together."""
        self._close_plans()
        self.transport.close()

    def close_alone(self) -> None:
        """Free the same on this rank, without the other ranks: after a stall, they may not come."""
        self._close_plans()
        self.transport.close_alone()

    def _close_plans(self) -> None:
        for plan in self._further:
            plan.close()
        self.plan.close()

    def diagnose(self, name: Callable[[int], str] = "rank {}".format) -> str | None:
        """Return a description of all errors in the buffers, or None; ``name`` names a rank of this numbering."""
        payload = replace(self.payload, generation=self.check.generation)
        in_place = self.case.in_place
        errors: list[str | None] = []
        if not self.filled_by_caller:
            errors.append(
                payload.diagnose(self._on_host(self.result), in_place=in_place, name=name)
            )
        if not (in_place or self.filled_by_caller):
            errors.append(payload.diagnose_source(self._on_host(self.src), name))
        for guard in self.guards:
            if guard.on_host:
                content = guard.memory
            else:
                content = self._on_host(guard.memory)
            errors.append(guard.diagnose(content, name(self.rank)))
        return "; ".join(filter(None, errors)) or None

    def _on_host(self, array: Array) -> Array:
        if self.gpu:
            return self.gpu.download(array).view(self.payload.dtype)
        return array

    @cached_property
    def wire_bytes(self) -> int | None:
        """The bytes between nodes per operation, counted on schedules; None for a library's own algorithm."""
        if self.algorithm is None:
            return None
        if len(set(self.layout.node)) == 1:
            return 0
        return self._crossing("node")

    def worker_bytes(self, end: str) -> int | None:
        """Return the part of ``wire_bytes`` whose ``end``, source or target, is on a node of workers."""
        if self.algorithm is None or not self.layout.aggregators:
            return self.wire_bytes
        return self._crossing("node", end)

    @cached_property
    def rack_bytes(self) -> int | None:
        """The bytes between racks per operation, counted likewise; None also if there is a single rack."""
        if self.algorithm is None or len(set(self.layout.rack)) == 1:
            return None
        return self._crossing("rack")

    def _crossing(self, tier: str, end: str | None = None) -> int:
        operation = self.operation
        if operation.call.traffic:
            return unequal_wire_bytes(operation.slices, operation.cut, tier)
        return wire_bytes(
            [cached_crossings(part, tier, end) for part in operation.slices], operation.cut
        )

    def progress(self) -> str:
        """Return the progress of the current run, with the rank of this process if a mapping renumbered it."""
        number = ""
        if self.case.mapping:
            number = f"rank {self.rank} of mapping {self.case.mapping}, "
        return number + self.plan.progress()

    def evidence(self, sent: int | None) -> tuple[str, str | None]:
        """Return the algorithm that ran, if it is known without logs, and the evidence for that.

        ``sent`` are the bytes per operation that all hosts sent, by their port counters; None if
        unknown.
        """
        executed, evidence = self._executed(sent)
        evidence = "; ".join(filter(None, (evidence, self._memory, self.assumed))) or None
        if self.choice is None:
            return executed, evidence
        if self.case.transport == NATIVE_TRANSPORT:
            over = ""
        else:
            over = f" over {self.case.transport}"
        return f"{self.case.algorithm}{over}", "; ".join(filter(None, (self.choice, evidence)))

    def _executed(self, sent: int | None) -> tuple[str, str | None]:
        if self.algorithm is None:
            # only rank 0 asks
            from hpccoll.measure.run.matching_bytes import algorithms_matching_bytes

            called = self._stream_plan.evidence if self._stream_plan else None
            matching = None
            if sent is not None:
                matching = algorithms_matching_bytes(self.operation, self.bytes, sent)
            return "unknown", "; ".join(filter(None, (called, matching))) or None
        used = ", ".join(f"{name}={value}" for name, value in self.params.items())
        evidence = (
            f"hpccoll ran its schedule ({used or 'no messages'}); all ranks agreed on the plan"
        )
        if self._stream_plan and self._stream_plan.evidence:
            evidence += f"; {self._stream_plan.evidence}"
        if self.algorithm.aggregates:
            evidence += "; in software: ranks acted as the switches"
        if sent is not None:
            counted = self.wire_bytes
            if counted:
                times = f"{sent / counted:.3f} times its wire bytes"
            else:
                times = f"{sent} B (its wire bytes: 0)"
            evidence += f"; the ports sent {times}"
        return self.algorithm.name, evidence


def _nccl_tests_communicator(
    comm: MPI.Intracomm, communicator: "CommunicatorSettings"
) -> "tuple[CommunicatorSettings, str | None]":
    """Return the settings with which buffers are those of nccl-tests, if the user has not chosen any, and the evidence.

    All ranks call this together.
    """
    from hpccoll.cases.communicator_settings import BUFFERS

    if BUFFERS in communicator:
        return communicator, None
    from hpccoll.measure.run.nccl_tests_timing import memory_of_nccl_tests

    buffers, evidence = memory_of_nccl_tests(comm)
    if buffers is None:
        return communicator, evidence
    return {**communicator, BUFFERS: buffers}, evidence


def make_transport(
    case: Case,
    comm: MPI.Intracomm,
    gpu: "Gpu | None",
    settings: RunSettings,
    protocol: str | None = None,
) -> "Transport":
    """Return the transport that moves the data of ``case``; all ranks of ``comm`` call this together.

    Its transport, algorithm and device select the class. ``protocol`` says how messages move, if
    the transport has a choice.
    """
    communicator = settings.communicator
    options = settings.executor_options
    row = TRANSPORTS[case.transport]
    implementation = load_class(
        (row.native if case.algorithm == NATIVE else row.schedules)[case.device]
    )
    if gpu is None:
        return implementation(comm, options if options and case.dtype in options.dtypes else None)
    gpu.release()  # free the memory of earlier cases: NCCL and MPI allocate outside CuPy's pool
    if not row.graphs:
        return implementation(comm, gpu)
    graph = bool(case.params.get(GRAPH))
    if case.transport != "nccl":
        return implementation(
            comm, gpu, graph=graph, connecting=settings.connecting, protocol=protocol
        )
    from hpccoll.cases.communicator_settings import BUFFERS, nccl_config
    from hpccoll.transports.nccl.communicator_config import ConfiguredNccl, NcclBuffers

    fields = nccl_config(communicator)
    buffers = communicator.get(BUFFERS)
    return implementation(
        comm,
        gpu,
        graph=graph,
        library=ConfiguredNccl(fields) if fields else None,
        buffers=NcclBuffers(comm, gpu, str(buffers)) if buffers else None,
        connecting=settings.connecting,
    )


@cache
def load_class(path: str) -> Callable[..., "Transport"]:
    """Return the class that ``path`` names as ``module:Class``."""
    module, _, name = path.partition(":")
    return cast("Callable[..., Transport]", getattr(import_module(module), name))
