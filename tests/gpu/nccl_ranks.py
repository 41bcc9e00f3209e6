"""What schedules and calls over NCCL owe, checked by every rank of a real MPI, on GPUs, or on the host.

    mpiexec -n 2 python tests/gpu/nccl_ranks.py [drill] [host DIRECTORY]

Every rank does the operation in lockstep by itself, and holds the bits it was given against that.
test_on_gpu.py runs it, under a timeout: ranks that share a GPU wait for each other's turns. On the
host, NCCL is the test library that is compiled in DIRECTORY, under the same bindings
(nccl_on_host.py): test_nccl_on_host.py runs that.
"""

import sys
import time
from collections.abc import Callable
from copy import copy
from functools import partial
from itertools import cycle, product

import numpy as np
from bits_of_plans import check_plan, lockstep_result
from mpi4py import MPI
from rank_checks import run_checks
from rank_gpu import gpu_of_rank, host_directory
from schedule_examples import (
    AGGREGATORS,
    ALGORITHMS,
    buffers,
    calls_of,
    case_of,
    cases,
    result,
)

from hpccoll.cases.communicator_settings import BUFFERS, COMMUNICATOR_SETTINGS, nccl_config
from hpccoll.common.errors import BadInputError, ExcludedError, StalledError
from hpccoll.measure.deadline_sync import DeadlineSync
from hpccoll.measure.ranks import Ranks
from hpccoll.schedule import COLLECTIVES, DTYPES, REDUCTIONS, Layout, dtype_of
from hpccoll.schedule.operation import Operation
from hpccoll.transports.nccl import communicator_config, communicators
from hpccoll.transports.nccl.communicator_config import ConfiguredNccl, NcclBuffers
from hpccoll.transports.nccl.cupy_device import CupyDevice
from hpccoll.transports.nccl.transport import NcclTransport
from hpccoll.transports.nccl.vendor import NcclVendorTransport

COMM = MPI.COMM_WORLD
ME, RANKS = COMM.rank, COMM.size
ELEMENTS = (*DTYPES, "bfloat16")
HOST = host_directory(sys.argv)

KNOWN = "registered", "symmetric"
"""How NCCL can know buffers."""


def say(words: str) -> None:
    if ME == 0:
        print(words, flush=True)


def agrees(
    asked: Operation, way=NcclTransport, *, graph: bool = False, right=None, comm=COMM
) -> None:
    """Do the operation over ``way``, and compare with lockstep, or with ``right``."""
    check_plan(way(comm, GPU, graph=graph), GPU, asked, right)


# ---- checks
# ---------------------------------------------------------------------------------------------------------


def every_call_of_every_algorithm_agrees_with_lockstep() -> None:
    for collective, algorithm in ALGORITHMS.values():
        layout = Layout.of(RANKS)
        if algorithm.aggregates:
            layout = Layout.of(
                max(1, RANKS - 1), aggregators=min(AGGREGATORS, RANKS - max(1, RANKS - 1))
            )
        for turn, case in enumerate(cases(collective, algorithm, layout)):
            for in_place in case.placements:
                channels, window = [(1, 1), (3, 2)][turn % 2]
                agrees(
                    case.operation(
                        1001, "float32", in_place=in_place, channels=channels, window=window
                    )
                )


def one_stream(comm, gpu, **options) -> NcclTransport:
    """Return the transport whose folds are on the stream of the messages."""
    alone = copy(gpu)
    alone.for_folds = alone
    return NcclTransport(comm, alone, **options)


def folds_on_a_stream_of_their_own_give_the_bits_of_one_stream_and_of_lockstep() -> None:
    """Of every schedule with a reduction, for every dtype, launched call by call and as a graph."""
    ops = cycle(REDUCTIONS)
    for name, (collective, algorithm) in ALGORITHMS.items():
        case = case_of(name, RANKS) if collective.has_op and not collective.uncut else None
        if case is None or algorithm.floor:
            continue
        for dtype in ELEMENTS:
            asked = case.operation(
                403, dtype_of(dtype), next(ops), in_place=False, channels=5, window=2
            )
            right = lockstep_result(asked)
            for way, graph in product((NcclTransport, one_stream), (False, True)):
                agrees(asked, way, graph=graph, right=right)


def graphs_replay_what_runs_directly_and_large_messages_arrive_whole() -> None:
    for name in ("all_reduce-ring", "all_gather-bruck", "broadcast-chain", "reduce_scatter-ring"):
        if case := case_of(name, RANKS):
            agrees(
                case.operation(5000, "float32", in_place=False, channels=2, window=2), graph=True
            )
    # large messages
    agrees(case_of("all_reduce-ring", RANKS).operation(1 << (20 if HOST else 22), "float32"))
    requested = operation(COLLECTIVES["all_reduce"].call(RANKS), "float32", "sum")
    agrees(requested, NcclVendorTransport, graph=True, right=expected_result(requested))


def operation(call, dtype: str, op: str, *, in_place: bool = True, layout=None) -> Operation:
    count = 1 if call.collective.token else 37
    return Operation(
        call,
        layout or Layout.of(RANKS),
        (),
        count,
        dtype_of(dtype),
        REDUCTIONS[op],
        in_place=in_place,
    )


def expected_result(asked: Operation):
    inputs, _ = buffers(asked)
    return result(asked, inputs, ME) if asked.layout.workers > ME else np.empty(0, asked.dtype)


