"""The watchdog: says which rank, case and iteration is stuck, and ends the job instead of letting it hang."""

import os
import sys
import threading
import time
from collections.abc import Callable

from hpccoll.measure.loop import Progress

GRACE = 2.0
"""Seconds between the words and the end, so that every stuck rank gets to speak."""


def watch(progress: Progress, where: Callable[[], str], timeout: float, report: Callable[[str], None]) -> None:
    """Watch ``progress`` from a thread; if nothing moves for ``timeout`` seconds, report it and end this process.

    The launcher ends the other ranks: MPI may not be called here, where the main thread is inside it.

    Args:
        progress: of this rank.
        where: how far the operation under way has come, in words.
        timeout: in seconds.
        report: takes the words.
    """

    def run() -> None:
        seen, since = progress.turns, time.monotonic()
        while True:
            time.sleep(min(1.0, timeout / 4))
            if progress.turns != seen:
                seen, since = progress.turns, time.monotonic()
            elif time.monotonic() - since > timeout:
                inside = f": {where()}" if progress.phase == "in the operation" else ""
                report(
                    f"stuck for {timeout:g} s: case {progress.case}, iteration {progress.iteration}, "
                    f"{progress.phase}{inside}"
                )
                time.sleep(GRACE)
                sys.stderr.flush()
                os._exit(1)

    threading.Thread(target=run, name="watchdog", daemon=True).start()
