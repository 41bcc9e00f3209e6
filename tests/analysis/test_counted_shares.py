"""What collectives take of a counted job."""

import pytest
from counted_examples import CountedRankExample, write_ranks

from hpccoll.analysis.counted_shares import counted_shares
from hpccoll.sweep.counted_launch import join_rank_files


def kinds_of(shares):
    return {finding.kind for finding in shares.findings}


def test_a_share_is_the_time_of_all_ranks_in_calls_over_the_time_that_they_ran(tmp_path):
    shares = counted_shares(join_rank_files(write_ranks(tmp_path)))
    assert shares.share == pytest.approx(0.1)
    (kind,) = shares.kinds
    assert (kind.calls, kind.all_calls, kind.mean_bytes) == (1000, 4000, 8)
    assert (kind.call_s, kind.seconds) == pytest.approx((1e-3, 1.0))
    # 1,000 calls of 100 ns, and 1 ms of writing, in 10 s
    assert shares.overhead == pytest.approx(1.1e-4)
    assert kinds_of(shares) == {"share", "largest", "overhead", "waiting"}


def test_a_barrier_tells_waiting_from_transfer(tmp_path):
    calls = [
        "Allreduce\tblocking\t0\tMPI_INT\tMPI_SUM\t0\t10\t40\t1000000000\t3000000000\t4\t4",
    ]
    shares = counted_shares(join_rank_files(write_ranks(tmp_path, barrier=1, calls=calls)))
    assert (shares.share, shares.waiting_share) == pytest.approx((0.4, 0.3))
    assert "waiting" not in kinds_of(shares)


def test_communicators_of_one_shape_are_one_kind(tmp_path):
    for rank in range(4):
        CountedRankExample(
            rank,
            groups=[f"0\tMPI_Comm_split\t2\t2\t0\t1\th{rank % 2}\t{rank % 2}:2:2"],
            calls=["Bcast\tblocking\t0\tMPI_INT\tnone\t0\t5\t20\t5000\t0\t4\t4"],
        ).write(tmp_path)
    (kind,) = counted_shares(join_rank_files(tmp_path)).kinds
    assert (kind.calls, kind.all_calls) == (5, 20)


def test_what_is_missing_or_left_out_is_said(tmp_path):
    CountedRankExample(0, end="running", left_out=7).write(tmp_path)
    (tmp_path / "1-n0-9.count").write_text("")
    kinds = kinds_of(counted_shares(join_rank_files(tmp_path)))
    assert {"missing", "unfinished", "left out", "damaged"} <= kinds


def test_communicators_beyond_the_table_of_a_rank_are_said_to_be_together(tmp_path):
    groups = ["1023\tothers\t0\t0\t0\t9\t0\t?"]
    calls = ["Bcast\tblocking\t1023\tMPI_INT\tnone\t0\t5\t20\t5000\t0\t4\t4"]
    shares = counted_shares(join_rank_files(write_ranks(tmp_path, groups=groups, calls=calls)))
    assert "others" in kinds_of(shares)


def test_a_program_without_collectives_has_a_share_of_nothing(tmp_path):
    shares = counted_shares(join_rank_files(write_ranks(tmp_path, calls=[])))
    assert (shares.share, list(shares.kinds)) == (0, [])


def test_overhead_above_a_hundredth_is_a_warning(tmp_path):
    calls = ["Barrier\tblocking\t0\tnone\tnone\t0\t1100000\t0\t9000000000\t0\t0\t0"]
    shares = counted_shares(join_rank_files(write_ranks(tmp_path, calls=calls)))
    (overhead,) = [finding for finding in shares.findings if finding.kind == "overhead"]
    assert overhead.severity == "warning"
