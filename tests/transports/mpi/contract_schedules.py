"""The contract of the MPI transports: every schedule equals lockstep bit by bit, however a buffer is cut."""

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI
from queued_memory import QueuedMemory
from schedule_examples import ALGORITHMS, SUBJECTS, Case, buffers, case_of, cases, defined_part

from hpccoll.executor.compiled_executor import ExecutorOptions
from hpccoll.schedule import BFLOAT16, DTYPES, REDUCTIONS, Layout, Schedule, all_gather, dtype_of
from hpccoll.schedule.lockstep import run_lockstep
from hpccoll.schedule.operation import Operation
from hpccoll.transports.mpi import transport
from hpccoll.transports.mpi.gpu_memory import (
    GpuMpiTransport,
    GpuVendorTransport,
    StagedMpiTransport,
)
from hpccoll.transports.transport_interface import Transport

COMM = MPI.COMM_WORLD
ME, RANKS = COMM.rank, COMM.size
OPTIONS = ExecutorOptions(oversubscribed=True) if "compiled" in sys.argv else None
MpiTransport, TieredTransport = (
    partial(kind, options=OPTIONS) for kind in (transport.MpiTransport, transport.TieredTransport)
)
IN_TURN = [(1, 1), (3, 1), (3, 3), (4, 2)]
"""Channels and window."""
KERNELS = None if OPTIONS else Path(sys.argv[-1])
"""The directory in which the test has compiled the fold kernel for the host."""
WHOLE = RANKS < 3
"""Whether this launch does all cases of a check; another does a share, because its ranks outnumber the cores."""
RING, DOUBLING = "all_reduce-ring", "all_reduce-recursive_doubling"
BRUCK = "all_gather-bruck"  # whose messages are of two ranges where they wrap round
SLICED = "all_reduce-bidirectional_ring"


def share(cases: Iterable[Any], parts: int) -> list[Any]:
    """Return the cases of this launch: one of so many parts of them, unless it does all; launches differ in theirs."""
    every = [*cases]
    return every if WHOLE else every[RANKS % parts :: parts]


def queued_memory() -> QueuedMemory:
    return QueuedMemory(KERNELS)


def operation(subject: str | Schedule, count: int, *, dtype="float32", **asked) -> Operation:
    """Return an operation on a subject by name, or on a schedule of an all-gather, in place unless said otherwise."""
    case = (
        case_of(subject, RANKS)
        if isinstance(subject, str)
        else Case(all_gather.call(RANKS), (subject,))
    )
    return case.operation(count, dtype, **asked)


def shared(*arrays) -> bool:
    return np.shares_memory(*map(np.asarray, arrays))


def agrees_with_lockstep(
    asked: Operation, way: Callable[[MPI.Intracomm], Transport] = MpiTransport
) -> None:
    """Do the operation three times on one plan."""
    transport = way(COMM)
    inputs, outputs = buffers(asked, exact=False)
    src = transport.empty(0 if asked.in_place else asked.elements("src", ME), asked.dtype)
    target = transport.empty(asked.elements("dst", ME), asked.dtype)
    src[:] = [] if asked.in_place else inputs[ME]
    before = outputs[ME].copy()
    run_lockstep(asked, inputs, outputs)
    plan = transport.plan(asked, src, target)
    for _ in range(3):
        target[:] = before
        plan.run()
        right = defined_part(asked, outputs[ME], ME) if asked.call.p > ME else outputs[ME][:0]
        assert plan.result.tobytes() == right.tobytes(), f"not what lockstep has: {asked}"
        assert shared(plan.result, target) or not len(right), f"a result of its own: {asked}"
        assert asked.in_place or src.tobytes() == inputs[ME].tobytes(), f"src was written: {asked}"
    assert plan.progress() == "done", plan.progress()
    plan.close()
    transport.close()


def subjects() -> Iterator[str]:
    return (name for name in SUBJECTS if case_of(name, RANKS))


