"""Files of diagnoses: what was recorded is read back, judged again to the same diagnosis, and mistaken for nothing."""

import json
import math
import shutil
import subprocess
from dataclasses import replace

import h5py
import numpy as np
import pytest
import raw_examples
import xarray
from cli_runner import invoke
from hypothesis import given, settings
from hypothesis import strategies as some
from recorded_diagnoses import LOAD, comparable, interrupted, recorded

from hpccoll.common.errors import BadInputError
from hpccoll.diagnosis.diagnosis_file import (
    COLUMNS,
    find_diagnoses,
    read_diagnosis,
    write_diagnosis,
)
from hpccoll.diagnosis.nodes_alone import DOES
from hpccoll.diagnosis.procedure import ask
from hpccoll.diagnosis.recorded import MeasuredSlots, Question, RecordedDiagnosis
from hpccoll.diagnosis.slot_records import Component, Diagnosis, Fault, Slots
from hpccoll.store import hdf5
from hpccoll.store.sealed_file import seal

SLOW = Component("node", (5,)), 25


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("diagnosis") / "F.h5"
    write_diagnosis(recorded(16, SLOW, hung=[3]), path)
    return path


names = some.text(
    some.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1, max_size=8
)
factors = some.floats(1, 100) | some.just(math.inf)
numbers = some.floats(allow_nan=True, width=32)


@some.composite
def diagnoses(draw):
    """Return any diagnosis whose numbers fit one another; that the procedure would have asked so is not needed."""
    hosts = tuple(draw(some.lists(names, min_size=2, max_size=5, unique=True)))
    nodes, rails = len(hosts), draw(some.integers(1, 2))
    racks = draw(some.none() | some.tuples(*[names] * nodes))
    question = Question(
        hosts,
        draw(some.integers(0, 2**63 - 1)),
        racks,
        rails,
        draw(some.none() | some.booleans()),
        draw(some.none() | some.floats(1e-9, 1e9)),
    )
    node = some.integers(0, nodes - 1)
    components = some.builds(
        lambda kind, where, rail: Component(kind, where if kind == "link" else where[:1], rail),
        some.sampled_from(["node", "link", "hung", "rail"]),
        some.tuples(node, node),
        some.none() | some.integers(0, rails - 1),
    )
    faults = some.builds(
        Fault,
        components,
        factors,
        factors,
        factors,
        some.floats(0, 1),
        some.booleans(),
        some.lists(some.tuples(components), max_size=2).map(tuple),
    )
    found = some.builds(
        Diagnosis,
        some.lists(faults, max_size=3).map(tuple),
        some.integers(0, 99),
        numbers,
        factors,
        some.booleans(),
        some.booleans(),
    )
    rng = np.random.default_rng(draw(some.integers(0, 99)))
    measured = []
    for _ in range(draw(some.integers(0, 3))):
        slots = draw(some.integers(1, 3))
        partners = rng.integers(nodes * rails, size=(slots, nodes * rails))
        seconds = rng.choice(
            [np.nan, np.inf, 0.5, 1e-9], (draw(some.integers(0, slots)), nodes * rails)
        )
        measured.append(
            MeasuredSlots(Slots(partners, draw(some.sampled_from(["screen", "retest"]))), seconds)
        )
    alone = draw(some.sets(some.sampled_from(sorted(DOES)), max_size=2))
    rates = {name: rng.random((draw(some.integers(1, 3)), nodes)) for name in alone}
    return RecordedDiagnosis(
        question,
        replace(LOAD, program=draw(names)),
        tuple(measured),
        draw(some.none() | found),
        rates,
        draw(names),
        draw(names),
        {"run_id": draw(names), "begun": "2026-11-26T08:00:00+00:00"},
    )


@settings(max_examples=50)
@given(diagnoses())
def test_a_written_diagnosis_is_read_back_unchanged(tmp_path_factory, diagnosis):
    path = tmp_path_factory.mktemp("any") / "F.h5"
    write_diagnosis(diagnosis, path)
    assert comparable(read_diagnosis(path)) == comparable(diagnosis)


def test_the_question_asked_again_with_the_recorded_times_has_the_same_answer(file):
    read = read_diagnosis(file)
    replayed = iter(read.measured)

    def measure(slots):
        one = next(replayed)
        assert (one.slots.purpose, one.slots.partners.tolist()) == (
            slots.purpose,
            slots.partners.tolist(),
        )
        return one.seconds

    assert ask(read.question, measure) == read.diagnosis
    assert {fault.component.kind for fault in read.diagnosis.faults} == {"node", "hung"}
    assert next(replayed, None) is None


def test_xarray_opens_a_diagnosis_with_its_dimensions_units_and_meanings(file):
    with xarray.open_dataset(file, engine="h5netcdf") as opened:
        for name, (dims, unit, meaning) in COLUMNS.items():
            about = opened[name]
            assert (about.dims, about.attrs.get("units", ""), about.attrs["long_name"]) == (
                dims,
                unit,
                meaning,
            )
        assert json.loads(str(opened["verdict_json"].values))["exclude"] == ["n3", "n5"]
        assert {each.dims for each in opened.variables.values()} >= {("slot", "endpoint")}


@pytest.mark.skipif(not shutil.which("h5dump"), reason="h5dump is not installed")
def test_h5dump_prints_a_diagnosis(file):
    printed = subprocess.run(
        ["h5dump", "-d", "/purpose", file], capture_output=True, text=True, check=True
    ).stdout
    assert '"screen"' in printed


