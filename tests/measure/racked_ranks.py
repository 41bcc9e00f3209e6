"""``hpccoll run`` with two ranks per simulated node and two nodes per simulated rack."""

import sys

from mpi4py import MPI

from hpccoll.cli.job_program import main
from hpccoll.measure import provenance, ranks
from hpccoll.measure.run.attempt_runner import AttemptRunner

provenance.boot_id = ranks.boot_id = lambda: f"node {MPI.COMM_WORLD.rank // 2}"
provenance.rack_name = ranks.rack_name = lambda: f"rack {MPI.COMM_WORLD.rank // 4}"
AttemptRunner._traffic = lambda *_: None  # there is nothing between them to count
sys.exit(main(sys.argv[1:]))
