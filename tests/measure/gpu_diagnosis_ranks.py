"""A diagnosis over NCCL by ranks of one machine: gpu_diagnosis_ranks.py OUT OPTIONS [host DIRECTORY].

OPTIONS are those of diagnosis_ranks.py. Rank k pretends to be node nk, and has GPU k modulo their number. More options:

    pause_ns: how long the GPU of each rank pauses before it sends a message, so that a transfer takes long;
    sender: [RANK, NUMBER, KIND], what happens when a rank queues the messages of its transfer of a number, from 0:
        "pauses": it pauses LONGER times as long from now on; "stops"; "its GPU fails", on the host.

In the end each rank prints how many communicators it has made, and how many it has destroyed or aborted.
"""

import json
import os
import runpy
import signal
import sys
from itertools import count
from pathlib import Path
from types import SimpleNamespace

sys.path.append(str(Path(__file__).parents[1] / "gpu"))

from rank_gpu import host_directory, share_a_gpu

from hpccoll.measure import mpi_startup

comm = mpi_startup.start_mpi("cpu")
if directory := host_directory(sys.argv):
    import nccl_on_host

    nccl_on_host.install(directory)

from hpccoll.measure import gpu_assignment, gpu_pair_transfers  # noqa: E402  they start MPI
from hpccoll.transports import gpu  # noqa: E402
from hpccoll.transports.nccl.pause import pause  # noqa: E402

if comm.size > gpu.device_count():
    share_a_gpu(comm.rank)
gpu_assignment.RankGpus.number = property(lambda _: comm.rank % gpu.device_count())

from cupy.cuda import nccl  # noqa: E402  once its library is chosen

LONGER = 5

options = json.loads(sys.argv[2])
pause_ns = options.pop("pause_ns", 0)
who, when, kind = options.pop("sender", (None, None, ""))
queued, counts = count(), {"made": 0, "ended": 0}


class Communicator(nccl.NcclCommunicator):
    """One that is counted."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        counts["made"] += 1

    def destroy(self):
        counts["ended"] += self.comm != 0
        super().destroy()

    def abort(self):
        counts["ended"] += self.comm != 0
        super().abort()


class Transfer(gpu_pair_transfers.GpuPairTransfer):
    """One that pauses before it sends, on a rank that may fail."""

    def _queue(self, device):
        fault = kind if who == comm.rank and next(queued) >= when else ""
        if fault == "its GPU fails":
            nccl_on_host.HostGpu.broken = True
        of_nccl, wait = device.communicator, pause(device.gpu)

        def send(*message):
            wait(LONGER * pause_ns if fault == "pauses" else pause_ns)
            of_nccl.send(*message)

        device.communicator = SimpleNamespace(send=send, recv=of_nccl.recv, check_async_error=of_nccl.check_async_error)
        arrivals = super()._queue(device)
        if fault == "stops":
            os.kill(os.getpid(), signal.SIGSTOP)
        return arrivals


nccl.NcclCommunicator, gpu_pair_transfers.GpuPairTransfer = Communicator, Transfer
options.setdefault("nodes", [f"n{rank}" for rank in range(comm.size)])
program = Path(__file__).with_name("diagnosis_ranks.py")
sys.argv = [str(program), sys.argv[1], json.dumps(options)]
runpy.run_path(str(program), run_name="__main__")
print(f"rank {comm.rank}: {counts['made']} communicators made, {counts['ended']} ended", flush=True)
