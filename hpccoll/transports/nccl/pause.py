"""The pause: a kernel that holds a GPU's stream for a time. It stands for a computation of that length."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from hpccoll.transports.gpu import Gpu

SOURCE = Path(__file__).with_name("pause.cu")


def pause(gpu: "Gpu") -> Callable[[int], None]:
    """Return the function that queues a pause of a given number of nanoseconds on the stream of a GPU."""
    launch = gpu.kernel(SOURCE, "pause", np.dtype(np.uint64).itemsize)

    def queue(duration_ns: int) -> None:
        launch((1,), (1,), (np.uint64(duration_ns),))

    queue(0)
    gpu.await_work()  # the first launch loads the kernel
    return queue
