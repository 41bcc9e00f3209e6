"""A rank that stalls, or at which NCCL fails, on purpose: who, where, when and how."""

import os
import signal
import time
from itertools import count

from hpccoll.measure import watchdog
from hpccoll.measure.check_gpu import GpuCheck
from hpccoll.measure.on_gpu import Timed

PLACES = {"run": Timed, "wrong": GpuCheck}
"""Where a rank can stall: in an operation, or in the check of its result."""


def stall(who, where, when, how, places=PLACES):
    """Have rank ``who`` stall in its call number ``when`` of ``where``.

    Args:
        who: the rank.
        where: a method, by the name that ``places`` has.
        when: from 1 on.
        how: for so many seconds, for ever where it is ``stops``; or it raises after the call where it is ``fails``.
        places: classes by the names of methods.
    """
    of, calls = places[where], count(1)
    done = getattr(of, where)

    def stalling(self, *about):
        from mpi4py import MPI

        mine = next(calls) == when and MPI.COMM_WORLD.rank == who
        if mine and how == "stops":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif mine and how != "fails":
            time.sleep(float(how))
        did = done(self, *about)
        if mine and how == "fails":
            raise RuntimeError("NCCL_ERROR_SYSTEM_ERROR: unhandled system error")
        return did

    setattr(of, where, stalling)
    watchdog.GRACE = 0.5
