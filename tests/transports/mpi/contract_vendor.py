"""The contract of the library's own calls: the result of the collective, in any memory."""

from collections.abc import Callable
from functools import partial
from itertools import product

import numpy as np
from contract_schedules import COMM, ME, OPTIONS, RANKS, queued_memory, share, shared
from mpi4py import MPI
from schedule_examples import buffers, calls_of, result

from hpccoll.cases.catalogue import NATIVE, distinct_placements
from hpccoll.schedule import COLLECTIVES, DTYPES, REDUCTIONS, CollectiveCall, Layout
from hpccoll.schedule.operation import Operation
from hpccoll.transports.mpi import vendor as vendor_calls
from hpccoll.transports.mpi.gpu_memory import GpuVendorTransport, StagedVendorTransport
from hpccoll.transports.transport_interface import Transport

MpiVendorTransport = partial(vendor_calls.MpiVendorTransport, options=OPTIONS)


def vendor(
    call: CollectiveCall, count: int, dtype: str, op: str, *, in_place: bool, aggregators: int = 0
) -> Operation:
    layout = Layout.of(call.p, aggregators=aggregators)
    return Operation(call, layout, (), count, np.dtype(dtype), REDUCTIONS[op], in_place=in_place)


def meets_the_postcondition(
    asked: Operation, way: Callable[[MPI.Intracomm], Transport] = MpiVendorTransport
) -> None:
    """Make the library's own call twice on one plan."""
    transport = way(COMM)
    inputs, outputs = buffers(asked, exact=True)
    src = transport.empty(0 if asked.in_place else len(inputs[ME]), asked.dtype)
    src[:] = [] if asked.in_place else inputs[ME]
    target = transport.empty(asked.elements("dst", ME), asked.dtype)
    plan = transport.plan(asked, src, target)
    right = result(asked, inputs, ME) if asked.call.p > ME else outputs[ME][:0]
    for _ in range(2):
        target[:] = outputs[ME]
        plan.run()
        if not asked.collective.token:  # its barrier has no buffer
            assert plan.result.tobytes() == right.tobytes(), asked
            assert shared(plan.result, target) or not len(right), asked
        assert asked.in_place or np.array_equal(np.asarray(src), inputs[ME]), (
            f"src was written: {asked}"
        )
    assert plan.progress() == f"inside the library's {asked.collective.name}"
    plan.close()


def the_librarys_own_calls_meet_the_postcondition_to_every_root_and_peer() -> None:
    for collective, aggregators in product(COLLECTIVES.values(), range(min(2, RANKS))):
        workers = RANKS - aggregators
        op = "max" if collective.idempotent else "sum"
        placements = distinct_placements(collective.name, NATIVE, (True, False))
        for call, count, in_place in share(
            product(calls_of(collective, workers), (0, 1, 101), placements), 4
        ):
            elements = workers if collective.token else count
            meets_the_postcondition(
                vendor(call, elements, "float32", op, in_place=in_place, aggregators=aggregators)
            )


def the_librarys_own_calls_wait_for_what_they_queue_in_other_memory() -> None:
    if OPTIONS:
        return  # the Python executor alone has such memory
    for collective, way in product(
        COLLECTIVES.values(), (GpuVendorTransport, StagedVendorTransport)
    ):
        if collective.token or not any(calls_of(collective, RANKS)):
            continue
        placements = distinct_placements(collective.name, NATIVE, (True, False))
        for call, op, in_place in product(calls_of(collective, RANKS), ("sum", "avg"), placements):
            asked = vendor(call, 101, "float32", op, in_place=in_place)
            meets_the_postcondition(asked, lambda comm, way=way: way(comm, queued_memory()))


def the_librarys_own_calls_take_every_dtype_and_op() -> None:
    for collective, dtype in product(COLLECTIVES.values(), DTYPES):
        if collective.token or not any(calls_of(collective, RANKS)):
            continue
        call = next(calls_of(collective, RANKS))
        ops = REDUCTIONS if collective.reduces else ["sum"]
        for op, in_place in share(
            product(ops, distinct_placements(collective.name, NATIVE, (True, False))), 3
        ):
            meets_the_postcondition(vendor(call, 11, dtype, op, in_place=in_place))


CHECKS: list[Callable[[], None]] = [
    the_librarys_own_calls_meet_the_postcondition_to_every_root_and_peer,
    the_librarys_own_calls_wait_for_what_they_queue_in_other_memory,
    the_librarys_own_calls_take_every_dtype_and_op,
]
