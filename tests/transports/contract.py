"""What the MPI transports owe, checked by every rank of a real MPI: mpiexec -n N python contract.py.

Every rank knows what all ranks contribute, does the operation in lockstep by itself, and holds the bits it was given
against that. It says which checks failed and ends with 1; test_mpi.py runs it.
"""

import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from mpi4py import MPI
from queued import QueuedMemory
from schedules import ALGORITHMS, SUBJECTS, Case, buffers, case_of, cases, of, promised, promises, result

from hpccoll.measure.catalogue import NATIVE, placements
from hpccoll.measure.ranks import abort
from hpccoll.schedule import (
    COLLECTIVES,
    DTYPES,
    REDUCTIONS,
    Copy,
    Layout,
    Promise,
    Receive,
    Schedule,
    ScheduleError,
    Send,
    Step,
    all_gather,
    barrier,
    dst,
    tmp,
)
from hpccoll.transports import mpi
from hpccoll.transports.lockstep import lockstep
from hpccoll.transports.mpi import Mpi, Tiered
from hpccoll.transports.mpi_gpu import MpiOnGpu, Staged, VendorOnGpu, VendorStaged
from hpccoll.transports.operation import Operation, PlanMismatchError, Transport
from hpccoll.transports.vendor import VendorMpi

COMM = MPI.COMM_WORLD
ME, RANKS = COMM.rank, COMM.size
IN_TURN = [(1, 1), (3, 1), (3, 3), (4, 2)]
"""Channels and window."""
RING, DOUBLING = "all_reduce-ring", "all_reduce-recursive_doubling"
BRUCK = "all_gather-bruck"  # whose messages are of two ranges where they wrap round
SLICED = "all_reduce-bidirectional_ring"


def operation(subject: str | Schedule, count: int, *, dtype="float32", **asked) -> Operation:
    """Return an operation on a subject by name, or on a schedule of an all-gather, in place unless said otherwise."""
    case = case_of(subject, RANKS) if isinstance(subject, str) else Case(all_gather.promise(RANKS), (subject,))
    return case.operation(count, dtype, **asked)


def shared(*arrays) -> bool:
    return np.shares_memory(*map(np.asarray, arrays))


def agrees_with_lockstep(asked: Operation, way: Callable[[MPI.Intracomm], Transport] = Mpi) -> None:
    """Do the operation three times on one plan."""
    transport = way(COMM)
    inputs, outputs = buffers(asked, exact=False)
    src = transport.empty(0 if asked.in_place else asked.elements("src", ME), asked.dtype)
    target = transport.empty(asked.elements("dst", ME), asked.dtype)
    src[:] = [] if asked.in_place else inputs[ME]
    before = outputs[ME].copy()
    lockstep(asked, inputs, outputs)
    plan = transport.plan(asked, src, target)
    for _ in range(3):
        target[:] = before
        plan.run()
        right = promised(asked, outputs[ME], ME) if asked.promise.p > ME else outputs[ME][:0]
        assert plan.result.tobytes() == right.tobytes(), f"not what lockstep has: {asked}"
        assert shared(plan.result, target) or not len(right), f"a result of its own: {asked}"
        assert asked.in_place or src.tobytes() == inputs[ME].tobytes(), f"src was written: {asked}"
    assert plan.where() == "done", plan.where()
    plan.close()
    transport.close()


def subjects() -> Iterator[str]:
    return (name for name in SUBJECTS if case_of(name, RANKS))


# ---- checks: the schedules ------------------------------------------------------------------------------------------


def every_schedule_agrees_with_lockstep_bit_for_bit() -> None:
    for at, name in enumerate(subjects()):
        for turn, count in enumerate((0, 1, RANKS + 1, 1000)):
            channels, window = IN_TURN[(at + turn) % len(IN_TURN)]
            for in_place in case_of(name, RANKS).placements:
                agrees_with_lockstep(operation(name, count, in_place=in_place, channels=channels, window=window))


