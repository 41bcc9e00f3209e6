"""What schedules over the memory of peers owe, checked by every rank of a real MPI, on GPUs or on the host.

    mpiexec -n 3 python tests/transports/peer/peer_ranks.py [few] [host DIRECTORY]

``few`` are a few schedules of float32 in both protocols, also as graphs, and large messages, in the
place of every call of every schedule. On the host a rank's GPU memory is a file that the others map,
and a block of the kernel is a thread.
"""

import sys
from collections.abc import Callable
from itertools import cycle, product
from pathlib import Path
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).parents[2] / "gpu"))

from bits_of_plans import check_plan
from mpi4py import MPI
from peer_cases import DTYPES_AND_OPS, SOME
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
HOST = host_directory(sys.argv)

LARGE_ELEMENTS = 1 << (16 if HOST else 20)
LARGE_BLOCKS = 8
"""Of large messages, whose blocks run at the same time."""


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


def a_few_schedules_agree_with_lockstep_in_both_protocols_also_as_graphs() -> None:
    for name, protocol, graph in product(SOME, PROTOCOLS, (False, True)):
        operation = case_of(name, RANKS).operation(1001, "float32", channels=3, window=2)
        check_plan(PeerTransport(COMM, GPU, graph=graph, protocol=protocol), GPU, operation)


def large_messages_arrive_whole() -> None:
    for name, protocol in product(("all_reduce-ring", "all_reduce-direct"), PROTOCOLS):
        operation = case_of(name, RANKS).operation(
            LARGE_ELEMENTS, "float32", channels=LARGE_BLOCKS, window=LARGE_BLOCKS
        )
        check_plan(PeerTransport(COMM, GPU, protocol=protocol), GPU, operation)


def error_of(kind: type[Exception], call: Callable[[], object]) -> str:
    """Return the words of the error of this kind that ``call`` raises."""
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind.__name__}")


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
        error_of(StalledError, lambda: poll_until(GPU.idle, lambda: None, 2.0))
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
    words = error_of(
        LeftError if ME == 0 else StalledError, lambda: transport.plan(operation, src, dst)
    )
    if ME == 1:
        assert "waits in step 0 for rank 0 to send it message 1" in words, words
    GPU.await_work()
    COMM.Barrier()
    transport.close()


def a_rank_that_cannot_map_the_memory_of_others_is_bad_input_on_all() -> None:
    transport = PeerTransport(COMM, GPU)
    words = refusal_of_last_rank(transport, transport._shared, "_map", lacks_peer_access)
    assert f"rank {RANKS - 1} cannot map" in words, words
    assert "no peer access" in words, words


def a_rank_without_memory_for_a_plan_is_bad_input_on_all() -> None:
    transport = PeerTransport(COMM, GPU, protocol="ll")
    words = refusal_of_last_rank(transport, transport._shared, "zeros", lacks_memory)
    assert f"rank {RANKS - 1} cannot allocate" in words, words


def a_plan_whose_blocks_a_gpu_does_not_run_at_once_is_bad_input_on_all() -> None:
    words = refusal_of_last_rank(PeerTransport(COMM, GPU), GPU, "resident_blocks", runs_one)
    assert "2 blocks of the peer kernel" in words, words


def refusal_of_last_rank(transport, owner, method: str, replacement) -> str:
    """Return the words of the error on all ranks if a method of the last rank is replaced, and close the transport."""
    operation = case_of("all_reduce-ring", RANKS).operation(1001, "float32", channels=2, window=2)
    src = transport.empty(0, operation.dtype)
    dst = transport.empty(1001, operation.dtype)
    own = getattr(owner, method)
    with patch.object(owner, method, replacement if ME == RANKS - 1 else own):
        words = error_of(BadInputError, lambda: transport.plan(operation, src, dst))
    transport.close()
    return words


def lacks_memory(_count):
    raise RuntimeError("out of memory")


def lacks_peer_access(_rank, _handle):
    raise RuntimeError("no peer access")


def runs_one(_function, _threads) -> int:
    return 1


class LeftError(Exception):
    """A rank ends before it launches its first operation."""


def leave(**_) -> None:
    raise LeftError


class Impatient(Connecting):
    """Ranks wait two seconds for a first operation."""

    def wait(self, done, error) -> None:
        poll_until(done, error, 2.0)


EVERY = [every_call_of_every_algorithm_agrees_with_lockstep]
FEW = [
    a_few_schedules_agree_with_lockstep_in_both_protocols_also_as_graphs,
    large_messages_arrive_whole,
]


if __name__ == "__main__":
    GPU = gpu_of_rank(COMM, HOST)
    run_checks(
        COMM,
        [
            *(FEW if "few" in sys.argv else EVERY),
            a_plan_whose_blocks_a_gpu_does_not_run_at_once_is_bad_input_on_all,
            a_rank_that_cannot_map_the_memory_of_others_is_bad_input_on_all,
            a_rank_without_memory_for_a_plan_is_bad_input_on_all,
            a_rank_that_does_not_launch_is_named_by_those_that_wait,
            a_first_run_that_stalls_names_the_rank_that_does_not_come,
        ],
    )
