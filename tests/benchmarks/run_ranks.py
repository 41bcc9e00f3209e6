"""``hpccoll run`` on ranks of this machine: run_ranks.py (gpu GPUS | host DIRECTORY) ARGUMENTS.

Where there are fewer GPUs than ranks, NCCL is made to take ranks that share them. With ``host`` the NCCL test library
in DIRECTORY stands for GPUs and NCCL.
"""

import sys
from pathlib import Path

from mpi4py import MPI

from hpccoll.run import main

if __name__ == "__main__":
    KIND, VALUE, *ARGUMENTS = sys.argv[1:]
    if KIND == "host":
        import nccl_on_host

        nccl_on_host.install(Path(VALUE))
    elif MPI.COMM_WORLD.size > int(VALUE):
        sys.path.append(str(Path(__file__).parents[1] / "gpu"))
        from rank_gpu import share_a_gpu

        share_a_gpu(MPI.COMM_WORLD.rank)
    sys.exit(main(ARGUMENTS))
