"""Ranks whose NCCL, the test library, logs, is silenced and logs again: logged_ranks.py DIRECTORY LOGS."""

import os
import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI
from nccl_on_host import HostGpu
from schedule_examples import case_of

from hpccoll.evidence.log_settings import nccl_logging
from hpccoll.schedule import COLLECTIVES, REDUCTIONS, Layout
from hpccoll.schedule.operation import Operation
from hpccoll.transports.nccl import communicators
from hpccoll.transports.nccl.loaded_library import debug_reset
from hpccoll.transports.nccl.transport import NcclTransport
from hpccoll.transports.nccl.vendor import NcclVendorTransport

COMM, DIRECTORY, LOGS = MPI.COMM_WORLD, Path(sys.argv[1]), Path(sys.argv[2])


def run(gpu, transport, asked):
    src, dst = (transport.empty(asked.elements(name, COMM.rank), asked.dtype) for name in ("src", "dst"))
    plan = transport.plan(asked, src, dst)
    plan.run()
    gpu.synchronize()
    plan.close()
    transport.close()


def of_library(collective, count):
    call = COLLECTIVES[collective].call(COMM.size)
    return Operation(call, Layout.of(COMM.size), (), count, np.dtype("float32"), REDUCTIONS["sum"], in_place=False)


def sizes():
    COMM.Barrier()
    found = [path.stat().st_size for path in sorted(LOGS.glob("*.log"))]
    COMM.Barrier()  # before any rank logs more
    return found


os.environ["NCCL_DEBUG"] = "WARN"
os.environ["NCCL_GRAPH_DUMP_FILE"] = "the user's"
before = dict(os.environ)
gpu = HostGpu(DIRECTORY)
run(gpu, NcclVendorTransport(COMM, gpu), of_library("all_reduce", 512))  # NCCL has read its variables once
communicators.close_all_worlds()
reset = debug_reset()
with nccl_logging(LOGS, reset):
    assert os.environ["NCCL_GRAPH_DUMP_FILE"] == "the user's"
    for collective, count in (("all_reduce", 1024), ("all_gather", 512), ("all_to_all", 256)):
        run(gpu, NcclVendorTransport(COMM, gpu), of_library(collective, count))
    run(gpu, NcclTransport(COMM, gpu), case_of("all_reduce-ring", COMM.size).operation(64, "float32", in_place=False))
    part = communicators.nccl_world(COMM).workers(1)
    communicators.close_all_worlds()
logged = sizes()
assert len(logged) == COMM.size
assert dict(os.environ) == before
run(gpu, NcclVendorTransport(COMM, gpu), of_library("all_reduce", 2048))
assert sizes() == logged

os.environ |= {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": f"{LOGS}/again.%p.log"}
run(gpu, NcclVendorTransport(COMM, gpu), of_library("all_reduce", 4096))
assert sizes() == logged  # nothing is read again before the next reset
reset()
run(gpu, NcclVendorTransport(COMM, gpu), of_library("all_reduce", 4096))
communicators.close_all_worlds()
assert len(sizes()) == 2 * COMM.size
