"""A rank that begins its computations later than others is named by the rows of a training step, on real ranks."""

from pathlib import Path

import pytest

from hpccoll.store.load_results import read_results

PROGRAM = Path(__file__).with_name("late_ranks.py")
LAG_US = 200_000
SLOW_US = 400_000
"""How late a rank comes, and how long a slow rank's partner computes: other programs on the same
cores delay both ranks by tens of milliseconds."""
STEP = "--scale", "4096", "-a", "ring,native,null", "-n", "6", "-w", "1", "--rounds", "1"


@pytest.mark.mpi
@pytest.mark.parametrize("overlap", [0, 1])
def test_a_rank_that_computes_later_is_last_in_each_step_and_late_by_as_much(
    overlap, mpiexec, tmp_path
):
    out = tmp_path / "late.h5"
    ended = mpiexec(2, PROGRAM, 1, LAG_US, *STEP, "--overlap", overlap, "--out", out)
    assert ended.returncode == 0, ended.stderr
    assert "rank 1 is late" in ended.stdout
    rows = {row.algorithm: row for row in read_results([out]).rows}
    assert rows.pop("null").late_rank is None
    for row in rows.values():
        assert row.last_rank == row.late_rank == 1
        assert 0.5 < row.last_s / (LAG_US * 1e-6) < 2
        assert row.waiting_s > 0.5 * LAG_US * 1e-6


@pytest.mark.mpi
def test_a_rank_that_computes_slowly_all_the_time_is_late_by_all_of_it(mpiexec, tmp_path):
    out, step = tmp_path / "slow.h5", (*STEP, "--compute-us", SLOW_US, "--overlap", 1)
    ended = mpiexec(2, PROGRAM, 1, "x1.5", *step, "--out", out)
    assert ended.returncode == 0, ended.stderr
    for row in read_results([out]).rows:
        if row.algorithm != "null":
            assert row.last_rank == row.late_rank == 1
            assert 0.5 < row.last_s / (SLOW_US / 2 * 1e-6) < 2
