"""Which GPU a rank takes before MPI starts, and what is assumed of MPI and GPU memory."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from catalogue_cases import case

from hpccoll.cases.transport_table import SHARED_GPU_CHOICES
from hpccoll.evidence.gpu_pair import CORRECT, NOT_TRIED, STARTED, WRONG, GpuPair
from hpccoll.store.load_results import read_results
from hpccoll.transports.mpi.cuda_aware import CudaAwareVerdict


@pytest.fixture
def assignment(mpiexec, monkeypatch):  # noqa: ARG001  skips without an MPI
    """Return the module, on a machine with four GPUs."""
    from hpccoll.measure import gpu_assignment

    monkeypatch.setattr(gpu_assignment.gpu, "device_count", lambda: 4)
    return gpu_assignment


def ranks(*others, local_rank=0, **about):
    """Return ranks that gather what this one has and what others have."""
    comm = SimpleNamespace(allgather=lambda own: [own, *others])
    return SimpleNamespace(local_rank=local_rank, node_id="n1", comm=comm, **about)


@pytest.mark.parametrize(
    ("variables", "missing", "taken"),
    [
        # mpiexec inherits Slurm's
        ({"SLURM_LOCALID": "0", "MPI_LOCALRANKID": "7"}, None, ["32", 3]),
        ({"SLURM_LOCALID": ""}, None, []),
        ({"SLURM_LOCALID": "1", "CUDA_DEVICE_MAX_CONNECTIONS": "8"}, "no CUDA device", ["8"]),
    ],
)
def test_a_rank_takes_the_gpu_with_its_local_number_after_cuda_started_with_all_connections_unless_set(
    assignment, monkeypatch, variables, missing, taken
):
    found = []
    for name in (*assignment.LOCAL_RANKS, assignment.CONNECTIONS):
        monkeypatch.setenv(name, "")  # restored afterwards
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    def missing_for_gpu(_):  # the first call that starts CUDA
        found.append(os.environ[assignment.CONNECTIONS])
        return missing

    monkeypatch.setattr(assignment.gpu, "missing_for_gpu", missing_for_gpu)
    monkeypatch.setattr(assignment, "select_gpu", found.append)
    assignment.assign_gpu_before_mpi()
    assert found == taken


def test_a_rank_keeps_the_number_of_its_gpu_if_ranks_before_it_are_lost(assignment, monkeypatch):
    queried = []
    monkeypatch.setattr(
        assignment.gpu, "device_uuid", lambda number: queried.append(number) or f"uuid-{number}"
    )
    gpus = assignment.RankGpus(ranks(local_rank=2))
    assert (gpus.number, gpus.ranks_on_gpu) == (2, 1)
    remaining = gpus.subset(ranks(local_rank=1))
    assert (remaining.number, remaining.ranks_on_gpu) == (2, 1)
    assert queried == [2, 2]


def test_if_cublas_is_missing_on_one_rank_no_rank_multiplies_matrices(assignment, monkeypatch):
    monkeypatch.setattr(assignment.gpu, "missing_cublas", lambda: None)
    assert assignment.RankGpus(ranks(None, "cuBLAS not found")).missing_cublas == "cuBLAS not found"


@pytest.mark.parametrize(
    ("domains", "last_reported", "nodes", "ranks_per_node"),
    [
        (["a", "a", "a", "a"], True, (1, 1), (4, 4)),
        (["a", "a", "a", "b"], True, (2, 2), (1, 3)),
        (["a", "a", "a", None], True, (2, 2), (2, 2)),
        (["a", "a", "a", None], False, (1, 2), (2, 4)),  # no NVML there
    ],
)
def test_nccl_counts_nvlink_domains_if_all_gpus_belong_to_one(
    assignment, monkeypatch, domains, last_reported, nodes, ranks_per_node
):
    monkeypatch.setattr(
        "hpccoll.host.gpu_facts.gpu_facts", lambda _: {"nvlink_domain": domains[0], "name": "H100"}
    )
    monkeypatch.setattr(assignment.gpu, "loaded_nccl_version", lambda: (2, 30, 7))
    versions = [(2, 30, 7), (2, 28, 9), (2, 28, 9)]  # all ranks must skip the same cases
    others = zip(
        domains[1:], [True, True, last_reported], ["n1", "n2", "n2"], versions, strict=True
    )
    gpus = assignment.RankGpus(ranks(*others))
    gpus.gpu_of_rank = SimpleNamespace(id="0000:1b:00.0")
    assert gpus.node_view == assignment.NodeView(nodes, ranks_per_node, (2, 28, 9))


@pytest.mark.parametrize("assumed", [True, False])
def test_only_cases_over_mpi_on_gpus_carry_the_assumption_of_the_user(
    assignment, monkeypatch, assumed
):
    found = CudaAwareVerdict(
        aware=True, library="it says no", transfer="HPCCOLL_CUDA_AWARE=yes", assumed=assumed
    )
    monkeypatch.setattr("hpccoll.transports.mpi.cuda_aware.cuda_aware_verdict", lambda _: found)
    gpus = assignment.RankGpus(ranks(None, node_ids=["n1", "n1"], ranks_by_node={"n1": 2}))
    cases = (case(device=device, transport=over) for device, over in
             (("cuda", "mpi"), ("cuda", "staged"), ("cpu", "mpi")))  # fmt: skip
    over_mpi, *others = map(gpus.assumed, cases)
    assert (over_mpi is not None) == assumed
    assert not assumed or found.description in over_mpi
    assert others == [None, None]


@pytest.fixture
def over_nodes(assignment, monkeypatch):
    """Return the GPUs of ranks on so many nodes, whose MPI passed the test inside of a node."""

    def gpus_on(nodes, pair=None, *, assumed=False):
        found = CudaAwareVerdict(
            aware=True, library="it reports yes", transfer="correct", assumed=assumed
        )
        monkeypatch.setattr("hpccoll.transports.mpi.cuda_aware.cuda_aware_verdict", lambda _: found)
        monkeypatch.setattr(assignment.gpu, "missing_for_gpu", lambda _transport, _dtype: None)
        comm = SimpleNamespace(allgather=lambda own: [own, *[None] * (nodes - 1)])
        names = [f"n{number + 1}" for number in range(nodes)]
        gpus = assignment.RankGpus(
            SimpleNamespace(
                local_rank=0,
                node_id="n1",
                node_ids=names,
                comm=comm,
                ranks_by_node=dict.fromkeys(names, 1),
            )
        )
        gpus.pair = pair
        return gpus

    return gpus_on


DIED = GpuPair(
    state=STARTED,
    hosts=("n1", "n2"),
    failure="ended with exit code 139: task 0: Segmentation fault",
)


@pytest.mark.parametrize(
    ("nodes", "pair", "assumed", "skipped"),
    [
        (2, DIED, False, True),
        (2, GpuPair(state=WRONG, hosts=("n1", "n2")), False, True),
        (2, GpuPair(state=CORRECT, hosts=("n1", "n2")), False, False),
        (2, None, False, False),
        (1, DIED, False, False),
        (2, DIED, True, False),
    ],
    ids=["died", "wrong", "correct", "not tried", "one node", "the user answers"],
)
def test_mpi_on_gpu_memory_is_skipped_between_nodes_if_a_pair_failed_there_and_one_node_is_measured(
    over_nodes, nodes, pair, assumed, skipped
):
    gpus = over_nodes(nodes, pair, assumed=assumed)
    reason = gpus.missing_for("mpi")
    assert (reason is not None) == skipped
    assert reason is None or pair.description in reason
    assert gpus.missing_for("staged") is None


@pytest.mark.parametrize(
    ("nodes", "pair", "assumed", "said"),
    [
        (2, None, False, NOT_TRIED),
        (1, None, False, None),
        (2, GpuPair(state=CORRECT, hosts=("n1",)), False, None),
        (2, None, True, "MPI takes GPU memory: it reports yes; correct"),
    ],
)
def test_rows_over_mpi_say_that_gpu_memory_between_nodes_was_not_tried(
    over_nodes, nodes, pair, assumed, said
):
    gpus = over_nodes(nodes, pair, assumed=assumed)
    assert gpus.assumed(case(device="cuda", transport="mpi")) == said
    assert gpus.assumed(case(device="cuda", transport="nccl")) is None


def devices(*names, version=(2, 28, 9), may_share=False, uuids=None, hosts=None):
    """Return the GPUs of ranks, each given as ``NODE:BUS``."""
    from hpccoll.measure.gpu_assignment import NcclDevice

    places = [name.split(":") for name in names]
    return [
        NcclDevice(
            node,
            hosts[rank] if hosts else node,
            bus,
            uuids[rank] if uuids else f"{node} {bus}",
            version,
            may_share if isinstance(may_share, bool) else may_share[rank],
        )
        for rank, (node, bus) in enumerate(places)
    ]


ALONE, SHARED = ("n1:07", "n1:0a", "n2:07"), ("n1:07", "n1:0a", "n1:07", "n2:07")
SLICES = ["slice 1", "other", "slice 2", "third"]


@pytest.mark.parametrize(
    ("names", "given", "refused"),
    [
        pytest.param(
            SHARED, {"version": (2, 30, 7)}, "2 ranks share GPU 07 of n1;", id="NCCL from 2.30 on"
        ),
        pytest.param(
            SHARED,
            {"version": (2, 30, 7), "may_share": [True, True, False, True]},
            "2 ranks share",
            id="on some ranks",
        ),
        pytest.param(SHARED, {"hosts": "abcd"}, None, id="another host for each rank"),
        pytest.param(
            ALONE,
            {"hosts": "xxx"},
            "2 ranks share GPU 07 of n1 and n2, which",
            id="one host for two nodes",
        ),
        pytest.param(
            SHARED,
            {"uuids": SLICES},
            "2 ranks use slices of GPU 07 of n1,",
            id="slices before 2.30",
        ),
        pytest.param(
            SHARED, {"uuids": SLICES, "version": (2, 30, 3)}, None, id="slices from 2.30 on"
        ),
        pytest.param(
            ("n1:07",) * 3,
            {"version": ()},
            "3 ranks share GPU 07 of n1;",
            id="NCCL of an unknown version",
        ),
    ],
)
def test_ranks_that_share_a_gpu_are_refused_as_by_nccl_with_what_is_valid(
    mpiexec,  # noqa: ARG001
    names,
    given,
    refused,
):
    from hpccoll.measure.gpu_assignment import reason_nccl_refuses

    reason = reason_nccl_refuses(devices(*names, **given))
    assert (reason is None) == (refused is None)
    if refused:
        assert reason.startswith(refused)
        valid = reason.partition("valid: ")[2]
        for choice in ("one rank a GPU", *SHARED_GPU_CHOICES):
            assert choice in valid


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "variables", "accepted"),
    [("22809", (), False), ("23007", ["NCCL_MULTI_RANK_GPU_ENABLE=1"], True)],
)
def test_all_ranks_leave_out_cases_of_ranks_that_share_a_gpu_unless_nccl_accepts_them(
    mpiexec, nccl_library, tmp_path, version, variables, accepted
):
    out, program = tmp_path / "F.h5", Path(__file__).with_name("nccl_on_host_ranks.py")
    arguments = (
        "-t",
        "nccl",
        "--device",
        "cuda",
        "-a",
        "native,ring",
        "-b",
        "4K",
        "-e",
        "4K",
        "-n",
        "2",
    )
    settings = "GPUS=2", f"NCCL_TEST_VERSION={version}", *variables
    ran = mpiexec(3, program, nccl_library, *settings, *arguments, "--out", out)
    assert ran.returncode == (0 if accepted else 3), ran.stdout + ran.stderr
    results = read_results([out])
    assert {row.status for row in results.rows} == {"ok" if accepted else "skipped"}
    assert bool(results.skipped) != accepted
    assert all(
        gap.reason.startswith("2 ranks share GPU 0000:00:00.0 of ") for gap in results.skipped
    )


def test_gpus_of_a_host_are_counted_over_its_ranks_each_of_which_may_see_one(
    assignment, monkeypatch
):
    monkeypatch.setattr("hpccoll.measure.gpu_liveness.reason_gpu_hangs", lambda _: None)
    monkeypatch.setattr(assignment.gpu, "device_count", lambda: 1)
    monkeypatch.setattr(assignment.gpu, "device_uuid", lambda number: f"uuid-{number}")
    gpus = assignment.RankGpus(ranks())
    gpus.ranks.node_id = "n1", "boot"
    gathered = [("n1", ["uuid-0"]), ("n1", ["uuid-1"]), ("n2", ["uuid-0"]), ("n2", [])]
    gpus.ranks.comm.allgather = lambda own: gathered if own[1] else []
    assert gpus.visible_on_hosts == {"n1": 2, "n2": 1}


def test_of_a_host_whose_driver_does_not_answer_nothing_is_asked(assignment, monkeypatch):
    monkeypatch.setattr("hpccoll.measure.gpu_liveness.reason_gpu_hangs", lambda _: "no answer")
    monkeypatch.setattr(assignment.gpu, "device_count", lambda: pytest.fail("it would hang"))
    gpus = assignment.RankGpus(ranks(("n2", None)))
    gpus.ranks.node_id = "n1", "boot"
    assert gpus.silent == {"n1": "no answer"}
    assert gpus.failures == {}
    gpus.ranks.comm.allgather = lambda own: [own]
    assert gpus.visible_on_hosts == {"n1": 0}


def test_a_driver_that_does_not_answer_in_time_is_left_alone(monkeypatch):
    from hpccoll.measure import gpu_liveness

    monkeypatch.setattr(gpu_liveness.gpu, "has_driver", lambda: True)
    hangs = gpu_liveness.reason_gpu_hangs(0, 0.2, ["sleep", "3600"])
    assert hangs == "the driver of its GPUs has not answered within 0.2 s"
    assert gpu_liveness.reason_gpu_hangs(0, 60, ["true"]) is None
    assert gpu_liveness.reason_gpu_hangs(0, 60, ["false"]) is None  # an error is an answer
    monkeypatch.setattr(gpu_liveness.gpu, "has_driver", lambda: False)
    assert gpu_liveness.reason_gpu_hangs(0, 0.2, ["sleep"]) is None
