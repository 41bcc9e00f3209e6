"""Algorithms of the MPI library, recognised by what its ranks send over TCP, with real ranks."""

import pytest

from hpccoll.extensions.tables.recognition import Recognition
from hpccoll.store.load_results import read_results

# ranks of one host, as if each had its own
OVER_TCP = {"MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "tcp,self"}


@pytest.fixture
def rows(mpiexec, tmp_path):
    """Return a function that measures a collective of the library on 4 ranks, and returns the rows by size."""

    def run(collective, *options, program=("-m", "hpccoll", "run")):
        out = tmp_path / f"{len([*tmp_path.iterdir()])}.h5"
        sizes = "-b", "64", "-e", "64K", "-f", "1024"
        words = (
            "-c",
            collective,
            "-a",
            "native",
            *sizes,
            "-n",
            2,
            "--rounds",
            2,
            "--in-place",
            "--out",
            out,
        )
        ended = mpiexec(4, *program, *words, *options, **OVER_TCP)
        assert ended.returncode == 0, ended.stderr
        return {row.bytes: row for row in read_results([out]).rows}

    return run


@pytest.mark.mpi
@pytest.mark.parametrize(
    "algorithm", ["ring", "tree", "recursive_doubling", "reduce_scatter_allgather"]
)
def test_an_algorithm_that_a_variant_forces_is_recognised_at_each_size(rows, algorithm):
    found = rows("all_reduce", "--variant", f"mpich-{algorithm}")
    assert len(found) == 2
    for row in found.values():
        assert row.executed == algorithm
        assert "each rank sends on each TCP connection" in row.evidence


@pytest.mark.mpi
def test_what_the_library_chooses_is_recognised(rows):
    for row in rows("broadcast").values():
        assert "binomial" in row.executed.split("/")  # what MPICH takes below 8 ranks


@pytest.mark.mpi
def test_what_takes_too_long_to_recognise_is_not_recognised(rows):
    program = "import sys\nfrom hpccoll.cli import job_program\nfrom hpccoll.extensions.tables import recognition\n"
    program += "recognition.RECOGNITION_S = 0\nsys.exit(job_program.main(sys.argv[1:]))"
    for row in rows("broadcast", program=("-c", program)).values():
        assert row.executed == "unknown"
        assert "takes longer than 0 s" in row.evidence


@pytest.mark.mpi
def test_ranks_that_share_memory_show_nothing(mpiexec, tmp_path):
    out = tmp_path / "F.h5"
    words = "run", "-a", "native", "-b", "64", "-e", "64", "-n", 2, "--rounds", 1, "--out", out
    assert mpiexec(2, "-m", "hpccoll", *words).returncode == 0
    assert {row.executed for row in read_results([out]).rows} == {"unknown"}


def test_the_requested_algorithm_counts_among_those_that_send_the_same_and_many_name_none():
    two = Recognition("MPICH", ("ring", "tree"), 3)
    assert [two.executed(requested) for requested in ("tree", "smp", None)] == [
        "tree",
        "ring/tree",
        "ring/tree",
    ]
    assert Recognition("MPICH", tuple("abcd"), 1).executed(None) == "unknown"
    assert Recognition("MPICH", (), 5).executed("ring") == "unknown"
    # forcing changed nothing
    assert Recognition("MPICH", ("ring", "tree"), 0).executed("ring") == "unknown"
    assert "5 algorithms" in Recognition("MPICH", (), 5).evidence
