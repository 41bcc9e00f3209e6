"""Which GPU a rank takes before MPI starts, and what is assumed of MPI and GPU memory."""

from types import SimpleNamespace

import pytest
from catalogue_cases import case

from hpccoll.host.env_allowlist import allowed_variables
from hpccoll.transports.mpi.cuda_aware import CudaAwareVerdict


@pytest.fixture
def taken(mpiexec, monkeypatch):  # noqa: ARG001  skips without an MPI
    """Return the GPUs that ``assign_gpu_before_mpi`` takes, of four, with the given variables of a launcher."""
    from hpccoll.measure import gpu_assignment

    def taken(variables, lack=None):
        found = []
        for name in gpu_assignment.LOCAL_RANKS:
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(gpu_assignment.gpu, "missing_for_gpu", lambda _: lack)
        monkeypatch.setattr(gpu_assignment.gpu, "device_count", lambda: 4)
        monkeypatch.setattr(gpu_assignment, "select_gpu", found.append)
        gpu_assignment.assign_gpu_before_mpi()
        return found

    return taken


def test_a_rank_takes_the_gpu_with_its_local_number_modulo_the_gpus(taken):
    assert taken({"OMPI_COMM_WORLD_LOCAL_RANK": "2"}) == [2]
    assert taken({"MPI_LOCALRANKID": "5"}) == [1]
    assert taken({"SLURM_LOCALID": "3"}) == [3]


def test_variables_of_mpiexec_take_precedence_over_those_inherited_from_slurm(taken):
    assert taken({"SLURM_LOCALID": "0", "MPI_LOCALRANKID": "3"}) == [3]


def test_a_rank_without_a_local_number_or_without_gpus_takes_none(taken):
    assert taken({}) == taken({"SLURM_LOCALID": ""}) == taken({"SLURM_LOCALID": "1"}, lack="no CUDA device") == []


def test_a_rank_keeps_the_number_of_its_gpu_if_ranks_before_it_are_lost(mpiexec, monkeypatch):  # noqa: ARG001
    from hpccoll.measure import gpu_assignment

    queried = []
    monkeypatch.setattr(gpu_assignment.gpu, "device_count", lambda: 4)
    monkeypatch.setattr(gpu_assignment.gpu, "device_uuid", lambda number: queried.append(number) or f"uuid-{number}")
    whole, rest = (
        SimpleNamespace(local_rank=at, node_id="n1", comm=SimpleNamespace(allgather=lambda own: [own])) for at in (2, 1)
    )
    gpus = gpu_assignment.RankGpus(whole)
    assert (gpus.number, gpus.ranks_on_gpu) == (2, 1)
    remaining = gpus.subset(rest)
    assert (remaining.number, remaining.ranks_on_gpu) == (2, 1)
    assert queried == [2, 2]


@pytest.mark.parametrize(("own", "seen"), [(None, "32"), ("8", "8")])
def test_cuda_starts_with_as_many_connections_as_it_can_have_unless_the_user_sets_them(
    mpiexec,  # noqa: ARG001
    monkeypatch,
    own,
    seen,
):
    from hpccoll.measure import gpu_assignment

    monkeypatch.setenv(gpu_assignment.CONNECTIONS, own or "")  # restored afterwards
    if own is None:
        monkeypatch.delenv(gpu_assignment.CONNECTIONS)
    found = []

    def missing(_transport):  # the first call that starts CUDA
        found.append(allowed_variables().get("CUDA_DEVICE_MAX_CONNECTIONS"))
        return "no CUDA device"

    monkeypatch.setenv("SLURM_LOCALID", "0")
    monkeypatch.setattr(gpu_assignment.gpu, "missing_for_gpu", missing)
    gpu_assignment.assign_gpu_before_mpi()
    assert found == [seen]


