"""The ranks of a job: whether they are those that were asked for, and what the loop needs of them."""

import os
from collections.abc import Callable
from typing import TypeVar, cast

import numpy as np
from mpi4py import MPI

from hpccoll.case import Job
from hpccoll.errors import BadInputError
from hpccoll.measure.environment import mpi_library
from hpccoll.measure.loop import Times

Answer = TypeVar("Answer")

LAUNCHERS = {
    "PMI_SIZE": "mpiexec of MPICH",
    "OMPI_COMM_WORLD_SIZE": "mpirun of Open MPI",
    "SLURM_STEP_NUM_TASKS": "srun",
}
"""The variables by which a launcher tells a rank how many it has started."""


class Ranks:
    """The other ranks, as the loop needs them."""

    def __init__(self, comm: MPI.Intracomm) -> None:
        self.comm = comm
        self.barrier = comm.Barrier

    def gather(self, local: Times) -> Times | None:
        everyone = np.empty((self.comm.size, *local.shape), local.dtype) if self.comm.rank == 0 else None
        self.comm.Gather(np.ascontiguousarray(local), everyone)
        return None if everyone is None else np.moveaxis(everyone, 0, -1)

    def agree(self, more: int) -> int:
        return int(self.comm.bcast(more))

    def at_root(self, do: Callable[[], Answer]) -> Answer:
        """Do something at rank 0, and return its answer, or raise its complaint, on all ranks."""
        answer: Answer | None = None
        complaint: BadInputError | None = None
        if self.comm.rank == 0:
            try:
                answer = do()
            except BadInputError as error:
                complaint = error
        complaint, answer = self.comm.bcast((complaint, answer))
        if complaint is not None:
            raise complaint
        return cast("Answer", answer)  # rank 0 answered, or complained


def check_launch(comm: MPI.Intracomm, job: Job) -> None:
    """See that the launcher, the MPI library and the job mean the same ranks.

    Raises:
        BadInputError: where a rank is alone although others were started, or there are not as many as the job says.
    """
    for variable, launcher in LAUNCHERS.items():
        started = os.environ.get(variable, "1")
        if started.isdigit() and int(started) > 1 and comm.size == 1:
            library = mpi_library()
            raise BadInputError(
                "launcher",
                f"{launcher}, {started} ranks",
                f"each rank believes it is alone; use the launcher of {library['version']} ({library['path']}), "
                "or on Slurm the --mpi type that it speaks (srun --mpi=list)",
            )
    if comm.size != job.ranks:
        raise BadInputError("ranks", comm.size, f"job {job.name} is for {job.ranks}")
