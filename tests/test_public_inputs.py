"""Outputs, logs, traces and tables after public reports: what a command must say about each, and its exit code.

The inputs are those of HPCCOLL_DATA/inputs/more; ``expected`` are facts that the answer must
contain, such as ranks, hosts and figures, and ``wrong`` what it must not say. Kinds of faults have
tests of their own beside their modules.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from cli_runner import ENVIRONMENT, invoke

INPUTS = Path(os.environ.get("HPCCOLL_DATA", "/nowhere")) / "inputs" / "more"
pytestmark = pytest.mark.skipif(
    "HPCCOLL_DATA" not in os.environ, reason="HPCCOLL_DATA names no directory of inputs"
)


class PublicCase(NamedTuple):
    """A command on an input, which is its second word, the exit code, and words that its answer has and has not."""

    command: str
    code: int
    expected: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()


CASES = (
    PublicCase("import nccl-json-8-gpus-of-one-process.json --out OUT", 0, ("8 ranks on 1 node", "8 results")),
    PublicCase("import nccl-json-cut-by-time-limit.json --out OUT", 3, ("8 ranks on 1 node", "2 results", "cut short")),
    PublicCase("import nccl-2.19-per-iteration-columns.txt --out OUT", 0, ("8 ranks on 1 node", "6 results")),
    PublicCase("import nccl-2.19-cputime.txt --out OUT", 2, ("-C", "CPU")),
    PublicCase("import nccl-2.19-powershell-utf16.txt --out OUT", 0, ("8 results",)),
    PublicCase("import nccl-pasted-without-signs.txt --program all_reduce_perf --out OUT", 0,
               ("8 results", "lack the #")),
    PublicCase("import nccl-fails-after-devices.txt --out OUT", 2, ("no result", "remote process exited")),
    PublicCase("import nccl-mpi-operator-launcher.txt --out OUT", 0,
               ("16 ranks on 2 nodes", "8 results", "Permanently")),
    PublicCase("import nccl-docker-json-log.txt --out OUT", 0,
               ("16 ranks on 2 nodes", "8 results", "Permanently added")),
    PublicCase("import nccl-2.19-sendrecv.txt --out OUT", 2, ("sendrecv_perf",)),
    PublicCase("import hccl-test-all-reduce.txt --out OUT", 2, ("OSU", "IMB")),
    PublicCase("import osu-7.5-xccl-allreduce.txt --nodes 1 --ranks 8 --out OUT", 0,
               ("8 ranks on 1 node", "3 results")),
    PublicCase("evidence nccl-2.28-memlock-in-container.log", 3, ("ibv_create_cq", "Cannot allocate memory")),
    PublicCase("evidence nccl-2.22-completion-status-12.log", 3, ("a call failed", "status=12")),
    PublicCase("evidence nccl-2.30-hosts-with-different-hcas.log --network rdma", 0,
               ("erdma_1:1/RoCE on nodea", "erdma_0:1/RoCE on nodeb", "erdma_1 (on nodeb)")),
    PublicCase("evidence nccl-2.21-one-host-whose-name-is-digits.log --network rdma", 0, ("1 node",), ("WRONG",)),
    PublicCase("evidence nccl-2.31-init-never-completes.log", 3, ("ranks 0-14", "0x77e1", "15 ranks")),
    PublicCase("evidence rccl-2.30-two-gpus-in-a-container.log", 3, ("RCCL 2.30.4", "1 node", "HIP failure")),
    PublicCase("evidence nccl-2.12-ofi-cxi.log --network rdma", 0, ("AWS Libfabric", "cxi", "2 nodes", "as expected")),
    PublicCase("evidence ucx-1.18-tcp.log", 2, ("NCCL", "UCC")),
    PublicCase("evidence fr-dumps.zip", 2, ("zip",)),
    PublicCase("trace nccl-2.31-init-never-completes.log", 3, ("ranks 0-14", "77e1", "node-a, node-b")),
    PublicCase("trace fr-names-with-host-and-rank.tar", 3, ("8 ranks", "rank 5 did not join all_reduce 40")),
    PublicCase("trace fr-dumps.zip", 3, ("8 ranks", "rank 5 did not join all_reduce 40")),
    PublicCase("trace fr-nccl2.tar", 3, ("rank 2 did not join reduce_scatter 12",)),
    PublicCase("trace fr-other-collective-on-one-rank.tar", 3,
               ("rank 3 called all_gather 9", "ranks 0-2 called all_red")),
    PublicCase("trace fr-all-reduce-size-differs.tar", 3, ("rank 3 called all_reduce 9 of 8196 B", "4100 B")),
    PublicCase("trace ras-2.26-two-ranks-ahead.txt", 3,
               ("ranks 0-11,14-31 did not join all_gather 641", "ranks 12-13")),
    PublicCase("trace ras-rccl-field-notes.json", 3, ("rank 6 on node1 did not join all_reduce 77",)),
    PublicCase("trace inspector-one-rank-recorded-a-part.tar", 0, ("4 ranks", "200 operations", "at most 36 ms")),
    PublicCase("trace inspector-4.3-header-once.tar", 0, ("2 ranks", "6 operations"), ("damaged",)),
    PublicCase("trace nccl-example-profiler.json", 2, ("Kineto",)),
    PublicCase("trace kineto-all-to-all-of-unequal-blocks.tar", 0,
               ("all_to_all      4           6  400 MiB   unknown",),
               ("rank 1 came", "300 ms in all")),
    PublicCase("trace kineto-2022-kernels-without-annotation.tar", 0, ("all_reduce      2           3",)),
    PublicCase("tune intel-mpi-adjust.sh --lint", 2, ("Open MPI", "UCC"), ("WRONG",)),
    PublicCase("tune ucc-in-a-script.sh --lint", 0, ("2 rules",), ("WRONG",)),
    PublicCase("tune ucc-only-inf.sh --lint", 0, ("16 rules",), ("WRONG",)),
    PublicCase("tune ucc-generated.conf --lint", 0, ("4 rules",), ("WRONG",)),
    PublicCase("tune rccl-tuner-gfx950.csv --lint", 0, ("rccl-csv", "4 rules"), ("WRONG",)),
    PublicCase("tune nccl-tuner-with-header-line.csv --lint", 3, ("nccl-csv", "collective_type", "rccl-csv")),
    PublicCase("tune ompi-rules-first-size-not-0.conf --lint", 3, ("line 6: 1024",)),
    PublicCase("tune ompi-rules-fifth-field.conf --lint", 3, ("line 6: 0", "rule-file-version-2")),
    PublicCase("tune mpich-5-allreduce.json --lint", 3, ("MPI_Init aborts",)),
    PublicCase("show goal-any-source.goal", 2, ("MSCCL++", "GOAL")),
    PublicCase("show goal-compiled.bin", 2, ("UTF-8",)),
    PublicCase("show msccl-allreduce-2.xml", 2, ("XML", "MSCCL")),
    PublicCase("show mscclpp-pipeline.json", 2, ("(pipeline)", "not read"), ("chunks",)),
    PublicCase("accept nccl-a3-mega-2-nodes.txt --cluster gcp-a3-mega", 0, ("pass: ", "337 GB/s", "2 sources")),
    PublicCase("accept nccl-h20-2-nodes.txt --cluster 8xh100-400g", 3, ("cannot tell: ", "NVIDIA H20")),
    PublicCase("accept nccl-h100-ring-1-node.txt --cluster 8xh100-400g", 3, ("fail: ", "366 GB/s", "480 to 482 GB/s")),
    PublicCase("accept nccl-h100-ring-1-node.txt --cluster 8xh100-400g --log INPUTS/nccl-h100-ring-1-node.log", 0,
               ("pass: ", "367 to 369 GB/s")),
    PublicCase("accept nccl-a100-one-nic.txt --cluster 8xa100-200g", 3, ("fail: ", "9.84 GB/s", "187 to 190 GB/s")),
    PublicCase("accept nccl-a100-one-nic.txt --cluster 8xa100-200g --log INPUTS/nccl-a100-one-nic.log", 3,
               ("fail: ", "1 of 8", "NCCL_IB_HCA")),
    PublicCase("accept osu-7.5-xccl-allreduce.txt --nodes 1 --ranks 8 --cluster 8xa100-200g", 3,
               ("cannot tell: ", "-f")),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.command)
def test_a_public_input_has_its_right_answer(case, tmp_path):
    command, name, *options = (
        case.command.replace("OUT", str(tmp_path / "out.h5")).replace("INPUTS", str(INPUTS)).split()
    )
    ended = invoke(command, *options, INPUTS / name)
    answer = ended.out + ended.err
    assert (ended.code, [word for word in case.expected if word not in answer]) == (
        case.code,
        [],
    ), answer
    assert [word for word in case.wrong if word in answer] == []


SCRIPTS = {
    "predict-one-node-small.sh": (
        0,
        ("128 B all_reduce on 1 node x 8", "without the launch and the 6.6 to 14 us"),
    ),
    "predict-8x100g.sh": (0, ("nccl_ring",)),
    "predict-own-port.sh": (2, ("--rate x0.5",)),
    "predict-step-7b-fsdp.sh": (0, ("837 ms",)),
    "slurm-node-inval.sh": (2, ("4 nodes, 2 of them down or drained",)),
    "slurm-array-task.sh": (0, ("measured: 4 nodes", "no node or link is slow")),
    "slurm-refusals.sh": (
        2,
        ("GPU32 Account", "Invalid qos specification", "Invalid account", "number of tasks"),
    ),
    "slurm-salloc.sh": (1, ("--ntasks-per-node",)),
    "slurm-node-with-blanks.sh": (0, ("{'n1': ['n1-ib']}",)),
    "sweep-home-not-writable.sh": (0, ("2 of 2 cases", "rc 0")),
    "sweep-with-snakemake-profile.sh": (0, ("2 of 2 cases", "rc 0")),
}
"""Situations as scripts: the exit code, and words of the answer."""


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_public_situation_has_its_right_answer(name):
    code, expected = SCRIPTS[name]
    ended = subprocess.run(
        ["bash", INPUTS / name],
        cwd=Path(__file__).parents[1],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    answer = ended.stdout + ended.stderr
    assert (ended.returncode, [word for word in expected if word not in answer]) == (code, []), (
        answer
    )


def test_a_notebook_reads_a_file_by_h5py_and_hpccoll_at_once(tmp_path):
    raw = tmp_path / "a.h5"
    assert invoke("import", INPUTS / "nccl-mpi-operator-launcher.txt", "--out", raw).code == 0
    command = [sys.executable, INPUTS / "notebook-h5py-and-hpccoll.py", raw]
    ended = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("rows 8") == 4
    assert "Error" not in ended.stdout


def test_frames_can_be_exported_as_people_do_it_in_notebooks(tmp_path):
    raw = tmp_path / "a.h5"
    assert invoke("import", INPUTS / "nccl-mpi-operator-launcher.txt", "--out", raw).code == 0
    command = [sys.executable, INPUTS / "notebook-exports.py", raw]
    ended = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    words = [line.split()[0] for line in ended.stdout.splitlines()]
    assert words == ["ok"] * 20, ended.stdout + ended.stderr


@pytest.mark.long
def test_a_sweep_whose_plan_has_times_in_the_future_measures_nothing_again():
    ended = subprocess.run(
        ["bash", INPUTS / "sweep-clock-ahead.sh"],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    before, after = ended.stdout.splitlines()
    assert before == after
