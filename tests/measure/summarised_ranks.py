"""Ranks that gather made-up times at one rank and at several, which has to give the same."""

import json
import sys

import numpy as np
from mpi4py import MPI

from hpccoll.measure import gathered_times
from hpccoll.store.case_times import PER_ITERATION, PER_RANK, CaseTimes, SummaryRule

COMM = MPI.COMM_WORLD
BLOCKS = 7, 1, 12


def times_of(rank, iterations, first):
    """Return the times of a rank; the last one is an aggregator, and is slow."""
    draw = np.random.default_rng([rank, first])
    start = 10**9 * (first + np.arange(iterations)) + draw.integers(0, 999, iterations)
    took = draw.integers(1000, 9999, iterations) + 10**6 * (rank == COMM.size - 1)
    return np.stack([start, start + took, took - 7])


def gathered(at_once, limit):
    """Return the times of all blocks, of which a rank gathers ``at_once`` samples."""
    gathered_times.SAMPLES_AT_ONCE = at_once
    summary = SummaryRule(
        number=2,
        clocks=[rank % 2 for rank in range(COMM.size)],
        workers=COMM.size - 1,
        limit=limit,
        has_mean=True,
    )
    done, blocks = 0, []
    for count in BLOCKS:
        local = times_of(COMM.rank, count, done)
        done += count
        blocks.append(gathered_times.summarise(COMM, local, summary, done))
    return CaseTimes.joined(blocks).in_memory() if COMM.rank == 0 else None


found = [gathered(at_once, limit) for limit in (1 << 22, 40) for at_once in (1 << 18, 8, 1)]
kept = gathered_times.gather_kept(COMM, np.array([COMM.rank, 7]), 2)
if COMM.rank == 0:
    every = [
        {name: getattr(times, name).tolist() for name in (*PER_ITERATION, *PER_RANK)}
        for times in found
    ]
    strides = [times.rank_stride for times in found]
    json.dump({"times": every, "strides": strides, "kept": kept.tolist()}, sys.stdout)
