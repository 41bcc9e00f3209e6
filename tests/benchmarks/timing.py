"""Times of calls on a GPU, by the clock of the host or of the device."""

import time
from collections.abc import Callable
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpccoll.transports.gpu import Gpu

ROUNDS = 9
HELD_NS = 1_000_000
"""How long a stream is held at first while calls are queued behind, longer if the host takes longer for them."""


def host_seconds(call: Callable[[], object], times: int) -> float:
    """Return the median time of a call, by the host's clock."""
    found = []
    for _ in range(times):
        began = time.perf_counter_ns()
        call()
        found.append(time.perf_counter_ns() - began)
    return median(found) * 1e-9


def device_seconds(gpu: "Gpu", call: Callable[[], object], times: int) -> float:
    """Return the time of a queued call, of so many back to back on the device, by its clock.

    A pause holds the stream until the host has queued all of them: otherwise short kernels are as
    slow as it launches them. CUDA takes about 1000 launches before it has the host wait, so that
    ``times`` must be smaller.
    """
    from hpccoll.transports.nccl.pause import pause

    hold, start, end = pause(gpu), gpu.event(), gpu.event()
    held_ns = HELD_NS
    while True:
        began = time.perf_counter_ns()
        hold(held_ns)
        gpu.record(start)
        for _ in range(times):
            call()
        gpu.record(end)
        queued_ns = time.perf_counter_ns() - began
        gpu.synchronize()
        if queued_ns < held_ns:
            return gpu.elapsed_ns(start, end) * 1e-9 / times
        held_ns = 2 * queued_ns


def launch_seconds(gpu: "Gpu", call: Callable[[], object], times: int) -> float:
    """Return the time of a call, of so many that the host launches one after the other: its launch rate, mostly."""
    start, end = gpu.event(), gpu.event()
    gpu.record(start)
    for _ in range(times):
        call()
    gpu.record(end)
    gpu.synchronize()
    return gpu.elapsed_ns(start, end) * 1e-9 / times


def in_rounds(measure: Callable[[], float], rounds: int = ROUNDS) -> float:
    """Return the median of a time over rounds, after one that warms up."""
    measure()
    return median(measure() for _ in range(rounds))


def graph_seconds(gpu: "Gpu", call: Callable[[], object], times: int) -> Callable[[], float]:
    """Return the function that returns the time of a queued call, of so many in one graph, by the device's clock.

    A host that queues them one by one is slower than small kernels are.
    """
    from hpccoll.transports.nccl.cupy_device import CupyDevice

    def queue() -> None:
        for _ in range(times):
            call()

    graph = CupyDevice(gpu, None).capture(queue)
    # A graph holds addresses only: ``call`` keeps the buffers.
    return lambda _kept=call: device_seconds(gpu, graph.launch, 1) / times


def in_turn(one: Callable[[], float], other: Callable[[], float], rounds: int = ROUNDS) -> float:
    """Return the median over rounds of what one takes over what the other does.

    Both take turns, so that a clock that changes slows both down.
    """
    one(), other()  # warm
    return median(one() / other() for _ in range(rounds))
