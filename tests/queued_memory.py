"""Memory as of a GPU: folds and copies in it are queued, and executed when a caller waits for it.

Who lets MPI read it too early, or ends before the queue does, has a wrong result.
"""

import numpy as np

from hpccoll.transports.transport_interface import aligned_empty


class QueuedArray(np.ndarray):
    """An array whose folds and copies go to a queue."""

    queue = None

    def __array_finalize__(self, of):
        self.queue = getattr(of, "queue", None)

    def __array_ufunc__(self, ufunc, method, *inputs, out, **more):
        assert method == "__call__", method
        plain = [np.asarray(one) for one in inputs]
        self._put(lambda: ufunc(*plain, out=np.asarray(out[0]), **more))
        return out[0]

    def __array_function__(self, function, types, arguments, more):
        assert function is np.copyto, function
        target, source = (np.asarray(one) for one in arguments)
        self._put(lambda: np.copyto(target, source, **more))

    def _put(self, do):
        self.queue.append(do)


class QueuedMemory:
    """Takes the place of a Gpu for transports over MPI."""

    def __init__(self):
        self.queue, self.waits = [], 0

    def empty(self, count, dtype):
        array = aligned_empty(count, dtype).view(QueuedArray)
        array.queue = self.queue
        return array

    def pinned(self, count, dtype):
        return aligned_empty(count, dtype)

    def copy(self, target, source):
        to, of = np.asarray(target), np.asarray(source)
        return self.queue.append, (lambda: np.copyto(to, of),)

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