def every_schedule_agrees_where_parts_are_taken_in_place_of_being_sent() -> None:
    pairs = Layout(tuple(me // 2 for me in range(RANKS)))  # inside them they are taken, between them sent
    for at, name in enumerate(subjects()):
        case = case_of(name, RANKS)
        for turn, in_place in enumerate(case.placements):
            channels, window = IN_TURN[(at + turn) % len(IN_TURN)]
            asked = operation(name, 1000, in_place=in_place, channels=channels, window=window)
            agrees_with_lockstep(replace(asked, layout=pairs) if (at + turn) % 3 == 0 else asked, Tiered)


def every_schedule_agrees_in_memory_whose_folds_and_copies_are_queued() -> None:
    for at, name in enumerate(subjects()):
        for turn, in_place in enumerate(case_of(name, RANKS).placements):
            channels, window = IN_TURN[(at + turn) % len(IN_TURN)]
            asked = operation(name, 1000, in_place=in_place, channels=channels, window=window)
            for way in (MpiOnGpu, Staged):
                agrees_with_lockstep(asked, lambda comm, way=way: way(comm, QueuedMemory()))
    for op, way in product(REDUCTIONS, (MpiOnGpu, Staged)):
        agrees_with_lockstep(operation(RING, 1000, op=op), lambda comm, way=way: way(comm, QueuedMemory()))


def parts_are_taken_inside_nodes_and_sent_between_them() -> None:
    pairs = Layout(tuple(me // 2 for me in range(RANKS)))
    asked, transport = replace(operation(RING, 1000), layout=pairs), Tiered(COMM)
    target, nothing = transport.empty(asked.count, asked.dtype), transport.empty(0, asked.dtype)
    plan = transport.plan(asked, nothing, target)
    messages = [message for sequence in plan._sequences for step in sequence for message in step.messages]
    assert all(message.empty == (message.peer // 2 == ME // 2) for message in messages)
    assert bool(messages) == (RANKS > 1)
    plan.close()
    transport.close()


def every_root_peer_and_traffic_agrees_with_an_aggregator_beside_the_workers_too() -> None:
    layouts = [Layout.of(RANKS), *([Layout.of(RANKS - 1, aggregators=1)] if RANKS > 1 else [])]
    for (collective, algorithm), layout in product(ALGORITHMS.values(), layouts):
        for turn, case in enumerate(cases(collective, algorithm, layout)):
            channels, window = IN_TURN[turn % len(IN_TURN)]
            for in_place in case.placements:
                agrees_with_lockstep(
                    case.operation(101, "float32", in_place=in_place, channels=channels, window=window)
                )


def every_dtype_and_op_agrees_with_lockstep() -> None:
    for turn, (dtype, op) in enumerate(product(DTYPES, REDUCTIONS)):
        channels, window = IN_TURN[turn % len(IN_TURN)]
        for name, in_place in ((RING, True), (DOUBLING, False)):
            agrees_with_lockstep(
                operation(name, 100, dtype=dtype, op=op, in_place=in_place, channels=channels, window=window)
            )


def windows_do_not_change_bits() -> None:
    for window in (1, 2, 3, 7):
        agrees_with_lockstep(operation(SLICED, 5000, channels=3, window=window))
        agrees_with_lockstep(operation("two_way_ring", 5000, channels=3, window=window, in_place=False))


def large_messages_arrive_whole() -> None:
    for name in (RING, BRUCK, "shift_by_one"):
        agrees_with_lockstep(operation(name, 300_001, channels=2, window=2))


def above_the_cap_requests_are_made_anew() -> None:
    kept, mpi.PERSISTENT_REQUESTS = mpi.PERSISTENT_REQUESTS, 0
    try:
        for name, window in product((RING, "two_way_ring", BRUCK, "shift_by_one"), (1, 3)):
            agrees_with_lockstep(operation(name, 1000, channels=3, window=window))
        plan = Mpi(COMM).plan(operation(RING, 100), np.empty(0, np.float32), np.zeros(100, np.float32))
        steps = [step for sequence in plan._sequences for step in sequence]
        assert not any(step.requests for step in steps)
        assert sum(len(step.starts) for step in steps) == 4 * (RANKS - 1)
        plan.close()
    finally:
        mpi.PERSISTENT_REQUESTS = kept


def parts_of_several_ranges_are_derived_datatypes() -> None:
    plan = Mpi(COMM).plan(operation(BRUCK, 10), np.empty(0, np.float32), np.zeros(10 * RANKS, np.float32))
    used = COMM.allreduce(len(plan._datatypes))
    assert (used > 0) == (RANKS > 3), used
    plan.close()


def several_plans_live_side_by_side() -> None:
    asked = operation(RING, 100), operation("two_way_ring", 100, channels=3, window=3)
    made = []
    for one in asked:
        _, outputs = buffers(one, exact=True)
        made.append((Mpi(COMM).plan(one, outputs[ME][:0], outputs[ME]), outputs[ME], outputs[ME].copy()))
    expected = result(asked[0], buffers(asked[0], exact=True)[0], ME)
    for plan, buffer, before in (*made, *made[::-1], *made):
        buffer[:] = before
        plan.run()
        assert (buffer == expected).all()
    for plan, _, _ in made:
        plan.close()


def a_copy_onto_its_own_source_is_staged() -> None:
    def steps(_layout: Layout, me: int) -> Iterator[Step]:
        yield Step(Copy(dst[me], tmp[0]), Copy(dst[me], tmp[1]))
        yield Step(Copy(tmp[0] + tmp[1], tmp[2] + tmp[3]))
        yield Step(Copy(tmp[1:4], tmp[0:3]))
        for other in range(RANKS):
            yield Step(Copy(dst[me], tmp[4 + other]))
        for unit in range(RANKS):
            if unit != me:
                yield Step(Copy(dst[me], dst[unit]))
        turned = [*range(1, RANKS), 0]
        if RANKS > 1:
            everything, rotated = dst[0], dst[turned[0]]
            for unit, other in zip(range(1, RANKS), turned[1:], strict=True):
                everything, rotated = everything + dst[unit], rotated + dst[other]
            yield Step(Send((me + 1) % RANKS, me), Receive((me - 1) % RANKS, (me - 1) % RANKS))
            yield Step(Copy(everything, rotated))

    for way in (Mpi, Tiered):
        agrees_with_lockstep(operation(of(steps)(Layout.of(RANKS)), 50), way)


def a_copy_reads_what_was_there_before_the_step() -> None:
    def steps(_layout: Layout, me: int) -> Iterator[Step]:
        right, left = (me + 1) % RANKS, (me - 1) % RANKS
        yield Step(*(Copy(dst[me], dst[unit]) for unit in range(RANKS) if unit != me))
        yield Step(Receive(left, me), Copy(dst[me], tmp[0]), Send(right, me), Copy(dst[left], dst[right]))
        yield Step(Copy(tmp[0], dst[me]), Copy(dst[me], tmp[0]))

    for way in (Mpi, Tiered) if RANKS > 1 else ():
        agrees_with_lockstep(operation(of(steps)(Layout.of(RANKS)), 50, channels=3, window=2), way)


# ---- checks: the plan -----------------------------------------------------------------------------------------------


def what_a_plan_holds_is_freed_on_close() -> None:
    for name in (RING, BRUCK):
        asked = operation(name, 99, channels=3, window=3)
        plan = Mpi(COMM).plan(asked, np.empty(0, np.float32), np.zeros(asked.elements("dst", ME), np.float32))
        plan.run()
        requests = [request for sequence in plan._sequences for step in sequence for request in step.requests]
        assert bool(requests) == (RANKS > 1)
        plan.close()
        assert all(request == MPI.REQUEST_NULL for request in requests)
        assert all(datatype == MPI.DATATYPE_NULL for datatype in plan._datatypes)


def ranks_that_ask_for_different_things_are_told_all_of_them() -> None:
    if RANKS == 1:
        return
    odd = RANKS - 1
    right = operation(RING, 120)
    for wrong in (
        operation(RING, 121),
        operation(RING, 120, dtype="float64"),
        operation(RING, 120, op="max"),
        operation(RING, 120, channels=2),
        operation(SLICED, 120),
        operation("all_reduce-null", 120),
    ):
        asked = wrong if odd == ME else right
        with pytest.raises(PlanMismatchError, match=f"rank {odd} is about to send .*what rank {odd} does not expect"):
            Mpi(COMM).plan(asked, np.empty(0, asked.dtype), np.zeros(asked.count, asked.dtype))
        transport = Tiered(COMM)
        target, nothing = transport.empty(asked.count, asked.dtype), transport.empty(0, asked.dtype)
        with pytest.raises(PlanMismatchError, match=f"rank {odd} is about to send .*what rank {odd} does not expect"):
            transport.plan(asked, nothing, target)
        transport.close()
    agrees_with_lockstep(right)


def a_plan_says_where_it_is() -> None:
    right, left = (ME + 1) % RANKS, (ME - 1) % RANKS
    plan = Mpi(COMM).plan(operation(RING, 100), np.empty(0, np.float32), np.zeros(100, np.float32))
    if RANKS == 1:
        assert plan.where() == "done"
    else:
        last = 2 * (RANKS - 1)
        assert plan.where() == f"sequence 0, step 1 of {last} (to rank {right}, from rank {left})"
        plan._at[0] = last - 1
        assert plan.where() == f"sequence 0, step {last} of {last} (to rank {right}, from rank {left})"
    plan.run()
    assert plan.where() == "done"
    plan.close()
    if RANKS > 1:
        plan = Mpi(COMM).plan(
            operation(RING, 300, channels=3, window=2, op="avg"), np.empty(0, np.float32), np.zeros(300, np.float32)
        )
        plan._at[:] = [2 * (RANKS - 1), 1]
        told = plan.where()
        assert told.startswith(
            f"sequence 0, step {2 * RANKS - 1} of {4 * RANKS - 2} (no messages); sequence 1, step 2 of"
        )
        plan.run()
        plan.close()


def too_many_messages_between_two_ranks_are_refused() -> None:
    def steps(_layout: Layout, me: int) -> Iterator[Step]:
        if me < 2:
            peer = 1 - me
            yield Step(*(Send(peer, me) for _ in range(33)), *(Receive(peer, peer) for _ in range(33)))

    if RANKS > 1:
        asked = operation(of(steps)(Layout.of(RANKS)), 4)
        if ME < 2:
            with pytest.raises(ScheduleError, match=f"rank {ME} has over 32 messages with rank {1 - ME} in one step"):
                Mpi(COMM).plan(asked, np.empty(0, np.float32), np.zeros(4 * RANKS, np.float32))


def a_barrier_holds_everyone_back_until_the_last_has_come() -> None:
    token, nothing = np.zeros((2, RANKS), np.uint8), np.zeros(0, np.uint8)
    plans = [
        *(Mpi(COMM).plan(operation(f"barrier-{name}", RANKS), nothing, token[0].copy()) for name in barrier.algorithms),
        VendorMpi(COMM).plan(vendor(barrier.promise(RANKS), RANKS, "uint8", "max", in_place=True), *token),
    ]
    for plan in plans:
        for late in range(RANKS):
            COMM.Barrier()
            if late == ME:
                time.sleep(0.02)
            entered = time.monotonic()
            plan.run()
            left = time.monotonic()
            assert left >= COMM.bcast(entered, late), f"rank {ME} did not wait for rank {late}"
        plan.close()


# ---- checks: the library's own --------------------------------------------------------------------------------------


def vendor(promise: Promise, count: int, dtype: str, op: str, *, in_place: bool, aggregators: int = 0) -> Operation:
    layout = Layout.of(promise.p, aggregators=aggregators)
    return Operation(promise, layout, (), count, np.dtype(dtype), REDUCTIONS[op], in_place=in_place)


def does_what_is_promised(asked: Operation, way: Callable[[MPI.Intracomm], Transport] = VendorMpi) -> None:
    """Make the library's own call twice on one plan."""
    transport = way(COMM)
    inputs, outputs = buffers(asked, exact=True)
    src = transport.empty(0 if asked.in_place else len(inputs[ME]), asked.dtype)
    src[:] = [] if asked.in_place else inputs[ME]
    target = transport.empty(asked.elements("dst", ME), asked.dtype)
    plan = transport.plan(asked, src, target)
    right = result(asked, inputs, ME) if asked.promise.p > ME else outputs[ME][:0]
    for _ in range(2):
        target[:] = outputs[ME]
        plan.run()
        if not asked.collective.token:  # its barrier has no buffer
            assert plan.result.tobytes() == right.tobytes(), asked
            assert shared(plan.result, target) or not len(right), asked
        assert asked.in_place or np.array_equal(np.asarray(src), inputs[ME]), f"src was written: {asked}"
    assert plan.where() == f"inside the library's {asked.collective.name}"
    plan.close()


def the_librarys_own_calls_do_what_is_promised_to_every_root_and_peer() -> None:
    for collective, aggregators in product(COLLECTIVES.values(), range(min(2, RANKS))):
        workers = RANKS - aggregators
        if workers == 1 and "peer" in collective.arguments:
            continue
        op = "max" if collective.idempotent else "sum"
        for promise in promises(collective, workers):
            for count, in_place in product((0, 1, 101), placements(collective.name, NATIVE, (True, False))):
                elements = workers if collective.token else count
                does_what_is_promised(
                    vendor(promise, elements, "float32", op, in_place=in_place, aggregators=aggregators)
                )


def the_librarys_own_calls_wait_for_what_is_queued_in_other_memory_and_for_what_they_queue() -> None:
    for collective, way in product(COLLECTIVES.values(), (VendorOnGpu, VendorStaged)):
        if collective.token or (RANKS == 1 and "peer" in collective.arguments):
            continue
        for promise in promises(collective, RANKS):
            for op, in_place in product(("sum", "avg"), placements(collective.name, NATIVE, (True, False))):
                asked = vendor(promise, 101, "float32", op, in_place=in_place)
                does_what_is_promised(asked, lambda comm, way=way: way(comm, QueuedMemory()))


def the_librarys_own_calls_take_every_dtype_and_op() -> None:
    for collective, dtype in product(COLLECTIVES.values(), DTYPES):
        if collective.token or (RANKS == 1 and "peer" in collective.arguments):
            continue
        promise = next(promises(collective, RANKS))
        for op in REDUCTIONS if collective.reduces else ["sum"]:
            for in_place in placements(collective.name, NATIVE, (True, False)):
                does_what_is_promised(vendor(promise, 11, dtype, op, in_place=in_place))


CHECKS: list[Callable[[], None]] = [
    every_schedule_agrees_with_lockstep_bit_for_bit,
    every_schedule_agrees_where_parts_are_taken_in_place_of_being_sent,
    every_schedule_agrees_in_memory_whose_folds_and_copies_are_queued,
    parts_are_taken_inside_nodes_and_sent_between_them,
    every_root_peer_and_traffic_agrees_with_an_aggregator_beside_the_workers_too,
    every_dtype_and_op_agrees_with_lockstep,
    windows_do_not_change_bits,
    large_messages_arrive_whole,
    above_the_cap_requests_are_made_anew,
    parts_of_several_ranges_are_derived_datatypes,
    several_plans_live_side_by_side,
    a_copy_onto_its_own_source_is_staged,
    a_copy_reads_what_was_there_before_the_step,
    what_a_plan_holds_is_freed_on_close,
    ranks_that_ask_for_different_things_are_told_all_of_them,
    a_plan_says_where_it_is,
    too_many_messages_between_two_ranks_are_refused,
    a_barrier_holds_everyone_back_until_the_last_has_come,
    the_librarys_own_calls_do_what_is_promised_to_every_root_and_peer,
    the_librarys_own_calls_wait_for_what_is_queued_in_other_memory_and_for_what_they_queue,
    the_librarys_own_calls_take_every_dtype_and_op,
]


def main() -> None:
    for check in CHECKS:
        started = time.monotonic()
        try:
            check()
        except BaseException:  # noqa: BLE001  whatever it is, the other ranks wait for this one
            print(f"r{ME} | {check.__name__.replace('_', ' ')}\n{traceback.format_exc()}", flush=True)
            abort(COMM)
        COMM.Barrier()
        if ME == 0:
            print(f"{check.__name__} {time.monotonic() - started:.2f} s", flush=True)


if __name__ == "__main__":
    main()
    sys.exit(0)
