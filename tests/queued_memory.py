"""Memory as of a GPU: folds and copies in it are queued, and executed when a caller waits for it.

Who lets MPI read it too early, or ends before the queue does, has a wrong result. Kernels are
compiled for the host; NumPy's functions flush subnormal numbers in it, as CuPy's do.
"""

import ctypes

import numpy as np
from cpu_kernels import HostGpu, queued_folds

from hpccoll.transports.nccl import fold
from hpccoll.transports.transport_interface import aligned_empty


class QueuedArray(np.ndarray):
    """An array whose folds and copies by NumPy go to a queue."""

    queue = None

    def __array_finalize__(self, of):
        self.queue = getattr(of, "queue", None)

    def __array_ufunc__(self, ufunc, method, *inputs, out, **more):
        assert method == "__call__", method
        plain, target = [np.asarray(one) for one in inputs], np.asarray(out[0])

        def do():
            ufunc(*plain, out=target, **more)
            if target.dtype == np.float32:
                target[np.abs(target) < np.finfo(np.float32).tiny] = 0

        self.queue.append(do)
        return out[0]

    def __array_function__(self, function, types, arguments, more):
        assert function is np.copyto, function
        target, source = (np.asarray(one) for one in arguments)
        self.queue.append(lambda: np.copyto(target, source, **more))


class QueuedMemory(HostGpu):
    """Takes the place of a Gpu for transports over MPI.

    Args:
        directory: where the kernels are compiled, and that of folds is.
    """

    number = 0

    def __init__(self, directory):
        super().__init__(directory)
        self.queue, self.waits, self.stream = [], 0, self
        fold._function = queued_folds(directory)

    def empty(self, count, dtype):
        array = aligned_empty(count, dtype).view(QueuedArray)
        array.queue = self.queue
        return array

    def pinned(self, count, dtype):
        return aligned_empty(count, dtype)

    def copy(self, target, source):
        to, of = np.asarray(target), np.asarray(source)
        return self.queue.append, (lambda: np.copyto(to, of),)

    def launch(self, function, *arguments):
        """Queue a call of a C function of whole numbers, as the stream of a GPU does."""
        words = [ctypes.c_uint64(int(argument)) for argument in arguments]
        self.queue.append(lambda: function(*words))

    def synchronize(self):
        self.waits += 1
        with np.errstate(all="ignore"):  # a plan's first run folds whatever lies in its buffers
            for do in self.queue:
                do()
        self.queue.clear()

    def await_work(self):
        self.synchronize()

    @property
    def sync_calls(self):
        return [(self.synchronize, ())]
