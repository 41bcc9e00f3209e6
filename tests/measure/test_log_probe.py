"""The log probe of a single launch over NCCL: what the launch prints first and last, and the evidence of its rows."""

import json
import re
import shutil
from pathlib import Path

import nccl_test_library
import pytest
from cli_runner import invoke

RANKS = Path(__file__).with_name("nccl_on_host_ranks.py")
SMALL = (
    "--device",
    "cuda",
    "-t",
    "nccl",
    "-a",
    "native,ring",
    "-b",
    "1K",
    "-e",
    "64K",
    "-f",
    "8",
    "-n",
    "5",
    "--rounds",
    "1",
)
pytestmark = pytest.mark.mpi


@pytest.fixture
def launch(mpiexec, nccl_library, tmp_path):
    """Run a launch, and return the comments that it prints and its rows."""

    def launch(*more, ranks=2, library=nccl_library, variables=()):
        (tmp_path / "tmp").mkdir(exist_ok=True)
        out = tmp_path / "a.h5"
        assignments = (f"TMPDIR={tmp_path / 'tmp'}", *variables)
        ran = mpiexec(ranks, RANKS, library, *assignments, *SMALL, "--out", out, *more)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert "NCCL INFO" not in ran.stdout + ran.stderr
        comments = [line for line in ran.stdout.splitlines() if line.startswith("#")]
        return comments, json.loads(invoke("export", out).out)

    return launch


def executed_by_algorithm(rows):
    return {(row["algorithm"], row["executed"]) for row in rows}


def test_one_launch_begins_with_what_it_found_and_ends_with_what_ran(launch, tmp_path):
    comments, rows = launch(ranks=3)
    first_case = next(
        number for number, line in enumerate(comments) if re.search(r"\[1/\d+\]$", line)
    )
    found = "\n".join(comments[:first_case])
    for line in (
        "GPUs: 3 x .*",
        "NICs: .*",
        r"NCCL: 2\.30\.0 \(\S+/libnccl\.so\.2\)",
        "network of NCCL: Socket",
        "NVLS: unknown, .*",
        "SHARP: not possible on one node.*",
    ):
        assert re.search(rf"^# {line}$", found, re.MULTILINE), line
    (executed,) = [line for line in comments if line.startswith("# executed: ")]
    assert executed == "# executed: all_reduce by NCCL: ring, SIMPLE from 1 KiB to 64 KiB"
    assert comments.index(executed) > next(
        n for n, line in enumerate(comments) if "busbw" in line and "iters" in line
    )
    assert executed_by_algorithm(rows) == {("native", "ring"), ("ring", "ring")}
    assert {row["evidence"] for row in rows if row["algorithm"] == "native"} == {
        f"AllReduce: {size} Bytes -> Algo RING proto SIMPLE channel{{Lo..Hi}}={{0..0}}"
        for size in (1024, 8192, 65536)
    }
    assert not any((tmp_path / "tmp").iterdir())  # the logs


def test_an_nccl_that_cannot_be_silenced_is_not_probed(launch, nccl_library, tmp_path):
    older = shutil.copytree(nccl_library, tmp_path / "older")
    nccl_test_library.compile_library(older, "-DWITHOUT_RESET")
    comments, rows = launch(library=older, variables=["NCCL_TEST_VERSION=22203"])
    assert executed_by_algorithm(rows) == {("native", "unknown"), ("ring", "ring")}
    for line in (
        *(line for line in comments if line.startswith(("# network, NVLS", "# executed"))),
        *(row["evidence"] for row in rows if row["algorithm"] == "native"),
    ):
        assert re.search(r"NCCL 2\.22\.3 cannot be silenced after it; do: .*--probe DIR", line)


def test_without_a_place_for_logs_or_with_a_log_of_the_user_only_the_evidence_is_missing(
    launch, tmp_path
):
    _, rows = launch(variables=["TMPDIR=/proc/nowhere"])
    assert executed_by_algorithm(rows) == {("native", "unknown"), ("ring", "ring")}
    assert {"TMPDIR" in row["evidence"] for row in rows if row["algorithm"] == "native"} == {True}
    (tmp_path / "a.h5").unlink()
    comments, rows = launch(variables=["NCCL_DEBUG=INFO", f"NCCL_DEBUG_FILE={tmp_path}/own.%p.log"])
    assert executed_by_algorithm(rows) == {("native", "unknown"), ("ring", "ring")}
    assert [
        line for line in comments if line.startswith("# executed: ") and "NCCL_DEBUG set" in line
    ]
    assert ["nRanks 2" in log.read_text() for log in tmp_path.glob("own.*.log")] == [True] * 2


def test_logs_that_cannot_be_kept_or_read_cost_the_evidence_only(tmp_path):
    from hpccoll.measure.run.log_probe import _own_logs, _result  # where there is an MPI

    unreadable = _own_logs(tmp_path / "gone", 100)
    assert "No such file" in _result(tmp_path, [{}, unreadable]).failure
    assert "No such file" in _result(tmp_path / "gone", [{}, {"a.log": b"text"}]).failure
