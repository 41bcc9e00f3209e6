"""``hpccoll run`` where each rank is a node whose port sends 4137 bytes per operation; prints each counting pass."""

import os
import sys
from pathlib import Path

from hpccoll.cli.job_program import main
from hpccoll.host import network_ports
from hpccoll.measure import port_traffic, provenance, ranks
from hpccoll.measure.run.result_check import Check

EACH = 4137
sent = 0
reset, count_traffic = Check.reset, port_traffic.count_traffic


def count(self):
    global sent  # noqa: PLW0603  a counter of the host
    sent += EACH
    reset(self)


def print_and_count(operation, sync, operations, progress, ports):
    print(f"counted {progress.case}", file=sys.stderr, flush=True)
    return count_traffic(operation, sync, operations, progress, ports)


Check.reset, port_traffic.count_traffic = count, print_and_count
provenance.boot_id = ranks.boot_id = lambda: str(os.getpid())
network_ports.find_ports = lambda _sys=None: (
    network_ports.NetworkPort("eth0", "netdev", Path("/nowhere")),
)
port_traffic.read_counters = lambda found: {
    (port.name, name): sent
    for port in found
    for name in (network_ports.SENT, network_ports.RECEIVED)
}
sys.exit(main(sys.argv[1:]))
