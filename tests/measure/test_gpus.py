"""Which GPU a rank takes before MPI is up."""

import pytest


@pytest.fixture
def taken(mpiexec, monkeypatch):  # noqa: ARG001  where there is an MPI
    """The GPU that is taken of four, by variables of a launcher."""
    from hpccoll.measure import gpus

    def taken(variables, lack=None):
        found = []
        for name in gpus.LOCAL_RANKS:
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(gpus.gpu, "lack", lambda _: lack)
        monkeypatch.setattr(gpus.gpu, "device_count", lambda: 4)
        monkeypatch.setattr(gpus, "take", found.append)
        gpus.take_early()
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
