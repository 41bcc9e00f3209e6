"""The memory that a rank allocates for cases, relative to the estimate: python measured_memory.py CASES.json.

Rank 0 prints, for each case, the most that any rank took, over what it is said to need.
"""

import json
import sys
import tracemalloc
from pathlib import Path

from mpi4py import MPI

from hpccoll.cases.case import Case
from hpccoll.cases.memory_estimate import memory_needed
from hpccoll.measure.run.prepared_case import PreparedCase
from hpccoll.schedule import Layout

comm = MPI.COMM_WORLD
layout = Layout.of(comm.size)
shares = {}
for about in json.loads(Path(sys.argv[1]).read_text()):
    case = Case(**about)
    tracemalloc.start()
    prepared = PreparedCase(comm, layout, case)
    prepared.reset()
    prepared.run()
    prepared.wrong()
    _held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    prepared.close()
    shares[case.id] = comm.allreduce(peak, MPI.MAX) / memory_needed(case, comm.size, 1)
if comm.rank == 0:
    print(json.dumps(shares))
