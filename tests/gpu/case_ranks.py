"""Cases of device cuda on ranks, right, and wrong where a bit is: mpiexec -n N case_ranks.py [few] [host DIRECTORY].

``few`` are one case of each algorithm, of an odd number of bytes, over nccl; and native and one
more over staged.
"""

import sys
from functools import partial
from itertools import groupby, product

from cpu_as_gpu_ranks import check
from mpi4py import MPI
from rank_checks import named, run_on_all
from rank_gpu import flip_a_bit, gpu_of_rank, host_directory

from hpccoll.cases.case import Case
from hpccoll.cases.catalogue import distinct_placements, known_parameters
from hpccoll.cases.skip_reason import unmet_needs
from hpccoll.schedule import BFLOAT16, COLLECTIVES, DTYPES, REDUCTIONS, Layout
from hpccoll.transports.mpi import cuda_aware
from hpccoll.transports.nccl import communicators

SIZES = 10_000, 3 << 20
"""Of short blocks, and of those whose values repeat."""
ODD = (10_007,)
HOST = host_directory(sys.argv)
FEW = sys.argv[1:2] == ["few"]


def cases(transports, sizes):
    turn = 0
    for name, family in COLLECTIVES.items():
        for algorithm, transport, size in product(
            (*family.algorithms, "native"), transports, sizes
        ):
            for in_place in distinct_placements(name, algorithm, (False, True)):
                turn += 1
                dtypes = (*DTYPES, BFLOAT16) if transport == "nccl" else DTYPES
                op = [*REDUCTIONS][turn % len(REDUCTIONS)] if family.has_op else None
                yield Case(
                    collective=name,
                    algorithm=algorithm,
                    transport=transport,
                    device="cuda",
                    bytes=size,
                    dtype=dtypes[turn % len(dtypes)],
                    op=op,
                    in_place=in_place,
                    root=0 if family.rooted else None,
                    params=parameters(name, algorithm, turn) if transport == "nccl" else {},
                )


def parameters(name, algorithm, turn):
    """Return those over NCCL, in turns: directly and as a graph, with folds on one stream and on two."""
    return {
        key: value
        for key, value in {"graph": turn % 2, "channels": 1 + turn // 2 % 2}.items()
        if key in known_parameters(name, algorithm)
    }


def few(every):
    """Yield one case of each algorithm, in turns in place and out of place; over staged only native and ring."""
    groups = groupby(every, lambda case: (case.collective, case.algorithm, case.transport))
    for turn, ((_, algorithm, transport), group) in enumerate(groups):
        alike = [*group]
        if transport == "nccl" or algorithm in ("native", "ring"):
            yield alike[turn // 2 % len(alike)]


def main():
    world = MPI.COMM_WORLD
    device, layout = gpu_of_rank(world, HOST), Layout.of(world.size)
    takes = world.bcast(
        cuda_aware.cuda_aware_verdict(0).aware if world.rank == 0 and not (HOST or FEW) else None
    )
    transports = ["nccl"] if HOST else ["staged", "nccl", *(["mpi"] if takes else [])]
    unable = {("all_to_all", "native", "nccl", True)}  # NCCL's users write it with a buffer each
    ran = []
    for case in few(cases(transports, ODD)) if FEW else cases(transports, SIZES):
        if (
            not unmet_needs(case, layout)
            and (case.collective, case.algorithm, case.transport, case.in_place) not in unable
        ):
            with named(case):
                check(case, layout, device, partial(flip_a_bit, device))
            ran.append(case.transport)
    communicators.close_all_worlds()
    if world.rank == 0:
        print(len(ran), *sorted({*ran}))


if __name__ == "__main__":
    run_on_all(MPI.COMM_WORLD, main)
