"""Figures that were measured wrongly before: products by their values, rows and calls; and the L2 cache."""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import cycle, product
from typing import TYPE_CHECKING, Any

import numpy as np
from here import Here
from rates import fold_call
from timing import device_seconds, graph_seconds, in_rounds
from verdicts import Verdict, not_run, recorded

from hpccoll.common.units import format_size
from hpccoll.transports.gpu import missing_cublas

if TYPE_CHECKING:
    from hpccoll.transports.gpu import Gpu

ROWS, VALUES, CALLS = (2048, 4096), ("constant", "random"), ("dot", "matmul")
PRODUCTS = 200
"""Those of a batch."""
SECONDS = 0.7
"""How long products run before clock and power are read, because the power of a GPU is an average over time."""
ROUNDS = 5
BUFFERS = 64
"""Sets of buffers between which folds rotate, so that none finds its own in the cache."""
FOLDED = 1 << 20, 4 << 20


def figures(here: Here) -> Iterator[Verdict]:
    """Products with clock and power, and folds of buffers that the L2 cache holds or does not."""
    if reason := missing_cublas():
        yield not_run("products of matrices", reason)
    else:
        for rows, values, call in product(ROWS, VALUES, CALLS):
            yield products(here.gpu, rows, values, call)
    for nbytes in FOLDED:
        hot = [fold_call(here.gpu, "float32", nbytes, 2)]
        cold = [fold_call(here.gpu, "float32", nbytes, 2) for _ in range(BUFFERS)]
        for name, calls in (
            ("the same buffers", hot),
            (f"{BUFFERS} sets of buffers in turn", cold),
        ):
            what = f"fold of 2 float32 of {format_size(nbytes)}, {name}, us"
            yield recorded(what, 1e6 * folds(here.gpu, calls))
        here.gpu.release()


def products(gpu: "Gpu", rows: int, values: str, call: str) -> Verdict:
    """Return the rate of products of one kind, and the clock and the power at the end."""
    queue = product_call(gpu, rows, values, call)
    until = time.monotonic() + SECONDS
    rates = []
    while time.monotonic() < until:
        rates.append(2e-12 * rows**3 / device_seconds(gpu, queue, PRODUCTS))
    for _ in range(PRODUCTS):
        queue()
    state = clock_and_power(gpu)  # while they run
    gpu.synchronize()
    what = (
        f"products of {rows} rows, {values} values, by {call}: TFLOP/s in the end, clock and power"
    )
    return recorded(what, f"{rates[-1]:.4g}; {state}")


def product_call(gpu: "Gpu", rows: int, values: str, call: str) -> Callable[[], object]:
    """Return the call that queues a product, warm."""
    import cupy

    random = np.random.default_rng(1)
    made = []
    for constant in (0.5, 0.25):
        flat = (
            random.uniform(-1, 1, rows * rows)
            if values == "random"
            else np.full(rows * rows, constant)
        )
        made.append(gpu.upload(flat.astype(np.float16).reshape(rows, rows)))
    a, b = made
    c = gpu.empty(rows * rows, np.dtype(np.float16)).reshape(rows, rows)
    multiply: Callable[[], Any] = (
        partial(a.dot, b, c) if call == "dot" else partial(cupy.matmul, a, b, out=c)
    )

    def queue() -> None:
        with gpu.stream:
            multiply()

    queue()
    gpu.synchronize()  # the first product loads the library
    return queue


def clock_and_power(gpu: "Gpu") -> str:
    """Return what NVML reports now."""
    try:
        import pynvml

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByPciBusId(gpu.id.encode())
        clock = pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)
        return f"{clock} MHz, {pynvml.nvmlDeviceGetPowerUsage(handle) / 1e3:.0f} W"
    except Exception as error:  # noqa: BLE001  without NVML the rates remain
        return f"unknown: {error}"


def folds(gpu: "Gpu", calls: Sequence[Callable[[], object]]) -> float:
    """Return the seconds of a fold, of calls in turn in one graph."""
    turn = cycle(calls)
    for call in calls:
        call()
    gpu.synchronize()
    run = graph_seconds(gpu, lambda _kept=calls: next(turn)(), 2 * BUFFERS)
    return in_rounds(run, ROUNDS)
