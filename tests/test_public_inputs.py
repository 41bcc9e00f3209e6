"""Outputs, logs, traces and tables after public reports: what a command must say about each, and its exit code.

The inputs are those of HPCCOLL_DATA/inputs/more; ``expected`` are facts that the answer must contain, such as ranks,
hosts and figures, and ``wrong`` what it must not say. Kinds of faults have tests of their own beside their modules.
"""

import os
from pathlib import Path
from typing import NamedTuple

import pytest
from cli_runner import invoke

INPUTS = Path(os.environ.get("HPCCOLL_DATA", "/nowhere")) / "inputs" / "more"
pytestmark = pytest.mark.skipif("HPCCOLL_DATA" not in os.environ, reason="HPCCOLL_DATA names no directory of inputs")


class PublicCase(NamedTuple):
    """A command on an input, which is its second word, the exit code, and words that its answer has and has not."""

    command: str
    code: int
    expected: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()


CASES = (
    PublicCase("evidence nccl-2.31-init-never-completes.log", 3, ("ranks 0-14", "0x77e1", "15 ranks")),
    PublicCase("trace nccl-2.31-init-never-completes.log", 3, ("ranks 0-14", "77e1", "node-a, node-b")),
    PublicCase(
        "trace kineto-all-to-all-of-unequal-blocks.tar",
        0,
        ("all_to_all      4           6  400 MiB   unknown",),
        ("rank 1 came", "300 ms in all"),
    ),
    PublicCase(
        "evidence nccl-2.30-hosts-with-different-hcas.log --network rdma",
        0,
        ("erdma_1:1/RoCE on nodea", "erdma_0:1/RoCE on nodeb", "erdma_1 (on nodeb)"),
    ),
    PublicCase("accept nccl-a100-one-nic.txt --cluster 8xa100-200g", 3, ("fail: ", "9.84 GB/s", "187 to 190 GB/s")),
    PublicCase(
        "accept nccl-a100-one-nic.txt --cluster 8xa100-200g --log INPUTS/nccl-a100-one-nic.log",
        3,
        ("fail: ", "1 of 8", "NCCL_IB_HCA"),
    ),
    PublicCase("trace inspector-4.3-header-once.tar", 0, ("2 ranks", "6 operations"), ("damaged",)),
    PublicCase("tune intel-mpi-adjust.sh --lint", 2, ("Open MPI", "UCC"), ("WRONG",)),
    PublicCase("tune ucc-in-a-script.sh --lint", 0, ("2 rules",), ("WRONG",)),
    PublicCase("tune ucc-only-inf.sh --lint", 0, ("16 rules",), ("WRONG",)),
    PublicCase("tune ucc-generated.conf --lint", 0, ("4 rules",), ("WRONG",)),
    PublicCase("tune rccl-tuner-gfx950.csv --lint", 0, ("rccl-csv", "4 rules"), ("WRONG",)),
    PublicCase("tune nccl-tuner-with-header-line.csv --lint", 3, ("nccl-csv", "collective_type", "rccl-csv")),
    PublicCase("tune ompi-rules-first-size-not-0.conf --lint", 3, ("line 6: 1024",)),
    PublicCase("tune ompi-rules-fifth-field.conf --lint", 3, ("line 6: 0", "rule-file-version-2")),
    PublicCase("tune mpich-5-allreduce.json --lint", 3, ("MPI_Init aborts",)),
    PublicCase("trace kineto-2022-kernels-without-annotation.tar", 0, ("all_reduce      2           3",)),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.command)
def test_a_public_input_has_its_right_answer(case, tmp_path):
    command, name, *options = case.command.replace("OUT", str(tmp_path)).replace("INPUTS", str(INPUTS)).split()
    ended = invoke(command, *options, INPUTS / name)
    answer = ended.out + ended.err
    assert (ended.code, [word for word in case.expected if word not in answer]) == (case.code, []), answer
    assert [word for word in case.wrong if word in answer] == []
