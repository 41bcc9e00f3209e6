"""Ranks whose GPU is the host, for cases of device cuda without one: mpiexec -n N python cpu_as_gpu_ranks.py DIRECTORY.

Over NCCL, CuPy's and nccl4py's bindings are real (nccl_on_host.py); over MPI, folds and copies are
queued. The kernels of the check are run as they are, and everything else is as on a GPU.
"""

import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI
from queued_memory import QueuedMemory
from rank_checks import named

from hpccoll.cases.case import Case
from hpccoll.cases.catalogue import distinct_placements, distinct_transports
from hpccoll.cases.skip_reason import unmet_needs
from hpccoll.measure.run.prepared_case import PreparedCase
from hpccoll.schedule import BFLOAT16, COLLECTIVES, DTYPES, REDUCTIONS, Layout
from hpccoll.transports.nccl import communicators
from hpccoll.transports.nccl.communicator_config import NEWER_CALLS


class Gpu(QueuedMemory):
    """A Gpu that is the host."""

    def download(self, array):
        self.synchronize()
        return np.array(array)

    def release(self):
        assert not self.queue


def cases():
    for number, (name, family) in enumerate(COLLECTIVES.items()):
        for algorithm in (*family.algorithms, "native"):
            for transport in distinct_transports(
                name, algorithm, ("mpi", "staged", "nccl"), "cuda"
            ):
                dtypes = (*DTYPES, BFLOAT16) if transport == "nccl" else DTYPES
                for in_place in distinct_placements(name, algorithm, (False, True)):
                    if (name, algorithm, transport, in_place) == (
                        "all_to_all",
                        "native",
                        "nccl",
                        True,
                    ):
                        continue  # NCCL's is never in place
                    op = [*REDUCTIONS][number % len(REDUCTIONS)] if family.has_op else None
                    yield Case(
                        collective=name,
                        algorithm=algorithm,
                        transport=transport,
                        device="cuda",
                        bytes=10_000,
                        dtype=dtypes[number % len(dtypes)],
                        op=op,
                        in_place=in_place,
                        root=0 if family.rooted else None,
                    )
    for transport in (
        "mpi",
        "nccl",
    ):  # what sends nothing divides nothing: a third of the largest integer would show it
        yield Case(
            collective="reduce",
            algorithm="null",
            transport=transport,
            device="cuda",
            bytes=10_000,
            dtype="int32",
            op="avg",
            root=0,
        )


def flip_on_host(result):
    np.asarray(result).view(np.uint8)[0] ^= 1


def check(case, layout, gpu, flip=flip_on_host):
    """Run a case three times, once with a wrong element, and once with one in each guard: ``flip`` changes a bit."""
    prepared = PreparedCase(MPI.COMM_WORLD, layout, case, gpu=gpu)
    wrong, diagnoses = [], []
    for turn in range(5):
        prepared.reset()
        MPI.COMM_WORLD.Barrier()
        prepared.run()
        took = prepared.device_ns()
        assert (took > 0) == (case.transport == "nccl"), took
        if turn == 3 and len(prepared.plan.result):
            flip(prepared.plan.result)
        if turn == 4:
            for guard in prepared.guards:
                (flip_on_host if guard.on_host else flip)(guard.memory)
        wrong.append(prepared.wrong())
        diagnoses.append(prepared.diagnose() if wrong[-1] else None)
    if (case.algorithm, case.transport) == ("native", "nccl") and case.collective in NEWER_CALLS:
        assert f"NCCL's {case.collective}" in prepared.evidence(None)[1]  # or why it is not called
    copies = 2 if case.transport == "staged" else 0
    assert [made.on_host for made in prepared.transport.guarded] == [False] * 2 + [True] * copies
    checked, guards = len(prepared.plan.result) > 0, len(prepared.guards)
    assert wrong == [0, 0, 0, int(checked), guards], f"{case.id}: {wrong}, {diagnoses}"
    assert not checked or diagnoses[3].startswith(f"rank {MPI.COMM_WORLD.rank}: 1 of "), diagnoses
    assert not guards or diagnoses[4].count("overwritten") == guards, diagnoses
    prepared.close()


def main(directory):
    import nccl_on_host

    def flip(result):
        flip_on_host(nccl_on_host.host_view(result))

    world = MPI.COMM_WORLD
    ran, layout = [], Layout.of(world.size)
    over_mpi, over_nccl = Gpu(directory), nccl_on_host.HostGpu(directory)
    for case in cases():
        if not unmet_needs(case, layout):
            with named(case):
                check(
                    case, layout, *((over_nccl, flip) if case.transport == "nccl" else (over_mpi,))
                )
            ran.append((case.collective, case.algorithm, case.transport))
    communicators.close_all_worlds()
    if world.rank == 0:
        print(len(ran), *sorted({transport for *_, transport in ran}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
