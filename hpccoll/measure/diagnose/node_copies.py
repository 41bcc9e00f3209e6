"""The rate at which all CPUs of this node together copy memory.

As a program (python -m hpccoll.measure.diagnose.node_copies) it prints the rate. One thread on each
CPU that the process may use copies between two arrays of its own, which are larger than caches.
Threads begin each repetition together. The bytes of a copy are those read and those written, as in
STREAM (McCalpin).
"""

import json
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from threading import Barrier

import numpy as np

from hpccoll.host.cpu_and_memory import available_memory
from hpccoll.store.schema import BEYOND_CACHES

REPETITIONS = 24
"""Their median is the rate: it shows a slow half of the time, as of a CPU that is too hot, and a maximum would not."""

COPIES = 4
"""The copies of a repetition: much longer than threads take to begin it together."""

MEMORY_SHARE = 0.25
"""The part of the free memory that the arrays of all threads may have together."""


def copy_rate(cpus: Sequence[int]) -> float:
    """Return the bytes per second that threads read and write together, one on each CPU of ``cpus``."""
    affordable = int(MEMORY_SHARE * available_memory() / len(cpus))
    nbytes = max(min(BEYOND_CACHES, affordable) // 2, 1)
    barrier = Barrier(len(cpus))

    def copy_on(cpu: int) -> Sequence[tuple[float, float]]:
        """Return the begin and the end of each repetition, in seconds."""
        os.sched_setaffinity(0, {cpu})  # of this thread, whose first writes place its memory
        source = np.full(nbytes, 1, np.uint8)
        target = np.full(nbytes, 0, np.uint8)
        spans = []
        for _ in range(REPETITIONS):
            barrier.wait()
            begun = time.perf_counter()
            for _ in range(COPIES):
                np.copyto(target, source)
            spans.append((begun, time.perf_counter()))
        return spans

    with ThreadPoolExecutor(len(cpus)) as threads:
        spans_of_threads = list(threads.map(copy_on, cpus))
    times: list[float] = []
    for spans in zip(*spans_of_threads, strict=True):
        first = min(begin for begin, _ in spans)
        last = max(end for _, end in spans)
        times.append(last - first)
    moved_bytes = len(cpus) * COPIES * 2 * nbytes
    return moved_bytes / median(times)


def print_copy_rate() -> None:
    """Print the number of CPUs and the rate of their copies in B/s, as JSON."""
    cpus = sorted(os.sched_getaffinity(0))
    print(json.dumps({"cpus": len(cpus), "rate": copy_rate(cpus)}))


if __name__ == "__main__":
    print_copy_rate()
