"""Whether the order of a call depends on how often it was made: libraries change algorithms after some calls."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from mpi4py import MPI

from hpccoll.measure.order.black_box import BlackBox
from hpccoll.measure.timing_loop import RankProgress
from hpccoll.order.epochs import Epoch, epochs_of_flags
from hpccoll.order.procedure import reveal_masked
from hpccoll.order.random_vectors import differing_bits
from hpccoll.order.revealed import Block
from hpccoll.schedule.operation import Array

CALLS = 100
"""Calls on a new communicator. MPICH 5 changes at the fifth (MPIR_CVAR_POSIX_NUM_COLLS_THRESHOLD)."""

MOST_COMMUNICATORS = 8
"""The most communicators on which that many calls are made: small vectors show a change by chance only."""

MOST_EPOCHS = 4
"""The most epochs whose trees are revealed. If the order changes more often, it is not told."""

MakeBox = Callable[[MPI.Intracomm], BlackBox]


@contextmanager
def box_on_duplicate(comm: MPI.Intracomm, make: MakeBox) -> Iterator[BlackBox]:
    """Yield the call on a new communicator of the same ranks, which use this together."""
    duplicate = comm.Dup()
    try:
        box = make(duplicate)
        try:
            yield box
        finally:
            box.close()
    finally:
        _free(duplicate)


def _free(duplicate: MPI.Intracomm) -> None:
    from hpccoll.transports.nccl.communicators import close_world

    close_world(duplicate)
    duplicate.Free()


def epochs_of_calls(
    comm: MPI.Intracomm, make: MakeBox, expected: Sequence[Array], progress: RankProgress
) -> list[Epoch]:
    """Return how the first CALLS calls on a new communicator sum; all ranks call this together.

    Args:
        comm: the communicator of the ranks.
        make: makes the call on another communicator.
        expected: the sums of the first random vectors at this rank, on a communicator that has seen
            many calls.
        progress: is kept up to date.
    """
    continues = np.ones(CALLS, np.uint8)  # whether a call has the bits of the one before
    is_final = np.ones(CALLS, np.uint8)  # whether it has the expected bits
    for number, later_sums in enumerate(expected):
        with box_on_duplicate(comm, make) as box:
            own = box.call.random_vectors.vector(number, comm.rank)
            before: Array | None = None
            for call in range(CALLS):
                progress.enter(f"call {call + 1} on a new communicator")
                sums = box.sums(own)
                if before is not None:
                    continues[call] &= not differing_bits(sums, before).any()
                is_final[call] &= not differing_bits(sums, later_sums).any()
                before = sums
    comm.Allreduce(MPI.IN_PLACE, continues, MPI.MIN)
    comm.Allreduce(MPI.IN_PLACE, is_final, MPI.MIN)
    return epochs_of_flags(continues, is_final)


def blocks_at_call(
    comm: MPI.Intracomm, make: MakeBox, number: int, progress: RankProgress
) -> list[Block]:
    """Return the blocks of this rank at a call on a new communicator, one for each pair; all ranks call it together."""
    with box_on_duplicate(comm, make) as box:
        call = box.call
    procedure = reveal_masked(call, in_place=False)
    masked = next(procedure)
    while True:
        progress.enter(f"revealing call {number} on a new communicator")
        with box_on_duplicate(comm, make) as box:
            for _ in range(number):
                sums = box.sums(masked.vector)
        try:
            masked = procedure.send(sums)
        except StopIteration as end:
            return call.moved(end.value)
