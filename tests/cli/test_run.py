"""``hpccoll run``: what ranks make of their command line."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from cli_runner import answers_of_a_rank, invoke, spawn
from job_from_command_line import job

from hpccoll.cases.requirements import mpi_version
from hpccoll.store.load_results import read_results


@pytest.mark.mpi
def test_a_variant_is_set_before_the_library_starts_and_what_it_cannot_vary_is_a_skipped_row(
    tmp_path, mpiexec, nccl_library
):
    ranks = Path(__file__).parents[1] / "measure" / "nccl_on_host_ranks.py"
    small = (
        "--device",
        "cuda",
        "-t",
        "nccl",
        "-a",
        "ring,native",
        "-b",
        "8",
        "-e",
        "8",
        "-n",
        "6",
        "--in-place",
    )
    result = mpiexec(
        2, ranks, nccl_library, *small, "--variant", "nccl-ring", "--out", tmp_path / "a.h5"
    )
    assert result.returncode == 0, result.stderr
    results = read_results([tmp_path / "a.h5"])
    assert results.runs[0].provenance["variables"]["NCCL_ALGO"] == "Ring"
    outcomes = {row.algorithm: (row.status, row.reason) for row in results.rows}
    why = "nccl-ring: the variant affects the library's own collectives only"
    assert outcomes == {"ring": ("skipped", why), "native": ("ok", None)}


@pytest.mark.mpi
def test_an_algorithm_of_the_mpi_library_runs_as_requested_and_one_of_another_library_is_refused(
    tmp_path, mpiexec
):
    library, other = ("openmpi", "mpich") if "Open MPI" in mpi_version() else ("mpich", "openmpi")
    small = (
        "-m",
        "hpccoll",
        "run",
        "-a",
        "native",
        "-b",
        "64",
        "-e",
        "64",
        "-n",
        "6",
        "--in-place",
        "--variant",
    )
    result = mpiexec(2, *small, f"{library}-recursive_doubling", "--out", tmp_path / "a.h5")
    assert result.returncode == 0, result.stderr
    (row,) = read_results([tmp_path / "a.h5"]).rows
    assert (row.status, row.requested, row.variant) == (
        "ok",
        "recursive_doubling",
        f"{library}-recursive_doubling",
    )
    result = mpiexec(2, *small, f"{other}-ring")
    assert result.returncode == 2
    assert f"{other}-ring: the MPI library is not" in result.stderr


SMALL = ["-a", "ring", "-b", "8", "-e", "8", "-n", "1"]


@pytest.mark.mpi
def test_a_directory_without_logs_is_said_to_be_no_evidence_and_does_not_cost_the_measurement(
    tmp_path,
):
    result = spawn("run", *SMALL, "--evidence", tmp_path)
    assert result.code == 0, result.err
    assert f"# no evidence: the probe left no line in {tmp_path} that is known\n" in result.out


BAD = {
    "SMALL --variant nccl-ring": "2 cases|nccl-ring: its settings affect cases over nccl, not over mpi",
    "SMALL -b 2 -e 2": "bytes|float32, 4 bytes",
    "SMALL --variant ucx-one-rail": "ucx-one-rail: the variant takes at least 2 nodes",
    "-a ring -b 16T -e 16T": "bytes|16 TiB|GiB are free|at most",
    "SMALL --shape 1x1+1": "launch|1 rank: 1 on|1 rank and 1 aggregator on 1",
    "--job text.json": "--job|text.json|hpccoll plan",
    "--job four.json": "launch: 1 rank on 1 node, and job run is for 4 ranks on 1",
    "SMALL --shape 2x1": "launch|1 rank: 1 on|2 ranks on 2 nodes",
    "SMALL --shape 1x1 --hosts n7": "launch|1 rank on 1 node|of n7",
    "SMALL --out text.json": "text.json",
}
"""Command lines of one rank, with SMALL for these words, and what their errors say."""


@pytest.fixture(scope="module")
def complaints(tmp_path_factory):
    here = tmp_path_factory.mktemp("bad")
    (here / "text.json").write_text("what")
    (here / "four.json").write_text(job(*SMALL, ranks=4).to_json())
    commands = {line: shlex.split(line.replace("SMALL", shlex.join(SMALL))) for line in BAD}
    answers = answers_of_a_rank("run", commands, here)
    assert (here / "text.json").read_text() == "what"
    return answers


@pytest.mark.mpi
@pytest.mark.parametrize("line", BAD)
def test_bad_input_takes_one_line_with_the_key_the_value_and_the_choices(line, complaints):
    assert complaints[line].is_bad_input(*BAD[line].split("|"))


@pytest.mark.mpi
def test_everything_is_printed_before_mpi_is_finalized():
    # nothing is flushed on exit
    program = (
        "import os, sys; from hpccoll.cli.job_program import main; os._exit(main(sys.argv[1:]))"
    )
    buffered = {**os.environ, "PYTHONUNBUFFERED": ""}
    ended = subprocess.run(
        [sys.executable, "-c", program, *SMALL],
        env=buffered,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    lines = [line for line in ended.stdout.splitlines() if not line.startswith("# busy machine: ")]
    assert "no advice follows" in lines[-1]


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("variables", "launcher"),
    [
        ({"PMI_SIZE": "4", "PMI_RANK": "0"}, "mpiexec of MPICH started 4 ranks"),
        ({"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "0"}, "Open MPI"),
        ({"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "0"}, "srun started 4 ranks"),
    ],
)
def test_a_launcher_of_another_library_is_named(variables, launcher):
    assert spawn("run", *SMALL, **variables).is_bad_input("launcher", launcher, "use the")


def test_no_mpi_library_takes_one_line_that_says_what_to_do():
    nowhere = {
        "MPI4PY_MPIABI": "openmpi",
        "MPI4PY_LIBMPI": "/nowhere/libmpi.so",
        "LD_LIBRARY_PATH": "",
    }
    assert spawn("run", *SMALL, **nowhere).is_bad_input(
        "MPI library", "pip install 'hpccoll[local]'", "MPI module"
    )


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("arguments", "code"), [(SMALL, 2), (["--frob"], 0), (["--hosts", "n1"], 0)]
)
def test_of_many_ranks_that_are_alone_only_the_first_complains(arguments, code):
    program = (
        "import sys; from hpccoll.cli import job_program, rank_program; rank_program.ROOT_FIRST_S = 0.1; "
        "sys.exit(job_program.main(sys.argv[1:]))"
    )
    alone = {**os.environ, "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "3"}
    ended = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=alone,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert (ended.returncode, ended.stderr) == (code, "")


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["-c", "broadcast", "-r", "7"], "root: 7 is not valid: a rank from 0 to 1"),
        (
            ["-c", "multi_pair", "--param", "concurrent=2"],
            "concurrent: 2 is not valid: a number of pairs from 0 ",
        ),
        (["-a", "sharp_emulated"], "sharp_emulated of all_reduce needs an aggregator for every"),
    ],
)
def test_where_nothing_fits_the_ranks_it_takes_one_line(arguments, reason):
    result = spawn("run", *SMALL[2:], *arguments, launcher=["mpiexec", "-n", "2"])
    assert result.is_bad_input("run: none of ", " can run here: ", reason)


@pytest.mark.mpi
def test_if_all_cases_are_skipped_the_run_exits_with_3_and_its_file_shows_it(tmp_path):
    huge = ["run", "-a", "ring", "-b", "16T", "-e", "16T", "-n", "1"]
    (tmp_path / "job.json").write_text(job(*huge[1:], ranks=1).to_json())
    words = "# nothing was measured; see the reason of each case"
    for _ in range(2):
        result = spawn("run", "--job", "job.json", "--out", "a.h5", cwd=tmp_path)
        assert (result.code, result.out.splitlines()[-1]) == (3, words), result.err
    assert spawn("run", "--job", "job.json", "--out", "a.h5", "--exit-zero", cwd=tmp_path).code == 0
    result = invoke("report", tmp_path / "a.h5", "--out", tmp_path / "report")
    assert (result.code, result.out.splitlines()[0]) == (
        3,
        "nothing was measured: every case is skipped",
    )
    assert invoke("status", tmp_path).code == 3


@pytest.mark.mpi
def test_rank_0_alone_ends_badly_for_a_launcher_ends_who_is_left_when_one_does(tmp_path):
    huge = job("-a", "ring", "-b", "16T", "-e", "16T", "-n", "1", ranks=2)
    (tmp_path / "job.json").write_text(huge.to_json())
    rank = '"$0" "$@" > /dev/null; code=$?; echo "$PMI_RANK $code"; exit $code'
    result = spawn(
        "run", "--job", "job.json", launcher=["mpiexec", "-n", "2", "sh", "-c", rank], cwd=tmp_path
    )
    assert result.code == 3, result.err
    assert sorted(result.out.splitlines()) == ["0 3", "1 0"]


@pytest.mark.mpi
def test_a_check_of_one_rank_says_that_it_is_alone_and_one_of_two_that_they_know_of_each_other():
    alone = spawn("run", "--check")
    assert (alone.code, alone.err) == (0, "")
    assert alone.out.startswith("# MPI works, and this rank is alone: 1 on ")
    assert "mpiexec -n 2 hpccoll run --check" in alone.out
    assert spawn("run", "--check", launcher=["mpiexec", "-n", "2"]).out.startswith(
        "# 2 ranks are connected: 2 on "
    )


HELP = """
import sys
sys.argv[1:] = ["run", "--help"]
from hpccoll.__main__ import main
try:
    main()
finally:
    print(sorted({"mpi4py", "numpy", "shtab", "pydantic"} & set(sys.modules)))
"""


def test_help_shows_examples_without_starting_mpi():
    ended = subprocess.run(
        [sys.executable, "-c", HELP], capture_output=True, text=True, check=True, timeout=240
    )
    assert "mpiexec -n 4 hpccoll run -a ring,native -b 1K -e 64M" in ended.stdout
    assert ended.stdout.endswith("[]\n")
