"""The subject: a case made ready to run, with the buffers it runs on and the check of its result."""

import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property, partial
from typing import TypeAlias

from mpi4py import MPI

from hpccoll.errors import BadInputError
from hpccoll.evidence.communicator_settings import CommunicatorSettings
from hpccoll.measure.check import Check, guards_of
from hpccoll.measure.check_gpu import GpuCheck
from hpccoll.measure.payload import Payload
from hpccoll.measure.payload_values import Array
from hpccoll.measure.schedule_bytes import algorithms_matching_bytes, cached_crossings, cached_slices
from hpccoll.measure.transport_factory import make_transport
from hpccoll.schedule import (
    REDUCTIONS,
    Algorithm,
    Collective,
    Layout,
    Schedule,
    collective,
    dtype_of,
    unequal_wire_bytes,
    wire_bytes,
)
from hpccoll.schedule.collective import NATIVE
from hpccoll.spec.case import Case, Parameter
from hpccoll.spec.catalogue import GRAPH, call_of, own_parameters
from hpccoll.spec.channels import plan_channels
from hpccoll.spec.memory import GENERATIONS
from hpccoll.spec.transport_table import NATIVE_TRANSPORT
from hpccoll.transports.gpu import Gpu
from hpccoll.transports.guarded_memory import GuardedBuffer
from hpccoll.transports.mpi.persistent import CHANNELS_KEY
from hpccoll.transports.mpi.vendor import result_span
from hpccoll.transports.nccl.communicators import abort_all_worlds
from hpccoll.transports.nccl.stream_plan import StreamPlan
from hpccoll.transports.operation import CompiledPlan, Operation
from hpccoll.units import format_size

Wait: TypeAlias = Callable[[Callable[[], bool], Callable[[], str | None]], None]
"""A function that waits until its first argument returns True, and raises an error if its second argument returns the
reason why it never will."""


def _no_device() -> int:
    return -1


class EventTimed:
    """A plan that queues all that it does, between two events: their time is the operation's by the clock of the GPU.

    The host's time holds the recording of both, some hundreds of nanoseconds each.
    """

    def __init__(self, plan: StreamPlan, gpu: Gpu) -> None:
        self._gpu, self._stream, self._queue = gpu, gpu.stream, plan.enqueue
        self._start, self._end = gpu.event(), gpu.event()
        self._plan = plan
        self._wait: Callable[[], object] = gpu.stream.synchronize

    def run(self) -> None:
        self._start.record(self._stream)
        self._queue()
        self._end.record(self._stream)
        self._wait()

    def wait_by(self, wait: Wait) -> None:
        """Have runs wait so, instead of for ever."""
        self._wait = partial(wait, self._plan.idle, self._plan.error)

    def device_ns(self) -> int:
        """Return the time of the last run."""
        return self._gpu.elapsed_ns(self._start, self._end)


def event_timed(plan: CompiledPlan, gpu: Gpu | None) -> EventTimed | None:
    """Return ``plan`` between events, None where the host has a part in it: its time is then the host's alone."""
    return EventTimed(plan, gpu) if gpu and isinstance(plan, StreamPlan) else None


