"""``hpccoll diagnose`` of ranks on one machine, each of which is a node."""

import sys

from hpccoll.cli.diagnose import main
from hpccoll.host import place_facts
from hpccoll.measure.mpi_startup import launcher_rank

place_facts.node_name = lambda: f"n{launcher_rank()}"
sys.exit(main(sys.argv[1:]))
