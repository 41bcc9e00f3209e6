"""``hpccoll run`` over NCCL on the host: timed_ranks.py DIRECTORY ROOM LIMIT ARGUMENTS.

ROOM is for how many items the queue of a stream has room (0: any), LIMIT the seconds after which a gate gives up.
"""

import sys
from pathlib import Path

import nccl_over_files

from hpccoll.run import main
from hpccoll.transports.nccl import gate

DIRECTORY, ROOM, LIMIT, *ARGUMENTS = sys.argv[1:]
nccl_over_files.Stream.room = int(ROOM)
gate.LIMIT_S = float(LIMIT)
nccl_over_files.install(Path(DIRECTORY))
sys.exit(main(ARGUMENTS))
