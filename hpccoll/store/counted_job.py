"""A job whose collectives were counted: its ranks, its communicators, and the calls of each kind and size.

Sizes are S as ``hpccoll run`` counts them: all n blocks of an all-gather, gather, scatter,
reduce-scatter or all-to-all; of a neighbour collective what a rank sends.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

CALLS = np.dtype(
    [
        ("kind", np.int32),  # its number in ``kinds``
        ("rank", np.int32),  # its number in ``ranks``
        ("calls", np.int64),
        ("bytes", np.int64),  # S, summed over the calls
        ("seconds", np.float64),  # in the calls, without what waiting_s counts
        ("waiting_s", np.float64),  # in the barriers before the calls
        ("least_bytes", np.int64),
        ("most_bytes", np.int64),
    ]
)
"""The calls of one kind of one rank."""

FINALIZED = "finalized"
"""The end of a rank that has called MPI_Finalize."""


@dataclass(frozen=True, slots=True)
class CountedRank:
    """A process of the job."""

    launch: int  # a command may launch programs one after the other
    rank: int  # in MPI_COMM_WORLD; -1 in a process without one
    host: str
    end: str  # finalized, aborted, exited (without MPI_Finalize) or running (when it last wrote)
    ran_s: float  # from the return of MPI_Init to the end
    cost_s: float  # of counting one call, measured at its begin
    writing_s: float  # in which it wrote its file
    left_out: int  # calls for which the counters had no place


@dataclass(frozen=True, slots=True)
class CountedLaunch:
    """A program that was launched with MPI."""

    ranks: int  # of its MPI_COMM_WORLD
    abi: str  # MPICH, Open MPI or MPI-5 ABI
    library: str  # what MPI_Get_library_version says
    path: str  # of the library


@dataclass(frozen=True, slots=True)
class CountedGroup:
    """Communicators of the same ranks in the same order, created by the same function."""

    launch: int
    created_by: str  # the function
    size: int
    blocks: int  # of an intercommunicator the ranks of the other group; else as ``size``
    is_inter: bool
    members: (
        str  # ranks of MPI_COMM_WORLD, as runs of first:count:stride; if unknown, "?" and a hash
    )
    nodes: int  # 0 if it is unknown
    communicators: int  # how many a rank created, at most


@dataclass(frozen=True, slots=True)
class CallKind:
    """What calls have in common."""

    collective: str  # MPI's name without the prefix, such as Allreduce
    variant: str  # blocking, nonblocking or persistent
    group: int  # its number in ``groups``
    dtype: str  # MPI's name, "derived" or "none"
    operation: str  # MPI's name, "user" or "none"
    in_place: bool
    size_class: int  # k: sizes from 2^(k - 1) to 2^k - 1; 0: no bytes


@dataclass(frozen=True, slots=True)
class CountedJob:
    """What the ranks of a job counted."""

    command: str  # empty if it is unknown
    exit_code: int  # of the command; 0 if it is unknown
    began: str  # ISO 8601
    wall_s: float  # of the command, or of the ranks if that is unknown
    barrier: bool  # whether ranks waited for one another before each blocking collective
    launches: Sequence[CountedLaunch]
    ranks: Sequence[CountedRank]
    groups: Sequence[CountedGroup]
    kinds: Sequence[CallKind]
    calls: NDArray[np.void]  # CALLS
    damaged: Sequence[str] = ()  # files that could not be read, and why

    @property
    def missing(self) -> list[tuple[int, int]]:
        """The launch and rank of each process that wrote nothing."""
        present = {(rank.launch, rank.rank) for rank in self.ranks}
        absent = []
        for number, launch in enumerate(self.launches):
            for rank in range(launch.ranks):
                if (number, rank) not in present:
                    absent.append((number, rank))
        return absent

    @property
    def unfinished(self) -> list[CountedRank]:
        """The ranks that did not call MPI_Finalize."""
        return [rank for rank in self.ranks if rank.end != FINALIZED]


def mpi_library_name(version: str) -> str:
    """Return the name and number of an MPI library by its version text: ``Open MPI v4.1.4``, ``MPICH 5.0.2``."""
    first_line = version.strip("\0 \n").partition("\n")[0]
    name = first_line.partition(",")[0]
    return re.sub(r"\s*Version:?\s*", " ", name).strip()


def ranks_of_runs(runs: str) -> list[int] | None:
    """Return the ranks of runs of first:count:stride, such as ``0:4:2,1:4:2``; None if they are unknown."""
    if runs.startswith("?"):
        return None
    ranks: list[int] = []
    for run in runs.split(","):
        first, count, stride = map(int, run.split(":"))
        ranks += [first + stride * number for number in range(count)]
    return ranks
