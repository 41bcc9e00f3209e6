"""Shared memory: buffers that the ranks of a node read in each other's place, by windows of MPI."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias, cast

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from hpccoll.errors import BadInputError
from hpccoll.transports.guarded_memory import MARGIN_BYTES, GuardedBuffer, allocate_guarded
from hpccoll.transports.mpi.step import DeferredCall
from hpccoll.transports.operation import Array

PAGE_BYTES = 4096

SHM_DIRECTORY = Path("/dev/shm")  # noqa: S108  where Linux keeps shared memory: MPICH and Open MPI both use it
"""The file system whose room bounds a window."""

SendSpans: TypeAlias = dict[int, list[list[tuple[str, int, int]]]]
"""By lane, the parts that a rank sends another, in order: elements [start, stop) of buffers."""


@dataclass(frozen=True, slots=True)
class NodePeer:
    """Another rank of the node, as a plan sees it.

    Args:
        buffers: those of its that it sends from.
        offers: by lane, where the parts lie that it sends this rank.
    """

    buffers: Mapping[str, Array]
    offers: Mapping[int, Iterator[list[tuple[str, int, int]]]]

    def part(self, lane: int, room: Array) -> list[Array]:
        """Return the next part that it sends in ``lane``, ``room`` where that is not as long: no plan comes of it."""
        spans = next(self.offers.get(lane, iter(())), [])
        part = [self.buffers[buffer][start:stop] for buffer, start, stop in spans]
        return part if sum(map(len, part)) == len(room) else [room]


def _aligned(memory: NDArray[np.uint8], count: int, dtype: np.dtype[np.generic]) -> Array:
    """Return ``count`` elements of ``memory`` from its first page on."""
    start = -memory.ctypes.data % PAGE_BYTES
    return memory[start : start + count * dtype.itemsize].view(dtype)


class SharedMemory:
    """The windows of the ranks of one node; made, used and closed on all ranks of ``comm`` together.

    Memory is ordered by MPI alone: who has written calls ``sync`` and sends a message; who has received it calls
    ``sync`` and reads (MPI 5.0, section 12.7: a memory barrier, and a message as the synchronisation).

    Args:
        comm: of all ranks, on whatever nodes.
    """

    def __init__(self, comm: MPI.Intracomm) -> None:
        self.comm = comm
        self.node = cast("MPI.Intracomm", comm.Split_type(MPI.COMM_TYPE_SHARED, comm.rank))
        self.ranks: list[int] = self.node.allgather(comm.rank)
        self._windows: list[MPI.Win] = []
        self._buffers: list[tuple[GuardedBuffer, Mapping[int, Array]]] = []

    def empty(self, count: int, dtype: np.dtype[np.generic]) -> Array:
        """Return a buffer of this rank, of whatever content, which begins on a page; all ranks ask together.

        Raises:
            BadInputError: on all ranks, where a node lacks the room.
        """
        counts: list[int] = self.node.allgather(count)
        around = PAGE_BYTES + 2 * MARGIN_BYTES  # each rank has a segment of its own, which may begin anywhere in a page
        self._check_room(sum(counts) * dtype.itemsize + len(counts) * around if any(counts) else 0)
        made = {rank: GuardedBuffer(np.empty(0, dtype), 0, 0) for rank in self.ranks}
        if any(counts):  # a window without memory would only cost fences
            window = self._window(count * dtype.itemsize + around)
            for place, (rank, length) in enumerate(zip(self.ranks, counts, strict=True)):
                memory = np.asarray(window.Shared_query(place)[0])
                made[rank] = allocate_guarded(partial(_aligned, memory), length, dtype)
            made[self.comm.rank].memory.view(np.uint8)[::PAGE_BYTES] = 0  # touched, so that its room is not given again
        views: dict[int, Array] = {rank: each.buffer for rank, each in made.items()}
        self._buffers.append((made[self.comm.rank], views))
        return views[self.comm.rank]

    def _window(self, nbytes: int) -> MPI.Win:
        apart = MPI.Info.Create({"alloc_shared_noncontig": "true"})  # so that the pages of each rank are near to it
        window = MPI.Win.Allocate_shared(nbytes, 1, apart, self.node)
        apart.Free()
        window.Lock_all(MPI.MODE_NOCHECK)
        self._windows.append(window)
        return window

    def _check_room(self, nbytes: int) -> None:
        self.node.Barrier()  # what was given before has been touched by all
        room = os.statvfs(SHM_DIRECTORY) if SHM_DIRECTORY.exists() else None
        free = room.f_bavail * room.f_frsize if room else 0
        _, needed, least = self.comm.allreduce((nbytes - free, nbytes, free), max)
        if needed > least:
            there = f"at most {least / 2**30:.3g} GiB on a node, what {SHM_DIRECTORY} has free"
            raise BadInputError("shared memory", f"{needed / 2**30:.3g} GiB", there)

    def views(self, own: Array) -> Mapping[int, Array]:
        """Return what the same call of ``empty`` gave each rank of the node, by its rank in ``comm``."""
        return next(views for _, views in self._buffers if views[self.comm.rank] is own)

    def guarded(self, own: Array) -> GuardedBuffer:
        """Return what ``empty`` gave this rank, with the memory around it."""
        return next(made for made, views in self._buffers if views[self.comm.rank] is own)

    def exchange(self, offers: Mapping[int, SendSpans]) -> dict[int, SendSpans]:
        """Give ranks of the node what is for them, and return what each has for this one; all of them together."""
        return dict(zip(self.ranks, self.node.alltoall([offers.get(rank, {}) for rank in self.ranks]), strict=True))

    @property
    def fences(self) -> list[DeferredCall]:
        """Calls that order what this rank has done in the memory of the node before them and what it does after."""
        return [(window.Sync, ()) for window in self._windows]

    def close(self) -> None:
        """Free all buffers; who still has one must not touch it."""
        for window in self._windows:
            window.Unlock_all()
            window.Free()
        self._windows, self._buffers = [], []
        self.node.Free()
