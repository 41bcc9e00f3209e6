"""Order on streams: pauses, events between streams, a graph that is destroyed in flight, and an error of CUDA."""

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
from here import Here
from timing import device_seconds
from verdicts import Verdict, bound, holds, recorded

from hpccoll.common.errors import GpuFailedError
from hpccoll.transports.nccl.cupy_device import CupyDevice
from hpccoll.transports.nccl.fold import Fold, fold_launches
from hpccoll.transports.shared_lowering import Span

if TYPE_CHECKING:
    from hpccoll.transports.gpu import Gpu, GpuArray

PAUSES_MS = 1, 20
RACE_NS = 200_000_000
"""How long the writer of a race is late."""
COUNT = 1000

TICKS = """extern "C" __global__ void ticks(unsigned long long* found, int count) {
    unsigned long long last, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(last));
    for (int i = 0; i < count; ++i) {
        do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
        while (now == last);
        found[i] = now - last;
        last = now;
    }
}"""
"""The steps of the timer by which a pause ends, in nanoseconds."""

STORE = """extern "C" __global__ void store(unsigned long long at) { *(int*)at = 1; }"""
NOWHERE = 16
"""An address that no allocation has."""


def order(here: Here) -> Iterator[Verdict]:
    """What plans and training steps rely on."""
    from hpccoll.transports.nccl.pause import pause

    gpu = here.gpu
    held = pause(gpu)
    for milliseconds in PAUSES_MS:
        ratio = (
            device_seconds(gpu, lambda ms=milliseconds: held(ms * 1_000_000), 10)
            / milliseconds
            * 1e3
        )
        yield bound(
            f"pause of {milliseconds} ms, by events / asked",
            ratio,
            "0.98 to 1.02",
            abs(ratio - 1) <= 0.02,
        )
    if not here.on_host:
        yield recorded(
            "smallest and largest step of globaltimer, ns", "{} to {}".format(*timer_steps(gpu))
        )
    raced, waited = race(gpu, held, waits=False), race(gpu, held, waits=True)
    yield holds("a stream that waits for an event sees what was written before it", waited == 1)
    yield bound(
        "one that does not wait sees the old value: the race is one", raced, "0", raced == 0
    )
    yield holds(
        "a graph that is destroyed in flight still gives its result",
        destroyed_in_flight(gpu, held) == 1,
    )


def timer_steps(gpu: "Gpu") -> tuple[int, int]:
    """Return the smallest and the largest step of the timer."""
    import cupy

    count = 200
    found = gpu.upload(np.zeros(count, np.uint64))
    cupy.RawKernel(TICKS, "ticks").kernel((1,), (1,), (found, np.int32(count)), 0, gpu.stream)
    steps = gpu.download(found)[1:]
    return int(steps.min()), int(steps.max())


def copier(gpu: "Gpu", target: "GpuArray", source: "GpuArray") -> Callable[[], object]:
    """Return the call that queues a copy by the fold kernel, warm."""
    buffers = {"target": target, "source": source}
    fold = Fold(Span("target", 0, COUNT), (Span("source", 0, COUNT),))
    (launch,) = fold_launches(gpu, "int32", "sum", buffers, [[fold]])
    launch()
    gpu.synchronize()
    return launch


def value_of(gpu: "Gpu", array: "GpuArray") -> int:
    """Return the value that all elements have; -1 if they differ."""
    found = gpu.download(array)
    return int(found[0]) if (found == found[0]).all() else -1


def race(gpu: "Gpu", held: Callable[[int], None], *, waits: bool) -> int:
    """Return what a stream reads while another is late to write 1; it was 0 before."""
    other = gpu.with_own_stream()
    ones, zeros = (gpu.upload(np.full(COUNT, value, np.int32)) for value in (1, 0))
    shared, seen = (gpu.upload(np.zeros(COUNT, np.int32)) for _ in range(2))
    clear, write, read = (
        copier(gpu, shared, zeros),
        copier(gpu, shared, ones),
        copier(other, seen, shared),
    )
    clear()
    gpu.synchronize()
    written = gpu.event()
    held(RACE_NS)
    write()
    gpu.record(written)
    if waits:
        other.wait_event(written)
    read()
    other.synchronize()
    found = value_of(other, seen)
    gpu.synchronize()
    return found


def destroyed_in_flight(gpu: "Gpu", held: Callable[[int], None]) -> int:
    """Return the result of a graph that is destroyed while it runs."""
    ones, result = (gpu.upload(np.full(COUNT, value, np.int32)) for value in (1, 0))
    write = copier(gpu, result, ones)
    result.set(np.zeros(COUNT, np.int32), stream=gpu.stream)
    gpu.synchronize()

    def both() -> None:
        held(RACE_NS)
        write()

    graph = CupyDevice(gpu, None).capture(both)
    graph.launch()
    graph.close()
    gpu.synchronize()
    return value_of(gpu, result)


def failure(here: Here) -> Iterator[Verdict]:
    """A kernel that writes to an illegal address; this process has no GPU afterwards."""
    import cupy

    gpu = here.gpu
    cupy.RawKernel(STORE, "store").kernel((1,), (1,), (np.uint64(NOWHERE),), 0, gpu.stream)
    until, text = time.monotonic() + 5, "no error in 5 s"
    while time.monotonic() < until and text.startswith("no error"):
        try:
            if gpu.idle():
                text = "no error, and the stream is idle"
                break
        except GpuFailedError as error:
            text = str(error)
    yield holds(
        "an illegal address is an error of the GPU, and has a name", "IllegalAddress" in text, text
    )
