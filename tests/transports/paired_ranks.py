"""``hpccoll run`` on ranks that form nodes of two: 0 and 1, 2 and 3, and so on."""

import sys

from mpi4py import MPI

from hpccoll.measure import provenance, ranks
from hpccoll.run import main

provenance.boot_id = ranks.boot_id = lambda: f"node {MPI.COMM_WORLD.rank // 2}"
sys.exit(main(sys.argv[1:]))
