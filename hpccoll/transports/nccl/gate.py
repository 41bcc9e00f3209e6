"""Kernels that hold a GPU's stream: the gate, until the host opens it, and the pause, for a time.

Work that is queued behind a gate starts when it opens, so that the time in which the host queues is no part of the
work's. A pause stands for a computation.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hpccoll.transports.transport_interface import address

if TYPE_CHECKING:
    from hpccoll.transports.gpu import Gpu

SOURCE = Path(__file__).with_name("gate.cu")


class Gate:
    """A gate on the stream of a GPU.

    Args:
        gpu: the GPU of this rank.
        limit_s: the seconds after which a gate gives up, unless it is opened.
    """

    def __init__(self, gpu: "Gpu", limit_s: float) -> None:
        # CUDA maps all pinned memory, at its address on the host (CUDA Runtime API, Unified Addressing).
        self._words = gpu.pinned(2, np.dtype(np.uint64))
        self._words[:] = 0
        self._launch = gpu.kernel(SOURCE, "gate", self._words.itemsize)
        self._limit_ns = round(limit_s * 1e9)
        self._number = 0
        self.queue()
        self.open()
        gpu.synchronize()  # the first launch loads the kernel, for which a held stream might have to end

    def queue(self) -> None:
        """Queue a gate, which holds the work that is queued after it."""
        self._number += 1
        arguments = (np.uint64(address(self._words)), np.uint64(self._number), np.uint64(self._limit_ns))
        self._launch((1,), (1,), arguments)

    def open(self) -> None:
        """Open all gates that are queued."""
        self._words[0] = self._number

    @property
    def gave_up(self) -> bool:
        """Whether the last gate gave up before it was opened; known when the stream has passed it."""
        return bool(self._words[1] == self._number)


def pause(gpu: "Gpu") -> Callable[[int], None]:
    """Return the function that queues a pause of so many nanoseconds on the stream of a GPU."""
    launch = gpu.kernel(SOURCE, "pause", np.dtype(np.uint64).itemsize)

    def queue(duration_ns: int) -> None:
        launch((1,), (1,), (np.uint64(duration_ns),))

    queue(0)
    gpu.synchronize()  # the first launch loads the kernel
    return queue
