"""Ranks of a real MPI that compile for NCCL as on GPUs, and run on memory of the host: run by test_nccl_on_host.py."""

import sys

import nccl_over_mpi
import numpy as np
from mpi4py import MPI
from schedule_examples import SUBJECTS, buffers, case_of, defined_part

from hpccoll.transports.lockstep import run_lockstep
from hpccoll.transports.nccl.transport import NcclTransport
from hpccoll.transports.transport_interface import PlanMismatchError, aligned_empty

COMM = MPI.COMM_WORLD
ME, RANKS = COMM.rank, COMM.size


class HostGpu:
    """Gives memory of the host."""

    def empty(self, count, dtype):
        return aligned_empty(count, dtype)


nccl_over_mpi.install(COMM)


def agrees_with_lockstep(asked):
    inputs, outputs = buffers(asked, exact=False)
    before, transport = outputs[ME].copy(), NcclTransport(COMM, HostGpu())
    src, dst = inputs[ME][: 0 if asked.in_place else None], transport.empty(len(before), asked.dtype)
    run_lockstep(asked, inputs, outputs)
    plan = transport.plan(asked, src, dst)
    for _ in range(2):
        dst[:] = before
        plan.run()
        right = defined_part(asked, outputs[ME], ME) if asked.call.p > ME else outputs[ME][:0]
        assert plan.result.tobytes() == right.tobytes(), asked
    assert plan.progress() == "done"
    plan.close()
    transport.close()


def every_schedule() -> None:
    for turn, name in enumerate(SUBJECTS):
        if case := case_of(name, RANKS):
            for in_place in case.placements:
                channels, window = [(1, 1), (3, 2)][turn % 2]
                agrees_with_lockstep(
                    case.operation(101, "float32", in_place=in_place, channels=channels, window=window)
                )


def ranks_that_disagree() -> None:
    asked = case_of("all_reduce-ring", RANKS).operation(300 if ME else 3000)
    room = np.zeros(asked.count, asked.dtype)
    try:
        NcclTransport(COMM, HostGpu()).plan(asked, room[:0], room)
    except PlanMismatchError as error:
        assert "rank 0 would send messages that rank 1 does not expect" in str(error)  # noqa: PT017  each rank by itself
    else:
        raise AssertionError(f"rank {ME} has a plan")


if __name__ == "__main__":
    every_schedule()
    ranks_that_disagree()
    sys.exit(0)
