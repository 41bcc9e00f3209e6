"""``hpccoll run`` over NCCL on the host where a rank stalls: stalling_ranks.py DIRECTORY WHO WHERE WHEN HOW ARGUMENTS.

``stall_injection.py`` lists the values. WHERE may also be ``library``: the test library of NCCL has the fault HOW.
"""

import os
import sys
from pathlib import Path

from nccl_on_host import install
from stall_injection import stall

from hpccoll.cli.rank_program import main

DIRECTORY, WHO, WHERE, WHEN, HOW, *ARGUMENTS = sys.argv[1:]
if WHERE == "library":
    os.environ["NCCL_TEST_FAULT"] = f"{WHO}:{WHEN}:{HOW}"
else:
    stall(int(WHO), WHERE, int(WHEN), HOW)
install(Path(DIRECTORY))
sys.exit(main(ARGUMENTS))
