"""``hpccoll run``, or ``train``, on ranks of this machine: run_ranks.py GPUS [train] ARGUMENTS.

Where there are fewer GPUs than ranks, NCCL is made to take ranks that share them.
"""

import sys
from pathlib import Path

from mpi4py import MPI

from hpccoll.cli.job_program import main

if __name__ == "__main__":
    GPUS, *ARGUMENTS = sys.argv[1:]
    if MPI.COMM_WORLD.size > int(GPUS):
        sys.path.append(str(Path(__file__).parents[1] / "gpu"))
        from rank_gpu import share_a_gpu

        share_a_gpu(MPI.COMM_WORLD.rank)
    command, *options = ARGUMENTS
    sys.exit(main(options, command) if command == "train" else main(ARGUMENTS))
