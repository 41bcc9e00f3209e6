"""Prepared cases over NCCL whose graphs have to end before their communicator: aborted_ranks.py DIRECTORY.

The test library of NCCL ends the process where a communicator ends first, which would hang NCCL.
"""

import sys
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI
from nccl_on_host import HostGpu

from hpccoll.cases.case import Case
from hpccoll.extensions.steps.measure.prepared_step import PreparedStep
from hpccoll.extensions.steps.training import TRAINING_STEP
from hpccoll.extensions.steps.training.training_step import TrainingStep
from hpccoll.measure.run import result_check_gpu
from hpccoll.measure.run.case_factory import make_unless_refused
from hpccoll.measure.run.prepared_case import PreparedCase
from hpccoll.measure.run.recovery import abort_cases
from hpccoll.schedule import Layout
from hpccoll.transports.nccl import communicators, nccl_errors

COMM, GPU = MPI.COMM_WORLD, HostGpu(Path(sys.argv[1]))
LAYOUT = Layout.of(COMM.size)
OVER_NCCL = {"transport": "nccl", "device": "cuda", "in_place": True}


def one_case(timing, channels=1):
    case = Case(
        collective="all_reduce",
        algorithm="ring",
        bytes=1024,
        timing=timing,
        params={"graph": 1, "channels": channels},
        **OVER_NCCL,
    )
    return PreparedCase(COMM, LAYOUT, case, gpu=GPU)


def step():
    workload = TrainingStep.of({"model": "resnet50", "scale": 4096, "compute_us": 2000})
    case = Case(
        collective=TRAINING_STEP,
        algorithm="ring",
        bytes=workload.gradient_bytes("float32"),
        params={**workload.params, "graph": 1},
        **OVER_NCCL,
    )
    return PreparedStep(
        COMM,
        LAYOUT,
        case,
        lambda comm, layout, inside, gpu: PreparedCase(comm, layout, inside, gpu=gpu),
        gpu=GPU,
    )


MAKERS = [lambda: one_case("single", channels=2), lambda: one_case("aggregated"), step]


FLOAT32, SUM = 7, 0
"""ncclFloat32 and ncclSum."""


class NcclError(RuntimeError):
    """An exception with the name of CuPy's."""


def aborted_after_a_run(make):
    prepared = make()
    prepared.reset()
    COMM.Barrier()
    prepared.run()
    assert prepared.wrong() == 0
    abort_cases(prepared.calls, GPU)


def unfinished(make, error):
    """Raise ``error`` on all ranks when the last operation of a case or a step has its plan."""
    made, check, plans = [], result_check_gpu.GpuCheck, len(getattr(make(), "inside", [None]))

    def fails(*arguments, **options):
        made.append(None)
        if len(made) == plans:
            raise error
        return check(*arguments, **options)

    result_check_gpu.GpuCheck = fails
    try:
        make_unless_refused(make, COMM)
    finally:
        result_check_gpu.GpuCheck = check


def aborted_behind_another():
    """Abort two communicators, of which the newer one waits on its stream for a stuck operation of the older one."""
    older, newer = communicators.nccl_world(COMM, GPU), communicators.nccl_world(COMM.Dup(), GPU)
    buffer, second, event = (
        GPU.empty(4, np.dtype("float32")),
        GPU.with_own_stream(),
        GPU.event(timing=False),
    )
    address = GPU.address(buffer)
    if COMM.rank == 0:  # the others do not take part
        older.communicator.allReduce(address, address, 4, FLOAT32, SUM, GPU.stream.ptr)
        GPU.record(event)
        second.wait_event(event)
        newer.communicator.allReduce(address, address, 4, FLOAT32, SUM, second.stream.ptr)
    communicators.abort_all_worlds()
    second.synchronize()


aborted_behind_another()
for make in MAKERS:
    aborted_after_a_run(make)
    assert GPU.calls()[-1] == "CommAbort"
    with pytest.raises(nccl_errors.NcclFailedError, match="an error of NCCL"):
        unfinished(make, NcclError("an error of NCCL"))
    communicators.abort_all_worlds()
    with pytest.raises(MemoryError):
        unfinished(make, MemoryError())
    communicators.abort_all_worlds()
print(f"rank {COMM.rank} done", flush=True)
