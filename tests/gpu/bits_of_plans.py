"""The bits that a plan of a GPU leaves, held against those of the lockstep executor."""

import numpy as np
from mpi4py import MPI
from schedule_examples import buffers, defined_part

from hpccoll.schedule.lockstep import run_lockstep

COMM = MPI.COMM_WORLD
ME = COMM.rank


def bits(values):
    """Return an array as a GPU of CuPy holds it: bfloat16 as uint16."""
    return values if values.dtype.kind in "fiu" else values.view(np.uint16)


def lockstep_result(operation):
    """Return what this rank has after the operation."""
    inputs, outputs = buffers(operation)
    given = [values[:0] if operation.in_place else values for values in inputs]
    run_lockstep(operation, given, outputs)
    if operation.call.p > ME:
        return defined_part(operation, outputs[ME], ME)
    return outputs[ME][:0]


def check_plan(transport, gpu, operation, right=None):
    """Do the operation twice on one plan, compare its bits with ``right`` [lockstep's], and close the transport."""
    inputs, outputs = buffers(operation)
    before = bits(outputs[ME])
    given = bits(inputs[ME][:0] if operation.in_place else inputs[ME])
    if right is None:
        right = lockstep_result(operation)
    src = transport.empty(len(given), operation.dtype)
    dst = transport.empty(len(before), operation.dtype)
    plan = transport.plan(operation, src, dst)
    for _ in range(2):
        src.set(given, stream=gpu.stream)
        dst.set(before, stream=gpu.stream)
        gpu.await_work()
        COMM.Barrier()
        plan.run()
        result = gpu.download(plan.result)
        assert result.tobytes() == bits(right).tobytes(), f"not what lockstep has: {operation}"
    plan.close()
    transport.close()
