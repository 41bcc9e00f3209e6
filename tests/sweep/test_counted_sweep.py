"""A sweep measures exactly the calls of a counted program."""

import pytest
from counted_examples import CountedRankExample, write_ranks

from hpccoll.analysis.counted_shares import counted_shares
from hpccoll.common.errors import UnusableError
from hpccoll.sweep.counted_launch import join_rank_files
from hpccoll.sweep.counted_sweep import counted_sweeps, write_sweep
from hpccoll.sweep.sweep_file import load_sweep


def test_sizes_types_and_shapes_are_those_of_the_calls_that_take_time(tmp_path):
    calls = [
        "Allreduce\tblocking\t0\tMPI_DOUBLE\tMPI_MAX\t1\t10\t8000\t500000000\t0\t800\t800",
        "Allreduce\tblocking\t0\tMPI_DOUBLE\tMPI_SUM\t1\t10\t80\t300000000\t0\t8\t8",
        "Bcast\tblocking\t0\tMPI_CHAR\tnone\t0\t10\t8000\t400000000\t0\t800\t800",
        "Allreduce\tblocking\t0\tMPI_INT\tMPI_SUM\t0\t10\t40\t300000000\t0\t4\t4",
        "Bcast\tblocking\t0\tMPI_CHAR\tnone\t0\t10\t10\t100000000\t0\t1\t1",
        "Bcast\tnonblocking\t0\tMPI_CHAR\tnone\t0\t10\t8000\t400000000\t0\t800\t800",
        "Gather\tblocking\t0\tMPI_CHAR\tnone\t0\t10\t8000\t1000\t0\t800\t800",
    ]
    sweeps = counted_sweeps(
        counted_shares(join_rank_files(write_ranks(tmp_path / "r", calls=calls)))
    )
    assert [sweep.name for sweep in sweeps] == [
        "all_reduce-4x2-float64",
        "broadcast-4x2-float32",
        "all_reduce-4x2-int32",
    ]
    files = [write_sweep(sweep, tmp_path / "sweeps") for sweep in sweeps]
    reduction, broadcast, integers = map(load_sweep, files)
    assert (reduction.sizes(), reduction.dtypes, reduction.ops) == ([8, 800], ["float64"], ["max"])
    assert reduction.in_place == [True]
    assert (broadcast.nodes, broadcast.ranks_of_nodes, broadcast.sizes()) == ([2], [2], [4, 800])
    assert (integers.sizes(), integers.dtypes) == ([4], ["int32"])  # of a byte, too: an element
    assert {"default", "mpich-binomial"} <= set(broadcast.variants)
    assert not [name for name in broadcast.variants if name.startswith("openmpi")]


def test_another_launch_is_of_the_default_and_the_promising_variants_alone(tmp_path):
    (sweep,) = counted_sweeps(counted_shares(join_rank_files(write_ranks(tmp_path / "r"))))
    file = write_sweep(sweep.launch(2, ["mpich-ring"]), tmp_path / "sweeps")
    again = load_sweep(file)
    assert (sweep.collective, file.stem) == ("all_reduce", f"{sweep.name}-launch2")
    assert list(again.variants) == ["default", "mpich-ring"]
    assert again.sizes() == sweep.content["bytes"]


def test_on_one_node_it_needs_no_slurm(tmp_path):
    group = "0\tMPI_Comm_split\t2\t2\t0\t1\tabc\t0:2:1"
    for rank in range(4):
        CountedRankExample(rank, groups=[group], abi="Open MPI").write(tmp_path / "r")
    (sweep,) = counted_sweeps(counted_shares(join_rank_files(tmp_path / "r")))
    assert (sweep.content["ranks"], "openmpi-*" in sweep.content["variants"]) == ([2], True)


def test_calls_on_nodes_with_unequal_numbers_of_ranks_are_not_measured(tmp_path):
    group = "0\tMPI_Comm_split\t3\t3\t0\t1\tabc\t0:3:1"
    shares = counted_shares(join_rank_files(write_ranks(tmp_path, groups=[group])))
    assert (shares.kinds[0].group.size, shares.kinds[0].group.nodes) == (3, 2)
    with pytest.raises(UnusableError, match="unequal"):
        counted_sweeps(shares)


def test_a_library_without_tables_is_refused(tmp_path):
    shares = counted_shares(join_rank_files(write_ranks(tmp_path, version="Cray MPICH 8")))
    with pytest.raises(UnusableError):
        counted_sweeps(shares)
