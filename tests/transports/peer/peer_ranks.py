"""What schedules over the memory of peers owe, checked by every rank of a real MPI, on GPUs or on the host.

    mpiexec -n 3 python tests/transports/peer/peer_ranks.py [host DIRECTORY]

On the host a rank's GPU memory is a file that the others map, and a block of the kernel is a thread.
"""

import sys
from itertools import cycle, product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "gpu"))

import pytest
from bits_of_plans import check_plan
from mpi4py import MPI
from peer_cases import DTYPES_AND_OPS
from rank_checks import run_checks
from rank_gpu import gpu_of_rank, host_directory
from schedule_examples import ALGORITHMS, case_of, cases, places

from hpccoll.common.errors import BadInputError, StalledError
from hpccoll.schedule import dtype_of
from hpccoll.transports.peer.transport import PeerTransport
from hpccoll.transports.stream_wait import Connecting, poll_until

COMM = MPI.COMM_WORLD
ME, RANKS = COMM.rank, COMM.size
PROTOCOLS = "simple", "ll"


def every_call_of_every_algorithm_agrees_with_lockstep() -> None:
    shapes = cycle([(1, 1), (3, 2), (4, 4)])
    elements = cycle(DTYPES_AND_OPS)
    ways = cycle(product((False, True), PROTOCOLS))
    for collective, algorithm in ALGORITHMS.values():
        fitting = places(algorithm, RANKS)
        if fitting.ranks > RANKS:  # its aggregators are ranks of their own
            continue
        for case in cases(collective, algorithm, fitting):
            for in_place in case.placements:
                channels, window = next(shapes)
                dtype, op = next(elements)
                operation = case.operation(
                    1001,
                    dtype_of(dtype),
                    op,
                    in_place=in_place,
                    channels=channels,
                    window=window,
                )
                graph, protocol = next(ways)
                check_plan(PeerTransport(COMM, GPU, graph=graph, protocol=protocol), GPU, operation)


def a_rank_that_does_not_launch_is_named_by_those_that_wait() -> None:
    for protocol in PROTOCOLS:
        rank_0_does_not_launch(PeerTransport(COMM, GPU, protocol=protocol))


def rank_0_does_not_launch(transport) -> None:
    operation = case_of("all_reduce-ring", RANKS).operation(1001, "float32")
    src = transport.empty(0, operation.dtype)
    dst = transport.empty(1001, operation.dtype)
    plan = transport.plan(operation, src, dst)
    if ME:
        plan.enqueue()
        with pytest.raises(StalledError):
            poll_until(GPU.idle, lambda: None, 2.0)
        waits_for = (ME - 1) % RANKS
        progress = plan.progress()
        if waits_for == 0:
            assert "waits in step 0 for rank 0 to send it message 1" in progress, progress
        plan.destroy_graphs()
        GPU.await_work()
    close_without_waiting_for_rank_0(plan, transport)


def close_without_waiting_for_rank_0(plan, transport) -> None:
    """Close a plan that has stalled on each rank alone: rank 0 closes it when all others have."""
    if ME == 0:
        for _ in range(1, RANKS):
            COMM.recv()
    plan.close()
    transport.close_alone()
    if ME:
        COMM.send(None, 0)
    transport.close()  # frees what peers might have read


def a_first_run_that_stalls_names_the_rank_that_does_not_come() -> None:
    operation = case_of("all_reduce-ring", RANKS).operation(1001, "float32")
    transport = PeerTransport(COMM, GPU, connecting=Impatient())
    src = transport.empty(0, operation.dtype)
    dst = transport.empty(1001, operation.dtype)
    if ME == 0:
        transport.connecting.begin = leave
    with pytest.raises(LeftError if ME == 0 else StalledError) as stalled:
        transport.plan(operation, src, dst)
    if ME == 1:
        assert "waits in step 0 for rank 0 to send it message 1" in str(stalled.value)
    GPU.await_work()
    COMM.Barrier()
    transport.close()


def a_rank_that_cannot_map_the_memory_of_others_is_bad_input_on_all() -> None:
    operation = case_of("all_reduce-ring", RANKS).operation(1001, "float32")
    transport = PeerTransport(COMM, GPU)
    src = transport.empty(0, operation.dtype)
    dst = transport.empty(1001, operation.dtype)
    with pytest.MonkeyPatch.context() as patch:
        if ME == RANKS - 1:
            patch.setattr(transport._shared, "_map", lacks_peer_access)
        with pytest.raises(BadInputError, match=rf"rank {RANKS - 1} cannot map.*: no peer access"):
            transport.plan(operation, src, dst)
    transport.close()


def a_rank_without_memory_for_a_plan_is_bad_input_on_all() -> None:
    operation = case_of("all_reduce-ring", RANKS).operation(1001, "float32")
    transport = PeerTransport(COMM, GPU, protocol="ll")
    src = transport.empty(0, operation.dtype)
    dst = transport.empty(1001, operation.dtype)
    with pytest.MonkeyPatch.context() as patch:
        if ME == RANKS - 1:
            patch.setattr(transport._shared, "zeros", lacks_memory)
        with pytest.raises(BadInputError, match=rf"rank {RANKS - 1} cannot allocate.*: out of mem"):
            transport.plan(operation, src, dst)
    transport.close()


def lacks_memory(_count):
    raise RuntimeError("out of memory")


def lacks_peer_access(_rank, _handle):
    raise RuntimeError("no peer access")


class LeftError(Exception):
    """A rank ends before it launches its first operation."""


def leave(**_) -> None:
    raise LeftError


class Impatient(Connecting):
    """Ranks wait two seconds for a first operation."""

    def wait(self, done, error) -> None:
        poll_until(done, error, 2.0)


if __name__ == "__main__":
    GPU = gpu_of_rank(COMM, host_directory(sys.argv))
    run_checks(
        COMM,
        [
            every_call_of_every_algorithm_agrees_with_lockstep,
            a_rank_that_does_not_launch_is_named_by_those_that_wait,
            a_first_run_that_stalls_names_the_rank_that_does_not_come,
            a_rank_that_cannot_map_the_memory_of_others_is_bad_input_on_all,
            a_rank_without_memory_for_a_plan_is_bad_input_on_all,
        ],
    )
