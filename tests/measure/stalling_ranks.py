"""``hpccoll run`` over NCCL where a rank stalls: stalling_ranks.py PLACE WHO WHERE WHEN HOW ARGUMENTS.

Args:
    PLACE: ``gpu``, or the directory of the test library of NCCL: then the host is the GPU.
    WHO: the rank.
    WHERE: in an operation (``run``), a training step (``step``), the check of a result (``wrong``),
        or in front of the first run of a plan (``prepared``), in its call number WHEN, from 1 on;
        or ``library``: the test library has the fault HOW; or ``stream``: a synchronisation of a
        stream never returns.
    HOW: for so many seconds; for ever (``stops``); until another rank has stopped (``called``);
        until the watchdog has reported the rank and left its end to the others (``spared``); or its
        GPU fails (``breaks``).
    ARGUMENTS: those of ``run``, or ``train`` and its own.
"""

import os
import signal
import sys
import threading
import time
from itertools import count
from pathlib import Path

from hpccoll.cli.job_program import main
from hpccoll.extensions.steps.measure.stream_step_engine import StreamStepEngine
from hpccoll.measure import watchdog
from hpccoll.measure.deadline_sync import STOP, DeadlineSync
from hpccoll.measure.run.recovery import RankGroup
from hpccoll.measure.run.result_check_gpu import GpuCheck
from hpccoll.measure.run.stream_timing import StreamTiming
from hpccoll.transports.nccl.stream_plan import StreamPlan

PLACE, WHO, WHERE, WHEN, HOW, *ARGUMENTS = sys.argv[1:]
RETURNED = 79
"""The tag of the message with which a lost rank returns."""
KINDS = {
    "run": (StreamTiming, "run"),
    "step": (StreamStepEngine, "run"),
    "wrong": (GpuCheck, "wrong"),
    "prepared": (StreamPlan, "prepared"),
}
end_launch = RankGroup.end_launch


def sleep_until(happened):
    while not happened():
        time.sleep(0.01)


STALLS = {
    "stops": lambda _of, _sync: os.kill(os.getpid(), signal.SIGSTOP),
    "breaks": lambda of, _sync: setattr(of._gpu, "broken", True),
    "called": lambda _of, sync: sleep_until(lambda: sync.control_comm.iprobe(tag=STOP)),
    "spared": lambda *_: sleep_until(
        lambda: all(each.name != "watchdog" for each in threading.enumerate())
    ),
}
"""What a rank does, with the object whose method stalls and the synchronisation of its ranks."""


def end_with_the_spared_rank(self, **about):
    """Have rank 0 end the launch only when the lost rank has returned."""
    from mpi4py import MPI

    if self.me == int(WHO):
        MPI.COMM_WORLD.send(None, 0, RETURNED)
    elif self.me == 0:
        MPI.COMM_WORLD.recv(source=int(WHO), tag=RETURNED)
    end_launch(self, **about)


def stall():
    kind, method = KINDS[WHERE]
    do, make_sync, syncs, calls = getattr(kind, method), DeadlineSync.__init__, [], count(1)

    def stalling(self, *about, **options):
        from mpi4py import MPI

        if next(calls) == int(WHEN) and MPI.COMM_WORLD.rank == int(WHO):
            STALLS.get(HOW, lambda *_: time.sleep(float(HOW)))(self, syncs[-1] if syncs else None)
        return do(self, *about, **options)

    def make_known(self, *about):
        make_sync(self, *about)
        syncs.append(self)

    if HOW == "spared":
        RankGroup.end_launch = end_with_the_spared_rank
    DeadlineSync.__init__ = make_known
    setattr(kind, method, stalling)
    watchdog.GRACE = 0.5


def never_return(_stream):
    while True:
        time.sleep(1)


if WHERE == "library":
    os.environ["NCCL_TEST_FAULT"] = f"{WHO}:{WHEN}:{HOW}"
elif WHERE == "stream":
    import nccl_on_host

    nccl_on_host.Stream.synchronize = never_return
else:
    stall()
if PLACE == "gpu":
    from mpi4py import MPI

    sys.path.append(str(Path(__file__).parents[1] / "gpu"))
    from rank_gpu import share_a_gpu

    from hpccoll.transports.gpu import device_count

    if MPI.COMM_WORLD.size > device_count():
        share_a_gpu(MPI.COMM_WORLD.rank)
else:
    from nccl_on_host import install

    install(Path(PLACE))
if ARGUMENTS[0] == "train":
    sys.exit(main(ARGUMENTS[1:], "train"))
sys.exit(main(ARGUMENTS))
