"""A diagnosis over NCCL by ranks of one machine: gpu_diagnosis_ranks.py OUT OPTIONS [host DIRECTORY].

OPTIONS are those of diagnosis_ranks.py. Rank k pretends to be node nk, and has GPU k modulo their
number. More options:

    pause_ns: how long the GPU of each rank pauses before it sends a message, so that a transfer
    takes long;
    sender: [RANK, NUMBER, KIND], what happens when a rank queues the messages of its transfer of a
        number, from 0: "pauses": it pauses LONGER times as long from now on; "stops", with all of
        them in its stream; "has no memory"; "its GPU fails", on the host; a rank of None is all of
        them;
    aborting_s: how long an abort takes;
    first_limit_s: the deadline of the first slot;
    blocks: whether a synchronisation of a stream never returns;
    connecting_s: how much later each rank has connected than the one before.

In the end each rank prints how many communicators it has made, and how many it has destroyed or
aborted, and a line in JSON: of its transfers in order, the nanoseconds at which it had connected,
and at which it went on.
"""

import json
import os
import runpy
import signal
import sys
import time
from contextlib import closing
from itertools import count
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "gpu"))

from rank_gpu import host_directory, share_a_gpu

from hpccoll.measure import mpi_startup

comm = mpi_startup.start_mpi("cpu")
if directory := host_directory(sys.argv):
    import nccl_on_host

    nccl_on_host.install(directory)

from hpccoll.measure import gpu_assignment  # noqa: E402  it starts MPI
from hpccoll.measure.diagnose import gpu_pair_transfers  # noqa: E402  likewise
from hpccoll.transports import gpu  # noqa: E402
from hpccoll.transports.nccl.pause import pause  # noqa: E402

if comm.size > gpu.device_count():
    share_a_gpu(comm.rank)
gpu_assignment.RankGpus.number = property(lambda _: comm.rank % gpu.device_count())

LONGER = 5

options = json.loads(sys.argv[2])
pause_ns, connecting_s, aborting_s = (
    options.pop(name, 0) for name in ("pause_ns", "connecting_s", "aborting_s")
)
if options.pop("blocks", False):
    nccl_on_host.Stream.synchronize = lambda _stream: signal.pause()
gpu_pair_transfers.FIRST_LIMIT_S = options.pop("first_limit_s", gpu_pair_transfers.FIRST_LIMIT_S)
who, when, kind = options.pop("sender", (-1, 0, ""))
begun, counts, times = count(), {"made": 0, "ended": 0, "early": 0}, []


class Communicator(gpu_pair_transfers.PairCommunicator):
    """One that is counted, and may connect late."""

    def __init__(self, *arguments):
        counts["early"] += counts["made"] > counts["ended"]
        super().__init__(*arguments)
        self.connects = time.monotonic() + connecting_s * comm.rank
        counts["made"] += 1

    @property
    def is_ready(self):
        return super().is_ready and time.monotonic() >= self.connects

    def destroy(self):
        super().destroy()
        counts["ended"] += 1

    def abort(self):
        time.sleep(aborting_s)
        super().abort()
        counts["ended"] += 1


class Transfer(gpu_pair_transfers.GpuPairTransfer):
    """One that pauses before it sends, on a rank that may fail."""

    def _transfer_all(self, device, comm_of_data):
        self.fault = kind if who in (comm.rank, None) and next(begun) >= when else ""
        if self.fault == "has no memory":
            device.empty = out_of_memory
        with closing(super()._transfer_all(device, comm_of_data)) as steps:
            for connected in steps:
                if connected:
                    times.append([time.monotonic_ns()])
                yield connected
                if connected:
                    times[-1].append(time.monotonic_ns())

    def _queue(self, device, communicator, buffers, messages):
        if self.fault == "its GPU fails":
            nccl_on_host.HostGpu.broken = True
        queue, wait, left = communicator.queue, pause(device), count(2 * messages - 1, -1)

        def queue_late(*message, sends):
            if sends:
                wait(LONGER * pause_ns if self.fault == "pauses" else pause_ns)
            queue(*message, sends=sends)
            if not next(left) and messages > 1 and self.fault == "stops":
                os.kill(os.getpid(), signal.SIGSTOP)

        communicator.queue = queue_late
        arrivals = yield from super()._queue(device, communicator, buffers, messages)
        communicator.queue = queue
        return arrivals


def out_of_memory(*_):
    raise MemoryError


gpu_pair_transfers.PairCommunicator, gpu_pair_transfers.GpuPairTransfer = Communicator, Transfer
options.setdefault("nodes", [f"n{rank}" for rank in range(comm.size)])
program = Path(__file__).with_name("diagnosis_ranks.py")
sys.argv = [str(program), sys.argv[1], json.dumps(options)]
runpy.run_path(str(program), run_name="__main__")
made = "{made} communicators made, {ended} ended, {early} before an earlier one had ended".format(
    **counts
)
print(f"rank {comm.rank}: {made}\n", end="", flush=True)
print(f"{json.dumps([comm.rank, times])}\n", end="", flush=True)
