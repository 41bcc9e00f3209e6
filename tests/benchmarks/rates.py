"""The bandwidth of the kernels, as a share of that of a copy on the same GPU.

A copy moves 2 bytes for each byte copied, a fold of n inputs n + 1, a fill and a count 1. The table
of values that a fill and a count read stays in the cache. Where a launch takes longer than the
bytes, the figures are times.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from checks import filled
from here import Here
from timing import device_seconds, graph_seconds, in_rounds, in_turn
from verdicts import Verdict, bound, recorded, right

from hpccoll.common.units import format_size
from hpccoll.schedule import BFLOAT16
from hpccoll.transports.gpu import gpu_dtype
from hpccoll.transports.nccl.fold import Fold, fold_launches
from hpccoll.transports.shared_lowering import Span

if TYPE_CHECKING:
    from hpccoll.transports.gpu import Gpu

SIZES = 64 << 10, 1 << 20, 16 << 20, 1 << 30
LARGE = SIZES[-1]
INPUTS = 1, 2, 4
ASKED = {"fold of 2 float32": 0.9, "fold of 2 bfloat16": 0.9, "fill": 0.8, "count": 0.8}
"""The least share of a copy's bandwidth at the largest size, where a launch is little."""
SMALL = 2 << 20
"""Bytes below which launches decide, of which a graph then has more, so that its own is little."""
SHARE = 0.1
"""The largest part of the free memory for one buffer: a fold of four inputs has five, beside those of a copy."""


def copy_call(gpu: "Gpu", nbytes: int) -> Callable[[], object]:
    """Return the call that queues a copy on the device."""
    source, target = (gpu.empty(nbytes, np.dtype("uint8")) for _ in range(2))
    return lambda: target.data.copy_from_device_async(source.data, nbytes, gpu.stream)


def fold_call(gpu: "Gpu", element: str, nbytes: int, inputs: int) -> Callable[[], object]:
    """Return the call that queues a sum of so many buffers into another one."""
    count = nbytes // (2 if element == BFLOAT16 else np.dtype(element).itemsize)
    stored = gpu_dtype(np.dtype("uint16") if element == BFLOAT16 else np.dtype(element))
    buffers = {f"{number}": gpu.empty(count, stored) for number in range(inputs + 1)}
    out, *own = (Span(name, 0, count) for name in buffers)
    (launch,) = fold_launches(gpu, element, "sum", buffers, [[Fold(out, tuple(own))]])
    return lambda _kept=buffers: launch()


def check_calls(gpu: "Gpu", nbytes: int) -> dict[str, Callable[[], object]]:
    """Return the calls that queue a fill and a count of a buffer."""
    check, dst = filled(gpu, "float32", nbytes)
    check.reset()
    ((grid, block, _, segments),) = check._fills
    fill = np.uint64(segments), np.uint64(check.generation)
    ((wide, threads, _, compared),) = check._checks
    counted = (
        np.uint64(compared),
        np.uint64(check.generation),
        np.uint64(gpu.address(check._counter)),
    )
    return {
        "fill": lambda _kept=(check, dst): check._fill(grid, block, fill),
        "count": lambda _kept=(check, dst): check._count(wide, threads, counted),
    }


def bandwidth(here: Here) -> Iterator[Verdict]:
    """Copies, folds, fills and counts, in graphs by events of the device; and copies from and to pinned memory."""
    gpu = here.gpu
    for nbytes in SIZES:
        if nbytes > SHARE * gpu.free_bytes:
            yield recorded(
                f"{format_size(nbytes)}", "left out: more than a tenth of the free memory"
            )
            continue
        times = 200 if nbytes < SMALL else 20
        copied = graph_seconds(gpu, copy_call(gpu, nbytes), times)
        if nbytes < SMALL:
            yield recorded(
                f"copy of {format_size(nbytes)}, back to back in a graph, us",
                1e6 * in_rounds(copied),
            )
        else:
            yield recorded(
                f"copy of {format_size(nbytes)}, GB/s moved", 2e-9 * nbytes / in_rounds(copied)
            )
        for what, moved, call in calls(gpu, nbytes):
            call()  # warm: a graph loads no kernel
            gpu.synchronize()
            run = graph_seconds(gpu, call, times)
            if nbytes < SMALL:
                yield recorded(
                    f"{what} of {format_size(nbytes)}, back to back in a graph, us",
                    1e6 * in_rounds(run),
                )
                continue
            share = moved / 2 / in_turn(run, copied, rounds=5)
            name = f"{what} of {format_size(nbytes)} / copy"
            least = ASKED[what] if nbytes == LARGE and what in ASKED else None
            yield (
                bound(name, share, f"at least {least:.2f}", share >= least)
                if least
                else recorded(name, share)
            )
        gpu.release()
    yield from pinned_copies(gpu)


def calls(gpu: "Gpu", nbytes: int) -> Iterator[tuple[str, int, Callable[[], object]]]:
    """Yield what is compared with a copy: its name, the bytes moved for each byte of a buffer, and the call."""
    for inputs in INPUTS:
        yield f"fold of {inputs} float32", inputs + 1, fold_call(gpu, "float32", nbytes, inputs)
    if nbytes == LARGE:
        yield "fold of 2 bfloat16", 3, fold_call(gpu, BFLOAT16, nbytes, 2)
    for name, call in check_calls(gpu, nbytes).items():
        yield name, 1, call


def pinned_copies(gpu: "Gpu") -> Iterator[Verdict]:
    """Copies between pinned memory and the GPU, as the transport ``staged`` makes them."""
    for nbytes in SIZES[1:3]:
        host, device = gpu.pinned(nbytes, np.dtype("uint8")), gpu.empty(nbytes, np.dtype("uint8"))
        host[:] = np.arange(nbytes, dtype=np.uint64).astype(np.uint8)
        back = gpu.pinned(nbytes, np.dtype("uint8"))
        back[:] = 0
        for name, (call, arguments) in {
            "to the GPU": gpu.copy(device, host),
            "from the GPU": gpu.copy(back, device),
        }.items():
            queue: Callable[[], Any] = partial(call, *arguments)
            queue()
            gpu.synchronize()
            seconds = device_seconds(gpu, queue, 20)
            yield recorded(
                f"pinned copy of {format_size(nbytes)} {name}, GB/s", 1e-9 * nbytes / seconds
            )
        differing = int((back != host).sum())
        yield right(f"pinned copies of {format_size(nbytes)} to the GPU and back: bytes", differing)