class PreparedCase:
    """A case compiled for the ranks of ``comm``, with its buffers; close it when it is measured.

    Args:
        comm: of the ranks.
        layout: where they are.
        case: a concrete one: what a table chooses is chosen.
        chosen: by what and why, in words, where it was.
        gpu: of this rank, for a case of device cuda.
        assumed: of the machine, by the word of a user alone: a part of the evidence.
        communicator: what NCCL's are made with there.
    """

    def __init__(
        self, comm: MPI.Intracomm, layout: Layout, case: Case, chosen: str | None = None, gpu: Gpu | None = None,
        assumed: str | None = None, communicator: CommunicatorSettings | None = None,
    ) -> None:  # fmt: skip
        self.case, self.layout, self.rank, self.chosen, self.gpu = case, layout, comm.rank, chosen, gpu
        self.assumed = assumed
        self.family: Collective = collective(case.collective)
        self.algorithm: Algorithm | None = None if case.algorithm == NATIVE else self.family.algorithm(case.algorithm)
        self.floor = self.algorithm is not None and self.algorithm.floor
        dtype, p = dtype_of(case.dtype), layout.workers
        elements = self.family.elements(case.bytes, dtype.itemsize, p)
        call = call_of(case, p)
        self.bytes = call.bytes(elements, dtype.itemsize)
        # To hear twice that a rank has come must not matter, whatever op a barrier is asked with.
        reduction = REDUCTIONS["max" if self.family.idempotent else case.op or "sum"]
        self.own = own = {} if self.algorithm is None else own_parameters(case)
        schedules = cached_slices(call, self.algorithm, layout, tuple(own.items())) if self.algorithm else ()
        self.params = self._parameters(schedules)
        self.operation = Operation(
            call=call,
            layout=layout,
            schedules=schedules,
            count=elements,
            dtype=dtype,
            reduction=reduction,
            in_place=case.in_place or self.floor,  # nothing is nothing in either place
            channels=int(self.params.get("channels", 1)),
            window=int(self.params.get("window", 1)),
        )
        native = self.algorithm is None
        self.transport = transport = make_transport(case, comm, gpu, communicator or {}, native=native)
        self.checked = not (self.family.token and self.algorithm is None)  # the library's barrier has no buffer
        silent = self.floor or not self.checked
        self.payload = Payload(call, reduction, dtype, elements, comm.rank, silent)
        try:
            self.src = transport.empty(self.operation.elements("src", comm.rank), dtype)
            self.dst = transport.empty(self.operation.elements("dst", comm.rank), dtype)
            self.plan = transport.plan(self.operation, self.src, self.dst)
        except BadInputError as error:  # on all ranks: there is no room, or there are no tags; other cases go on
            transport.close()
            if error.key == CHANNELS_KEY and "segment" in case.params:  # they follow from it
                larger = f"a larger one: {error.value} channels follow from it ({error.expected})"
                raise BadInputError("parameter segment", format_size(int(case.params["segment"])), larger) from None
            raise
        self._result = self._place_of_result()
        self._guards = [*guards_of(self._guarded(), self.rank)]
        filled = self.payload.filled_units(in_place=case.in_place)
        self.check = self._check(self.dst[self.operation.span("dst", filled, comm.rank)])
        self._timed = by_events = event_timed(self.plan, gpu)
        # Bound once: a call through this object would be timed.
        self.reset, self.run, self.wrong = self.check.reset, (by_events or self.plan).run, self.check.wrong
        self.device_ns = by_events.device_ns if by_events else _no_device

    @property
    def _calls_mpi(self) -> bool:
        """Whether this is a collective of the MPI library itself."""
        return self.algorithm is None and self.case.transport != "nccl"

    def _span_of_result(self) -> slice:
        """Return where in dst the case promises the result of this rank."""
        of = self.operation
        if self._calls_mpi:
            return result_span(of, self.rank)
        return of.span("dst", of.call.target(self.rank, of.api_cut.units), self.rank)

    def _place_of_result(self) -> Array:
        """Return what the check compares: that place, whatever the plan says, unless it says another size.

        The check then finds all of it wrong.
        """
        promised: Array = self.dst[self._span_of_result()]
        return promised if len(self.plan.result) == len(promised) else self.plan.result

    def _guarded(self) -> list[GuardedBuffer]:
        """Return the buffers, each with the part of it that the operation may write.

        What is not promised of dst is workspace of a schedule, and of what works in place. Out of place, a library is
        given no more of dst than the result.
        """
        guarded = [*self.transport.guarded]
        if self.algorithm is None and not self.operation.in_place:
            guarded[1:2] = [dst.narrow(self._span_of_result()) for dst in guarded[1:2]]
        return guarded

    def _check(self, filled: Array) -> Check | GpuCheck:
        """Return the check, of the units of dst that are ``filled`` among others."""
        generation, in_place = zlib.crc32(self.case.id.encode()) % GENERATIONS, self.case.in_place
        buffers = self.payload, self.src, filled, self._result
        if self.gpu:
            return GpuCheck(*buffers, self.gpu, in_place=in_place, generation=generation, guards=self._guards)
        return Check(*buffers, in_place=in_place, generation=generation, guards=self._guards)

    def set_wait(self, wait: Wait) -> bool:
        """Have runs wait so for what they queue, and return whether they queue all that they do."""
        if self._timed:
            self._timed.wait_by(wait)
        return self._timed is not None

    def close(self) -> None:
        """Free the plan and the buffers, on all ranks together."""
        self.plan.close()
        self.transport.close()

    def abort(self) -> None:
        """Have NCCL end what does not come to its end, and free all of it, at this rank alone.

        The graphs go first, for NCCL waits for them, and then the communicators, with which it forgets buffers.
        """
        self.plan.close()
        abort_all_worlds()
        self.transport.close()

    def _parameters(self, schedules: tuple[Schedule, ...]) -> Mapping[str, Parameter]:
        """Return all parameters with their values, defaults included."""
        if self.algorithm is None or self.floor:
            return dict(self.case.params)
        params, queued, pipelined = self.case.params, self.case.transport == "nccl", self.algorithm.pipelined
        channels = window = 1
        if not self.family.whole:
            about = params, self.bytes, self.layout, schedules
            channels, window = plan_channels(*about, pipelined=pipelined, queued=queued)
        plan = {"channels": channels, "window": window, **({GRAPH: 0} if queued else {})}
        return {**plan, **self.algorithm.parameters, **self.case.params}

    def diagnose(self, name: Callable[[int], str] = "rank {}".format) -> str | None:
        """Return what is wrong with the buffers as they are now, in words; ``name`` says a rank of its numbering."""
        payload, in_place = replace(self.payload, generation=self.check.generation), self.case.in_place
        said = [payload.diagnose(self._on_host(self._result), in_place=in_place, name=name)]
        if not in_place:
            said.append(payload.diagnose_source(self._on_host(self.src), name))
        for guard in self._guards:
            found = guard.memory if guard.on_host else self._on_host(guard.memory)
            said.append(guard.diagnose(found, name(self.rank)))
        return "; ".join(filter(None, said)) or None

    def _on_host(self, array: Array) -> Array:
        return self.gpu.download(array).view(self.payload.dtype) if self.gpu else array

    @cached_property
    def wire_bytes(self) -> int | None:
        """Return the bytes between nodes per operation by count; None for a library's own algorithm."""
        if self.algorithm is None:
            return None
        return 0 if len(set(self.layout.node)) == 1 else self._crossing(self.algorithm, "node")

    def worker_bytes(self, end: str) -> int | None:
        """Return what of these has its ``end``, source or target, on a node of workers: all, without aggregators."""
        if self.algorithm is None or not self.layout.aggregators:
            return self.wire_bytes
        return self._crossing(self.algorithm, "node", end)

    @cached_property
    def rack_bytes(self) -> int | None:
        """Return the bytes between racks likewise; None also where there is one rack."""
        if self.algorithm is None or len(set(self.layout.rack)) == 1:
            return None
        return self._crossing(self.algorithm, "rack")

    def _crossing(self, algorithm: Algorithm, tier: str, end: str | None = None) -> int:
        of = self.operation
        if of.call.traffic:
            return unequal_wire_bytes(of.schedules, of.cut, tier)
        slices = cached_crossings(of.call, algorithm, self.layout, tuple(self.own.items()), tier, end)
        return wire_bytes(slices, of.cut)

    def progress(self) -> str:
        """Return how far a run has come, and the number of this rank in it where a mapping gave it another."""
        number = f"numbered {self.rank} by mapping {self.case.mapping}, " if self.case.mapping else ""
        return number + self.plan.progress()

    def evidence(self, sent: int | None) -> tuple[str, str | None]:
        """Return the algorithm that ran, as far as can be told, and how it can be told.

        Args:
            sent: the bytes per operation that all hosts sent by their counters, None where they are not known.
        """
        ran, words = self._ran(sent)
        words = "; ".join(filter(None, (words, self.assumed))) or None
        if self.chosen is None:
            return ran, words
        over = "" if self.case.transport == NATIVE_TRANSPORT else f" over {self.case.transport}"
        return f"{self.case.algorithm}{over}", "; ".join(filter(None, (self.chosen, words)))

    def _ran(self, sent: int | None) -> tuple[str, str | None]:
        if self.algorithm is None:
            return "unknown", None if sent is None else algorithms_matching_bytes(self.operation, self.bytes, sent)
        used = ", ".join(f"{name}={value}" for name, value in self.params.items())
        words = f"hpccoll ran its schedule ({used or 'no messages'}); all ranks agreed on the plan"
        if self.algorithm.aggregates:
            words += "; in software: ranks played the switches"
        if sent is not None:
            counted = self.wire_bytes
            times = f"{sent / counted:.3f} times the bytes it counts" if counted else f"{sent} B, where it counts none"
            words += f"; the ports sent {times}"
        return self.algorithm.name, words
