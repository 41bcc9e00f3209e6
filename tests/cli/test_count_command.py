"""hpccoll count: a program runs as it would alone, and what it called becomes a file, a page and a line."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from cli_runner import ENVIRONMENT, invoke
from counted_examples import CountedRankExample, write_ranks
from row_examples import make_row

from hpccoll.cli import tune_for
from hpccoll.executor import counting_library as library_module

PROGRAM = """
import os, signal, sys
from mpi4py import MPI
import numpy as np

world = MPI.COMM_WORLD
vector, total = np.ones(1000), np.zeros(1000)
for _ in range(20):
    world.Allreduce(vector, total)
half = world.Split(world.rank % 2)
half.Bcast([vector, 10, MPI.DOUBLE])
half.Free()
MPI.COMM_SELF.Bcast([vector, 3, MPI.DOUBLE])
world.Iallreduce(vector[:7], total[:7]).Wait()
print("rank", world.rank, total.sum(), flush=True)
how = sys.argv[1]
world.Barrier()
if how == "abort" and world.rank == 0:
    world.Abort(5)
if how == "kill" and world.rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
if how in ("abort", "kill"):
    world.Barrier()
sys.exit(int(how))
"""


@pytest.fixture
def counting(counting_library, monkeypatch, tmp_path):
    """Count with the library of this checkout, in a directory of its own."""
    monkeypatch.setattr(library_module, "COUNTING_LIBRARY", counting_library)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", ENVIRONMENT["PATH"])
    monkeypatch.setenv("MPIR_CVAR_ENABLE_HEAVY_YIELD", "1")
    Path("program.py").write_text(PROGRAM)


def launch_command(how):
    return ["mpiexec", "-n", "2", sys.executable, "program.py", how]


@pytest.fixture
def launcher(mpiexec):
    """Programs can be launched here."""
    return mpiexec


def calls_of(record):
    calls = {}
    for kind in record["calls"]:
        key = kind["kind"]["collective"], kind["kind"]["variant"], kind["mean_bytes"]
        calls[key] = calls.get(key, 0) + kind["calls"]
    return calls


@pytest.mark.mpi
@pytest.mark.usefixtures("counting", "launcher")
def test_a_program_of_mpi4py_is_counted_and_ends_with_its_own_code():
    result = invoke("count", "--", *launch_command("7"))
    assert result.code == 7
    assert Path("count.html").exists()
    assert len(result.err.splitlines()) == 1
    record = json.loads(invoke("count", "count.h5", "--json").out)
    assert record["exit_code"] == 7
    assert calls_of(record) == {
        ("Allreduce", "blocking", 8000): 20,
        ("Bcast", "blocking", 80): 1,
        ("Bcast", "blocking", 24): 1,
        ("Allreduce", "nonblocking", 56): 1,
        ("Barrier", "blocking", 0): 1,
    }
    creators = {group["created_by"] for group in record["groups"]}
    assert creators == {"MPI_COMM_WORLD", "MPI_Comm_split", "MPI_COMM_SELF"}
    assert not list(Path().glob(".count*"))
    assert invoke("count", "--", *launch_command("0")).code == 0
    assert Path("count-2.h5").exists()


@pytest.mark.mpi
@pytest.mark.usefixtures("counting", "launcher")
def test_a_barrier_before_each_call_tells_waiting_apart():
    assert invoke("count", "--barrier", "--out", "a.h5", "--", *launch_command("0")).code == 0
    record = json.loads(invoke("count", "a.h5", "--json").out)
    assert record["barrier"]
    assert 0 < record["waiting_share"] < record["share"] <= 1
    assert sum(calls_of(record).values()) == 24


@pytest.mark.mpi
@pytest.mark.usefixtures("counting", "launcher")
@pytest.mark.parametrize("how", ["abort", "kill"])
def test_what_was_counted_before_an_abnormal_end_is_kept_and_the_ranks_are_named(how):
    alone = subprocess.run(launch_command(how), capture_output=True, check=False)
    result = invoke("count", "--", *launch_command(how))
    assert result.code == alone.returncode != 0
    findings = json.loads(invoke("count", "count.h5", "--json").out)["findings"]
    assert {"unfinished", "missing"} & {finding["kind"] for finding in findings}


@pytest.mark.usefixtures("counting")
def test_the_signal_that_ends_a_command_ends_hpccoll_too(monkeypatch):
    ended = []
    monkeypatch.setattr(os, "kill", lambda _, number: ended.append(number))
    words = [sys.executable, "-c", "import os; os.kill(os.getpid(), 15)"]
    before = signal.getsignal(signal.SIGTERM)
    try:
        result = invoke("count", "--", *words)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (ended, result.code) == ([signal.SIGTERM], 128 + signal.SIGTERM)


@pytest.mark.usefixtures("counting")
def test_a_command_without_mpi_ends_with_its_code_and_a_line_says_that_nothing_was_counted():
    result = invoke("count", "--", sys.executable, "-c", "raise SystemExit(3)")
    assert (result.code, len(result.err.splitlines())) == (3, 1)
    assert not list(Path().glob("count*"))


def test_the_files_of_a_job_script_are_shown_and_joined(tmp_path):
    ranks = write_ranks(tmp_path / "ranks")
    shown = invoke("count", ranks, "--out", tmp_path / "a.h5")
    assert shown.code == 0
    assert "1,000" in shown.out
    from_file = invoke("count", tmp_path / "a.h5")
    assert from_file.out == shown.out
    shutil.rmtree(ranks)
    page = (tmp_path / "a.html").read_text()
    assert all(heading in page for heading in ("Calls", "Communicators", "The job"))


@pytest.mark.usefixtures("counting")
def test_the_library_is_named_for_job_scripts(counting_library):
    assert invoke("count", "--library").out == f"{counting_library}\n"


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["ranks", "--", "true"],
        ["ranks", "--barrier"],
        ["--out", "a.txt", "--", "true"],
        ["--out", "there.h5", "--", "true"],
        ["absent.h5"],
    ],
)
@pytest.mark.usefixtures("counting")
def test_what_cannot_be_counted_or_shown_is_refused_in_a_line(words):
    write_ranks(Path("ranks"))
    Path("there.h5").write_text("")
    assert invoke("count", *words).is_bad_input()


def test_little_communication_is_left_as_it_is_without_measuring(tmp_path):
    calls = ["Allreduce\tblocking\t0\tMPI_INT\tMPI_SUM\t0\t10\t40\t30000000\t0\t4\t4"]
    write_ranks(tmp_path / "ranks", calls=calls)
    invoke("count", tmp_path / "ranks", "--out", tmp_path / "a.h5")
    result = invoke("tune", "--for", tmp_path / "a.h5", "--json")
    record = json.loads(result.out)
    assert (result.code, record["worth_it"]) == (0, False)
    assert record["at_most"] == pytest.approx(0.003)


def test_a_library_without_tables_is_refused(tmp_path):
    for rank in range(4):
        CountedRankExample(rank, version="Intel(R) MPI Library 2021.11").write(tmp_path / "ranks")
    invoke("count", tmp_path / "ranks", "--out", tmp_path / "a.h5")
    assert invoke("tune", "--for", tmp_path / "a.h5").is_bad_input("Intel")
    both = "--for", tmp_path / "a.h5", "--lint", tmp_path / "a.h5"
    assert invoke("tune", *both).is_bad_input("--for")


def test_a_program_of_two_nodes_is_not_measured_on_this_machine(tmp_path):
    write_ranks(tmp_path / "ranks")
    invoke("count", tmp_path / "ranks", "--out", tmp_path / "a.h5")
    tuned = tmp_path / "tuned"
    result = invoke("tune", "--for", tmp_path / "a.h5", "--out", tuned)
    assert result.is_bad_input("2 nodes", "--profile slurm")
    assert not tuned.exists()


class PrintedTable:
    """Tables of a library, of which one is printed instead of written."""

    def write(self, _results, name, _out, **_):
        print(f"table of {name}")


@pytest.fixture
def tuned(tmp_path, monkeypatch):
    """A function that tunes for a counted program, whose sweeps end with a code and leave rows."""
    write_ranks(tmp_path / "ranks")
    invoke("count", tmp_path / "ranks", "--out", tmp_path / "a.h5")
    monkeypatch.setattr(tune_for, "tables_that_write", lambda _: PrintedTable())

    def tuned(*rows, code=0):
        def sweep(_file, out, *_):
            out.mkdir(exist_ok=True)
            tuned.swept.append(out.name)
            return code

        tuned.swept = []

        results = SimpleNamespace(rows=rows, runs=())
        monkeypatch.setattr("hpccoll.store.load_results.read_results", lambda _: results)
        monkeypatch.setattr(tune_for, "_sweep", sweep)
        words = ["--for", tmp_path / "a.h5", "--out", tmp_path / "tuned", "--profile", "slurm"]
        return invoke("tune", *words, "--json")

    return tuned


def timed(seconds, algorithm=None):
    """Return a row of the program's calls by the default, or by an algorithm of MPICH."""
    variant = f"mpich-{algorithm}" if algorithm else "default"
    ran = {"variant": variant, "requested": algorithm, "executed": algorithm or "unknown"}
    call = {"ranks": 4, "nodes": 2, "nbytes": 8, "dtype": "float64", "half_interval": 0.01}
    return make_row("native", seconds=seconds, **call, **ran)


