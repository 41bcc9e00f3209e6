"""The rate of copies in the memory of a node, measured before the first case: a limit of what its ranks exchange.

All ranks copy at once, each from the next rank's buffer to its own. There are two buffers: while a
rank reads the first and writes the second, the next rank may still read the second; then it reads
the second and writes the first. So a copy reads what another rank wrote shortly before, as a
collective does: small buffers are in that rank's cache. Ranks meet before an iteration, and not
between its copies.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from hpccoll.cases.case import Effort, Job
from hpccoll.common.errors import BadInputError
from hpccoll.executor.barrier import ExecutorBarrier
from hpccoll.executor.compiled_executor import CompiledExecutor, ExecutorOptions
from hpccoll.executor.loop import Blocks, ExecutorLoop
from hpccoll.executor.lowered_step import LocalCopy, LoweredStep
from hpccoll.host.cpu_and_memory import SharedMemorySpace, available_memory
from hpccoll.measure.ranks import Ranks
from hpccoll.measure.timing_loop import PythonLoop, RankProgress, measure
from hpccoll.schedule import COLLECTIVES
from hpccoll.store.case_times import SummaryRule
from hpccoll.store.raw_results import Attempt
from hpccoll.store.schema import BEYOND_CACHES, COPY_RATES
from hpccoll.transports.mpi.shared_windows import SharedMemory

SIZES = tuple(BEYOND_CACHES // 4**quarters for quarters in range(5, -1, -1))
"""The bytes of the two buffers of a rank: 64 KiB to 64 MiB."""

LEAST_BYTES = 1 << 20
"""The bytes that a rank copies in one iteration at least, so that the barrier before it does not count."""

MEMORY_SHARE = 0.25
"""The part of a node's free memory, and of its free shared memory, that the buffers may have."""

EFFORT = Effort(warmup=1, min_iterations=3, max_iterations=10_000, seconds=0.03, precision=1e-6)
"""The effort for a size: no median becomes so precise, so that the time decides. 2 ranks need 0.25 s for all sizes."""


def copy_rates(
    ranks: Ranks,
    job: Job,
    attempt: Attempt,
    options: ExecutorOptions | None,
    progress: RankProgress,
) -> Mapping[str, Any]:
    """Return the rates for the provenance of an attempt, at rank 0; empty elsewhere, and if no case needs them.

    All ranks call this together. Several ranks must share one node, with a core each, and have
    cases in its memory. ``options`` are those of the compiled executor; without them Python copies.
    """
    cases = (case for case in job.cases if case.device == "cpu" and _has_limit(case.collective))
    largest = 2 * max((case.bytes for case in cases), default=0)  # both buffers of a rank
    if (
        attempt.nodes > 1
        or attempt.ranks < 2
        or attempt.aggregators
        or attempt.oversubscribed
        or largest < SIZES[0]
    ):
        return {}
    free = min(available_memory(), SharedMemorySpace.read().free)
    affordable = ranks.agree(int(MEMORY_SHARE * free / attempt.ranks))
    needed = [SIZES[0], *(size for smaller, size in pairwise(SIZES) if smaller < largest)]
    sizes = [size for size in needed if size <= affordable]
    if not sizes:
        return {}
    shared = SharedMemory(ranks.comm)
    progress.begin("the rate of copies")
    progress.enter("preparing")
    try:
        rates = _measure_sizes(ranks, shared, sizes, options, progress)
    except BadInputError:  # on all ranks: too little shared memory
        rates = []
    finally:
        shared.close()
    if not rates:
        return {}
    return {COPY_RATES: {"ranks": attempt.ranks, "sizes": rates}}


def _has_limit(collective: str) -> bool:
    return collective in COLLECTIVES and COLLECTIVES[collective].memory is not None


def _measure_sizes(
    ranks: Ranks,
    shared: SharedMemory,
    sizes: Sequence[int],
    options: ExecutorOptions | None,
    progress: RankProgress,
) -> list[Mapping[str, float]]:
    """Return the bytes and the rate of each size, at rank 0; empty elsewhere.

    The rate is that of the fastest iteration, as in STREAM (McCalpin): a limit does not count what
    disturbs it.

    They are empty, too, if MPI says that not all ranks share memory, whatever their host names are.

    Raises:
        BadInputError: on all ranks, if a node has too little free shared memory.
    """
    comm = ranks.comm
    rates = list[Mapping[str, float]]()
    if -ranks.max_over_ranks(-len(shared.ranks)) < comm.size:
        return rates
    first, second = (shared.empty(max(sizes) // 2, np.dtype(np.uint8)) for _ in range(2))
    for buffer in (first, second):
        buffer[...] = 1
    following = (comm.rank + 1) % comm.size
    next_first, next_second = (shared.views(buffer)[following] for buffer in (first, second))
    barrier = None
    if options:
        barrier = ExecutorBarrier(comm, SharedMemory(comm), options)
    for size in sizes:
        span = slice(size // 2)
        times = -(-LEAST_BYTES // size)
        copies = (
            LocalCopy(second[span], next_first[span]),
            LocalCopy(first[span], next_second[span]),
        )
        loop = _loop(ranks, [[LoweredStep([*copies] * times)]], options, barrier, progress)
        samples = measure(
            loop.run, ranks, EFFORT, progress, rule=SummaryRule(clocks=[0] * comm.size)
        )
        if samples.times is not None:
            ns = samples.times.span_ns.min()
            rates.append({"bytes": size, "Bps": round(comm.size * 2 * size * times / (ns * 1e-9))})
    comm.Barrier()  # no rank frees what another one reads
    if barrier:
        barrier.close()
    return rates


def _loop(
    ranks: Ranks,
    sequences: Sequence[Sequence[LoweredStep]],
    options: ExecutorOptions | None,
    barrier: ExecutorBarrier | None,
    progress: RankProgress,
) -> ExecutorLoop | PythonLoop:
    """Return the timing loop of local work."""
    if options and barrier:
        executor = CompiledExecutor(ranks.comm, options, sequences)
        return ExecutorLoop(executor, _Unchecked(executor.run), 1, barrier, progress.numbers)
    from hpccoll.executor.python_executor import PythonExecutor

    return PythonLoop(
        _Unchecked(PythonExecutor(ranks.comm, sequences, 1, persistent=True).run), ranks, progress
    )


@dataclass
class _Unchecked:
    """Work whose buffers need neither be filled nor checked, for either loop."""

    run: Callable[[], None]
    generation: int = 0
    missized: int = 0
    fills: Blocks = ()
    compared: Blocks = ()
    guard_blocks: Blocks = ()

    def reset(self) -> None:
        """Leave the buffers as they are."""

    def wrong(self) -> int:
        return 0

    def device_ns(self) -> int:
        return -1