def test_if_cublas_is_missing_on_one_rank_no_rank_multiplies_matrices(mpiexec, monkeypatch):  # noqa: ARG001
    from hpccoll.measure import gpu_assignment

    monkeypatch.setattr(gpu_assignment.gpu, "missing_cublas", lambda: None)
    for others in ([None, "cuBLAS not found"], [None, None]):
        comm = SimpleNamespace(allgather=lambda own, others=others: [own, *others])
        assert gpu_assignment.RankGpus(SimpleNamespace(local_rank=0, comm=comm)).missing_cublas == others[1]


def test_slices_of_a_gpu_are_not_shared(mpiexec, monkeypatch):  # noqa: ARG001
    from hpccoll.measure import gpu_assignment

    uuids = ["slice-1", "slice-2"]
    monkeypatch.setattr(gpu_assignment.gpu, "device_count", lambda: 2)
    monkeypatch.setattr(gpu_assignment.gpu, "device_uuid", lambda number: uuids[number])
    for expected in (1, 2):
        comm = SimpleNamespace(allgather=lambda _: [("n1", one) for one in uuids])
        gpus = gpu_assignment.RankGpus(SimpleNamespace(local_rank=1, node_id="n1", comm=comm))
        gpus.gpu_of_rank = SimpleNamespace(id="0000:1b:00.0")
        assert gpus.ranks_on_gpu == expected
        uuids[:] = ["slice-1"] * 2


@pytest.mark.parametrize(
    ("domains", "last_reported", "nodes", "ranks_per_node"),
    [
        (["a", "a", "a", "a"], True, (1, 1), (4, 4)),
        (["a", "a", "a", "b"], True, (2, 2), (1, 3)),
        ([None, None, None, None], True, (2, 2), (2, 2)),
        (["a", "a", "a", None], True, (2, 2), (2, 2)),
        (["a", "a", "a", None], False, (1, 2), (2, 4)),  # no NVML there
    ],
)
def test_nccl_counts_nvlink_domains_if_all_gpus_belong_to_one(
    mpiexec,  # noqa: ARG001
    monkeypatch,
    domains,
    last_reported,
    nodes,
    ranks_per_node,
):
    from hpccoll.measure import gpu_assignment

    monkeypatch.setattr(gpu_assignment, "gpu_facts", lambda _: {"nvlink_domain": domains[0], "name": "H100"})
    monkeypatch.setattr(gpu_assignment.gpu, "nccl_version", lambda: (2, 30, 7))
    versions = [(2, 30, 7), (2, 30, 7), (2, 28, 9), (2, 28, 9)]  # all ranks must skip the same cases
    reported = [True, True, True, last_reported]
    comm = SimpleNamespace(allgather=lambda _: list(zip(domains, reported, [0, 0, 1, 1], versions, strict=True)))
    gpus = gpu_assignment.RankGpus(SimpleNamespace(local_rank=0, node_id=0, comm=comm))
    gpus.gpu_of_rank = SimpleNamespace(id="0000:1b:00.0")
    assert gpus.node_view == gpu_assignment.NodeView(nodes, ranks_per_node, (2, 28, 9))


@pytest.mark.parametrize("assumed", [True, False])
def test_only_cases_over_mpi_on_gpus_carry_the_assumption_of_the_user(mpiexec, assumed):  # noqa: ARG001
    from hpccoll.measure.gpu_assignment import RankGpus

    found = CudaAwareVerdict(aware=True, library="it says no", transfer="HPCCOLL_CUDA_AWARE=yes", assumed=assumed)
    ranks = SimpleNamespace(
        local_rank=1, node_ids=["n1", "n1"], node_id="n1", comm=SimpleNamespace(allgather=lambda _: [found, None])
    )
    gpus = RankGpus(ranks)
    cases = (case(device=device, transport=over) for device, over in
             (("cuda", "mpi"), ("cuda", "staged"), ("cpu", "mpi")))  # fmt: skip
    over_mpi, *others = map(gpus.assumed, cases)
    assert (over_mpi is not None) == assumed
    assert not assumed or found.description in over_mpi
    assert others == [None, None]
