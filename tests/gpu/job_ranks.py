"""``hpccoll run`` on ranks that share a GPU, of which one stalls: python job_ranks.py WHO WHERE WHEN HOW ARGUMENTS."""

import sys

from nccl_ranks import share_a_gpu
from stall_injection import stall

from hpccoll.run import main

WHO, WHERE, WHEN, HOW, *ARGUMENTS = sys.argv[1:]
share_a_gpu()
stall(int(WHO), WHERE, int(WHEN), HOW)
sys.exit(main(ARGUMENTS))