def test_json_is_one_document_although_a_table_is_written(tuned):
    result = tuned(timed(1e-3), timed(5e-4, "ring"))
    assert json.loads(result.out)["worth_it"]
    assert "table of mpich" in result.err
    assert result.code == 0


def test_only_what_was_faster_than_the_default_is_launched_again(tuned):
    tuned(timed(1e-3), timed(5e-4, "ring"))
    first, *others = tuned.swept
    assert others == [f"{first}-launch2", f"{first}-launch3"]


def test_nothing_is_launched_again_if_the_default_is_the_fastest(tuned):
    tuned(timed(1e-3), timed(2e-3, "ring"))
    assert len(tuned.swept) == 1


def test_a_sweep_that_leaves_something_out_makes_the_tuning_incomplete(tuned):
    faster = timed(5e-4, "ring")
    slower = timed(2e-3, "ring")
    assert tuned(timed(1e-3), faster, code=3).code == 3
    assert tuned(timed(1e-3), slower, code=3).code == 3
    assert tuned(timed(1e-3), slower).code == 0


def test_the_answer_of_a_sweep_is_kept_beside_its_file_and_its_progress_is_shown(
    tmp_path, monkeypatch, capfd
):
    program = "import sys; print('the answer of a sweep'); print('half done', file=sys.stderr); sys.exit(3)"
    real_run = subprocess.run

    def run(_command, **options):
        return real_run([sys.executable, "-c", program], **options)

    monkeypatch.setattr(tune_for.subprocess, "run", run)
    file = tmp_path / "all_reduce.yaml"
    assert tune_for._sweep(file, tmp_path / "all_reduce", "local", None, {}) == 3
    shown = capfd.readouterr()
    assert "the answer" not in shown.out + shown.err
    assert "half done" in shown.err
    assert str(tmp_path / "all_reduce.txt") in shown.err
    assert "the answer of a sweep" in (tmp_path / "all_reduce.txt").read_text()


def test_no_algorithm_beside_the_default_makes_the_tuning_incomplete(tuned):
    assert tuned(timed(1e-3)).code == 3
