"""In place of a GPU and NCCL, the memory of this rank and messages of MPI, for what is compiled for NCCL."""

from types import SimpleNamespace

import numpy as np
from fake_gpu_cluster import do
from mpi4py import MPI

from hpccoll.transports.nccl import communicators, cupy_device
from hpccoll.transports.transport_interface import aligned_empty


class HostDevice:
    """A device whose stream is this process: what is queued is done at once.

    Args:
        communicator: of MPI, which carries the messages of a group.
    """

    def __init__(self, _gpu, communicator):
        self.communicator = communicator

    def empty(self, count, dtype):
        return aligned_empty(count, dtype)

    def group_call(self, buffers, messages):
        def go():
            started = []
            for message in messages:
                whole = np.asarray(buffers[message.span.buffer])
                view = whole[message.span.start : message.span.stop].view(np.uint8)
                started.append(
                    (self.communicator.Isend if message.sends else self.communicator.Irecv)(
                        [view, MPI.BYTE], message.peer, 7
                    )
                )
            MPI.Request.Waitall(started)

        return go

    def fold_calls(self, operation, buffers, waves):
        plain = {name: np.asarray(buffer) for name, buffer in buffers.items()}
        return [lambda wave=wave: [do(operation, plain, move) for move in wave] for wave in waves]

    def wait(self):
        """All is done."""

    def idle(self):
        return True


def install(comm):
    """Have schedules over NCCL go over ``comm``."""
    cupy_device.CupyDevice = HostDevice
    communicators.nccl_world = lambda _comm, _library=None: SimpleNamespace(communicator=comm)
