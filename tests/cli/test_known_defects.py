"""Known defects in the answers of accept, compare, trace and doctor; they change no verdict and no exit code."""

import json
import os
from pathlib import Path

import pytest
from cli_runner import invoke
from published_outputs import Call, printed
from written_runs import SIZES, write_run

GIB = 1 << 30
SLOW = [Call(size * GIB, 180) for size in (1, 2, 4, 8)]
FAST = [Call(size * GIB, rate) for size, rate in ((1, 450), (2, 460), (4, 470), (8, 480))]


def names(defects):
    return [defect["id"] for defect in defects]


@pytest.fixture
def accept(tmp_path):
    """Hold an output of two nodes of H100 against its class, with a log of this version."""

    def accepted(version, *lines, calls=SLOW, as_json=True):
        (tmp_path / "out.txt").write_text(printed(calls))
        head = "node-0:31000:31000 [0] NCCL INFO"
        size = "comm 0x1 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0"
        text = [f"NCCL version {version}+cuda12.4", size, *lines]
        (tmp_path / "nccl.log").write_text("".join(f"{head} {line}\n" for line in text))
        words = ("--cluster", "8xh100-400g", "--log", tmp_path / "nccl.log")
        return invoke("accept", tmp_path / "out.txt", *words, *(["--json"] * as_json))

    return accepted


CROSS_NIC = "NCCL_CROSS_NIC set by environment to 1"


def test_accept_names_a_defect_that_fits_rows_that_fail_by_version_and_setting(accept):
    ended = accept("2.22.3", CROSS_NIC)
    rows = json.loads(ended.out)
    assert all("nccl-crossnic1-alternating-rings" in names(row["defects"]) for row in rows)
    (defect, *_) = rows[0]["defects"]
    assert (defect["version"], defect["workaround"]) == (
        "NCCL 2.22.3",
        "NCCL_CROSS_NIC=0 or 2, or NCCL 2.26.2",
    )
    said = accept("2.22.3", CROSS_NIC, as_json=False)
    assert "known defects that fit the failed rows" in said.out
    newer = accept("2.26.2", CROSS_NIC)
    assert all(names(row["defects"]) == [] for row in json.loads(newer.out))
    assert newer.code == ended.code == said.code == 3
    without = json.loads(accept("2.22.3").out)
    assert all("nccl-crossnic1-alternating-rings" not in names(row["defects"]) for row in without)


def test_accept_names_no_defect_of_rows_that_pass(accept):
    ended = accept("2.22.3", CROSS_NIC, calls=FAST)
    assert ended.code == 0
    assert all(row["defects"] == [] for row in json.loads(ended.out))
    assert "defect" not in accept("2.22.3", CROSS_NIC, calls=FAST, as_json=False).out


def test_accept_knows_the_gpu_and_the_version_of_an_output_alone(tmp_path):
    path = tmp_path / "b200.txt"

    def defects(version, rate):
        calls = [Call(size * GIB, rate) for size in (1, 2, 4, 8)]
        named = f"nccl-headers={version} nccl-library={version}"
        path.write_text(printed(calls, nodes=1, gpu="NVIDIA B200", library=named))
        rows = json.loads(invoke("accept", path, "--cluster", "8xb200-400g", "--json").out)
        return {name for row in rows for name in names(row["defects"])}

    assert "nccl-blackwell-16-ctas" in defects(22803, 400)
    assert defects(22707, 400) == set()
    assert defects(22803, 840) == set()


# compare


def runs(tmp_path, before, now, *factors, **changes):
    """Write two runs over MPI with these libraries; the cases of a slower size take twice as long."""
    folders = []
    for seed, (library, slower) in enumerate(((before, ()), (now, factors)), 1):
        provenance = {
            "mpi": {"version": library, "path": "", "threads": "multiple"},
            "hosts": ["h0"],
            "cpu": "AMD EPYC 9654 96-Core Processor",
        }
        path = tmp_path / str(seed) / "run.h5"
        write_run(path, slower, seed=seed, provenance=provenance, **(changes if seed == 2 else {}))
        folders.append(path.parent)
    return folders


ALL_SLOWER = [((name, size), 2.0) for name in ("ring", "recursive_doubling") for size in SIZES]


def compared(*folders):
    ended = invoke("compare", *folders, "--json")
    content = json.loads(ended.out)
    return ended.code, names(content["defects"]), names(content["ended_defects"])


def test_compare_says_that_a_change_of_versions_crosses_a_range(tmp_path):
    old, new = runs(tmp_path, "MPICH 4.0.1", "MPICH 4.1.1", *ALL_SLOWER)
    assert compared(old, new) == (3, ["mpich-411-slower"], [])
    said = invoke("compare", old, new)
    assert "may be a known defect of MPICH 4.1.1 and not of 4.0.1" in said.out
    assert "pmodels/mpich#6541" in said.out
    assert compared(new, old) == (0, [], ["mpich-411-slower"])
    assert "only the old run" in invoke("compare", new, old).out


@pytest.mark.parametrize(("before", "now"), [("4.0.0", "4.0.1"), ("4.1.1", "4.1.2")])
def test_compare_names_no_defect_without_a_crossed_range(tmp_path, before, now):
    folders = runs(tmp_path, f"MPICH {before}", f"MPICH {now}", *ALL_SLOWER)
    assert compared(*folders) == (3, [], [])


def test_compare_names_no_defect_of_equal_runs(tmp_path):
    assert compared(*runs(tmp_path, "MPICH 4.0.1", "MPICH 4.1.1")) == (0, [], [])


# trace


@pytest.fixture
def stuck(tmp_path):
    """Reports of ncclras on 33 nodes: rank 32 has begun the communicator and not completed it."""

    def report(version):
        lines = []
        for rank in range(33):
            head = f"host{rank}:9{rank}:120 [0] NCCL INFO"
            lines.append(f"{head} NCCL version {version}+cuda12.4")
            about = f"comm 0x5a{rank} rank {rank} nranks 33 cudaDev 0 nvmlDev 0 busId 19000 commId 0xabc"
            lines.append(f"{head} ncclCommInitRank {about} - Init START")
        (tmp_path / "nccl.log").write_text("".join(f"{line}\n" for line in lines))
        return tmp_path / "nccl.log"

    return report


def test_trace_names_a_defect_of_the_recorded_version_if_the_job_is_stuck(stuck):
    ended = invoke("trace", stuck("2.28.7"), "--json")
    assert names(json.loads(ended.out)["defects"]) == ["nccl-proxy-ordering-hang-scale"]
    assert "may be a known defect of NCCL 2.28.7" in invoke("trace", stuck("2.28.7")).out
    newer = invoke("trace", stuck("2.28.9"), "--json")
    assert json.loads(newer.out)["defects"] == []
    assert newer.code == ended.code


JOBS = Path(os.environ.get("HPCCOLL_DATA", "/nowhere")) / "jobs"
HEALTHY = "nccl-ras/healthy.json", "nccl-ras/docs-2.30.7-healthy.txt", "nccl-inspector", "kineto"


@pytest.mark.skipif(
    "HPCCOLL_DATA" not in os.environ, reason="HPCCOLL_DATA names no directory of jobs"
)
@pytest.mark.parametrize("name", HEALTHY)
def test_trace_names_no_defect_of_a_healthy_job(name):
    ended = invoke("trace", JOBS / name, "--json")
    assert json.loads(ended.out)["defects"] == []
