"""``hpccoll run`` on ranks that are each a node of its own, whose ports send 4137 bytes for every operation.

Each says of every pass in which they are read during which case that was.
"""

import os
import sys
from pathlib import Path

from hpccoll.measure import environment, ports, ranks, wire
from hpccoll.measure.check import Check
from hpccoll.run import main

EACH = 4137
sent = 0
reset, watch = Check.reset, wire.watch


def count(self):
    global sent  # noqa: PLW0603  a counter of the host
    sent += EACH
    reset(self)


def told(subject, together, operations, progress, found):
    print(f"counted {progress.case}", file=sys.stderr, flush=True)
    return watch(subject, together, operations, progress, found)


Check.reset, wire.watch = count, told
environment.boot_id = ranks.boot_id = lambda: str(os.getpid())
ports.find = lambda _sys=None: (ports.Port("eth0", "netdev", Path("/nowhere")),)
wire.read = lambda found: {(port.name, name): sent for port in found for name in (ports.SENT, ports.RECEIVED)}
sys.exit(main(sys.argv[1:]))
