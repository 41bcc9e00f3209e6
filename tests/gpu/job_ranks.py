"""``hpccoll run`` on ranks, of which one stalls: python job_ranks.py WHO WHERE WHEN HOW ARGUMENTS."""

import sys

from mpi4py import MPI
from rank_gpu import share_a_gpu
from stall_injection import stall

from hpccoll.cli.rank_program import main
from hpccoll.transports.gpu import device_count

WHO, WHERE, WHEN, HOW, *ARGUMENTS = sys.argv[1:]
if MPI.COMM_WORLD.size > device_count():
    share_a_gpu(MPI.COMM_WORLD.rank)
stall(int(WHO), WHERE, int(WHEN), HOW)
sys.exit(main(ARGUMENTS))
