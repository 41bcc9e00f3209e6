"""NCCL's communicators: one for each MPI communicator, made when it is first asked for and kept for the job.

To make one takes a second on a node and more on many; a case would have it made anew. They are destroyed explicitly, on
all ranks together, before MPI ends: CuPy would do so whenever Python comes to it, on each rank at another time.
"""

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from mpi4py import MPI


class NcclLibrary(Protocol):
    """What is asked of CuPy's binding of NCCL, or of ``nccl_config.Configured`` in its place."""

    def get_unique_id(self) -> Any: ...

    def NcclCommunicator(self, ndev: int, commId: Any, rank: int) -> Any: ...  # noqa: N802, N803  CuPy's names


class NcclFailedError(RuntimeError):
    """NCCL fails: says at which rank, and in which words; raised on all of them alike."""


class NcclRefusedError(NcclFailedError):
    """NCCL refuses what it is asked, and will do so another time."""


REFUSAL_PATTERN = re.compile(r"invalid[_ ]?(usage|argument)", re.IGNORECASE)
"""What NCCL says of what it has no way for: an algorithm that a call does not know, two ranks on one GPU."""


def raise_nccl_failure(said: Sequence[str | None], what: str) -> None:
    """See that nobody has heard a complaint of NCCL; on all ranks alike.

    Args:
        said: by each rank, None where it has nothing to complain of.
        what: NCCL does, in words.

    Raises:
        NcclRefusedError: where one of them is a refusal.
        NcclFailedError: where there are only others.
    """
    ranks = {rank: words for rank, words in enumerate(said) if words}
    refused = [rank for rank, words in ranks.items() if REFUSAL_PATTERN.search(words)]
    for rank in refused or ranks:
        others = f", and at {len(ranks) - 1} more of {len(said)}" if len(ranks) > 1 else ""
        kind = NcclRefusedError if refused else NcclFailedError
        raise kind(f"NCCL {what} at rank {rank}: {ranks[rank]}{others}")


class NcclWorld:
    """The ranks of an MPI communicator as NCCL sees them; made and closed on all of them together.

    Args:
        comm: of the ranks, each with its GPU current.
        library: NCCL.

    Raises:
        NcclFailedError: on all ranks, where NCCL fails at one of them. Where it leaves the others waiting for that one,
            it is the watchdog that ends the job.
    """

    def __init__(self, comm: "MPI.Intracomm", library: NcclLibrary) -> None:
        self.comm = comm
        unique = comm.bcast(self._together(lambda: library.get_unique_id() if comm.rank == 0 else None))
        self.communicator = self._together(lambda: library.NcclCommunicator(comm.size, unique, comm.rank))
        self._workers: dict[int, Any] = {}

    def _together(self, make: Callable[[], Any]) -> Any:
        """Return what ``make`` makes, where it does so at all ranks."""
        made: Any = None
        complaint = None
        try:
            made = make()
        except RuntimeError as error:  # NcclError of CuPy is one
            complaint = str(error)
        said = self.comm.allgather(complaint)
        if any(said) and hasattr(made, "abort"):
            made.abort()
        raise_nccl_failure(said, "makes no communicator")
        return made

    def workers(self, count: int) -> Any:
        """Return the communicator of the first ``count`` ranks, None at others; all ranks ask together."""
        if count == self.comm.size:
            return self.communicator
        if count not in self._workers:
            color = 0 if self.comm.rank < count else -1
            self._workers[count] = self._together(lambda: self.communicator.commSplit(color, self.comm.rank))
        return self._workers[count]

    def close(self) -> None:
        """Destroy what it made, the parts of a communicator before the whole."""
        for part in filter(None, self._workers.values()):
            part.destroy()
        self._workers = {}
        self.communicator.destroy()

    def abort(self) -> None:
        """End what is under way and free it without the others: after that one of them is not to be waited for."""
        for part in filter(None, self._workers.values()):
            part.abort()
        self._workers = {}
        self.communicator.abort()


_WORLDS: dict[int, NcclWorld] = {}
"""Of this process, by the handle of their MPI communicator."""


_FAILED_WORLDS: dict[int, NcclFailedError] = {}
"""Why there is none, likewise: the next case fails at once, and not after a time that NCCL may take for it."""


def nccl_world(comm: "MPI.Intracomm", library: NcclLibrary | None = None) -> NcclWorld:
    """Return NCCL's view of ``comm``, made on all its ranks together when it is first asked for.

    Raises:
        NcclFailedError: on all ranks, where it cannot be made.
    """
    key = comm.handle
    if key in _FAILED_WORLDS:
        raise _FAILED_WORLDS[key]
    if key not in _WORLDS:
        if library is None:
            from cupy.cuda import nccl

            library = nccl
        try:
            _WORLDS[key] = NcclWorld(comm, library)
        except NcclFailedError as error:
            _FAILED_WORLDS[key] = error
            raise
    return _WORLDS[key]


def abort_world(comm: "MPI.Intracomm") -> None:
    """Abort NCCL's view of ``comm`` on all its ranks, where there is one: whoever asks next gets another."""
    if made := _WORLDS.pop(comm.handle, None):
        made.abort()


def abort_all_worlds() -> None:
    """Abort all of them, at this rank alone, after the graphs that name them: whoever asks next gets another."""
    while _WORLDS:
        _WORLDS.popitem()[1].abort()


def close_all_worlds() -> None:
    """Destroy all of them, the last one first, on all ranks together, after the graphs that name them."""
    _FAILED_WORLDS.clear()  # MPI gives handles anew
    for key in reversed([*_WORLDS]):
        _WORLDS.pop(key).close()
