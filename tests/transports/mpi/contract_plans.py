"""The contract of plans over MPI besides results: copies, freed resources and error messages."""

import time
from collections.abc import Callable, Iterator
from itertools import product

import numpy as np
import pytest
from contract_schedules import (
    BRUCK,
    COMM,
    DOUBLING,
    ME,
    OPTIONS,
    RANKS,
    RING,
    SLICED,
    MpiTransport,
    TieredTransport,
    agrees_with_lockstep,
    operation,
)
from contract_vendor import MpiVendorTransport, vendor
from mpi4py import MPI
from schedule_examples import Case, copies_beside_arrivals, of, rotates

from hpccoll.executor.compiled_executor import CompiledExecutor, wait_all
from hpccoll.executor.lowered_step import LoweredStep, MpiMessage
from hpccoll.schedule import Layout, Recv, ScheduleError, Send, Step, all_reduce, barrier
from hpccoll.transports.transport_interface import PlanMismatchError


def copies_read_what_was_there_before_the_step_and_onto_their_own_source_are_staged() -> None:
    for way, (channels, window) in product((MpiTransport, TieredTransport), ((1, 1), (3, 2))):
        agrees_with_lockstep(operation(rotates(RANKS), 50, channels=channels, window=window), way)
        if RANKS > 1:
            agrees_with_lockstep(
                operation(copies_beside_arrivals(RANKS), 50, channels=channels, window=window), way
            )


def what_a_plan_holds_is_freed_on_close() -> None:
    for name in (RING, BRUCK):
        asked = operation(name, 99, channels=3, window=3)
        plan = MpiTransport(COMM).plan(
            asked, np.empty(0, np.float32), np.zeros(asked.elements("dst", ME), np.float32)
        )
        plan.run()
        requests = plan.executor.requests
        assert bool(requests) == (RANKS > 1)
        # parts of several ranges
        assert name == RING or (COMM.allreduce(len(plan._datatypes)) > 0) == (RANKS > 3)
        plan.close()
        assert all(request == MPI.REQUEST_NULL for request in requests)
        assert all(datatype == MPI.DATATYPE_NULL for datatype in plan._datatypes)


def ranks_that_ask_for_different_things_learn_all_of_them() -> None:
    odd, right = RANKS - 1, operation(RING, 120)
    others = {"dtype": "float64"}, {"op": "max"}, {"channels": 2}
    wrong = [
        *(operation(RING, 120, **other) for other in others),
        operation(RING, 121),
        operation(SLICED, 120),
    ]
    for asked, way in product(
        wrong if odd == ME else [right] * 5, (MpiTransport, TieredTransport) if odd else ()
    ):
        transport = way(COMM)
        target, nothing = transport.empty(asked.count, asked.dtype), transport.empty(0, asked.dtype)
        with pytest.raises(
            PlanMismatchError, match=f"rank {odd} would send messages that rank .* does not expect"
        ):
            transport.plan(asked, nothing, target)
        transport.close()
    agrees_with_lockstep(right)


def a_plan_says_where_it_is() -> None:
    right, left, last = (ME + 1) % RANKS, (ME - 1) % RANKS, 2 * (RANKS - 1)
    asked = operation(RING, 300, channels=3, window=2, op="avg")
    plan = MpiTransport(COMM).plan(asked, np.empty(0, np.float32), np.zeros(300, np.float32))
    assert (
        RANKS == 1
        or f"sequence 1, step 1 of {last + 1} (to rank {right}, from rank {left})"
        in plan.progress()
    )
    if OPTIONS:
        plan.executor._at["at"] = plan.executor._at["first"] + (last, min(1, last))
    else:
        plan.executor._step_index[:] = last, min(1, last)
    assert plan.progress().startswith(
        f"sequence 0, step {last + 1} of {2 * last + 2} (no messages); sequence 1, step "
    )
    plan.run()
    assert plan.progress() == "done"
    plan.close()


