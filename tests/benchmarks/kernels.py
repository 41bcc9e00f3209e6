"""What our own kernels and calls cost on a GPU, beside a copy and beside the bare call of NCCL.

Two ways take turns, round by round, so that clocks that change slow both down; a ratio is that of two medians of the
same round, and what is given is the median of them.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hpccoll.evidence.communicator_settings import COMMUNICATOR_SETTINGS
from hpccoll.schedule import COLLECTIVES, REDUCTIONS, Layout, dtype_of
from hpccoll.transports.gpu import Gpu
from hpccoll.transports.transport_interface import Operation
from hpccoll.units import format_size

if TYPE_CHECKING:
    from hpccoll.measure.prepared_case import PreparedCase

ROUNDS = 9
LARGE = 256 << 20
"""Bytes: beyond every cache."""

UNCHECKED = SimpleNamespace(reset=lambda: None, wrong=lambda: 0)
"""In place of the check of a result."""


class Here(NamedTuple):
    """The GPU, where to leave what was measured, and what else was asked."""

    gpu: Gpu
    out: Path
    keyword: str | None


class Verdict(NamedTuple):
    """One line of the table: what was got, in what unit, and what is asked."""

    what: str
    got: float
    asked: str
    reached: bool


def host_seconds(call: Callable[[], object], times: int) -> float:
    """Return the median time of a call, by the host's clock."""
    found = []
    for _ in range(times):
        began = time.perf_counter_ns()
        call()
        found.append(time.perf_counter_ns() - began)
    return median(found) * 1e-9


def device_seconds(gpu: Gpu, call: Callable[[], object], times: int) -> float:
    """Return the time of a queued call, by the device's clock, of so many one after the other."""
    start, end = gpu.event(), gpu.event()
    start.record(gpu.stream)
    for _ in range(times):
        call()
    end.record(gpu.stream)
    gpu.synchronize()
    return gpu.elapsed_ns(start, end) * 1e-9 / times


def in_turn(one: Callable[[], float], other: Callable[[], float]) -> float:
    """Return the median over rounds of what one takes over what the other does."""
    one(), other()  # warm
    return median(one() / other() for _ in range(ROUNDS))


def dispatch(here: Here) -> Iterator[Verdict]:
    """Our path for an 8 B all-reduce on one rank, beside the bare calls of CuPy: queue, and wait for the stream."""
    from cupy.cuda import nccl
    from mpi4py import MPI

    from hpccoll.measure.recovery import wait
    from hpccoll.measure.stream_timing import SingleTiming
    from hpccoll.transports.nccl import communicator_config, communicators
    from hpccoll.transports.nccl.vendor import NcclVendorTransport

    gpu = here.gpu
    call, dtype = COLLECTIVES["all_reduce"].call(1), np.dtype("float32")
    asked = Operation(call, Layout.of(1), (), 2, dtype, REDUCTIONS["sum"], in_place=True)
    buffer = gpu.empty(2, dtype)
    communicator = communicators.nccl_world(MPI.COMM_SELF).communicator
    address, stream = gpu.address(buffer), gpu.stream

    def bare() -> None:
        communicator.allReduce(address, address, 2, nccl.NCCL_FLOAT32, nccl.NCCL_SUM, stream.ptr)
        stream.synchronize()

    for graph in (False, True):
        plan = NcclVendorTransport(MPI.COMM_SELF, gpu, graph=graph).plan(asked, buffer[:0], buffer)
        alone, sync = (SingleTiming(plan, gpu, UNCHECKED) for _ in range(2))
        sync.wait_by(partial(wait, timeout_s=60))
        ways = {"": plan.run, ", as one rank is timed": alone.run, ", as several are": sync.run}
        for timed, run in ways.items():
            ratio = in_turn(lambda run=run: host_seconds(run, 2000), lambda: host_seconds(bare, 2000))
            what = f"8 B all-reduce on one rank{', as a graph' if graph else ''}{timed} / bare CuPy call"
            bound = not graph and not timed  # between two events a row has their recording, too
            yield Verdict(what, ratio, "at most 1.10" if bound else "no bound", not bound or ratio <= 1.1)
        plan.close()
    if not communicator_config.missing_for_nccl4py(COMMUNICATOR_SETTINGS["max_ctas"].since):
        made = communicator_config.ConfiguredNccl({"max_ctas": 32})
        plan = NcclVendorTransport(MPI.COMM_SELF.Dup(), gpu, library=made).plan(asked, buffer[:0], buffer)
        ratio = in_turn(lambda: host_seconds(plan.run, 2000), lambda: host_seconds(bare, 2000))
        yield Verdict("8 B all-reduce on one rank, communicator by nccl4py / bare CuPy call", ratio, "no bound", True)
        plan.close()
    communicators.close_all_worlds()


