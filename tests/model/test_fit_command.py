"""``hpccoll fit``: of a run, as text, as JSON and as the file of a machine."""

import json

import pytest
from cli_runner import invoke
from model_observations import raw_trips
from raw_examples import case, outcome, raw

from hpccoll.cases.case import EXECUTORS
from hpccoll.model.machine_file import MachineFile, read_machine
from hpccoll.store.hdf5 import write_raw_file


@pytest.fixture
def measured(tmp_path):
    """Return the directory of a run of two ranks, with and without ping-pongs."""
    sums = (outcome(case(1 << k), executor="python") for k in range(10, 14))
    for each in (raw_trips(), raw(*sums, path="sums.h5")):
        write_raw_file(each, tmp_path / each.path.name)
    return tmp_path


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        (
            "cpus: {cores: 3, bytes_per_s: 3.0e+8}",
            "3 CPUs shared by the ranks of a node, which move 300 MB/s each",
        ),
        (
            "uplink: {oversubscription: 3}",
            "uplink.oversubscription: 3.0 is not valid: with port.bytes_per_s",
        ),
    ],
)
def test_declared_sections_are_those_of_the_machine_or_are_refused_in_one_line(
    measured, sections, said
):
    (measured / "declared.yaml").write_text(f"{sections}\n")
    result = invoke("fit", measured, "--declare", measured / "declared.yaml")
    assert (result.code, result.err.count("\n")) in ((0, 0), (2, 1))
    assert said in (result.err if result.code else result.out)


def test_the_fitted_machine_is_a_file_that_other_commands_take(measured):
    result = invoke("fit", measured, "--out", measured / "machine.json")
    assert (result.code, result.out.splitlines()[-1]) == (
        0,
        f"machine: {measured / 'machine.json'}",
    )
    machine = read_machine(measured / "machine.json", "--machine")
    (printed,) = json.loads(invoke("fit", measured, "--json").out)
    assert machine == MachineFile.model_validate(printed["machine_file"])
    assert machine.validation["cases"] > 0
    assert invoke("fit", measured / "sums.h5").is_bad_input(
        "path", "sums.h5", "send_recv", "calibrate.yaml"
    )


def test_several_machines_do_not_fit_into_one_file(tmp_path):
    for executor in EXECUTORS:
        write_raw_file(raw_trips(executor), tmp_path / f"{executor}.h5")
    out = tmp_path / "machine.json"
    assert invoke("fit", tmp_path, "--out", out).is_bad_input("--out", out, *EXECUTORS)
    assert not out.exists()
