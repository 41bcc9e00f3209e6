"""The watchdog of a rank: reports the rank, case and iteration that make no progress, and ends the process."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hpccoll.measure.timing_loop import IN_OPERATION, RankProgress

GRACE = 2.0
"""The seconds between the report and the end of the process, so that every stuck rank can report."""


@contextmanager
def watchdog(
    progress: RankProgress,
    timeout: float,
    report: Callable[[str], None],
    excluded: Callable[[], bool] = lambda: False,
) -> Iterator[None]:
    """Watch ``progress`` from a thread: if it does not change in ``timeout`` seconds, report that and exit.

    The launcher then ends the other ranks. Because the main thread is inside MPI, this thread may
    call MPI only with MPI_THREAD_MULTIPLE, as ``excluded`` does: it returns whether the other ranks
    have continued without this one, and then they end the job.
    """
    finished = threading.Event()

    def run() -> None:
        last = progress.heartbeats
        since = time.monotonic()
        while not finished.wait(min(1.0, timeout / 4)):
            if progress.heartbeats != last:
                last = progress.heartbeats
                since = time.monotonic()
            elif time.monotonic() - since > timeout:
                ended = False
                try:
                    if progress.phase == IN_OPERATION:
                        inside = progress.where()
                    else:
                        inside = progress.phase_details()
                    place = f"{progress.task}, iteration {progress.iteration}, {progress.phase}"
                    place = ": ".join(filter(None, (place, inside)))
                    report(f"stuck for {timeout:g} s: {place}")
                    ended = excluded() or finished.wait(GRACE)
                finally:
                    # otherwise it was slow, not stuck
                    if not ended and progress.heartbeats == last:
                        os._exit(1)
                if ended:
                    return

    threading.Thread(target=run, name="watchdog", daemon=True).start()
    try:
        yield
    finally:
        finished.set()
