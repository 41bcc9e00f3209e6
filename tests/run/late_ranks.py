"""``hpccoll run`` where rank 1 is stuck WHEN it ``starts`` or ``ends``, and is waited for."""

import os
import sys
import time

from hpccoll.run import main, start

WHEN, *ARGUMENTS = sys.argv[1:]
os.environ[start.START_S] = "4"
if os.environ["PMI_RANK"] == "1":
    if WHEN == "starts":
        time.sleep(1000)
    if WHEN == "ends":
        sys.exit = lambda _code: time.sleep(1000)
sys.exit(main(ARGUMENTS))
