"""``hpccoll run`` over NCCL on the host, of which a rank stalls: stalling_ranks.py ROOM WHO WHERE WHEN HOW ARGUMENTS.

WHO stalls in the operation (WHERE is ``run``) or in the check of its result (``wrong``), the one with the number WHEN
of those that it does: for HOW seconds, or for ever where HOW is ``stops``. Where HOW is ``fails``, NCCL fails there as
a communicator is made (``__init__``).
"""

import os
import signal
import sys
import time
from itertools import count
from pathlib import Path

import hosted_nccl

from hpccoll.measure import watchdog
from hpccoll.measure.check_gpu import GpuCheck
from hpccoll.measure.on_gpu import Timed
from hpccoll.run import main

ROOM, WHO, WHERE, WHEN, HOW, *ARGUMENTS = sys.argv[1:]
OF = {"run": Timed, "wrong": GpuCheck, "__init__": hosted_nccl.Communicator}[WHERE]
done, calls = getattr(OF, WHERE), count(1)


def stalling(self, *about):
    from mpi4py import MPI

    did = done(self, *about) if HOW == "fails" else None
    if next(calls) == int(WHEN) and int(WHO) == MPI.COMM_WORLD.rank:
        if HOW == "fails":
            raise RuntimeError("NCCL_ERROR_SYSTEM_ERROR: unhandled system error")
        if HOW == "stops":
            os.kill(os.getpid(), signal.SIGSTOP)
        else:
            time.sleep(float(HOW))
    return did if HOW == "fails" else done(self, *about)


setattr(OF, WHERE, stalling)
watchdog.GRACE = 0.5
hosted_nccl.install(Path(ROOM))
sys.exit(main(ARGUMENTS))
