"""The files of ranks become one job, and a command runs as it would alone."""

import signal
import sys

import pytest
from counted_examples import CountedRankExample, write_ranks

from hpccoll.common.errors import UnusableError
from hpccoll.executor import counting_library
from hpccoll.sweep import counted_launch
from hpccoll.sweep.counted_launch import join_rank_files, run_counted


def test_ranks_become_a_job_with_the_nodes_of_communicators(tmp_path):
    job = join_rank_files(write_ranks(tmp_path))
    assert [(rank.rank, rank.host) for rank in job.ranks] == [
        *((0, "n0"), (1, "n0"), (2, "n1"), (3, "n1"))
    ]
    (group,) = job.groups
    assert (group.size, group.nodes, group.created_by) == (4, 2, "MPI_COMM_WORLD")
    assert job.calls["calls"].tolist() == [1000] * 4
    assert job.calls["seconds"].tolist() == [1.0] * 4
    assert (job.missing, job.unfinished) == ([], [])


def test_parts_of_the_world_are_groups_of_their_own_and_equal_on_their_ranks(tmp_path):
    for rank in range(4):
        members = f"{rank % 2}:2:2"
        CountedRankExample(
            rank,
            groups=[f"3\tMPI_Comm_split\t2\t2\t0\t50\th{rank % 2}\t{members}"],
            calls=["Bcast\tblocking\t3\tMPI_INT\tnone\t0\t50\t20000\t5000\t0\t400\t400"],
        ).write(tmp_path)
    job = join_rank_files(tmp_path)
    assert {(group.members, group.nodes) for group in job.groups} == {("0:2:2", 2), ("1:2:2", 2)}


def test_ranks_that_wrote_nothing_or_were_ended_are_named(tmp_path):
    CountedRankExample(0, end="aborted").write(tmp_path)
    CountedRankExample(2, end="running").write(tmp_path)
    job = join_rank_files(tmp_path)
    assert [rank for _, rank in job.missing] == [1, 3]
    assert [rank.end for rank in job.unfinished] == ["aborted", "running"]
    assert job.groups[0].nodes == 0  # unknown, because a member has written nothing


def test_programs_that_a_script_launches_one_after_the_other_are_told_apart(tmp_path):
    begin = CountedRankExample().began_unix_ns
    write_ranks(tmp_path, launch="?")
    write_ranks(tmp_path, launch="?", began_unix_ns=begin + 20_000_000_000)
    job = join_rank_files(tmp_path)
    assert [launch.ranks for launch in job.launches] == [4, 4]
    assert [rank.launch for rank in job.ranks] == [0] * 4 + [1] * 4


WHOLE = CountedRankExample(3).text


@pytest.mark.parametrize(
    "damage",
    [
        "",
        "hpccoll-count\t2\n",
        "hpccoll-count\t1\nrank\t1\n",
        WHOLE.replace("pid\t1", "pid"),
        WHOLE.replace("0:4:1", "0:4"),
        WHOLE.replace("0:4:1", "0:9:1"),
        WHOLE.replace("\t1000\t8000", "\t0\t0"),
        WHOLE.replace("\t8000\t", f"\t{1 << 63}\t"),
        WHOLE.replace("\t8000\t", "\t-8000\t"),
        WHOLE.replace("size\t4", f"size\t{10**12}"),
        WHOLE.replace("began_unix_ns\t18", "began_unix_ns\t1800000000"),
    ],
)
def test_a_damaged_file_is_named_and_the_others_count(tmp_path, damage):
    write_ranks(tmp_path, ranks=3)
    assert damage != WHOLE
    (tmp_path / "3-n1-1.count").write_text(damage)
    job = join_rank_files(tmp_path)
    assert len(job.ranks) == 3
    assert [line.partition(":")[0] for line in job.damaged] == ["3-n1-1.count"]


def test_without_any_file_there_is_no_job(tmp_path):
    with pytest.raises(UnusableError):
        join_rank_files(tmp_path)


@pytest.fixture
def library(tmp_path, monkeypatch):
    """A library that is there; nothing loads it."""
    path = tmp_path / "none.so"
    monkeypatch.setattr(counted_launch, "counting_library", lambda: path)
    return path


@pytest.mark.usefixtures("library")
def test_a_command_gets_the_library_and_the_directory_and_its_exit_code_is_known(tmp_path):
    program = (
        "import os, sys; sys.exit(7 if os.environ['HPCCOLL_COUNT'] and"
        " 'HPCCOLL_COUNT_BARRIER' not in os.environ else 1)"
    )
    run = run_counted([sys.executable, "-c", program], tmp_path, barrier=False)
    assert run.exit_code == 7


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("barrier", [True, False])
def test_a_barrier_is_wanted_of_all_ranks_that_know_the_directory(tmp_path, barrier):
    program = "import os, sys; sys.exit(os.path.exists(os.path.join(os.environ['HPCCOLL_COUNT'], 'barrier')))"
    run = run_counted([sys.executable, "-c", program], tmp_path, barrier=barrier)
    assert run.exit_code == barrier


@pytest.mark.usefixtures("library")
def test_the_signal_that_ends_a_command_is_known(tmp_path):
    program = f"import os; os.kill(os.getpid(), {signal.SIGTERM})"
    run = run_counted([sys.executable, "-c", program], tmp_path, barrier=True)
    assert run.exit_code == -signal.SIGTERM


@pytest.mark.usefixtures("library")
def test_a_command_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(UnusableError):
        run_counted([str(tmp_path / "absent")], tmp_path, barrier=False)


def test_a_library_of_other_sources_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "old.so"
    path.write_bytes(b"old")
    monkeypatch.setattr(counting_library, "COUNTING_LIBRARY", path)
    with pytest.raises(UnusableError):
        counting_library.counting_library()
    path.unlink()
    with pytest.raises(UnusableError):
        counting_library.counting_library()


@pytest.mark.parametrize("name", ["a b.so", "a:b.so"])
def test_a_library_that_preloading_cannot_name_is_refused(tmp_path, monkeypatch, name):
    path = tmp_path / name
    path.write_text(counting_library.source_hash(counting_library.COUNTING_FOLDER))
    monkeypatch.setattr(counting_library, "COUNTING_LIBRARY", path)
    with pytest.raises(UnusableError, match="LD_PRELOAD"):
        counting_library.counting_library()
