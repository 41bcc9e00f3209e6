"""NCCL's communicators: one for each MPI communicator, created on first use and kept for the job.

Creating one takes a second on one node and more on many, too long to repeat it for each case. All
ranks destroy them explicitly and together before MPI ends; otherwise Python's garbage collector
would do so at a different time on each rank.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from hpccoll.transports.nccl.nccl_errors import (
    NCCL_EXCEPTIONS,
    NcclFailedError,
    nccl_error_text,
    raise_nccl_failure,
)
from hpccoll.transports.stream_wait import CONNECTING, Connecting

if TYPE_CHECKING:
    from mpi4py import MPI

    from hpccoll.transports.gpu import Gpu


class NcclLibrary(Protocol):
    """The part of CuPy's binding of NCCL that is used; ``ConfiguredNccl`` replaces it."""

    def get_unique_id(self) -> Any: ...

    def NcclCommunicator(self, ndev: int, commId: Any, rank: int) -> Any: ...  # noqa: N802, N803  CuPy's names


def cupys_nccl() -> NcclLibrary:
    """Return CuPy's binding of NCCL."""
    from cupy.cuda import nccl

    library: NcclLibrary = nccl
    return library


class NcclWorld:
    """The NCCL communicators of one MPI communicator; its ranks create and close it together.

    Args:
        comm: the MPI communicator.
        gpu: the GPU of this rank, which is current.
        library: the binding of NCCL.
        connecting: is informed that NCCL connects, and of its error on this rank.

    Raises:
        NcclFailedError: on all ranks, if NCCL fails on any of them. If NCCL leaves the other ranks
            waiting, the watchdog ends the job.
    """

    def __init__(
        self,
        comm: "MPI.Intracomm",
        gpu: "Gpu",
        library: NcclLibrary,
        connecting: Connecting = CONNECTING,
    ) -> None:
        self.comm = comm
        self.gpu = gpu
        self._connecting = connecting
        connecting.begin()
        unique = comm.bcast(
            self._on_all_ranks(lambda: library.get_unique_id() if comm.rank == 0 else None)
        )
        self.communicator = self._on_all_ranks(
            lambda: library.NcclCommunicator(comm.size, unique, comm.rank)
        )
        self._workers: dict[int, Any] = {}

    def _on_all_ranks(self, make: Callable[[], Any]) -> Any:
        """Return the result of ``make()`` if it succeeds on all ranks; otherwise raise NcclFailedError on all."""
        made: Any = None
        failure = None
        try:
            made = make()
        except NCCL_EXCEPTIONS as error:
            failure = nccl_error_text(error)
            self._connecting.note(failure)
        failures = self.comm.allgather(failure)
        if any(failures) and hasattr(made, "abort"):
            made.abort()
        raise_nccl_failure(failures, "makes no communicator")
        return made

    def workers(self, count: int) -> Any:
        """Return the communicator of the first ``count`` ranks, None on the others; all ranks call this together."""
        if count == self.comm.size:
            return self.communicator
        if count not in self._workers:
            color = 0 if self.comm.rank < count else -1
            self._workers[count] = self._on_all_ranks(
                lambda: self.communicator.commSplit(color, self.comm.rank)
            )
        return self._workers[count]

    def abort(self, communicator: Any) -> None:
        """Abort a communicator of this world, in a thread of its own.

        A thread begins with the first GPU, on which NCCL would create a context: ncclCommAbort ends
        with ``cudaSetDevice`` of the device that was current before (src/group.cc of 2.28.9).
        """
        self.gpu.select()
        communicator.abort()

    @property
    def communicators(self) -> list[Any]:
        """All communicators of this rank, those of workers before the one that they were split from."""
        return [*filter(None, self._workers.values()), self.communicator]


_WORLDS: dict[int, NcclWorld | NcclFailedError] = {}
"""By the handle of an MPI communicator, its world, or the failure: later cases then fail without waiting for NCCL."""


def nccl_world(
    comm: "MPI.Intracomm",
    gpu: "Gpu",
    library: NcclLibrary | None = None,
    connecting: Connecting = CONNECTING,
) -> NcclWorld:
    """Return the NCCL communicators of ``comm``; its ranks make the first call together, which creates them.

    Raises:
        NcclFailedError: on all ranks, if NCCL fails on any of them.
    """
    if comm.handle not in _WORLDS:
        try:
            _WORLDS[comm.handle] = NcclWorld(comm, gpu, library or cupys_nccl(), connecting)
        except NcclFailedError as error:
            _WORLDS[comm.handle] = error
    world = _WORLDS[comm.handle]
    if isinstance(world, NcclFailedError):
        raise world
    return world


def abort_world(comm: "MPI.Intracomm") -> None:
    """Abort the NCCL communicators of ``comm`` on all its ranks, if any; the next use creates new ones."""
    _abort_together(_pop_worlds(comm.handle))


def abort_all_worlds() -> None:
    """Abort all NCCL communicators on this rank only, after their CUDA graphs are destroyed."""
    _abort_together(_pop_worlds(*_WORLDS))


def _abort_together(worlds: Sequence[NcclWorld]) -> None:
    """Abort the communicators of worlds, all at once.

    ncclCommAbort ends the kernels of its own communicator, and then waits for their streams
    (commDestroySync in init.cc of NCCL 2.28.9). There they may wait for those of another
    communicator, which only its own abort ends.
    """
    from concurrent.futures import ThreadPoolExecutor  # few ranks need it

    pairs = [(world, communicator) for world in worlds for communicator in world.communicators]
    with ThreadPoolExecutor(max(1, len(pairs))) as threads:
        aborts = [threads.submit(world.abort, communicator) for world, communicator in pairs]
    for abort in aborts:
        abort.result()  # raises its error


def close_world(comm: "MPI.Intracomm") -> None:
    """Destroy the NCCL communicators of ``comm``, if any, before it is freed; its ranks call this together."""
    if isinstance(_WORLDS.get(comm.handle), NcclFailedError):
        del _WORLDS[comm.handle]  # MPI reuses handles
    _destroy(_pop_worlds(comm.handle))


def close_all_worlds() -> None:
    """Destroy all NCCL communicators, the newest first, after their CUDA graphs; all ranks call this together."""
    _destroy(_pop_worlds(*reversed(_WORLDS)))
    _WORLDS.clear()  # of failures: MPI reuses handles


def _destroy(worlds: Sequence[NcclWorld]) -> None:
    for world in worlds:
        for communicator in world.communicators:
            communicator.destroy()


def _pop_worlds(*handles: int) -> list[NcclWorld]:
    """Forget the worlds of MPI communicators, except failures, and return them."""
    worlds = []
    for handle in handles:
        world = _WORLDS.get(handle)
        if isinstance(world, NcclWorld):
            del _WORLDS[handle]
            worlds.append(world)
    return worlds
