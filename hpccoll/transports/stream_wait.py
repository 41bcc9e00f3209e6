"""How the host waits for the work on a GPU's stream: it polls up to a limit, and meanwhile asks for errors.

``cudaStreamSynchronize`` has no limit, and an operation of NCCL may never end: a peer may be
missing, or the network.
"""

import os
import time
from collections.abc import Callable
from typing import TypeAlias

from hpccoll.common.errors import StalledError

Wait: TypeAlias = Callable[[Callable[[], bool], Callable[[], str | None]], None]
"""A function that waits until its first argument returns True, and raises an error if its second
argument returns the reason why it never will."""

SPIN_S, POLL_INTERVAL_S = 0.5, 1e-3
"""The seconds for which a wait only polls for completion, because it may be timed; and the interval afterwards."""

LIMIT_S = 120.0
"""The limit of waits for which no job has set another one: the default of --timeout."""


def no_error() -> None:
    """Return None: what is waited for reports no errors."""
    return


def poll_until(
    done: Callable[[], bool],
    error: Callable[[], str | None],
    timeout_s: float,
    operation: str = "the operation",
) -> None:
    """Wait until ``done()``, for an operation that is called ``operation``.

    Raises:
        StalledError: if that takes longer than ``timeout_s``, or ``error()`` returns why it never
            will.
    """
    now = time.monotonic()
    spin_until = now + min(SPIN_S, timeout_s / 2)
    deadline = now + timeout_s
    while not done():
        if time.monotonic() < spin_until:
            os.sched_yield()  # NCCL and MPI have their own threads
            continue
        message = error()
        if message:
            raise StalledError(message)
        if time.monotonic() > deadline:
            raise StalledError(f"{operation} did not complete in {timeout_s:.3g} s")
        time.sleep(POLL_INTERVAL_S)


def wait_with_limit(done: Callable[[], bool], error: Callable[[], str | None]) -> None:
    """Wait up to LIMIT_S, as ``Wait``."""
    poll_until(done, error, LIMIT_S)


class Connecting:
    """How ranks wait for the first operation of each plan, in which NCCL connects them.

    A rank program has a subclass (measure/run/connecting.py), which names the ranks and NCCL's log
    if that takes too long.
    """

    has_connected = False
    """Whether all ranks have completed a first operation together."""

    def begin(self, *, by_nccl: bool = True) -> None:
        """NCCL begins to connect: it makes a communicator, or queues a first operation.

        Without ``by_nccl`` the first operation of a plan begins that needs no NCCL.
        """

    def note(self, failure: str) -> None:
        """Keep the error of NCCL on this rank, while other ranks may still wait."""

    def wait(self, done: Callable[[], bool], error: Callable[[], str | None]) -> None:
        """Wait for a first operation; the arguments and errors are those of ``poll_until``."""
        poll_until(done, error, LIMIT_S, "the first operation")

    def await_all(self) -> None:
        """Wait until all ranks have prepared a case or failed; alone, nobody waits."""


CONNECTING = Connecting()
"""How plans outside of a rank program wait."""
