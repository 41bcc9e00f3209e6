"""The trial of a pair: two ranks on two nodes exchange GPU memory over MPI, which may crash them."""

import os
from functools import partial
from pathlib import Path

from hpccoll.evidence.gpu_pair import CORRECT, STARTED, WRONG, GpuPair
from hpccoll.host.mpi_library import cuda_support
from hpccoll.measure.ranks import Ranks, first_reason, print_of_rank
from hpccoll.measure.timing_loop import RankProgress
from hpccoll.measure.watchdog import watchdog
from hpccoll.transports import gpu
from hpccoll.transports.mpi import cuda_aware


def try_gpu_pair(ranks: Ranks, file: Path) -> int:
    """Exchange GPU memory between the ranks, and write the outcome to ``file`` at rank 0; all call this together.

    No file is written where there is nothing to try: without GPUs, if the library denies CUDA
    support, or if the user has answered for it.

    Returns:
        The exit code: 0 if the data are correct, or nothing was tried.
    """
    if why := first_reason(ranks.comm, _reason_to_skip()):
        if ranks.comm.rank == 0:
            print(f"# {why}: no GPU memory is exchanged", flush=True)
        return 0
    hosts = tuple(name for name, _ in ranks.ranks_by_node)
    ranks.run_at_root(lambda: GpuPair(state=STARTED, hosts=hosts).save(file))
    progress = RankProgress()
    progress.begin("pair of GPUs", "")
    with watchdog(progress, cuda_aware.TRANSFER_TIMEOUT_S, partial(print_of_rank, ranks.comm.rank)):
        progress.enter("exchanging GPU memory")
        correct = cuda_aware.exchange_gpu_memory(ranks.comm)
    outcome = GpuPair(state=CORRECT if correct else WRONG, hosts=hosts)
    ranks.run_at_root(lambda: outcome.save(file))
    if ranks.comm.rank == 0:
        print(f"# {outcome.description}", flush=True)
    return 0 if correct else 3


def _reason_to_skip() -> str | None:
    if cuda_aware.OVERRIDE in os.environ:
        return f"{cuda_aware.OVERRIDE} is set"
    if missing := gpu.missing_for_gpu("mpi"):
        return missing
    supported, report = cuda_support()
    if supported is not False:
        return None
    return report
