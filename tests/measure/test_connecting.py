"""The first operation over NCCL fails, or never ends: programs end in time, and name rank, host, warnings and log.

MPI, CuPy and nccl4py are real, and the test library is NCCL.
"""

import json
import platform
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
import raw_examples

from hpccoll.cases.case import Effort
from hpccoll.common.errors import StalledError

RANKS = Path(__file__).with_name("stalling_ranks.py")
DIAGNOSIS = Path(__file__).with_name("gpu_diagnosis_ranks.py")
pytestmark = pytest.mark.mpi

TIMEOUT = "12"
OVER_NCCL = "--device", "cuda", "-t", "nccl", "-n", "5", "--timeout", TIMEOUT
PROGRAMS = {
    "run": (),
    "run with a probe": (*OVER_NCCL, "-a", "native", "-b", "1K", "-e", "1K", "--rounds", "1"),
    "train": (
        "train",
        *OVER_NCCL,
        "-a",
        "ring",
        "--model",
        "resnet50",
        "--scale",
        "4096",
        "--compute-us",
        "2000",
    ),
}
"""The arguments of each program; of run without a probe those are a job file."""

FAULTS = {
    "never completes": ("1", "library", "1", "stall"),
    "reports an error": ("1", "library", "1", "error"),
    "lacks a rank": ("1", "prepared", "1", "stops"),
    "is the only wait": ("0", "stream", "0", "blocks"),
}
"""What happens to the first operation, as arguments of the program of the ranks; the last is no fault."""

AT_ONCE = 3
"""Launches: for the most part their ranks wait."""


@pytest.fixture(scope="module")
def launched(mpiexec, nccl_library, tmp_path_factory):
    """Every program with every fault, when it has ended, and the directory of its temporary files."""

    def launch(program, fault):
        place = tmp_path_factory.mktemp("launch")
        arguments = PROGRAMS[program]
        if not arguments:
            effort = Effort(warmup=1, min_iterations=5, max_iterations=5, timeout=float(TIMEOUT))
            cases = [
                raw_examples.case(size, transport="nccl", device="cuda") for size in (64, 1024)
            ]
            (place / "job.json").write_text(
                raw_examples.job(*cases, ranks=2, effort=effort).to_json()
            )
            arguments = "--device", "cuda", "--job", place / "job.json", "--out", place / "F.h5"
        return mpiexec(2, RANKS, nccl_library, *FAULTS[fault], *arguments, TMPDIR=str(place)), place

    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {
            (program, fault): pool.submit(launch, program, fault)
            for program in PROGRAMS
            for fault in FAULTS
        }


def named_log(text):
    """Return the path of a log that a message names."""
    return Path(re.search(rf"its log: {re.escape(platform.node())}:(\S+\.log)", text)[1])


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("fault", ["never completes", "reports an error"])
def test_a_first_operation_that_fails_is_told_with_rank_warnings_and_log(launched, program, fault):
    ended, _ = launched[program, fault].result()
    text = ended.stdout + ended.stderr
    assert ended.returncode not in (0, 2), text
    assert "Traceback" not in text
    (line,) = [line for line in ended.stderr.splitlines() if line.startswith("r1 | ")]
    assert line.startswith("r1 | connecting NCCL: ")
    assert f"at rank 1 on {platform.node()}" in line
    assert "NCCL's last warnings: a fault is injected: " in line
    assert "NCCL WARN" in named_log(line).read_text()
    assert ("NCCL reports: NCCL_ERROR_SYSTEM_ERROR" in line) == (fault == "reports an error")


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_rank_that_never_enters_the_first_operation_does_not_keep_the_others(launched, program):
    ended, _ = launched[program, "lacks a rank"].result()
    text = ended.stdout + ended.stderr
    assert ended.returncode not in (0, 2), text
    line = next(
        line for line in ended.stderr.splitlines() if line.startswith("r0 | connecting NCCL: ")
    )
    assert f"at rank 0 on {platform.node()}" in line
    assert named_log(line).exists()
    if program != "run with a probe":  # whose ranks do not agree on who is left
        assert f"rank 1 on {platform.node()} stalled: connecting NCCL" in text


@pytest.mark.parametrize("program", PROGRAMS)
def test_no_program_synchronises_a_stream_on_which_nccl_works(launched, program):
    ended, place = launched[program, "is the only wait"].result()
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert not [*place.glob("hpccoll-nccl-*")]  # no message has named a log


def test_a_diagnosis_synchronises_no_stream_on_which_nccl_works(mpiexec, nccl_library, tmp_path):
    arguments = (
        DIAGNOSIS,
        tmp_path / "out.json",
        json.dumps({"slot_s": 0.02, "blocks": True}),
        "host",
        nccl_library,
    )
    ended = mpiexec(2, *arguments, TMPDIR=str(tmp_path))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert json.loads((tmp_path / "out.json").read_text())["load"]["program"] == "NCCL"


def test_pairs_of_a_diagnosis_that_never_connect_end_it_with_warnings_and_log(
    mpiexec, nccl_library, tmp_path
):
    arguments = (
        DIAGNOSIS,
        tmp_path / "out.json",
        json.dumps({"first_limit_s": 3}),
        "host",
        nccl_library,
    )
    ended = mpiexec(2, *arguments, NCCL_TEST_FAULT="-1:1:stall", TMPDIR=str(tmp_path))
    text = ended.stdout + ended.stderr
    for rank in (0, 1):
        line = next(
            line
            for line in ended.stderr.splitlines()
            if line.startswith(f"r{rank} | connecting NCCL ")
        )
        assert "NCCL's last warnings: a fault is injected: " in line
        assert "NCCL WARN" in named_log(line).read_text()
    assert "transfers over NCCL: no pair has connected" in text


def test_a_first_operation_that_needs_no_nccl_stalls_without_a_word_of_nccl(mpiexec):  # noqa: ARG001  MPI starts
    from hpccoll.measure.run.connecting import NcclConnecting
    from hpccoll.measure.timing_loop import RankProgress

    progress = RankProgress()
    connecting = NcclConnecting(SimpleNamespace(node_id=("n1", 0)), progress, timeout=0.1)
    connecting.begin(by_nccl=False)
    with pytest.raises(StalledError, match=r"at rank 0 on n1$") as stalled:
        connecting.wait(lambda: False, lambda: None)
    assert "NCCL" not in f"{stalled.value} {progress.phase} {progress.phase_details()}"