def timings(here: Here) -> Iterator[Verdict]:
    """The timings of one all-reduce of NCCL on one rank, side by side: each over that of a single operation."""
    from mpi4py import MPI

    from hpccoll.measure.prepared_case import PreparedCase
    from hpccoll.spec.case import SINGLE, TIMINGS, Case
    from hpccoll.transports.nccl import communicators

    about = {"collective": "all_reduce", "algorithm": "native", "transport": "nccl", "device": "cuda"}
    for nbytes, graph in product((8, 64 << 10, 1 << 20, LARGE), (0, 1)):
        made = {
            timing: PreparedCase(
                MPI.COMM_SELF, Layout.of(1), Case(**about, bytes=nbytes, timing=timing, params={"graph": graph}),
                gpu=here.gpu,
            )
            for timing in TIMINGS
        }  # fmt: skip
        for timing in TIMINGS[1:]:
            ratio = in_turn(partial(timed_seconds, made[timing]), partial(timed_seconds, made[SINGLE]))
            what = f"{format_size(nbytes)} all-reduce on one rank{', as a graph' if graph else ''}: {timing} / single"
            yield Verdict(what, ratio, "no bound", True)
        for prepared in made.values():
            prepared.close()
    communicators.close_all_worlds()


def timed_seconds(prepared: "PreparedCase") -> float:
    """Return the median time of an operation of a case, as its timing has it; its results have to be right."""
    found = []
    for _ in range(50):
        prepared.reset()
        began = time.perf_counter_ns()
        prepared.run()
        on_host = time.perf_counter_ns() - began
        found.append(on_host / prepared.operations)
        assert not prepared.wrong(), prepared.diagnose()
    return median(found) * 1e-9


def copy_of(gpu: Gpu, nbytes: int) -> Callable[[], None]:
    """Return the call that queues a copy of so many bytes on the device: it moves 2 bytes for each of them."""
    source, target = (gpu.empty(nbytes, np.dtype("uint8")) for _ in range(2))
    return lambda: target.data.copy_from_device_async(source.data, nbytes, gpu.stream)


def fold(here: Here) -> Iterator[Verdict]:
    """The fold kernel on 256 MiB, 3 bytes moved for each byte folded, beside a copy, 2 for each byte copied."""
    from hpccoll.transports.buffer_pieces import Span
    from hpccoll.transports.nccl.fold import Fold
    from hpccoll.transports.nccl.fold_kernel import FoldLauncher

    gpu = here.gpu
    copy = copy_of(gpu, LARGE)
    for element in ("float32", "bfloat16", "float16", "float64", "int32"):
        dtype = dtype_of(element)
        count = LARGE // dtype.itemsize
        buffers = {name: gpu.empty(count, dtype) for name in ("own", "arrival")}
        for buffer in buffers.values():
            buffer.fill(0)
        own, arrival = (Span(name, 0, count) for name in buffers)
        (launch,) = FoldLauncher(gpu).launches(element, "sum", buffers, [[Fold(own, (own, arrival))]])
        times = in_turn(
            lambda launch=launch: device_seconds(gpu, launch, 20) / 3, lambda: device_seconds(gpu, copy, 20) / 2
        )
        asked = element in ("float32", "bfloat16")
        bound = "at least 0.90" if asked else "no bound"
        yield Verdict(f"fold of 256 MiB {element} / copy bandwidth", 1 / times, bound, not asked or 1 / times >= 0.9)


def check(here: Here) -> Iterator[Verdict]:
    """A payload's fill, which writes S bytes, and its check, which reads S, beside a copy, 2 for each byte copied."""
    from hpccoll.measure.payload import Payload
    from hpccoll.measure.result_check_gpu import GpuCheck

    gpu = here.gpu
    copy = copy_of(gpu, 4 * LARGE)  # so large that the wait at the end of each call is little
    for element in ("float32", "bfloat16"):
        dtype = dtype_of(element)
        count = 4 * LARGE // dtype.itemsize
        payload = Payload(COLLECTIVES["all_reduce"].call(2), REDUCTIONS["sum"], dtype, count, 0)
        dst = gpu.empty(count, dtype)
        made = GpuCheck(payload, dst[:0], dst, dst, gpu, in_place=True)
        for name, call in (("payload", made.reset), ("check", made.wrong)):
            times = in_turn(lambda call=call: host_seconds(call, 20), lambda: device_seconds(gpu, copy, 20) / 2)
            got = 1 / times
            yield Verdict(f"{name} of 1 GiB {element} / copy bandwidth", got, "at least 0.80", got >= 0.8)
