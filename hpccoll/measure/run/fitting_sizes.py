"""The largest message size of a run over NCCL that names none: the largest one that fits the memory of all its GPUs."""

from dataclasses import replace

from mpi4py import MPI

from hpccoll.cases.case import Case, Job
from hpccoll.cases.memory_estimate import check_memory
from hpccoll.common.errors import BadInputError
from hpccoll.common.units import format_size
from hpccoll.measure.gpu_assignment import RankGpus
from hpccoll.measure.ranks import Ranks


def job_of_fitting_sizes(ranks: Ranks, job: Job) -> Job:
    """Return ``job`` without the sizes that do not fit the GPU of a rank; all ranks call this together.

    Rank 0 prints the largest size. A job on ranks that cannot use their GPUs is returned as it is,
    and so is one without a fitting size: its cases are then skipped with the reason.
    """
    gpus = RankGpus(ranks)
    if gpus.silent or gpus.failures or gpus.missing_for("nccl"):
        return job
    # the same if the job is resumed
    memory, sharing = gpus.gpu_of_rank.total_bytes, gpus.ranks_on_gpu
    largest = 0
    for size in sorted({case.bytes for case in job.cases}):
        cases_of_size = [case for case in job.cases if case.bytes == size]
        if not _fits(cases_of_size, job, sharing, memory):
            break
        largest = size
    largest = ranks.comm.allreduce(largest, MPI.MIN)
    if not largest:
        return job
    if ranks.comm.rank == 0:
        print(
            f"# sizes up to {format_size(largest)}, the largest that fits every GPU; -e sets another limit",
            flush=True,
        )
    return replace(job, cases=tuple(case for case in job.cases if case.bytes <= largest))


def _fits(cases: list[Case], job: Job, sharing: int, memory: int) -> bool:
    try:
        check_memory(cases, job.ranks, sharing, memory, "cuda", job.aggregators)
    except BadInputError:
        return False
    return True
