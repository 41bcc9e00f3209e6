"""The first call of NCCL: what it cannot do, such as an algorithm that is forced, it refuses there, at all ranks."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from mpi4py import MPI

from hpccoll.measure.executed_evidence import REFUSES
from hpccoll.transports.nccl.communicators import REFUSAL_PATTERN, NcclRefusedError, abort_world, raise_nccl_failure


class Closable(Protocol):
    """What is made, and can be closed."""

    def close(self) -> None:
        """Let go of what it holds."""


Made = TypeVar("Made", bound=Closable)


def make_unless_refused(make: Callable[[], Made], comm: MPI.Intracomm) -> Made | str:
    """Return what ``make`` makes, on all ranks together, or why NCCL refuses it.

    NCCL chooses by what all ranks share, so that each of them hears the same. What it thinks of a communicator that has
    refused a call is not written anywhere: that one is aborted, and the next case gets another.

    Args:
        make: makes a plan over NCCL, which runs once then.
        comm: whose communicator of NCCL it uses.

    Raises:
        NcclFailedError: on all ranks, where NCCL makes no communicator, or what it says is no refusal: another time it
            may do it.
        RuntimeError: where something else than NCCL complains.
    """
    made, complaint = None, None
    try:
        made = make()
    except NcclRefusedError as error:  # on all ranks alike
        return f"{REFUSES}: {error}"
    except RuntimeError as error:
        if type(error).__name__ != "NcclError":  # CuPy's, which is not imported to be asked
            raise
        complaint = str(error)
    said: list[str | None] = comm.allgather(complaint)
    if made is not None and not any(said):
        return made
    if made is not None:
        made.close()  # before the communicator: NCCL waits for the graphs that name it
    abort_world(comm)
    for words in filter(None, said):
        if REFUSAL_PATTERN.search(words):
            return f"{REFUSES}: {words}"
    raise_nccl_failure(said, "fails")
    return REFUSES
