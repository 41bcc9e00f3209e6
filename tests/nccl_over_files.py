"""NCCL and a GPU whose stream goes on by itself, on the host: what stalls there stalls as on a GPU, and can be aborted.

Messages are files of a directory that all ranks see: nothing of them is left in MPI where a rank never comes. A send
ends when its message was taken, as NCCL's larger ones do. What is on the stream goes on whenever somebody looks at it.
"""

import ctypes
import os
import platform
import time
from collections import deque
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from cpu_check_kernels import HostGpu
from fake_gpu_cluster import do

from hpccoll.errors import GpuFailedError
from hpccoll.measure import gpu_assignment
from hpccoll.transports import gpu
from hpccoll.transports.nccl import communicators, cupy_device
from hpccoll.transports.transport_interface import aligned_empty

GPUS, ABORT_S = 8, 0.5
"""That every rank sees; and seconds that NCCL takes to abort, in which the others are not to go on."""


class Stream:
    """What was queued, in order; each is a function that returns whether it has ended."""

    ptr, room = 0, None

    def __init__(self):
        self.queue = deque()

    def put(self, item):
        """Queue an item; where there is no room for it, wait."""
        while self.room and len(self.queue) >= self.room and not self.done:
            os.sched_yield()
        self.queue.append(item)

    @property
    def done(self):
        while self.queue and self.queue[0]():
            self.queue.popleft()
        return not self.queue

    def synchronize(self):
        while not self.done:
            os.sched_yield()


class Gpu(HostGpu):
    """A Gpu that is the host.

    Args:
        directory: where its kernels are compiled.
        number: of the device.
    """

    free_bytes = 1 << 30
    broken = False  # as after an error of CUDA

    def __init__(self, directory, number):
        super().__init__(directory)
        self.number, self.id = number, f"0000:{number:02x}:00.0"
        self.stream = Stream()
        self.synchronize = self.stream.synchronize

    def empty(self, count, dtype):
        return aligned_empty(count, dtype)

    def idle(self):
        if self.broken:
            raise GpuFailedError(f"GPU {self.id} of {platform.node()} failed: cudaErrorECCUncorrectable")
        return self.stream.done

    def release(self):
        assert self.stream.done

    def pinned(self, count, dtype):
        return aligned_empty(count, dtype)

    def kernel(self, source, name, itemsize):
        if name != "gate":
            return super().kernel(source, name, itemsize)

        def launch(_grid, _block, arguments):
            words, number, limit_ns = map(int, arguments)
            words = (ctypes.c_uint64 * 2).from_address(words)
            began = []

            def go_on():
                began.append(time.monotonic_ns())
                if words[0] < number and began[-1] - began[0] > limit_ns:
                    words[1] = number
                return number in (words[0], words[1])

            self.stream.put(go_on)

        return launch

    def event(self):
        return Event()

    def elapsed_ns(self, start, end):
        return end.at - start.at


class Event:
    """The time when the stream passed it."""

    def record(self, stream):
        stream.put(self._pass)

    def _pass(self):
        self.at = time.monotonic_ns()
        return True


class Communicator:
    """A communicator of NCCL: ranks that find each other by its unique id, a directory."""

    def __init__(self, size, unique, rank):
        self.place, self.size, self.rank = Path(unique), size, rank
        self.sent, self.taken = {}, {}  # messages to and from each rank
        self.streams = []  # that do something of it
        (self.place / f"rank-{rank}").touch()
        until = time.monotonic() + 60
        while len([*self.place.glob("rank-*")]) < size:
            assert time.monotonic() < until, "ranks do not find each other"
            time.sleep(0.001)

    def message(self, source, target):
        numbers, peer = (self.sent, target) if source == self.rank else (self.taken, source)
        numbers[peer] = numbers.get(peer, 0) + 1
        return self.place / f"{source}-{target}-{numbers[peer]}"

    def start(self, message, view):
        """Begin a message, and return the function that tells whether it has ended."""
        if message.sends:
            file = self.message(self.rank, message.peer)
            file.with_suffix(".part").write_bytes(view.tobytes())
            file.with_suffix(".part").rename(file)
            return lambda: not file.exists()
        file = self.message(message.peer, self.rank)

        def arrived():
            if not file.exists():
                return False
            view[:] = np.frombuffer(file.read_bytes(), np.uint8)
            file.unlink()
            return True

        return arrived

    def abort(self):
        time.sleep(ABORT_S)
        self.destroy()

    def destroy(self):
        for stream in self.streams:
            stream.queue.clear()


class Device:
    """What CupyDevice is on a GPU."""

    def __init__(self, gpu, communicator):
        self.gpu, self.communicator = gpu, communicator
        self.wait, self.empty = gpu.stream.synchronize, gpu.empty
        communicator.streams.append(gpu.stream)

    def idle(self):
        return self.gpu.idle()

    def error(self):
        return None

    def _queue(self, item):
        self.gpu.stream.put(item)

    def capture(self, queue):
        taken = []
        self._queue = taken.append
        queue()
        del self._queue

        def launch():
            left = deque(taken)

            def go_on():
                while left and left[0]():
                    left.popleft()
                return not left

            self.gpu.stream.put(go_on)

        return SimpleNamespace(launch=launch, close=taken.clear)

    def group_call(self, buffers, messages):
        views = [buffers[m.span.buffer][m.span.start : m.span.stop].view(np.uint8) for m in messages]

        def start():
            left = []

            def begin():
                left.extend(map(self.communicator.start, messages, views))
                return True

            def go_on():
                left[:] = [ended for ended in left if not ended()]
                return not left

            self._queue(begin)
            self._queue(go_on)

        return start

    def fold_calls(self, operation, buffers, waves):
        def launch(wave):
            def step():
                for move in wave:
                    do(operation, buffers, move)
                return True

            return lambda: self._queue(step)

        return [launch(wave) for wave in waves]


def install(directory):
    """Have jobs of this process find GPUs and NCCL; ``directory`` is a directory that all ranks see."""

    class Library:
        made = 0
        NcclCommunicator = Communicator

        @classmethod
        def get_unique_id(cls):
            cls.made += 1
            path = directory / f"nccl-{os.getpid()}-{cls.made}"
            path.mkdir()
            return str(path)

    gpu.device_count = lambda: GPUS
    gpu.missing_for_gpu = lambda _transport, _dtype="float32": None
    gpu_assignment.select_gpu = lambda _number: None
    gpu_assignment.Gpu = lambda number: Gpu(directory, number)
    cupy_device.CupyDevice = Device
    made = communicators.nccl_world
    communicators.nccl_world = lambda comm, _library=None: made(comm, Library)
