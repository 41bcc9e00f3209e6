"""``hpccoll run`` on ranks that form nodes of two: 0 and 1, 2 and 3, and so on."""

import sys

from mpi4py import MPI

from hpccoll.cli.job_program import main
from hpccoll.measure import port_traffic, provenance, ranks

provenance.boot_id = ranks.boot_id = lambda: f"node {MPI.COMM_WORLD.rank // 2}"
# nothing crosses a port here: one operation for each case
port_traffic.PASS_S = port_traffic.SETTLE_S = 0.0
sys.exit(main(sys.argv[1:]))
