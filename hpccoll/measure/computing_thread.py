"""A thread that computes while the thread that calls MPI drives collectives."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures import Future


class ComputingThread:
    """Computes in a thread, which leaves the calling thread to collectives.

    ``computations`` are those of a step, in the order of its program; ``begin`` precedes them, and
    ``end`` follows the last operation of the step.
    """

    def __init__(
        self,
        computations: Sequence[Callable[[], None]],
        begin: Callable[[], None] | None = None,
        end: Callable[[], None] | None = None,
    ) -> None:
        # only here: other ranks need not import it
        from concurrent.futures import ThreadPoolExecutor

        self._computations = computations
        self._next = iter(computations)
        self._begin = begin
        self._end = end
        self._thread = ThreadPoolExecutor(1, "computations")

    def begin_step(self) -> None:
        """Begin with the first computation again."""
        if self._begin:
            self._begin()
        self._next = iter(self._computations)

    def start(self) -> "Future[None]":
        """Start the next computation, and return its end."""
        return self._thread.submit(next(self._next))

    def end_step(self) -> None:
        """Do what follows the last operation of the step."""
        if self._end:
            self._end()

    def close(self) -> None:
        self._thread.shutdown()