def channels_begin_in_turn_where_all_ranks_begin_inside_their_nodes() -> None:
    if RANKS % 2 or OPTIONS is None:
        return  # no pairs; the Python executor also advances when it starts
    pairs, call = Layout(tuple(me // 2 for me in range(RANKS))), all_reduce.call(RANKS)
    for name, way in product(("hierarchical", "ring"), (MpiTransport, TieredTransport)):
        case, transport = Case(call, call.slices(all_reduce.algorithm(name), pairs)), way(COMM)
        asked = case.operation(64 * RANKS, channels=3, window=3)
        plan = transport.plan(
            asked, transport.empty(0, asked.dtype), transport.empty(asked.count, asked.dtype)
        )
        plan.executor.start()
        assert plan.executor.started == (1 if name == "hierarchical" and pairs.nodes > 1 else 3)
        wait_all([plan.executor])
        plan.close()
        transport.close()


def an_error_of_mpi_names_the_function_the_step_and_the_peer() -> None:
    if OPTIONS is None or RANKS == 1:
        return
    data, peer, receives = np.zeros(16, np.uint8), 1 - ME, ME == 1
    sent = MpiMessage(
        not receives,
        (data[: 8 if receives else 16], 8 if receives else 16, MPI.BYTE),
        peer,
        0,
        0,
        16,
    )
    steps = [LoweredStep(), LoweredStep(messages=[sent])] if ME < 2 else []
    plan = CompiledExecutor(COMM, OPTIONS, [steps], 1)
    if receives:
        with pytest.raises(
            RuntimeError, match=r"MPI_Test\w+ .*fails: .*(step 2 of 2 \(from rank 0\))"
        ):
            plan.run()
    else:
        plan.run()
    plan.close()
    agrees_with_lockstep(operation(RING, 100))


def several_compiled_plans_advance_together() -> None:
    if OPTIONS is None:
        return
    plans = []
    for turn, name in enumerate((RING, DOUBLING, SLICED)):
        asked = operation(name, 1000, channels=2, window=2)
        values = [np.full(1000, (rank + 1) * (turn + 1), np.float32) for rank in range(RANKS)]
        target = values[ME].copy()
        comm = COMM.Dup()  # tags of its own
        plans.append(
            (
                comm,
                MpiTransport(comm).plan(asked, np.empty(0, np.float32), target),
                target,
                sum(values),
            )
        )
    executors = [plan.executor for _, plan, _, _ in plans]
    for executor in executors[:: 1 if ME % 2 else -1]:  # ranks start them in different orders
        executor.start()
    while not executors[1].advance():
        pass
    wait_all(executors)
    for comm, plan, target, right in plans:
        assert np.array_equal(target, right)
        plan.close()
        comm.Free()


def too_many_messages_between_two_ranks_are_refused() -> None:
    def steps(_layout: Layout, me: int) -> Iterator[Step]:
        if me < 2:
            peer = 1 - me
            yield Step(*(Send(peer, me) for _ in range(33)), *(Recv(peer, peer) for _ in range(33)))

    if RANKS > 1:
        asked = operation(of(steps)(Layout.of(RANKS)), 4)
        if ME < 2:
            with pytest.raises(
                ScheduleError,
                match=f"rank {ME} has over 32 messages with rank {1 - ME} in one step",
            ):
                MpiTransport(COMM).plan(
                    asked, np.empty(0, np.float32), np.zeros(4 * RANKS, np.float32)
                )


def a_barrier_holds_everyone_back_until_the_last_has_come() -> None:
    token, nothing = np.zeros((2, RANKS), np.uint8), np.zeros(0, np.uint8)
    plans = [
        *(
            MpiTransport(COMM).plan(operation(f"barrier-{name}", RANKS), nothing, token[0].copy())
            for name in barrier.components
        ),
        MpiVendorTransport(COMM).plan(
            vendor(barrier.call(RANKS), RANKS, "uint8", "max", in_place=True), *token
        ),
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


CHECKS: list[Callable[[], None]] = [
    copies_read_what_was_there_before_the_step_and_onto_their_own_source_are_staged,
    what_a_plan_holds_is_freed_on_close,
    ranks_that_ask_for_different_things_learn_all_of_them,
    a_plan_says_where_it_is,
    channels_begin_in_turn_where_all_ranks_begin_inside_their_nodes,
    an_error_of_mpi_names_the_function_the_step_and_the_peer,
    several_compiled_plans_advance_together,
    too_many_messages_between_two_ranks_are_refused,
    a_barrier_holds_everyone_back_until_the_last_has_come,
]
