"""What launches and events cost: the host's and the device's microseconds of each."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from here import Here
from rates import fold_call
from timing import device_seconds, graph_seconds, host_seconds, in_rounds, in_turn, launch_seconds
from verdicts import Verdict, bound, recorded

if TYPE_CHECKING:
    from hpccoll.transports.gpu import Gpu

LAUNCHED = 500
"""Kernels that follow one another: fewer than CUDA queues before the host has to wait."""
LAUNCHES = 21
"""Those of a ring of 8 ranks: 14 groups and 7 folds."""

EMPTY = 'extern "C" __global__ void empty() {}'
MICRO = 1e6


def empty_kernel(gpu: "Gpu") -> Callable[[], object]:
    """Return the call that queues a kernel that does nothing."""
    import cupy

    kernel, stream = cupy.RawKernel(EMPTY, "empty").kernel, gpu.stream
    return lambda: kernel((1,), (1,), (), 0, stream)


def costs(here: Here) -> Iterator[Verdict]:
    """Launches: waited for, at the host's rate, back to back on the device; and 21 of them directly and as a graph."""
    from hpccoll.transports.nccl.cupy_device import CupyDevice

    gpu = here.gpu
    for name, queue in {
        "an empty kernel": empty_kernel(gpu),
        "a fold of 4 KiB": fold_call(gpu, "float32", 4096, 2),
    }.items():

        def waited(queue: Callable[[], object] = queue) -> None:
            queue()
            gpu.synchronize()

        waited()
        yield recorded(f"{name}, queued and waited for, us", MICRO * host_seconds(waited, 1000))
        times = {
            "one after the other by the host: its launch rate": partial(
                launch_seconds, gpu, queue, LAUNCHED
            ),
            "back to back on the device, queued behind a pause": partial(
                device_seconds, gpu, queue, LAUNCHED
            ),
            "back to back on the device, in a graph": graph_seconds(gpu, queue, LAUNCHED),
        }
        for how, measure in times.items():
            yield recorded(f"{name}, {how}, us", MICRO * in_rounds(measure))
    event, other, stream = gpu.event(), gpu.event(), gpu.stream
    yield recorded(
        "recording an event, host, us",
        MICRO * queued_seconds(gpu, lambda: event.record(stream), 500),
    )
    yield recorded("streamQuery of an idle stream, host, us", MICRO * host_seconds(gpu.idle, 1000))
    for each in (event, other):
        gpu.record(each)
    gpu.synchronize()
    yield recorded(
        "elapsed time of two events, host, us",
        MICRO * host_seconds(lambda: gpu.elapsed_ns(event, other), 1000),
    )
    yield recorded(
        "elapsed time of two events in a row, device, ns",
        1e9 * in_rounds(partial(floor_of_events, gpu)),
    )

    launch = fold_call(gpu, "float32", 4096, 2)

    def directly() -> None:
        for _ in range(LAUNCHES):
            launch()

    graph = CupyDevice(gpu, None).capture(directly)

    def both(queue: Callable[[], object]) -> Callable[[], float]:
        def run() -> None:
            queue()
            gpu.synchronize()

        run()
        return lambda: host_seconds(run, 200)

    one, many = both(graph.launch), both(directly)
    yield recorded(f"{LAUNCHES} folds of 4 KiB directly, us", MICRO * many())
    yield recorded(f"{LAUNCHES} folds of 4 KiB as one graph, us", MICRO * one())
    ratio = in_turn(one, many)
    yield bound(f"{LAUNCHES} folds as a graph / directly", ratio, "below 1", ratio < 1)
    graph.close()


def floor_of_events(gpu: "Gpu") -> float:
    """Return the seconds between two events in a row on an idle stream: the floor of every time by events."""
    first, second = gpu.event(), gpu.event()
    for event in (first, second):
        gpu.record(event)
    gpu.synchronize()
    return gpu.elapsed_ns(first, second) * 1e-9


def queued_seconds(gpu: "Gpu", queue: Callable[[], object], times: int) -> float:
    """Return the host's time of a call that queues work; fewer than a launch queue holds, so that none blocks."""
    gpu.synchronize()
    found = host_seconds(queue, times)
    gpu.synchronize()
    return found
