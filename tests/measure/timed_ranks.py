"""``hpccoll run`` over NCCL on the host: timed_ranks.py DIRECTORY ROOM LIMIT ARGUMENTS.

ROOM is for how many items the queue of a stream has room (0: any), LIMIT the seconds after which a gate gives up.
"""

import sys
from pathlib import Path

import nccl_on_host

from hpccoll.measure import stream_timing
from hpccoll.run import main

DIRECTORY, ROOM, LIMIT, *ARGUMENTS = sys.argv[1:]
nccl_on_host.Stream.room = int(ROOM)
stream_timing.GATE_S = float(LIMIT)
nccl_on_host.install(Path(DIRECTORY))
sys.exit(main(ARGUMENTS))
