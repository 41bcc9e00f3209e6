"""``hpccoll run`` over NCCL on the host where a rank stalls: stalling_ranks.py ROOM WHO WHERE WHEN HOW ARGUMENTS.

``stall_injection.py`` lists the values. WHERE may also be ``__init__`` (a communicator is made), with HOW ``fails``.
"""

import sys
from pathlib import Path

import nccl_over_files
from stall_injection import PLACES, stall

from hpccoll.run import main

ROOM, WHO, WHERE, WHEN, HOW, *ARGUMENTS = sys.argv[1:]
stall(int(WHO), WHERE, int(WHEN), HOW, {**PLACES, "__init__": nccl_over_files.Communicator})
nccl_over_files.install(Path(ROOM))
sys.exit(main(ARGUMENTS))
