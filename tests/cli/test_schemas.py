"""``hpccoll list schemas``: each JSON output and each file has a schema, which it fits, and no command is without."""

import json
from pathlib import Path

import pytest
import written_runs
from checked_json import first_fault, names_of_schemas
from cli_runner import invoke
from recorded_diagnoses import recorded

from hpccoll.cli.commands import shown_commands
from hpccoll.cli.extension_commands import subcommands
from hpccoll.cli.schemas import output_schemas
from hpccoll.common.json_schema import schema_id
from hpccoll.diagnosis.diagnosis_file import write_diagnosis
from hpccoll.diagnosis.node_health import NodeState
from hpccoll.store.rows import ROW_COLUMNS
from hpccoll.sweep import health

jsonschema = pytest.importorskip("jsonschema", reason="jsonschema validates")

INPUTS = Path(__file__).parents[1] / "inputs"
SHARED = "8xh100-400g"


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """A directory with what the commands of PRINTED and WRITTEN read."""
    tmp_path = tmp_path_factory.mktemp("schemas")
    (tmp_path / "days").mkdir()
    for number in range(4):
        written_runs.write_run(tmp_path / f"{number}.h5", seed=number + 1, noise=0.02)
    for day in (1, 2):
        begun = f"2026-11-{day:02}T08:00:00+00:00"
        write_diagnosis(recorded(8, begun=begun, seed=day), tmp_path / "days" / f"{day}.h5")
    (tmp_path / "nccl.csv").write_text("allreduce,0,65536,ring,simple,2,-1,-1,-1,-1\n")
    (tmp_path / "rules").write_text("1\n2\n1\n0\n1\n0 4 0\n")
    (tmp_path / "steps.yaml").write_text(
        f"common: {{cluster: {SHARED}, model: resnet50, nodes: 2, step: 300ms}}\n"
        "scenarios: [{name: today}, {name: faster, rate: x4}]\n"
    )
    (tmp_path / "my.yaml").write_text("algorithms: [ring, native]\nbytes: [1K]\nranks: [2]\n")
    assert invoke("tune", tmp_path / "0.h5", "--out", tmp_path / "table.json").code == 0
    return tmp_path


@pytest.fixture
def place(directory, monkeypatch):
    """The directory, in which commands run; its node is healthy."""
    monkeypatch.chdir(directory)
    monkeypatch.setattr(health, "check_node", lambda _seconds: NodeState(rates={"memory": 1e9}))
    return directory


PRINTED = {
    "rows": "export 0.h5",
    "status": "status 0.h5 --json",
    "order": "order ring -p 4 --json",
    "compare": "compare 0.h5 1.h5 --json",
    "accept": f"accept {INPUTS}/nccl-two-nodes-of-8-h100.txt --cluster {SHARED} --json",
    "ratios": f"accept {INPUTS}/nccl-two-nodes-of-8-h100.txt --cluster {SHARED} --ratios --json",
    "evidence": f"evidence {INPUTS}/nccl-plain-for-comparison.log --json",
    "diagnose": "diagnose --report days/1.h5 --json",
    "diagnose-history": "diagnose --report days --json",
    "diagnose-here": "diagnose --here --json",
    "judged-table": "tune 1.h5 --judge table.json --json",
    "machine": f"list clusters {SHARED} --json",
    "predict": "predict --cluster 8xh100-400g --nodes 2 -b 1K -e 64K --json",
    "predict-question": "predict --cluster 8xh100-400g --nodes 2 -b 1M --question best --json",
    "plan": "plan my.yaml --json",
    "list": "list --json",
    "list-reference": "list columns --json",
    "list-defects": "list defects nccl --json",
    "list-schemas": "list schemas --json",
    "predict-step": f"predict step --model resnet50 --cluster {SHARED} --nodes 2 --compute 27ms --json",
    "predict-step-formulas": "predict step --params 7e9 --gpus 8-64 --rate 400gbit --compute 1s --json",
    "predict-step-scenarios": "predict step --scenarios steps.yaml --json",
    "train-dry-run": "train --dry-run --json",
    "table-check": "tune --lint nccl.csv --json",
    "verified-table": "tune 0.h5 --verify rules --json",
}
"""A command for each schema of what is printed."""

