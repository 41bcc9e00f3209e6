"""The sweep files for GPUs, whole: Snakemake, Slurm, ranks over NCCL, evidence, HDF5, and curves.

The ranks are hpccoll as it is, with CuPy's binding of NCCL, which is the test library in host
memory (gpu/on_host). Slurm counts GPUs that the nodes of the testbed do not have. The files are
shortened: fewer sizes, ranks and iterations.
"""

import html
import json
from pathlib import Path

import pytest
import yaml
from guide_blocks import blocks
from slurm_testbed import on_host
from sweep_sandbox import SweepSandbox

from hpccoll.schedule.collective import NATIVE
from hpccoll.store.load_results import read_results

pytestmark = [pytest.mark.slurm, pytest.mark.sweep, pytest.mark.long]

ROOT = Path(__file__).parents[2]
GPU, NCCL = (
    "8 host-memory GPUs of the NCCL test library",
    "NCCL 2.30.0: the test library of hpccoll, in host memory",
)
"""The names that the stand-ins give to NVML's and to NCCL's readers."""
SHORT = {
    "bytes": [64, "64K"],
    "in_place": False,
    "ranks_per_node": [2],
    "rounds": 1,
    "effort": {
        "warmup": 1,
        "seconds": 0.05,
        "operations": 3,
        "min_iterations": 2,
        "max_iterations": 2,
    },
}


@pytest.fixture
def sandbox(testbed, nccl_library, mpiexec, tmp_path):  # noqa: ARG001 - there is an MPI library
    """Return what makes a directory for the sweep of gpu-node.yaml, shortened, and the arguments of the sweep."""

    def make(more=None, **gpus):
        box = SweepSandbox(testbed, tmp_path, "gpu-node", ["n1", "n2"])
        sweep = yaml.safe_load((ROOT / "workflows" / "config" / "gpu-node.yaml").read_text())
        assert {*SHORT} - {"rounds"} <= {*sweep}, "a shortened key is one that the file has"
        (box.home / "s.yaml").write_text(json.dumps(sweep | SHORT | (more or {})))
        return box, box.site(**gpus, environment=on_host(nccl_library, box.home))

    return make


def test_snakemake_submits_a_sweep_to_a_slurm_that_takes_gres_only(sandbox):
    few = {"variants": {"default": {}}, "algorithms": ["ring"], "params": {}, "bytes": [64]}
    box, arguments = sandbox(few, gres="gpu:8")
    ended = box.hpccoll("sweep", *arguments)
    assert ended.code == 0, f"{ended.out}\n{ended.err}\n{box.logs()}"
    assert {(row.status, row.ranks) for row in read_results([box.out]).rows} == {("ok", 2)}


FEWER = {
    "-n 8": "-n 2",
    "--gpus-per-node=8": "--gpus-per-node=2",
    "--cpus-per-task=12": "--cpus-per-task=1",
}
"""What makes the line of a guide fit a node of the testbed."""


@pytest.mark.parametrize("guide", ["slurm/GPU.md"])
def test_the_srun_line_of_a_guide_runs_on_fewer_gpus(
    guide,
    testbed,
    nccl_library,
    mpiexec,  # noqa: ARG001
    tmp_path,
):
    lines = [
        line
        for block in blocks("sh", guide)
        for line in block.text.replace("\\\n", " ").splitlines()
    ]
    (line,) = (
        line.partition("#")[0]
        for line in lines
        if line.startswith("srun") and "--device cuda" in line
    )
    for many, few in FEWER.items():
        assert many in line
        line = line.replace(many, few)
    line = line.replace("srun", "srun --mpi=pmi2", 1)  # that of the testbed's MPI
    ran = testbed.run(
        "bash", "-ec", f"{line} -b 64 -e 64 -n 2", cwd=tmp_path, **on_host(nccl_library, tmp_path)
    )
    assert ran.code == 0, f"{ran.out}\n{ran.err}"
    assert "2 ranks on 1 node" in ran.out
    assert "over nccl" in ran.out


@pytest.mark.parametrize("config", ["gpu-node", "gpu-nccl", "gpu-mpi"])
@pytest.mark.parametrize("request_of_gpus", ["gpus_per_node: 8", "gres: gpu:8"])
def test_slurm_grants_what_the_sweeps_of_the_guide_request(
    config, request_of_gpus, testbed, tmp_path
):
    site = f"partition: work\nlauncher: srun --mpi=pmi2\nexclusive: false\n{request_of_gpus}\n"
    (tmp_path / "my-site.yaml").write_text(site)
    sweep = yaml.safe_load((ROOT / "workflows" / "config" / f"{config}.yaml").read_text())
    sweep |= {"ranks_per_node": [1]}  # a node of the testbed has fewer CPUs than GPUs
    (tmp_path / "s.yaml").write_text(json.dumps(sweep))
    ran = testbed.run(
        "hpccoll",
        "plan",
        "s.yaml",
        "--profile",
        "slurm-nodbd",
        "--site",
        "my-site.yaml",
        cwd=tmp_path,
    )
    assert ran.code == 0, ran.err
    option = "--gres=gpu:8" if "gres" in request_of_gpus else "--gpus-per-node=8"
    assert option in ran.out


def test_the_first_sweep_on_a_node_of_gpus_says_what_ran(sandbox):
    box, arguments = sandbox(gpus_per_node=8)
    ended = box.hpccoll("sweep", *arguments)
    assert ended.code == 0, f"{ended.out}\n{ended.err}\n{box.logs()}"
    results = read_results([box.out])
    rows = results.rows
    assert not results.missing
    assert {(row.status, row.wrong) for row in rows} == {("ok", 0)}
    for run in results.runs:
        assert run.provenance["gpus"][0]["gpus"][0]["name"] in GPU
        assert {host["library"]["version"] for host in run.provenance["nccl"]} == {"2.30.0"}
    native = {row.variant: row.executed for row in rows if row.algorithm == NATIVE}
    without = "ring (fallback: no line says why)"
    assert native == {
        "default": "ring",
        "nccl-ring": "ring",
        "nccl-nvls-off": "ring",
        "nccl-nvls": without,
    }
    assert {row.algorithm for row in rows} >= {NATIVE, "ring", "double_binary_tree"}
    assert {(row.timing, row.params["graph"]) for row in rows} == {
        (timing, graph) for timing in ("single", "aggregated") for graph in (0, 1)
    }
    (line,) = {
        line for line in ended.out.splitlines() if GPU in line and "measured on a testbed" in line
    }
    assert line.endswith(f"; {NCCL}")
    assert f"and {NCCL} (native: NCCL's own)" in html.unescape(box.page)
