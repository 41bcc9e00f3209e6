"""``hpccoll model``: of a real run, as text, as JSON and as the file of a machine."""

import json

import pytest
from cli_runner import invoke
from model_observations import raw_trips
from raw_examples import outcome, raw

from hpccoll.cases.case import EXECUTORS
from hpccoll.model.machine_file import MachineFile, read_machine
from hpccoll.store.hdf5 import write_raw_file

RUNS = {
    "trips": ["-c", "send_recv", "-a", "ping_pong"],
    "sums": ["-c", "all_reduce", "-a", "ring,recursive_doubling,double_binary_tree,native"],
    "halves": ["-c", "reduce_scatter", "-a", "ring"],
    "gathers": ["-c", "all_gather", "-a", "ring"],
    "shared": ["-c", "all_reduce", "-a", "ring", "-t", "shm"],
}


@pytest.fixture(scope="module")
def measured(mpiexec, tmp_path_factory):
    """Small files of two ranks in one directory, one of them of a transport that has no ping-pong there."""
    directory = tmp_path_factory.mktemp("model")
    for name, words in RUNS.items():
        sizes = "-b", "64K", "-e", "1M", "-f", "4", "-n", "3", "-w", "1"
        ran = mpiexec(2, "-m", "hpccoll", "run", *words, *sizes, "--out", directory / f"{name}.h5")
        assert ran.returncode == 0, ran.stderr
    return directory


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ("cpus: {cores: 3, bytes_per_s: 3.0e+8}", "3 CPUs shared by the ranks of a node, which move 300 MB/s each"),
        ("uplink: {oversubscription: 3}", "uplink.oversubscription: 3.0 is not valid: with port.bytes_per_s"),
        ("port: {bytes_per_s: 3}", "no such key, choose from layout, uplink, memory, cpus, aggregators"),
    ],
)
def test_declared_sections_are_those_of_the_machine_or_are_refused_in_one_line(measured, tmp_path, sections, said):
    (tmp_path / "declared.yaml").write_text(f"{sections}\n")
    result = invoke("model", measured, "--declare", tmp_path / "declared.yaml")
    assert (result.code, result.err.count("\n")) in ((0, 0), (2, 1))
    assert said in (result.err if result.code else result.out)


@pytest.mark.mpi
def test_the_fitted_machine_is_a_file_that_other_commands_take(measured, tmp_path):
    result = invoke("model", measured, "--out", tmp_path / "machine.json")
    assert (result.code, result.out.splitlines()[-1]) == (0, f"machine: {tmp_path / 'machine.json'}")
    machine = read_machine(tmp_path / "machine.json", "--machine")
    (printed, _) = json.loads(invoke("model", measured, "--json").out)
    assert machine == MachineFile.model_validate(printed["machine_file"])
    assert machine.validation["cases"] > 0


def test_a_run_without_ping_pongs_cannot_be_fitted(tmp_path):
    write_raw_file(raw(outcome()), tmp_path / "sums.h5")
    assert invoke("model", tmp_path).is_bad_input("path", "sums.h5", "send_recv", "calibrate.yaml")


def test_several_machines_do_not_fit_into_one_file(tmp_path):
    for executor in EXECUTORS:
        write_raw_file(raw_trips(executor), tmp_path / f"{executor}.h5")
    out = tmp_path / "machine.json"
    assert invoke("model", tmp_path, "--out", out).is_bad_input("--out", out, *EXECUTORS)
    assert not out.exists()
    assert invoke("model", tmp_path / "python.h5", "--out", out).code == 0
    assert read_machine(out, "--machine").measured.executor == "python"