ELSEWHERE = {"trace", "fit", "library-table", "count", "tune-for"}
"""The schemas of outputs whose inputs take more to make: ``invoke`` checks them in the tests of these commands."""

WRITTEN = {
    "choice-table": "tune 0.h5 --out {out}",
    "reference": "compare --make-reference 0.h5 1.h5 2.h5 --out {out}",
    "node-reference": "diagnose --here --make-reference {out}",
    "plan-file": "plan my.yaml --out {out}",
}
"""A command for each schema of a file that is not printed; its output is ``{out}``."""


@pytest.mark.parametrize("name", PRINTED)
@pytest.mark.usefixtures("place")
def test_what_a_command_prints_fits_its_schema(name):
    words = PRINTED[name].split()
    ended = invoke(*words)
    assert ended.out.startswith(("{", "[")), ended.err
    assert name in names_of_schemas(words)
    assert first_fault(name, json.loads(ended.out)) is None


@pytest.mark.parametrize("name", WRITTEN)
def test_a_file_that_a_command_writes_fits_its_schema(place, name):
    path = place / f"{name}.json"
    ended = invoke(*WRITTEN[name].format(out=path).split())
    assert ended.code == 0, ended.err
    if path.is_dir():
        path /= "plan.json"
    assert first_fault(name, json.loads(path.read_text())) is None


def test_each_schema_has_a_command_that_is_tried():
    assert {*PRINTED, *WRITTEN, *ELSEWHERE} == {*output_schemas()}


def test_no_command_prints_json_without_a_schema():
    names = []
    for _, name, _ in shown_commands():
        names += [name, *(f"{name} {second}" for second in subcommands(name))]
    printed = [
        part for schema in output_schemas().values() for part in schema.printed_by.split("; ")
    ]
    for name in names:
        has_json = "--json" in invoke(*name.split(), "--help").out
        has_schema = any(part.startswith(f"{name} ") and "--json" in part for part in printed)
        assert (name, has_json) == (name, has_schema)
    assert "predict step" in names


def test_schemas_are_of_the_draft_2020_12_and_their_ids_name_them_and_the_minor_version():
    whole = json.loads(invoke("list", "schemas", "--json").out)
    jsonschema.Draft202012Validator.check_schema(whole)
    for name, schema in whole["$defs"].items():
        assert schema["$id"] == schema_id(name)
        assert schema["$schema"].endswith("2020-12/schema")
        (alone,) = [json.loads(invoke("list", "schemas", name).out)]
        assert alone == schema


def test_an_unknown_schema_is_refused_in_one_line():
    assert invoke("list", "schemas", "row").is_bad_input("did you mean rows")


def test_the_schema_of_rows_has_all_columns_with_meanings_units_and_nulls():
    keys = output_schemas()["rows"].json_schema()["$defs"]["Row"]
    assert {*keys["required"]} == {*ROW_COLUMNS} == {*keys["properties"]}
    assert [name for name, key in keys["properties"].items() if "description" not in key] == []
    assert keys["properties"]["median_s"]["type"] == ["number", "null"]
    assert keys["properties"]["median_s"]["description"].endswith("in seconds")
    assert keys["properties"]["busbw_Bps"]["description"].endswith("in bytes per second")


@pytest.mark.parametrize(
    "change", [{"median_s": "1"}, {"ranks": None}, {"in_place": 1}, {"new": 1}]
)
@pytest.mark.usefixtures("place")
def test_a_row_with_another_type_or_an_undeclared_key_does_not_fit(change):
    rows = json.loads(invoke("export", "0.h5").out)
    rows[0] |= change
    assert first_fault("rows", rows)


@pytest.mark.usefixtures("place")
def test_a_row_without_a_key_does_not_fit():
    rows = json.loads(invoke("export", "0.h5").out)
    del rows[0]["busbw_Bps"]
    assert "busbw_Bps" in first_fault("rows", rows)
