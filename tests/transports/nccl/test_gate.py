"""The gate: its kernel, compiled as C++, holds a thread that stands in for a stream."""

import ctypes
import shutil
from threading import Thread

import numpy as np
import pytest
from cpu_gate_kernel import gate_function

from hpccoll.transports.nccl import gate
from hpccoll.transports.transport_interface import aligned_empty

LONG_S = 60.0
"""The limit of a gate that is to be opened."""


class ThreadGpu:
    """A GPU whose stream is a thread: it runs what was queued, in order."""

    def __init__(self, directory):
        self.run, self.work = gate_function(directory), Thread()
        self.work.start()

    def pinned(self, count, dtype):
        return aligned_empty(count, dtype)

    def kernel(self, _source, _name, _itemsize):
        def launch(_grid, _block, arguments):
            self.queue(self.run, *(ctypes.c_uint64(int(each)) for each in arguments))

        return launch

    def queue(self, call, *arguments):
        before = self.work

        def after():
            before.join()
            call(*arguments)

        self.work = Thread(target=after, daemon=True)
        self.work.start()

    def synchronize(self):
        self.work.join()


@pytest.fixture
def gpu(require, tmp_path):
    require(shutil.which("g++"), "there is no g++")
    return ThreadGpu(tmp_path)


def test_work_behind_a_gate_starts_when_it_opens(gpu):
    done, held = [], gate.Gate(gpu, LONG_S)
    for number in range(3):
        held.queue()
        gpu.queue(done.append, number)
        gpu.work.join(0.05)
        assert done == [*range(number)]
        held.open()
        gpu.synchronize()
        assert done == [*range(number + 1)]
        assert not held.gave_up


def test_a_gate_that_was_opened_before_it_began_holds_nothing(gpu):
    held, busy = gate.Gate(gpu, LONG_S), gate.Gate(gpu, LONG_S)
    busy.queue()
    held.queue()
    held.open()
    busy.open()
    gpu.synchronize()
    assert not held.gave_up


def test_a_gate_that_nobody_opens_gives_up_after_its_limit(gpu):
    held = gate.Gate(gpu, 0.05)
    assert held._words.dtype == np.uint64
    held.queue()
    gpu.synchronize()
    assert held.gave_up
    held.queue()
    assert not held.gave_up
    held.open()
    gpu.synchronize()
    assert not held.gave_up
