"""Times of calls on a GPU, by the clock of the host or of the device."""

import time
from collections.abc import Callable
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpccoll.transports.gpu import Gpu

ROUNDS = 9


def host_seconds(call: Callable[[], object], times: int) -> float:
    """Return the median time of a call, by the host's clock."""
    found = []
    for _ in range(times):
        began = time.perf_counter_ns()
        call()
        found.append(time.perf_counter_ns() - began)
    return median(found) * 1e-9


def device_seconds(gpu: "Gpu", call: Callable[[], object], times: int) -> float:
    """Return the time of a queued call, by the device's clock, of so many one after the other."""
    start, end = gpu.event(), gpu.event()
    gpu.record(start)
    for _ in range(times):
        call()
    gpu.record(end)
    gpu.synchronize()
    return gpu.elapsed_ns(start, end) * 1e-9 / times


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
