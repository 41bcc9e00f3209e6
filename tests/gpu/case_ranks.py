"""Cases of device cuda on ranks that share a GPU, each right, and wrong where a bit is: mpiexec -n N case_ranks.py."""

from itertools import product

import numpy as np
from cpu_as_gpu_ranks import check
from mpi4py import MPI
from nccl_ranks import share_a_gpu

from hpccoll.schedule import BFLOAT16, COLLECTIVES, DTYPES, REDUCTIONS, Layout
from hpccoll.spec.case import Case
from hpccoll.spec.catalogue import distinct_placements, unmet_needs
from hpccoll.transports.gpu import Gpu
from hpccoll.transports.mpi import cuda_aware
from hpccoll.transports.nccl import communicators

SIZES = 10_000, 3 << 20
"""Of short blocks, and of those whose values repeat."""


def cases(transports):
    turn = 0
    for name, family in COLLECTIVES.items():
        for algorithm, transport, size in product((*family.algorithms, "native"), transports, SIZES):
            for in_place in distinct_placements(name, algorithm, (False, True)):
                turn += 1
                dtypes = (*DTYPES, BFLOAT16) if transport == "nccl" else DTYPES
                op = [*REDUCTIONS][turn % len(REDUCTIONS)] if family.has_op else None
                yield Case(
                    collective=name, algorithm=algorithm, transport=transport, device="cuda", bytes=size,
                    dtype=dtypes[turn % len(dtypes)], op=op, in_place=in_place, root=0 if family.rooted else None,
                    params={"graph": turn % 2} if transport == "nccl" else {},
                )  # fmt: skip


def flip(result):
    view = result.view(np.uint8)[:1]
    view ^= 1


if __name__ == "__main__":
    world = MPI.COMM_WORLD
    share_a_gpu()
    gpu, layout = Gpu(0), Layout.of(world.size)
    takes = world.bcast(cuda_aware.cuda_aware_verdict(0).aware if world.rank == 0 else None)
    transports = ["staged", "nccl", *(["mpi"] if takes else [])]
    unable = {("all_to_all", "native", "nccl", True)}  # NCCL's users write it with a buffer each
    ran = []
    for case in cases(transports):
        if (
            not unmet_needs(case, layout)
            and (case.collective, case.algorithm, case.transport, case.in_place) not in unable
        ):
            check(case, layout, gpu, flip)
            ran.append(case.transport)
    communicators.close_all_worlds()
    if world.rank == 0:
        print(len(ran), *sorted({*ran}))
