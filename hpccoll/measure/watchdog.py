"""The watchdog: says which rank, case and iteration is stuck, and ends the job instead of letting it hang."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hpccoll.measure.timing_loop import RankProgress

GRACE = 2.0
"""Seconds between the words and the end, so that every stuck rank gets to speak."""


@contextmanager
def watchdog(
    progress: RankProgress,
    where: Callable[[], str],
    timeout: float,
    report: Callable[[str], None],
    spared: Callable[[], bool] = lambda: False,
) -> Iterator[None]:
    """Watch ``progress`` from a thread; if nothing moves for ``timeout`` seconds, report it and end this process.

    The launcher ends the other ranks: MPI may not be called here, where the main thread is inside it.

    Args:
        progress: of this rank.
        where: how far the operation under way has come, in words.
        timeout: in seconds.
        report: takes the words.
        spared: returns whether the others have gone on without this rank: then it is theirs to end the job.
    """
    over = threading.Event()

    def run() -> None:
        seen, since = progress.heartbeats, time.monotonic()
        while not over.wait(min(1.0, timeout / 4)):
            if progress.heartbeats != seen:
                seen, since = progress.heartbeats, time.monotonic()
            elif time.monotonic() - since > timeout:
                inside = f": {where()}" if progress.phase == "in the operation" else ""
                place = f"case {progress.case}, iteration {progress.iteration}, {progress.phase}{inside}"
                ended = False
                try:
                    report(f"stuck for {timeout:g} s: {place}")
                    ended = spared() or over.wait(GRACE)
                finally:
                    if not ended and progress.heartbeats == seen:  # else it was slow, not stuck
                        os._exit(1)
                if ended:
                    return

    threading.Thread(target=run, name="watchdog", daemon=True).start()
    try:
        yield
    finally:
        over.set()
