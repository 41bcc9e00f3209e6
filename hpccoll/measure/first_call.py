"""The first call of NCCL's own: an algorithm that is forced and cannot be given is refused there, by all ranks."""

from mpi4py import MPI

from hpccoll.measure.logged import REFUSES
from hpccoll.measure.loop import Subject
from hpccoll.transports.nccl_world import drop


def refusal(subject: Subject, comm: MPI.Intracomm) -> str | None:
    """Run ``subject`` once on all ranks together and return why NCCL refuses it, None where it does not.

    NCCL chooses by what all ranks share, so that each of them hears the same. What it thinks of a communicator that has
    refused a call is not written anywhere: that one is aborted, and the next case gets another.

    Args:
        subject: of a case that NCCL's own collective runs.
        comm: whose communicator of NCCL it uses.

    Raises:
        RuntimeError: where something else than NCCL complains.
    """
    complaint = None
    try:
        subject.reset()
        subject.run()
    except RuntimeError as error:
        if type(error).__name__ != "NcclError":  # CuPy's, which is not imported to be asked
            raise
        complaint = f"{REFUSES}: {error}"
    said: str | None = next(filter(None, comm.allgather(complaint)), None)
    if said:
        drop(comm)
    return said