@pytest.mark.parametrize("command", ["report", "export", "status"])
def test_commands_of_raw_files_name_the_command_that_reads_a_diagnosis(file, command):
    assert invoke(command, file).is_bad_input(file, "is a diagnosis", "hpccoll diagnose --report")
    assert invoke(command, file.parent).is_bad_input(file, "hpccoll diagnose --report")


def test_compare_names_the_command_that_reads_a_diagnosis(file):
    assert invoke("compare", file, file).is_bad_input(file, "hpccoll diagnose --report")


def test_a_diagnosis_beside_raw_files_is_a_note(file, tmp_path):
    hdf5.write_raw_file(raw_examples.raw(raw_examples.outcome()), tmp_path / "raw.h5")
    shutil.copy(file, tmp_path)
    result = invoke("export", tmp_path)
    assert (result.code, len(json.loads(result.out))) == (0, 1)
    assert "hpccoll diagnose --report" in result.err
    assert len(find_diagnoses([tmp_path])[0]) == 1


def test_a_raw_file_is_no_diagnosis(tmp_path):
    hdf5.write_raw_file(raw_examples.raw(raw_examples.outcome()), tmp_path / "F.h5")
    with pytest.raises(BadInputError, match=r"raw file, and no diagnosis; do: hpccoll report"):
        read_diagnosis(tmp_path / "F.h5")
    with pytest.raises(BadInputError, match="hpccoll diagnose --out"):
        find_diagnoses([tmp_path])


def changed(path, change):
    with h5py.File(path, "r+") as opened:
        change(opened)
    seal(path)


def skip_a_slot(opened):
    request = opened["request"][:]
    several = np.flatnonzero(np.diff(request) == 0)[0]  # of the first request with several slots
    opened["measured"][several : several + 2] = 0, 1


def change_text(opened, name, change):
    record = json.loads(opened[f"{name}_json"].asstr()[()])
    change(record)
    opened[f"{name}_json"][()] = json.dumps(record)


@pytest.mark.parametrize(
    "change",
    [
        lambda opened: opened["partner"].__setitem__((0, 0), 99),
        lambda opened: opened["question_json"].__setitem__((), "{}"),
        lambda opened: opened["purpose"].__setitem__(0, "fun"),
        lambda opened: change_text(
            opened, "diagnosis", lambda found: found["effects"][0]["component"].update(where=[99])
        ),
        lambda opened: opened.pop("seconds"),
        lambda opened: opened["request"].__setitem__(-1, 2**60),
        skip_a_slot,
        lambda opened: opened["host"].__setitem__(0, "other"),
        lambda opened: change_text(
            opened, "diagnosis", lambda found: found["faults"][0]["component"].update(where=[])
        ),
        lambda opened: change_text(opened, "provenance", lambda known: known.pop("begun")),
    ],
)
def test_a_file_that_contradicts_itself_is_refused_and_others_of_its_directory_are_read(
    file, tmp_path, change
):
    shutil.copy(file, tmp_path / "good.h5")
    bad = tmp_path / "bad.h5"
    shutil.copy(file, bad)
    changed(bad, change)
    with pytest.raises(BadInputError, match=r"bad.h5.*is not a whole diagnosis"):
        read_diagnosis(bad)
    found, damaged = find_diagnoses([tmp_path])
    assert (len(found), len(damaged)) == (1, 1)


def test_a_directory_of_damaged_diagnoses_is_refused_with_the_name_of_each(file, tmp_path):
    for name in ("monday.h5", "tuesday.h5"):
        (tmp_path / name).write_bytes(file.read_bytes()[:-99])
    result = invoke("diagnose", "--report", tmp_path)
    monday, tuesday = result.err.splitlines()
    assert (result.code, "monday.h5" in monday, "tuesday.h5" in tuesday) == (2, True, True)


def test_an_interrupted_diagnosis_keeps_what_was_measured(tmp_path):
    diagnosis = interrupted(recorded(8))
    write_diagnosis(diagnosis, tmp_path / "F.h5")
    assert comparable(read_diagnosis(tmp_path / "F.h5")) == comparable(diagnosis)


def test_a_diagnosis_that_has_ended_is_never_replaced_and_the_later_one_stands_beside_it(tmp_path):
    first, second = recorded(8, seed=1), recorded(8, seed=2)
    assert write_diagnosis(interrupted(first), tmp_path / "F.h5") == tmp_path / "F.h5"
    assert write_diagnosis(first, tmp_path / "F.h5") == tmp_path / "F.h5"
    beside = write_diagnosis(second, tmp_path / "F.h5")
    assert comparable(read_diagnosis(tmp_path / "F.h5")) == comparable(first)
    assert comparable(read_diagnosis(beside)) == comparable(second)


def test_a_copy_is_no_diagnosis_of_its_own(file, tmp_path):
    shutil.copy(file, tmp_path / "copy.h5")
    assert len(find_diagnoses([file, tmp_path])[0]) == 1


def test_a_verdict_that_fails_costs_no_measurement(tmp_path, monkeypatch):
    def fail(_):
        raise IndexError

    diagnosis = recorded(8)
    monkeypatch.setattr("hpccoll.diagnosis.diagnosis_file.verdict_of", fail)
    write_diagnosis(diagnosis, tmp_path / "F.h5")
    assert comparable(read_diagnosis(tmp_path / "F.h5")) == comparable(diagnosis)