def in_turn(case: Case, turn: int, count: int = 1000, **more) -> Operation:
    """Return an operation on a case, with channels, window and placement in turns."""
    channels, window = IN_TURN[turn % len(IN_TURN)]
    in_place = case.placements[turn // len(IN_TURN) % len(case.placements)]
    return case.operation(
        count, "float32", **{"in_place": in_place, "channels": channels, "window": window, **more}
    )


def every_schedule_agrees_with_lockstep_bit_for_bit() -> None:
    counts = 0, 1, RANKS + 1, 1000
    # each schedule at least once
    for (at, name), turn in share(product(enumerate(subjects()), range(len(counts))), 3):
        agrees_with_lockstep(in_turn(case_of(name, RANKS), at + 5 * turn, counts[turn]))


def every_schedule_agrees_where_parts_are_taken_in_place_of_being_sent() -> None:
    pairs = tuple(me // 2 for me in range(RANKS))  # inside them they are taken, between them sent
    for at, name in share(enumerate(subjects()), 2):
        asked = in_turn(case_of(name, RANKS), at)
        paired = replace(asked, layout=Layout(pairs, aggregators=asked.layout.aggregators))
        agrees_with_lockstep(paired if at % 3 == 0 else asked, TieredTransport)


def every_schedule_agrees_in_memory_whose_folds_and_copies_are_queued() -> None:
    if OPTIONS:
        return  # the Python executor alone has such memory
    for at, name in share(enumerate(subjects()), 3):
        for in_place, way in product(
            case_of(name, RANKS).placements, (GpuMpiTransport, StagedMpiTransport)
        ):
            asked = in_turn(case_of(name, RANKS), at + in_place, in_place=in_place)
            agrees_with_lockstep(asked, lambda comm, way=way: way(comm, queued_memory()))
    for op, way in product(REDUCTIONS, (GpuMpiTransport, StagedMpiTransport)):
        agrees_with_lockstep(
            operation(RING, 1000, op=op), lambda comm, way=way: way(comm, queued_memory())
        )


def subnormal_numbers_survive_every_fold_in_the_memory_of_a_gpu() -> None:
    if OPTIONS:
        return
    inputs = np.arange(1, 101, dtype=np.int32).view(np.float32) * np.float32(2)  # all below 2**-126
    for name, way in product(REDUCTIONS, (GpuMpiTransport, GpuVendorTransport)):
        asked = operation(RING, 100, op=name)
        if way is GpuVendorTransport:
            asked = replace(asked, slices=())
        transport = way(COMM, queued_memory())
        nothing, target = transport.empty(0, asked.dtype), transport.empty(100, asked.dtype)
        plan = transport.plan(asked, nothing, target)
        target[:] = inputs * np.float32(ME + 1)
        plan.run()
        folded = np.float32(1) * inputs
        for rank in range(1, RANKS):
            folded = REDUCTIONS[name].fold(folded, inputs * np.float32(rank + 1))
        REDUCTIONS[name].scale(folded, RANKS)
        assert target.tobytes() == folded.tobytes(), (
            f"{name}, {way.__name__}: {np.asarray(target[:5])}"
        )
        plan.close()


def a_run_waits_only_for_work_that_it_has_queued() -> None:
    """Every other wait would be timed, and a benchmark of the library has none."""
    if OPTIONS:
        return
    library = replace(operation(RING, 1000), slices=())
    for asked, way, waits in (
        (library, GpuVendorTransport, 0),
        (replace(library, reduction=REDUCTIONS["avg"]), GpuVendorTransport, 1),
        (operation("all_gather-ring", 1000), GpuMpiTransport, 0),
        (operation(RING, 1000), GpuMpiTransport, RANKS - 1),  # once for each fold
    ):
        memory = queued_memory()
        transport = way(COMM, memory)
        src, target = (
            transport.empty(asked.elements(name, ME), asked.dtype) for name in ("src", "dst")
        )
        plan = transport.plan(asked, src, target)
        memory.waits = 0
        plan.run()
        assert (memory.waits, memory.queue) == (waits, []), (memory.waits, asked)
        plan.close()


def parts_are_taken_inside_nodes_and_sent_between_them() -> None:
    pairs = Layout(tuple(me // 2 for me in range(RANKS)))
    asked, transport = replace(operation(RING, 1000), layout=pairs), TieredTransport(COMM)
    target, nothing = transport.empty(asked.count, asked.dtype), transport.empty(0, asked.dtype)
    plan = transport.plan(asked, nothing, target)
    messages = [
        message
        for sequence in plan.executor.sequences
        for step in sequence
        for message in step.messages
    ]
    assert all(message.is_signal == (message.peer // 2 == ME // 2) for message in messages)
    assert bool(messages) == (RANKS > 1)
    plan.close()
    transport.close()


def every_root_peer_and_traffic_agrees_with_an_aggregator_beside_the_workers_too() -> None:
    layouts = [Layout.of(RANKS), *([Layout.of(RANKS - 1, aggregators=1)] if RANKS > 1 else [])]
    every = [
        case
        for (row, algorithm), layout in product(ALGORITHMS.values(), layouts)
        for case in cases(row, algorithm, layout)
    ]
    for turn, case in share(enumerate(every), 4):
        agrees_with_lockstep(in_turn(case, turn, 101))


def every_dtype_and_op_agrees_with_lockstep() -> None:
    for turn, (dtype, op) in share(
        enumerate(product((*DTYPES, dtype_of(BFLOAT16)), REDUCTIONS)), 3
    ):
        channels, window = IN_TURN[turn % len(IN_TURN)]
        for name in (RING, DOUBLING):
            asked = operation(
                name,
                100,
                dtype=dtype,
                op=op,
                in_place=name == RING,
                channels=channels,
                window=window,
            )
            agrees_with_lockstep(asked)


def above_the_cap_requests_are_made_anew() -> None:
    kept, transport.MAX_PERSISTENT_REQUESTS = transport.MAX_PERSISTENT_REQUESTS, 0
    try:
        for name, window in product((RING, "two_way_ring", BRUCK, "shift_by_one"), (1, 3)):
            agrees_with_lockstep(operation(name, 1000, channels=3, window=window))
        plan = MpiTransport(COMM).plan(
            operation(RING, 100), np.empty(0, np.float32), np.zeros(100, np.float32)
        )
        assert not plan.executor.requests
        plan.close()
    finally:
        transport.MAX_PERSISTENT_REQUESTS = kept


CHECKS: list[Callable[[], None]] = [
    every_schedule_agrees_with_lockstep_bit_for_bit,
    every_schedule_agrees_where_parts_are_taken_in_place_of_being_sent,
    every_schedule_agrees_in_memory_whose_folds_and_copies_are_queued,
    subnormal_numbers_survive_every_fold_in_the_memory_of_a_gpu,
    a_run_waits_only_for_work_that_it_has_queued,
    parts_are_taken_inside_nodes_and_sent_between_them,
    every_root_peer_and_traffic_agrees_with_an_aggregator_beside_the_workers_too,
    every_dtype_and_op_agrees_with_lockstep,
    above_the_cap_requests_are_made_anew,
]
