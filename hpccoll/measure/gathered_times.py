"""The times of a block of iterations, gathered from all ranks and summarised.

Up to SAMPLES_AT_ONCE they are gathered at rank 0. More would fill its memory, and all ranks would
wait while it summarises them: then several ranks gather some iterations each, and send rank 0 the
summaries, with the times of the ranks that are kept.
"""

from typing import Any, cast

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from hpccoll.store.case_times import CaseTimes, SummaryRule

SAMPLES_AT_ONCE = 1 << 18
"""The most iterations times ranks that a rank gathers: 6 MiB, which it summarises in some 20 ms."""

SUMMARY_TAG = 1 << 10


def summarise(
    comm: MPI.Intracomm, times_ns: NDArray[np.int64], rule: SummaryRule, iterations: int
) -> CaseTimes | None:
    """Return the summary of the times of all ranks at rank 0, None elsewhere; all ranks call this together.

    Args:
        comm: the ranks.
        times_ns: the times of this rank, [3, iteration].
        rule: how they are summarised.
        iterations: how many iterations the round has so far, with these.
    """
    count = times_ns.shape[1]
    parts = min(count, comm.size, -(-count * comm.size // SAMPLES_AT_ONCE))
    gathering = [part * comm.size // parts for part in range(parts)]  # ranks; rank 0 is the first
    ends = [part * count // parts for part in range(parts + 1)]
    gathered: NDArray[np.int64] | None = None
    requests = []
    for part, root in enumerate(gathering):
        piece = np.ascontiguousarray(times_ns[:, ends[part] : ends[part + 1]])
        received = None
        if comm.rank == root:
            received = np.empty((comm.size, *piece.shape), np.int64)
        # MPI reads the piece until it is sent
        requests.append((comm.Igather(piece, received, root), piece))
        if received is not None:
            gathered = received
    MPI.Request.Waitall([request for request, _ in requests])
    if gathered is None:
        return None
    mine = rule.of(np.moveaxis(gathered, 0, -1), iterations)
    if comm.rank:
        comm.send(mine, 0, SUMMARY_TAG)
        return None
    later = [cast("CaseTimes", comm.recv(source=root, tag=SUMMARY_TAG)) for root in gathering[1:]]
    return CaseTimes.joined([mine, *later]).in_memory()


def gather_kept(comm: MPI.Intracomm, local: NDArray[Any], stride: int) -> NDArray[Any] | None:
    """Return the arrays of every stride-th rank at rank 0, stacked as [kept rank, ...], and None elsewhere."""
    is_kept = comm.rank % stride == 0
    kept = comm.Split(0 if is_kept else MPI.UNDEFINED, comm.rank)
    if not is_kept:
        return None
    try:
        gathered = None
        if kept.rank == 0:
            gathered = np.empty((kept.size, *local.shape), local.dtype)
        kept.Gather(np.ascontiguousarray(local), gathered)
    finally:
        kept.Free()
    return gathered
