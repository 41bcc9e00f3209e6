"""Measuring under load: a thread of each rank multiplies matrices, and rows say so."""

import re
from pathlib import Path

import pytest

from hpccoll.store.load_results import read_results

PROGRAM = Path(__file__).with_name("loaded_ranks.py")
SMALL = "-a", "ring,native", "-b", "64K", "-e", "64K", "-n", "40", "--rounds", "1", "--in-place"


@pytest.mark.mpi
@pytest.mark.parametrize("executor", ["compiled", "python"])
def test_a_thread_of_each_rank_works_while_cases_under_load_are_measured_and_rows_name_the_load(
    executor, mpiexec, tmp_path
):
    seconds = {}
    for load in ("idle", "gemm"):
        out = tmp_path / f"{load}.h5"
        ended = mpiexec(2, PROGRAM, *SMALL, "--load", load, "--executor", executor, "--out", out)
        assert ended.returncode == 0, ended.stderr
        seconds[load] = [*map(float, re.findall(r"other threads: (\S+)", ended.stderr))]
        found = {
            (row.algorithm, row.status, row.load, row.params.get("load"))
            for row in read_results([out]).rows
        }
        named = None if load == "idle" else load
        assert found == {(algorithm, "ok", named, named) for algorithm in ("ring", "native")}
    assert min(seconds["gemm"]) > 10 * max(seconds["idle"]), seconds
