"""``hpccoll run`` over NCCL on the host, of which a rank stalls: stalling_ranks.py ROOM WHO WHERE WHEN HOW ARGUMENTS.

WHO stalls in the operation (WHERE is ``run``) or in the check of its result (``wrong``), the one with the number WHEN
of those that it does: for HOW seconds, or for ever where HOW is ``stops``.
"""

import os
import signal
import sys
import time
from itertools import count
from pathlib import Path

import hosted_nccl

from hpccoll.measure.check_gpu import GpuCheck
from hpccoll.measure.on_gpu import Timed
from hpccoll.run import main

ROOM, WHO, WHERE, WHEN, HOW, *ARGUMENTS = sys.argv[1:]
OF = {"run": Timed, "wrong": GpuCheck}[WHERE]
done, calls = getattr(OF, WHERE), count(1)


def stalling(self):
    from mpi4py import MPI

    if next(calls) == int(WHEN) and int(WHO) == MPI.COMM_WORLD.rank:
        if HOW == "stops":
            os.kill(os.getpid(), signal.SIGSTOP)
        else:
            time.sleep(float(HOW))
    return done(self)


setattr(OF, WHERE, stalling)
hosted_nccl.install(Path(ROOM))
sys.exit(main(ARGUMENTS))
