"""Memory of a GPU that the other ranks of a node map, and the addresses at which they see it.

A rank exports an allocation as a CUDA IPC handle, and others map it (CUDA Runtime API,
cudaIpcGetMemHandle, cudaIpcOpenMemHandle). The allocations are not CuPy's: a handle stands for a
whole allocation, and CuPy's pool puts several arrays into one.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hpccoll.common.errors import BadInputError
from hpccoll.schedule.operation import Array
from hpccoll.transports.gpu import GpuArray, gpu_dtype

if TYPE_CHECKING:
    from mpi4py import MPI

    from hpccoll.transports.gpu import Gpu

VALID_GPUS = "GPUs that map the memory of each other by CUDA IPC"
"""What the ranks need: peer access between their GPUs, one IPC namespace, and no MIG."""

REMEDY = "transport nccl, or let each rank see all GPUs of its node (srun --gpu-bind=none)"
"""What a user can do if ranks cannot map the memory of each other."""


class _Place(NamedTuple):
    """Where an array of a rank lies: the handle of its allocation, and the bytes before it there."""

    handle: bytes
    offset: int


class SharedGpuMemory:
    """The allocations of a rank that its peers map, and those of its peers; all ranks close it together."""

    def __init__(self, comm: "MPI.Intracomm", gpu: "Gpu") -> None:
        self._comm = comm
        self._gpu = gpu
        self._own: dict[int, int] = {}  # the bytes of each allocation, by its address
        self._mapped: dict[tuple[int, bytes], int] = {}  # by rank and handle

    def empty(self, count: int, dtype: np.dtype[np.generic]) -> GpuArray:
        """Return an uninitialised array that peers can map."""
        element = gpu_dtype(dtype)
        nbytes = max(1, count) * element.itemsize
        address = self._gpu.allocate_exportable(nbytes)
        self._own[address] = nbytes
        return self._gpu.array_at(address, count, dtype, self)

    def zeros(self, count: int) -> GpuArray:
        """Return an array of 64-bit zeros that peers can map."""
        array = self.empty(count, np.dtype(np.uint64))
        zeros = np.zeros(count, np.uint64)
        array.set(zeros, stream=self._gpu.stream)
        self._gpu.await_work()  # a coherent system such as Grace may copy ``zeros`` only now
        return array

    def addresses(self, arrays: Mapping[str, Array]) -> list[dict[str, int]]:
        """Return where this rank sees arrays of the same names at each rank; all ranks call this together.

        The arrays are from ``empty`` or ``zeros``, or parts of them.

        Raises:
            BadInputError: on all ranks, if one of them cannot export its memory, or map that of
                another one.
        """
        with self.agreed_on("export its memory"):
            places = self._places(arrays)
        places_of_ranks = self._comm.allgather(places)
        addresses: list[dict[str, int]] = []
        with self.agreed_on("map the memory of the others"):
            addresses += self._addresses_at(places_of_ranks, arrays)
        return addresses

    @contextmanager
    def agreed_on(
        self, action: str, needs: str = VALID_GPUS, remedy: str = REMEDY
    ) -> Iterator[None]:
        """Raise a BadInputError on all ranks if CUDA fails on one of them; all ranks enter this together.

        Its message has what a rank cannot do (``action``), what the ranks need for it, and a remedy.
        """
        failure = None
        try:
            yield
        except (RuntimeError, MemoryError) as error:  # CuPy's errors of CUDA and of its pool
            self._gpu.idle()  # raises the error of a GPU that has failed
            failure = f"rank {self._comm.rank} cannot {action}: {error}"
        failures = list(filter(None, self._comm.allgather(failure)))
        if failures:
            raise BadInputError("transport", "peer", f"{needs} ({failures[0]}); do: {remedy}")

    def _places(self, arrays: Mapping[str, Array]) -> dict[str, _Place]:
        places = {}
        for name, array in arrays.items():
            if len(array):
                places[name] = self._place(array)
        return places

    def _addresses_at(
        self, places_of_ranks: Sequence[Mapping[str, _Place]], arrays: Mapping[str, Array]
    ) -> list[dict[str, int]]:
        addresses = []
        for rank, places in enumerate(places_of_ranks):
            if rank == self._comm.rank:
                addresses.append(self._own_addresses(arrays))
            else:
                addresses.append(self._mapped_addresses(rank, places))
        return addresses

    def _own_addresses(self, arrays: Mapping[str, Array]) -> dict[str, int]:
        addresses = {}
        for name, array in arrays.items():
            addresses[name] = self._gpu.address(array)
        return addresses

    def _mapped_addresses(self, rank: int, places: Mapping[str, _Place]) -> dict[str, int]:
        """Return where this rank sees the arrays of another one."""
        addresses = {}
        for name, place in places.items():
            addresses[name] = self._map(rank, place.handle) + place.offset
        return addresses

    def _place(self, array: Array) -> _Place:
        address = self._gpu.address(array)
        allocations = [start for start in self._own if start <= address]
        base = max(allocations)
        handle = self._gpu.export_handle(base)
        return _Place(handle, address - base)

    def _map(self, rank: int, handle: bytes) -> int:
        if (rank, handle) not in self._mapped:
            self._mapped[rank, handle] = self._gpu.map_exported(handle)
        return self._mapped[rank, handle]

    def close(self) -> None:
        """Unmap the memory of peers, and then free the memory of this rank; all ranks call this together."""
        self.unmap()
        self._comm.Barrier()  # memory that a peer still maps must not be freed
        for address in self._own:
            self._gpu.free_exportable(address)
        self._own.clear()

    def unmap(self) -> None:
        """Unmap the memory of peers, which no queued work may use any more."""
        for address in self._mapped.values():
            self._gpu.unmap_exported(address)
        self._mapped.clear()
