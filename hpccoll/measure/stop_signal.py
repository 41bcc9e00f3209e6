"""The signals that request the end of a launch."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from hpccoll.measure.mpi_startup import without_deadline


class StopSignal:
    """Keeps the first signal that requests an end; the current round of a case is finished before.

    With ``sbatch --signal=USR1@60`` Slurm sends SIGUSR1 60 s before the time limit. On Ctrl-C the launcher sends SIGINT
    (srun with -X).
    """

    def __init__(self) -> None:
        self.signal = 0
        signal.signal(signal.SIGUSR1, self._record)  # before MPI starts: the default action ends this process

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """Treat SIGINT as a stop signal while measuring; at other times it ends this process."""
        before = signal.getsignal(signal.SIGINT)
        if before is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, self._record)
        try:
            with without_deadline():
                yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _record(self, number: int, _frame: object) -> None:
        self.signal = self.signal or number
