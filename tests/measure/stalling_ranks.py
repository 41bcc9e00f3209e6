"""``hpccoll run`` over NCCL on the host, of which a rank stalls: stalling_ranks.py ROOM WHO WHERE WHEN HOW ARGUMENTS.

``stalling.py`` says what can be. WHERE is also ``__init__``, in which a communicator is made, with ``fails`` for HOW.
"""

import sys
from pathlib import Path

import hosted_nccl
from stalling import PLACES, stall

from hpccoll.run import main

ROOM, WHO, WHERE, WHEN, HOW, *ARGUMENTS = sys.argv[1:]
stall(int(WHO), WHERE, int(WHEN), HOW, {**PLACES, "__init__": hosted_nccl.Communicator})
hosted_nccl.install(Path(ROOM))
sys.exit(main(ARGUMENTS))