def nccls_own_calls_meet_the_postcondition() -> None:
    for collective in COLLECTIVES.values():
        for call, in_place in product(calls_of(collective, RANKS), (True, False)):
            fits = collective.in_place if in_place else collective.out_of_place
            if fits and not collective.token and not (in_place and collective.name == "all_to_all"):
                requested = operation(call, "float32", "sum", in_place=in_place)
                agrees(requested, NcclVendorTransport, right=expected_result(requested))
                if collective.name in communicator_config.NEWER_CALLS:
                    agrees(requested, grouped, right=expected_result(requested))


def grouped(*arguments, **options) -> NcclVendorTransport:
    """Return the transport as it is without nccl4py."""
    transport = NcclVendorTransport(*arguments, **options)
    transport._newer_call = lambda *_: (None, "grouped")
    return transport


def nccls_own_calls_take_every_dtype_and_op() -> None:
    workers = max(1, RANKS - 1)  # the last one is an aggregator, which is outside NCCL's call
    for dtype, op, name in product(
        ELEMENTS, REDUCTIONS, ("all_reduce", "reduce", "reduce_scatter")
    ):
        for layout in (Layout.of(RANKS), Layout.of(workers, aggregators=RANKS - workers)):
            requested = operation(COLLECTIVES[name].call(layout.workers), dtype, op, layout=layout)
            agrees(requested, NcclVendorTransport, right=expected_result(requested))


def communicators_with_settings_and_buffers_that_nccl_knows_meet_the_postcondition() -> None:
    """Where there is nccl4py. Windows are left out where NCCL makes none, as between ranks that share a GPU it may."""
    since = COMMUNICATOR_SETTINGS[BUFFERS].since
    if reason := next(
        filter(None, COMM.allgather(communicator_config.missing_for_nccl4py(since))), None
    ):
        say(f"left out: {reason}")
        return
    library = ConfiguredNccl(
        nccl_config({"max_ctas": 2, "traffic_class": 0, "cta_policy": "efficiency"})
    )
    cupys, own = COMM.Dup(), COMM.Dup()
    ring = case_of("all_reduce-ring", RANKS).operation(1000, dtype_of("bfloat16"), in_place=False)
    for (comm, made_by), how in product(
        ((cupys, None), (own, library)), (None, "allocated", *KNOWN)
    ):
        agrees_with_buffers(ring, NcclTransport, comm, made_by, how)
        for name in ("all_reduce", "reduce_scatter", "all_gather", "all_to_all"):
            requested = operation(COLLECTIVES[name].call(RANKS), "float32", "sum", in_place=False)
            agrees_with_buffers(
                requested, NcclVendorTransport, comm, made_by, how, right=expected_result(requested)
            )


def agrees_with_buffers(requested: Operation, kind, comm, library, how: str | None, **more) -> None:
    way = partial(kind, library=library, buffers=NcclBuffers(comm, GPU, how) if how else None)
    try:
        agrees(requested, way, comm=comm, **more)
        agrees(requested, way, comm=comm, graph=True, **more)
    except BadInputError as error:  # on all ranks
        say(f"left out: {error}")


CHECKS: list[Callable[[], None]] = [
    every_call_of_every_algorithm_agrees_with_lockstep,
    folds_on_a_stream_of_their_own_give_the_bits_of_one_stream_and_of_lockstep,
    graphs_replay_what_runs_directly_and_large_messages_arrive_whole,
    nccls_own_calls_meet_the_postcondition,
    nccls_own_calls_take_every_dtype_and_op,
    communicators_with_settings_and_buffers_that_nccl_knows_meet_the_postcondition,
]


# ---- the drill
# ------------------------------------------------------------------------------------------------------


def drill() -> None:
    """The last rank stalls in front of an all-reduce; the others notice it, and go on without it."""
    last, sync = RANKS - 1, DeadlineSync(Ranks(COMM), timeout=12 if HOST else 24)
    agrees(case_of("all_reduce-ring", RANKS).operation(1000, "float32"))
    one = communicators.nccl_world(COMM, GPU)
    array = GPU.upload(np.ones(1 << 20, np.float32))
    address = GPU.address(array)

    def all_reduce(communicator):
        communicator.allReduce(address, address, array.size, 7, 0, GPU.stream.ptr)

    # the first one connects the ranks, for which each waits on the host
    all_reduce(one.communicator)
    GPU.await_work()
    COMM.Barrier()
    if last == ME:
        time.sleep(2 * (sync.limit_s + sync.answer_s))
    all_reduce(one.communicator)
    try:
        sync.wait(GPU.idle, CupyDevice(GPU, one.communicator).error)
    except StalledError as error:
        print(f"rank {ME}: {error}", flush=True)
        stall = error
    else:
        raise AssertionError("an all-reduce without one of its ranks came to an end")
    communicators.abort_all_worlds()
    GPU.await_work()  # the aborted stream has come to its end
    try:
        _, comm = sync.regroup(stall)
    except ExcludedError:
        assert last == ME
        print(f"rank {ME} woke up", flush=True)
    else:
        assert comm.size == last
        made = communicators.nccl_world(comm, GPU)
        values = np.full(array.size, comm.rank + 1, np.float32)
        array.set(values, stream=GPU.stream)
        all_reduce(made.communicator)
        assert (GPU.download(array) == comm.size * (comm.size + 1) / 2).all()
        print(f"rank {ME} went on without rank {last}", flush=True)
    COMM.Barrier()
    while sync.control_comm.iprobe():  # what is left fails MPI_Finalize
        sync.control_comm.recv()


if __name__ == "__main__":
    GPU = gpu_of_rank(COMM, HOST)
    run_checks(COMM, [drill] if "drill" in sys.argv else CHECKS)
    communicators.close_all_worlds()
