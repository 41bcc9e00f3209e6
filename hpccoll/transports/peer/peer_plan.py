"""The plan of an operation that one kernel executes on the memory of peers."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from hpccoll.common.errors import StalledError
from hpccoll.schedule.operation import Array
from hpccoll.transports.nccl.cupy_device import CupyDevice, StreamCall
from hpccoll.transports.nccl.stream_plan import StreamPlan
from hpccoll.transports.peer.program import Flag

if TYPE_CHECKING:
    from hpccoll.transports.gpu import Gpu
    from hpccoll.transports.stream_wait import Connecting

AWAITED_ACTIONS = {
    "ready": "to send it message {number}",
    "read": "to read its message {number}",
    "begun": "to begin the operation before",
}
"""What a block waits for a peer to do, by the kind of the flag."""

EVIDENCE = "in one kernel, on memory that ranks map by CUDA IPC"
"""How every plan runs, for its rows."""

MOST_NAMED = 3
"""The blocks that a report on a hang names."""


class PeerDevice(CupyDevice):
    """A GPU whose operations need no communicator, and report no error of their own."""

    def __init__(self, gpu: "Gpu", connecting: "Connecting", waits: "Waits") -> None:
        super().__init__(gpu, None, connecting)
        self._waits = waits

    def wait(self) -> None:
        """Wait for a first operation.

        Raises:
            StalledError: if it does not complete in time; names the peers for which blocks wait.
            GpuFailedError: if the GPU fails.
        """
        try:
            super().wait()
        except StalledError as stall:
            words = "; ".join(filter(None, (str(stall), self._waits.described())))
            raise type(stall)(words) from None

    def error(self) -> str | None:
        return None


class Waits:
    """What the host and the blocks of a running kernel tell each other, in pinned host memory.

    Args:
        abort: the word that ends every wait of the kernel, 0 until then.
        numbers: for each block, 0, or 1 + the number of what it has long awaited.
        flags: what a block may await, by its number (program_tables.ProgramTables).
    """

    def __init__(self, abort: Array, numbers: Array, flags: Mapping[int, Flag]) -> None:
        self._abort = abort
        self._numbers = numbers
        self._flags = flags

    def end_all(self) -> None:
        """End the kernel: its blocks do not wait any longer, and leave the operation incomplete."""
        self._abort[0] = 1

    def described(self) -> str:
        """Return what the blocks that wait for long wait for; empty if none does."""
        numbers = self._numbers.tolist()
        waiting = [block for block, number in enumerate(numbers) if number]
        sentences = []
        for block in waiting[:MOST_NAMED]:
            flag = self._flags[numbers[block] - 1]
            action = AWAITED_ACTIONS[flag.kind].format(number=flag.number)
            sentences.append(
                f"block {block} waits in step {flag.step} for rank {flag.peer} {action}"
            )
        if len(waiting) > MOST_NAMED:
            sentences.append(f"{len(waiting) - MOST_NAMED} more blocks wait")
        return "; ".join(sentences)


class PeerPlan(StreamPlan):
    """A plan of one launch, which the host can end."""

    def __init__(
        self,
        device: PeerDevice,
        result: Array,
        launch: StreamCall,
        description: str,
        buffers: Iterable[Array],
        waits: Waits,
    ) -> None:
        super().__init__(device, result, [launch], description, buffers, EVIDENCE)
        self._waits = waits

    def progress(self) -> str:
        """Return the description of the operation, and for which peers its blocks wait."""
        return "; ".join(filter(None, (super().progress(), self._waits.described())))

    def destroy_graphs(self) -> None:
        """End a kernel that still waits for a peer, and destroy the graphs."""
        self._waits.end_all()
        super().destroy_graphs()


def pinned_zeros(gpu: "Gpu", count: int, dtype: type[np.generic]) -> Array:
    """Return an array of zeros in pinned host memory, which kernels see at the same address."""
    words = gpu.pinned(count, np.dtype(dtype))
    words[:] = 0
    return words
