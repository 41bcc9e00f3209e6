"""``hpccoll run`` where rank 1 is stuck WHEN it ``starts`` or ``ends``, and is waited for four seconds just then."""

import os
import sys
import time

from hpccoll.run import main, start

WHEN, *ARGUMENTS = sys.argv[1:]
mine = os.environ["PMI_RANK"] == "1"
if WHEN == "starts":
    os.environ[start.START_S] = "4"
    time.sleep(1000 * mine)
code = main(ARGUMENTS)
os.environ[start.START_S] = "4"
time.sleep(1000 * mine)
sys.exit(code)
