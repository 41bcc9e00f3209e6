"""Plans of MSCCL++ in the peer kernel: their bits in both protocols, and a run of a file."""

from pathlib import Path

import numpy as np
import pytest
from cli_runner import invoke
from peer_cluster import PeerCluster, peer_library
from plan_machine import exported

from hpccoll.extensions.plans.mscclpp_reader import plan_of
from hpccoll.schedule import REDUCTIONS
from hpccoll.schedule.operation import Operation
from hpccoll.store.load_results import read_results

RANKS = Path(__file__).parents[2] / "measure" / "nccl_on_host_ranks.py"


@pytest.mark.parametrize("protocol", ["simple", "ll"])
@pytest.mark.parametrize(
    ("name", "ranks"), [("ring", 3), ("direct", 4), ("double_binary_tree", 4), ("swing", 4)]
)
def test_a_plan_has_the_bits_of_lockstep(tmp_path, name, ranks, protocol):
    plan = plan_of(exported("all_reduce", name, ranks, ranks))
    dtype = np.dtype("float32")
    count = 16 * plan.slices[0].units * len(plan.slices)
    operation = Operation(
        plan.call, plan.layout, plan.slices, count, dtype, REDUCTIONS["sum"], in_place=True
    )
    cluster = PeerCluster(operation, protocol)
    results = cluster.run(peer_library(tmp_path, "float32", "sum"))
    assert results is not None
    assert cluster.wrong_ranks(results) == []


@pytest.mark.mpi
def test_a_file_runs_over_peer_in_both_protocols(mpiexec, nccl_library, tmp_path):
    plan, out = tmp_path / "plan.json", tmp_path / "F.h5"
    shape = "-p", 2, "-b", "64K"
    assert invoke("show", "ring", *shape, "--format", "mscclpp", "--out", plan).code == 0
    cases = "--device", "cuda", "-t", "peer", "-a", f"file:{plan}", "-b", "64K", "-e", "64K"
    protocols = "--param", "protocol=ll,simple"
    effort = "--seconds", "0.1", "--rounds", "1"
    ended = mpiexec(2, RANKS, nccl_library, *cases, *protocols, *effort, "--out", out)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    rows = read_results([out]).rows
    assert {row.status for row in rows} == {"ok"}
    assert {row.params["protocol"] for row in rows} == {"ll", "simple"}
