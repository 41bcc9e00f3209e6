"""The Python executor: runs lowered steps by calls of mpi4py. It is the readable reference of the one in C."""

import os
from collections.abc import Callable, Iterator, Sequence

from mpi4py import MPI

from hpccoll.executor.lowered_step import LoweredStep, describe_progress


class PythonExecutor:
    """Runs the sequences of a plan; sequences advance independently.

    Args:
        initial: the number of sequences that start at once; each other sequence waits until the
            sequence ``initial`` before it has completed its first step.
        persistent: whether the requests are created once; otherwise each run creates new ones.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        sequences: Sequence[Sequence[LoweredStep]],
        initial: int,
        *,
        persistent: bool,
    ) -> None:
        self.sequences = sequences
        self._initial = initial
        self._steps: list[list[_ExecutableStep]] = []
        self.requests: list[MPI.Prequest] = []
        self._max_messages = 0
        for sequence in sequences:
            executable = [_ExecutableStep(comm, step, persistent=persistent) for step in sequence]
            self._steps.append(executable)
            for step in executable:
                self.requests += step.requests
            self._max_messages = max(
                [self._max_messages, *(len(step.messages) for step in sequence)]
            )
        self._step_index = [0] * len(sequences)
        self._started = len(sequences)
        self._running: Iterator[None] = iter(())

    def run(self) -> None:
        """Run all sequences once."""
        for _ in self._polls():
            # MPICH's Waitsome never yields: with more ranks than cores it takes 46 ms, and this
            # loop 0.5 ms.
            os.sched_yield()

    def start(self) -> None:
        """Start a run."""
        self._running = self._polls()
        self.advance()

    def advance(self) -> bool:
        """Advance a started run until it would have to wait; return whether it has ended."""
        return next(self._running, self) is self

    def _polls(self) -> Iterator[None]:
        """Run all sequences once, and yield whenever nothing has completed."""
        if len(self._step_index) == 1:
            return self._run_sequence()
        return self._run_sequences()

    def _run_sequence(self) -> Iterator[None]:
        # MPICH's Waitall is slower than repeated Testall (1 KiB on 2 ranks: 4.1 us against 3.3 us),
        # and like its Waitsome it does not yield to ranks that share a core.
        completed = MPI.Request.Testall
        self._step_index[0] = 0
        for step in self._steps[0]:
            requests = step.start()
            while not completed(requests):
                yield
            step.finish()
            self._step_index[0] += 1

    def _run_sequences(self) -> Iterator[None]:
        count = len(self._steps)
        self._step_index[:] = [0] * count
        slots = self._max_messages
        active: list[MPI.Request] = [MPI.REQUEST_NULL] * (slots * count)
        pending = [0] * count
        self._started = running = 0
        while True:
            while self._started < count and self._may_start(self._started):
                pending[self._started] = self._start_step(self._started, active)
                running += pending[self._started] > 0
                self._started += 1
            if not running:
                return
            completed = MPI.Request.Testsome(active)
            if not completed:
                yield
                continue
            for request in completed:
                number = request // slots
                pending[number] -= 1
                if not pending[number]:
                    self._steps[number][self._step_index[number]].finish()
                    self._step_index[number] += 1
                    pending[number] = self._start_step(number, active)
                    running -= not pending[number]

    def _may_start(self, number: int) -> bool:
        """Return whether a sequence may start: at once, or after its predecessor has completed a step or has none."""
        before = number - self._initial
        return before < 0 or self._step_index[before] > 0 or not self._steps[before]

    def _start_step(self, number: int, active: list[MPI.Request]) -> int:
        """Start a sequence's next step with messages, and return their number; return 0 at the end of the sequence."""
        steps = self._steps[number]
        while self._step_index[number] < len(steps):
            step = steps[self._step_index[number]]
            requests = step.start()
            if requests:
                first = number * self._max_messages
                active[first : first + len(requests)] = requests
                return len(requests)
            step.finish()
            self._step_index[number] += 1
        return 0

    def progress(self) -> str:
        """Return the current step of each started sequence, and the peers of that step."""
        return describe_progress(self.sequences[: self._started], self._step_index[: self._started])

    def close(self) -> None:
        """Free the requests."""
        for request in self.requests:
            request.Free()


class _ExecutableStep:
    def __init__(self, comm: MPI.Intracomm, step: LoweredStep, *, persistent: bool) -> None:
        self._before = [work.call() for work in step.before]
        self._after = [work.call() for work in step.after]
        self.requests: list[MPI.Prequest] = []
        self._starts: list[Callable[[], MPI.Request]] = []
        if persistent:
            self.requests = [message.persistent(comm) for message in step.messages]
        else:
            self._starts = [message.transient(comm) for message in step.messages]

    def start(self) -> Sequence[MPI.Request]:
        """Do the work before the messages, start the messages, and return their requests."""
        for call, arguments in self._before:
            call(*arguments)
        if self.requests:
            MPI.Prequest.Startall(self.requests)
            return self.requests
        return [start() for start in self._starts]

    def finish(self) -> None:
        """Do the work after the messages."""
        for call, arguments in self._after:
            call(*arguments)
