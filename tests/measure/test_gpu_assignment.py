"""Which GPU a rank takes before MPI is up."""

from types import SimpleNamespace

import pytest
from catalogue_cases import case

from hpccoll.transports.mpi.cuda_aware import CudaAwareVerdict


@pytest.fixture
def taken(mpiexec, monkeypatch):  # noqa: ARG001  where there is an MPI
    """The GPU that is taken of four, by variables of a launcher."""
    from hpccoll.measure import gpu_assignment

    def taken(variables, lack=None):
        found = []
        for name in gpu_assignment.LOCAL_RANKS:
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(gpu_assignment.gpu, "missing_for_gpu", lambda _: lack)
        monkeypatch.setattr(gpu_assignment.gpu, "device_count", lambda: 4)
        monkeypatch.setattr(gpu_assignment, "take", found.append)
        gpu_assignment.take_early()
        return found

    return taken


def test_a_rank_takes_the_gpu_of_its_number_on_the_node_in_turn(taken):
    assert taken({"OMPI_COMM_WORLD_LOCAL_RANK": "2"}) == [2]
    assert taken({"MPI_LOCALRANKID": "5"}) == [1]
    assert taken({"SLURM_LOCALID": "3"}) == [3]


def test_what_mpiexec_says_goes_before_what_it_inherits_of_slurm(taken):
    assert taken({"SLURM_LOCALID": "0", "MPI_LOCALRANKID": "3"}) == [3]


def test_who_is_told_nothing_or_has_no_gpu_takes_none(taken):
    assert taken({}) == taken({"SLURM_LOCALID": ""}) == taken({"SLURM_LOCALID": "1"}, lack="no CUDA device") == []


@pytest.mark.parametrize("assumed", [True, False])
def test_only_of_mpi_on_gpus_is_anything_assumed_and_only_where_its_user_says_it(mpiexec, assumed):  # noqa: ARG001
    from hpccoll.measure.gpu_assignment import RankGpus

    found = CudaAwareVerdict(aware=True, library="it says no", transfer="HPCCOLL_CUDA_AWARE=yes", assumed=assumed)
    gpus = RankGpus(
        SimpleNamespace(local=1, homes=["n1", "n1"], home="n1", comm=SimpleNamespace(allgather=lambda _: [found, None]))
    )
    words = [gpus.assumed(case(device=device, transport=over)) for device, over in
             (("cuda", "mpi"), ("cuda", "staged"), ("cpu", "mpi"))]  # fmt: skip
    told = "MPI takes GPU memory: it says no; HPCCOLL_CUDA_AWARE=yes"
    assert words == [told if assumed else None, None, None]
