"""The first call of NCCL: what it cannot do, such as an algorithm that is forced, it refuses there, at all ranks."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from mpi4py import MPI

from hpccoll.measure.logged import REFUSES
from hpccoll.transports.nccl_world import NoWorldError, drop


class Closable(Protocol):
    """What is made, and can be closed."""

    def close(self) -> None:
        """Let go of what it holds."""


Made = TypeVar("Made", bound=Closable)


def unless_refused(make: Callable[[], Made], comm: MPI.Intracomm) -> Made | str:
    """Return what ``make`` makes, on all ranks together, or why NCCL refuses it, or makes no communicator at all.

    NCCL chooses by what all ranks share, so that each of them hears the same. What it thinks of a communicator that has
    refused a call is not written anywhere: that one is aborted, and the next case gets another.

    Args:
        make: makes a plan over NCCL, which runs once then.
        comm: whose communicator of NCCL it uses.

    Raises:
        RuntimeError: where something else than NCCL complains.
    """
    made, complaint = None, None
    try:
        made = make()
    except NoWorldError as error:  # on all ranks alike
        return str(error)
    except RuntimeError as error:
        if type(error).__name__ != "NcclError":  # CuPy's, which is not imported to be asked
            raise
        complaint = f"{REFUSES}: {error}"
    said: str | None = next(filter(None, comm.allgather(complaint)), None)
    if said is None and made is not None:
        return made
    if made is not None:
        made.close()  # before the communicator: NCCL waits for the graphs that name it
    drop(comm)
    return said or REFUSES
