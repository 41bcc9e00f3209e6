"""The interface of transports, and of the plans that they make of operations."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from hpccoll.schedule.operation import Array, Operation
from hpccoll.transports.guarded_memory import GuardedBuffer

if TYPE_CHECKING:
    from hpccoll.executor.compiled_executor import CompiledExecutor
    from hpccoll.executor.python_executor import PythonExecutor


class TransportPlan(Protocol):
    """An operation lowered for one set of buffers."""

    # the part of dst that is defined at this rank after the operation. The check compares it with
    # the expected result
    result: Array

    @property
    def executor(self) -> "CompiledExecutor | PythonExecutor | None":
        """The executor that runs the plan; None if the plan itself makes the calls."""

    @property
    def run(self) -> Callable[[], None]:
        """A function that runs the operation once; on its return, this rank's part is complete.

        The caller guarantees that a GPU is idle, because a wait inside would be timed:
        ``GpuCheck.reset``, which precedes each run of the timing loop, warm-up and counting pass
        included, returns when the GPU has finished.
        """

    def progress(self) -> str:
        """Return a description of how far a run has come, for reports on stalled runs."""

    def close(self) -> None:
        """Free the plan's resources; it cannot run again."""


class Transport(Protocol):
    """A way to move bytes."""

    # the buffers from ``empty``, in that order, and then their host copies, if any
    guarded: list[GuardedBuffer]

    def empty(self, count: int, dtype: np.dtype[np.generic]) -> Array:
        """Return a buffer of ``count`` elements in memory suited to this transport."""

    def plan(self, operation: Operation, src: Array, dst: Array) -> TransportPlan:
        """Lower ``operation`` for these buffers; all ranks call this together. In place, src is unused.

        Raises:
            PlanMismatchError: if the plans of the ranks do not match.
        """

    def close(self) -> None:
        """Free the buffers after all plans are closed; all ranks call this together."""

    def close_alone(self) -> None:
        """Free the buffers on this rank, without the other ranks: after a stall, they may not come."""


class PlanMismatchError(RuntimeError):
    """Two ranks disagree on the messages between them; the message names both."""


def check_agreement(mismatched_peers: Sequence[Sequence[int]]) -> None:
    """Check that the plans of all ranks match; all ranks call this with the same argument.

    Args:
        mismatched_peers: for each rank, the peers that would send messages that it does not expect.

    Raises:
        PlanMismatchError: on every rank, if any pair disagrees; names both ranks of each pair.
    """
    faults: list[str] = []
    for me, peers in enumerate(mismatched_peers):
        faults += [
            f"rank {peer} would send messages that rank {me} does not expect" for peer in peers
        ]
    if faults:
        raise PlanMismatchError("; ".join(faults))


def aligned_empty(count: int, dtype: np.dtype[np.generic], alignment: int = 4096) -> Array:
    """Return an uninitialised array whose first element is aligned to ``alignment`` bytes."""
    memory = np.empty(count * dtype.itemsize + alignment, np.uint8)
    offset = -memory.ctypes.data % alignment
    return memory[offset : offset + count * dtype.itemsize].view(dtype)


def address(array: Any) -> int:
    """Return the address of the first element of a NumPy or CuPy array."""
    if isinstance(array, np.ndarray):
        return int(array.ctypes.data)
    return int(array.data.ptr)
