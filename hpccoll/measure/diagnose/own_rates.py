"""What a node does alone: how long it takes to copy memory, to add numbers and to multiply matrices.

Each rank measures for itself, all of them at once: about half a second each. On a host it is NumPy
that works, with one thread for copies and sums, and for products with those that its BLAS starts:
one for each CPU that the rank may use. On a GPU these are the copies, the fold kernel and the
products of our operations.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from hpccoll.diagnosis.nodes_alone import MEMORY, PRODUCT, REDUCTION
from hpccoll.diagnosis.slot_records import Floats
from hpccoll.host.cpu_and_memory import available_memory
from hpccoll.store.raw_results import Attempt
from hpccoll.store.schema import BEYOND_CACHES, ON_TESTBED

if TYPE_CHECKING:
    from hpccoll.transports.gpu import Gpu

REPETITIONS = 16

MEMORY_SHARE = 0.25
"""The part of the free memory of a node that the arrays of its ranks may have together."""

ON_HOST_ROWS, ON_GPU_ROWS = 1024, 4096
"""The rows of the matrices."""

ON_GPU_BYTES, ON_GPU_TIMES = 256 << 20, 32
"""The bytes of an array, which is larger than caches of GPUs, and the calls in a repetition, which
then takes 5 ms on an H100: much longer than the start of a kernel."""

Work = Mapping[str, Callable[[], object]]


def share_a_machine(attempt: Attempt) -> bool:
    """Return whether several hosts share the CPUs of one machine: those of a testbed, or containers of one kernel."""
    clocks = len({place.clock for place in attempt.places})
    return attempt.nodes > 1 and (attempt.kind == ON_TESTBED or clocks < attempt.nodes)


def own_seconds(ranks_of_node: int, gpu: "Gpu | None" = None) -> dict[str, Floats]:
    """Return how long this rank takes, without any other: seconds [repetitions] by MEMORY, REDUCTION and PRODUCT.

    Args:
        ranks_of_node: how many ranks measure on this node at once.
        gpu: that of this rank; None if it is to measure the host. Without cuBLAS there is no
            PRODUCT.
    """
    if gpu is None:
        work = _on_host(ranks_of_node)
    else:
        work = _on_gpu(gpu)
    seconds = np.empty((1 + REPETITIONS, len(work)))
    for row in seconds:
        for column, run in enumerate(work.values()):
            begun = time.perf_counter()
            run()
            row[column] = time.perf_counter() - begun
    # the first repetition touches memory, and loads libraries
    return dict(zip(work, seconds[1:].T, strict=True))


def seconds_of_nodes(
    seconds_of_ranks: Sequence[Mapping[str, Floats]], node_of_rank: Sequence[int]
) -> dict[str, Floats]:
    """Return the seconds [repetitions, nodes] of the slowest rank of each node, for what all ranks have measured."""
    nodes = np.asarray(node_of_rank)
    by_name = {}
    for name in seconds_of_ranks[0]:
        if all(name in seconds for seconds in seconds_of_ranks):
            seconds_of_rank = np.array([seconds[name] for seconds in seconds_of_ranks])
            slowest = [seconds_of_rank[nodes == node].max(0) for node in range(nodes.max() + 1)]
            by_name[name] = np.stack(slowest, axis=1)
    return by_name


def _on_host(ranks_of_node: int) -> Work:
    memory_of_rank = MEMORY_SHARE * available_memory() / max(ranks_of_node, 1)
    vector_bytes = min(BEYOND_CACHES, int(memory_of_rank)) // 2
    elements = max(vector_bytes // np.dtype(np.float32).itemsize, 1)
    source = np.full(elements, 1, np.float32)
    target = np.full(elements, 0, np.float32)
    rows = min(ON_HOST_ROWS, math.isqrt(elements))
    left = np.full((rows, rows), 0.5, np.float32)
    right = np.full((rows, rows), 0.5, np.float32)
    product = np.full((rows, rows), 0.5, np.float32)
    return {
        MEMORY: partial(np.copyto, target, source),
        REDUCTION: partial(np.add, source, target, out=target),
        PRODUCT: partial(np.matmul, left, right, out=product),
    }


def _on_gpu(gpu: "Gpu") -> Work:
    from hpccoll.transports.gpu import missing_cublas
    from hpccoll.transports.nccl.fold import Fold, fold_launches
    from hpccoll.transports.shared_lowering import Span

    count = min(ON_GPU_BYTES, gpu.free_bytes // 4) // 4
    source, target = (gpu.empty(count, np.dtype(np.float32)) for _ in range(2))
    copy, arguments = gpu.copy(target, source)
    whole = [Span(name, 0, count) for name in ("target", "source")]
    (fold,) = fold_launches(
        gpu, "float32", "sum", {"target": target, "source": source}, [[Fold(whole[0], (*whole,))]]
    )

    def repeated(call: Callable[[], object]) -> None:
        for _ in range(ON_GPU_TIMES):
            call()
        gpu.synchronize()  # of what this GPU does alone

    work = {
        MEMORY: partial(repeated, partial(copy, *arguments)),
        REDUCTION: partial(repeated, fold),
    }
    if missing_cublas() is None:
        work[PRODUCT] = partial(repeated, partial(gpu.products(ON_GPU_ROWS), ON_GPU_ROWS, 1))
    return work
