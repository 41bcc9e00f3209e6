"""Buffers in shared-memory windows of MPI, which all ranks of a node can read."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias, cast

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from hpccoll.common.errors import BadInputError
from hpccoll.executor.lowered_step import DeferredCall
from hpccoll.schedule.operation import Array
from hpccoll.transports.guarded_memory import MARGIN_BYTES, GuardedBuffer, allocate_guarded
from hpccoll.transports.shared_lowering import Span

PAGE_BYTES = 4096

SHM_DIRECTORY = Path("/dev/shm")  # noqa: S108  MPICH and Open MPI both allocate shared memory there
"""The file system whose free space limits windows."""

SendSpans: TypeAlias = dict[int, list[list[Span]]]
"""By lane, the parts that a rank sends to another rank, in order."""


@dataclass(frozen=True, slots=True)
class NodePeer:
    """Another rank of the node, whose memory this rank reads."""

    buffers: Mapping[str, Array]
    # by lane, the spans of the parts that the peer sends to this rank, in order
    sends: Mapping[int, Iterator[list[Span]]]

    def next_part(self, lane: int, scratch: Array) -> list[Array]:
        """Return views of the next part that the peer sends in ``lane``.

        If its length differs from that of ``scratch``, the ranks disagree: the result is then
        ``scratch``, and the plan is rejected later.
        """
        spans = next(self.sends.get(lane, iter(())), [])
        part = [self.buffers[span.buffer][span.start : span.stop] for span in spans]
        if sum(map(len, part)) != len(scratch):
            return [scratch]
        return part


def _aligned(memory: NDArray[np.uint8], count: int, dtype: np.dtype[np.generic]) -> Array:
    start = -memory.ctypes.data % PAGE_BYTES
    return memory[start : start + count * dtype.itemsize].view(dtype)


class SharedMemory:
    """The windows of the ranks of one node; all ranks of ``comm`` create, use and close it together.

    MPI alone orders accesses: the writer calls MPI_Win_sync and sends a message; the receiver of
    the message calls MPI_Win_sync and reads (MPI 5.0, section 12.7: a memory barrier, and a message
    as the synchronisation).
    """

    def __init__(self, comm: MPI.Intracomm) -> None:
        self.comm = comm
        self.node = cast("MPI.Intracomm", comm.Split_type(MPI.COMM_TYPE_SHARED, comm.rank))
        self.ranks: list[int] = self.node.allgather(comm.rank)
        self._windows: list[MPI.Win] = []
        self._buffers: list[tuple[GuardedBuffer, Mapping[int, Array]]] = []

    def empty(self, count: int, dtype: np.dtype[np.generic]) -> Array:
        """Return an uninitialised, page-aligned buffer of this rank; all ranks call this together.

        Raises:
            BadInputError: on all ranks, if a node has too little free shared memory.
        """
        counts: list[int] = self.node.allgather(count)
        # each rank has its own segment, which may begin anywhere in a page
        overhead = PAGE_BYTES + 2 * MARGIN_BYTES
        needed = sum(counts) * dtype.itemsize + len(counts) * overhead
        self._check_free_space(needed if any(counts) else 0)
        guarded = {rank: GuardedBuffer(np.empty(0, dtype), 0, 0) for rank in self.ranks}
        if any(counts):  # an empty window would only add calls of MPI_Win_sync
            window = self._window(count * dtype.itemsize + overhead)
            for node_rank, (rank, length) in enumerate(zip(self.ranks, counts, strict=True)):
                memory = np.asarray(window.Shared_query(node_rank)[0])
                guarded[rank] = allocate_guarded(partial(_aligned, memory), length, dtype)
            # makes the pages count as used
            guarded[self.comm.rank].memory.view(np.uint8)[::PAGE_BYTES] = 0
        own = guarded[self.comm.rank]
        views: dict[int, Array] = {rank: buffer.buffer for rank, buffer in guarded.items()}
        self._buffers.append((own, views))
        return views[self.comm.rank]

    def _window(self, nbytes: int) -> MPI.Win:
        # places each rank's pages in its NUMA domain
        info = MPI.Info.Create({"alloc_shared_noncontig": "true"})
        window = MPI.Win.Allocate_shared(nbytes, 1, info, self.node)
        info.Free()
        window.Lock_all(MPI.MODE_NOCHECK)
        self._windows.append(window)
        return window

    def _check_free_space(self, nbytes: int) -> None:
        self.node.Barrier()  # all ranks have touched the pages of earlier windows
        free = 0
        if SHM_DIRECTORY.exists():
            usage = os.statvfs(SHM_DIRECTORY)
            free = usage.f_bavail * usage.f_frsize
        _, needed, least = self.comm.allreduce((nbytes - free, nbytes, free), max)
        if needed > least:
            valid = f"at most {least / 2**30:.3g} GiB on a node, the free space of {SHM_DIRECTORY}"
            raise BadInputError("shared memory", f"{needed / 2**30:.3g} GiB", valid)

    def views(self, own: Array) -> Mapping[int, Array]:
        """Return, by rank in ``comm``, the buffer of each rank of the node from the same call of ``empty``."""
        return next(views for _, views in self._buffers if views[self.comm.rank] is own)

    def guarded(self, own: Array) -> GuardedBuffer:
        """Return a buffer from ``empty`` with its guards."""
        return next(guarded for guarded, views in self._buffers if views[self.comm.rank] is own)

    def exchange(self, sends: Mapping[int, SendSpans]) -> dict[int, SendSpans]:
        """Send each rank of the node its entry of ``sends``, and return the entries for this rank."""
        received = self.node.alltoall([sends.get(rank, {}) for rank in self.ranks])
        return dict(zip(self.ranks, received, strict=True))

    @property
    def fences(self) -> list[DeferredCall]:
        """The memory barriers that order the accesses of this rank to shared memory."""
        return [(window.Sync, ()) for window in self._windows]

    def close(self) -> None:
        """Free all buffers; references to them become invalid."""
        for window in self._windows:
            window.Unlock_all()
            window.Free()
        self._windows = []
        self._buffers = []
        self.node.Free()
