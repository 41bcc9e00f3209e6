"""Injects a stall, or an error of NCCL, into a rank."""

import os
import signal
import threading
import time
from itertools import count

from hpccoll.measure import watchdog
from hpccoll.measure.recovery import STOP, DeadlineSync, RankGroup
from hpccoll.measure.result_check_gpu import GpuCheck
from hpccoll.measure.stream_step_engine import StreamStepEngine
from hpccoll.measure.stream_timing import StreamTiming

PLACES = {"run": (StreamTiming, "run"), "step": (StreamStepEngine, "run"), "wrong": (GpuCheck, "wrong")}
"""Where a rank can stall: in an operation, a training step, or the check of a result; the class and its method."""


def called(sync):
    """Return when another rank has stopped."""
    while not sync.control_comm.iprobe(tag=STOP):
        time.sleep(0.01)


def spared(_patient):
    """Return when the watchdog has reported this rank as stuck, and left its end to the other ranks."""
    while any(thread.name == "watchdog" for thread in threading.enumerate()):
        time.sleep(0.01)


RETURNED = 79
"""The tag of the message with which a lost rank returns."""


def await_the_spared_rank(who):
    """Have rank 0 end the launch only when the lost rank ``who`` has returned."""
    end_launch = RankGroup.end_launch

    def ending(self, **about):
        from mpi4py import MPI

        if self.me == who:
            MPI.COMM_WORLD.send(None, 0, RETURNED)
        elif self.me == 0:
            MPI.COMM_WORLD.recv(source=who, tag=RETURNED)
        end_launch(self, **about)

    RankGroup.end_launch = ending


UNTIL = {"called": called, "spared": spared}
"""For how long a rank can stall, whatever time that takes."""


def stall(who, where, when, how, places=PLACES):
    """Have rank ``who`` stall in its call number ``when`` of ``where``.

    Args:
        who: the rank.
        where: a method, by the name that ``places`` gives it.
        when: from 1 on.
        how: for so many seconds, for ever where it is ``stops``, or until it is ``called`` or ``spared``; or it raises
            after the call where it is ``fails``; or its GPU fails where it is ``breaks``.
        places: classes and the names of their methods.
    """
    (of, method), calls = places[where], count(1)
    done, made, patients = getattr(of, method), DeadlineSync.__init__, []

    def stalling(self, *about):
        from mpi4py import MPI

        mine = next(calls) == when and MPI.COMM_WORLD.rank == who
        if mine and how == "stops":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif mine and how == "breaks":
            self._gpu.broken = True
        elif mine and how in UNTIL:
            UNTIL[how](patients[-1])
        elif mine and how != "fails":
            time.sleep(float(how))
        did = done(self, *about)
        if mine and how == "fails":
            raise RuntimeError("NCCL_ERROR_SYSTEM_ERROR: unhandled system error")
        return did

    def known(self, *about):
        made(self, *about)
        patients.append(self)

    if how == "spared":
        await_the_spared_rank(who)
    DeadlineSync.__init__ = known
    setattr(of, method, stalling)
    watchdog.GRACE = 0.5
