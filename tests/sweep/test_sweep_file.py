"""The sweep file: its content, and the errors of an invalid one."""

import json
import re
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
import yaml
from cli_runner import invoke
from planning_inputs import last_of_each_key
from shipped_sweeps import sweep_files

from hpccoll.cases.catalogue import check_job, load_job
from hpccoll.common.errors import BadInputError
from hpccoll.sweep.paths import workflow_directory
from hpccoll.sweep.sweep_file import json_schema, load_sweep

LEAST = "algorithms: ring\nbytes: 8\nranks: 2\n"
WORKFLOWS = Path(__file__).parents[2] / "workflows"
SCHEMA = WORKFLOWS / "schemas" / "sweep.schema.json"


@pytest.fixture
def sweep_file(tmp_path):
    def write(text):
        path = tmp_path / "a.yaml"
        path.write_text(last_of_each_key(text))
        return path

    return write


def test_the_bare_word_null_is_the_algorithm(sweep_file):
    sweep = load_sweep(
        sweep_file(LEAST + "algorithms: [ring, null]\nparams: {null: {channels: 2}}")
    )
    assert (sweep.algorithms, [*sweep.params]) == (["ring", "null"], ["null"])


SCHEMA_FAULTS = {
    "frob: 1": "frob|no such key|collectives|effort",
    "2: 1": "a.yaml: 2|should be strings",
    "effort: {second: 1}": "effort.second|mean seconds?",
    "bytes: []": "bytes|[]|at least 1: sizes: a list",
}
"""Lines that an editor with the schema refuses, too, and what their errors say."""

TEN = [*range(1, 11)]
ADDED = SCHEMA_FAULTS | {
    "algorithms: [ring, file:none.json]": "a.yaml: algorithms.1: '/|/none.json' cannot be read",
    "algorithms: [ring, plan.json]": "a.yaml: algorithms.1: 'plan.json'|a plan of MSCCL++ is file:plan.json",
    "algorithms: [ring, auto]": "a.yaml: table is missing: |hpccoll tune",
    "table: nowhere.json": "table|'nowhere.json'|hpccoll tune",
    "collectives: [all_gather, all_to_all]\nalgorithms: [bruck, chain]": (
        "algorithms.1: 'chain' is not valid: choose from ring, "
        "|pairwise|(it is an algorithm of broadcast)"
    ),
    "transports: [mpi, nccl]": "transports.1: 'nccl'|needs device cuda",
    "bytes: {from: 64, to: 8}": "bytes|'to' must be at least 'from'",
    "bytes: 16T": "bytes|16 TiB|2 ranks need|at most",
    "bytes:": "a.yaml: bytes is missing: sizes",
    f"bytes: [{', '.join(map(str, range(1, 1002)))}]": "bytes|at most 1000: sizes",
    "ranks: [1000000]": "ranks.0|1000000|at most 4096",
    "ranks: [true]": "ranks.0|True|a number: YAML reads yes",
    "ops: no": "ops.0|False|one text or number; in quotes where YAML reads",
    'ops: "\\e[31m"': "ops.0|\\x1b[31m",
    "in_place: maybe": "in_place.0|'maybe'|true or false",
    "params: {ring: {channels: 0}}": "params.ring.channels|0|from 1 to 4096",
    "params: {ring: {window: [[1]]}}": "ring.window.0: [1]|a whole number",
    "devices: cuda\ntransports: nccl\ntiming: [average]": "timing.0: 'average'|choose from single, aggregated",
    "timing: [single, aggregated]": "timing: 'aggregated' is not valid: single|over nccl also aggregated",
    "effort: {min_iterations: 9, max_iterations: 3}": "effort.max_iterations: 3|at least 9",
    "seed:": "a.yaml: seed is missing: a whole number",
    f"seed: {'9' * 5000}": "seed|9999|not too large",
    "pairs: [[0, 1], [2]]": "pairs|ends, all|[[0, 1], [0, 2]]",
    "collectives: all\nalgorithms: all\nbytes: {from: 8, to: 8G}\n"
    f"params: {{ring: {{channels: {TEN}, window: {TEN}, segment: {TEN}}}}}": (
        "lists: |cases|at most 100000"
    ),
    "variants: {mine: {A: [1]}}": "variants.mine.A: [1]|one text or number",
    "variants: {a: {B=C: x}}": "variants|'B=C'|digits and _",
    f"variants: {{{'v' * 260}: {{B: x}}}}": "variants|at most 80 letters",
    "variants: {nccl-r\u0456ng: {B: x}}": "variants|(A to Z)",
    "ops: &a [*a]": "contains itself",
    "variants: {nccl-ring: {NCCL_ALGO: Tree}}": "variants.nccl-ring.NCCL_ALGO|'Tree'|Ring, the value of nccl-ring",
    "variants: {mine: {NCCL_PROTO: LL64}}": "a.yaml: variants.mine.NCCL_PROTO|'LL64'|LL, LL128, Simple",
    "variants: {nccl-symmetric: {communicator: {buffers: allocated}}}": (
        "variants.nccl-symmetric.communicator.buffers|symmetric, the value of nccl-symmetric"
    ),
    **{
        f"variants: {{mine: {{communicator: {settings}}}}}": f"variants.mine.communicator{words}"
        for settings, words in {
            "{max_cta: 4}": "|'max_cta'|did you mean max_ctas?",
            "{max_ctas: 0}": ".max_ctas|0|a whole number from 1 to",
            "{max_ctas: true}": ".max_ctas|True",
            "{cta_policy: 1}": ".cta_policy|1|default, efficiency, zero",
            "[max_ctas]": "|['max_ctas']",
        }.items()
    },
}
"""Lines that are added to LEAST, or replace its own, and what their errors say."""

WHOLE = {
    "bytes: 8\nranks: 2": "a.yaml: algorithms is missing: |hpccoll list",
    "algorithms: ring\nbytes: 8": "a.yaml: ranks: give one of|'ranks'|'nodes'",
    "algorithms: ring\nbytes: 8\nnodes: 1000\nranks_per_node: 1000": "ranks_per_node|at most 262144 ranks",
    "algorithms: ring\nbytes: 8\nnodes: 2\nranks_per_node: cores": "ranks_per_node.0|'cores'",
    f"{LEAST}diagnose: {{}}": "a.yaml: diagnose|'nodes' has no two",
    "algorithms: ring\nbytes: 8\nnodes: 1\ndiagnose: {links: false}": "a.yaml: diagnose|'nodes' has no two",
    "algorithms: ring\nbytes: 8\nnodes: 2\ndiagnose: {lniks: true}": "a.yaml: diagnose.lniks|did you mean links?",
    "algorithms: ring\nbytes: 8\nnodes: 2\ndiagnose: {racks: nowhere}": "diagnose.racks|'nowhere' cannot be read",
    "": "a.yaml: it is empty|algorithms",
    "# algorithms: ring\n": "a.yaml: it is empty, or has nothing but comments|algorithms",
    "- ring": "a.yaml: it is not YAML of keys and values: |algorithms",
    f"{LEAST}'ranks': 4": "'ranks' appears twice, on line 3 and on line 4",
    "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1]\n"
    + "".join(
        f"{chr(b + 1)}: &{chr(b + 1)} [{', '.join([f'*{chr(b)}'] * 9)}]\n" for b in range(97, 106)
    ): "more than 100000 values",
    "a: " + "[" * 10_000: "nested too deeply",
    "a: !!python/object/apply:os.system [ls]": "could not determine a constructor",
    "a: [1": "it is not YAML: line 1, column 6: while parsing a flow sequence, expected ',' or ']'",
}


@pytest.mark.parametrize(
    ("text", "words"),
    [*((LEAST + added, words) for added, words in ADDED.items()), *WHOLE.items()],
    ids=[text[:60] for text in (*ADDED, *WHOLE)],
)
def test_a_bad_sweep_file_takes_one_line_with_the_key_the_value_and_the_choices(
    text, words, sweep_file
):
    assert invoke("plan", sweep_file(text)).is_bad_input("a.yaml", *words.split("|"))


def test_every_misspelt_word_of_a_sweep_file_has_a_line_of_its_own_whatever_else_is_wrong(
    sweep_file,
):
    result = invoke(
        "plan",
        sweep_file(
            "collectives: [allreduce]\nalgorithms: [rign, ring, naitve]\nops: "
            "[summ]\ndtypes: [f32]\ntransports: [smh]\n"
            "traffic: [zip]\nbytes: [8, 9Q]\nranks: two\nparams: {ring: {chanels: 1, windw: 2}, rnig: {channels: 1}}\n"
            "variants: {nccl-rign: , nccl-tre: {}}\n"
        ),
    )
    keys = [
        line.split(": ", 2)[2].partition(" is not valid")[0] for line in result.err.splitlines()
    ]
    assert (result.code, keys) == (
        2,
        [
            "collectives.0: 'allreduce'",
            "algorithms.0: 'rign'",
            "algorithms.2: 'naitve'",
            "transports.0: 'smh'",
            "dtypes.0: 'f32'",
            "ops.0: 'summ'",
            "bytes.1: '9Q'",
            "ranks.0: 'two'",
            "traffic.0: 'zip'",
            "params.ring: 'chanels'",
            "params.ring: 'windw'",
            "params: 'rnig'",
            "variants: 'nccl-rign'",
            "variants: 'nccl-tre'",
        ],
    )
    assert "'rign' is not valid: did you mean ring? " in result.err
    assert "mean rign?" not in result.err, "a misspelt name is never recommended"


@pytest.fixture
def plan_file(tmp_path):
    path = tmp_path / "plans" / "ring.json"
    path.parent.mkdir()
    assert (
        invoke("show", "ring", "-p", 2, "-b", "1M", "--format", "mscclpp", "--out", path).code == 0
    )
    return path


def test_a_plan_is_found_from_the_sweep_file_and_named_by_file_and_digest_and_jobs_say_where_it_is(
    sweep_file, plan_file, tmp_path
):
    text = f"{LEAST}algorithms: [null, file:plans/ring.json, file:plans/../plans/ring.json]\n"
    text += "params: {file:plans/ring.json: {channels: [1, 2]}}"
    path = sweep_file(f"{text}\nranks: [2, 3]\nin_place: false")
    result = invoke("plan", path, "--json")
    plan = json.loads(result.out)
    cases = [(case["algorithm"], case["params"]) for job in plan["jobs"] for case in job["cases"]]
    name = min(cases, key=str)[0]
    assert re.fullmatch(r"file:ring\.json#[0-9a-f]{8}", name)
    assert plan["jobs"][0]["plans"] == {name: str(plan_file)}
    assert sorted(cases, key=str) == [
        (name, {"channels": 1}),
        (name, {"channels": 2}),
        ("null", {}),
        ("null", {}),
    ]
    assert {skip["reason"] for skip in plan["skips"]} == {
        f"{name} of all_reduce needs 2 workers, as its plan has"
    }
    assert invoke("plan", path, "--out", tmp_path / "out").code == 0
    plan_file.unlink()
    job = load_job(tmp_path / "out" / "jobs" / "mpi.p2.json")
    assert job.cases, "status and report need no plan"
    assert replace(job, plans={name: "/elsewhere/ring.json"}).sha256 == job.sha256
    with pytest.raises(BadInputError, match=f"plans: .*{name} is"):
        check_job(replace(job, plans={}))
    assert invoke("status", tmp_path / "out").code == 3


def test_a_plan_that_is_wrong_is_named_with_the_rank_and_the_unit(sweep_file, plan_file):
    plan = json.loads(plan_file.read_text())
    ops = plan["gpus"][1]["threadblocks"][0]["ops"]
    ops.remove(next(one for one in ops if one["name"] == "re"))
    plan_file.write_text(json.dumps(plan))
    result = invoke("plan", sweep_file(f"{LEAST}algorithms: file:plans/ring.json"))
    assert result.is_bad_input(
        "a.yaml: algorithms.file:", "ring.json: ", "rank 1, unit ", "ends without"
    )
    result = invoke("plan", sweep_file(f"{LEAST}params: {{file:plans/ring.json: {{channels: 1}}}}"))
    assert result.is_bad_input("a.yaml: params.file:", "ring.json: ", "rank 1, unit ")
    assert invoke("plan", sweep_file(f"{LEAST}algorithms: all\ncollectives: all_gather")).code == 0


@pytest.mark.parametrize("path", ["nope.yaml", "/"])
def test_a_sweep_file_that_cannot_be_read_takes_one_line(path):
    assert invoke("plan", path).is_bad_input("CONFIG: ", f"'{path}' cannot be read: ")


def test_a_variable_has_the_text_that_is_written(sweep_file):
    text = "1:30, B: 010, C: 1.10, D: 0x1F, E: 1_000, F: 1e3, G: -7, H: '8'"
    sweep = load_sweep(
        sweep_file(LEAST + f"effort: {{seconds: .5}}\nvariants: {{a: {{A: {text}}}}}")
    )
    environment = sweep.environments["a"]
    assert ", ".join(
        f"{name}: {value}" for name, value in environment.items()
    ) == "A: " + text.replace("'", "")


def test_communicator_settings_are_next_to_the_variables_of_a_variant(sweep_file):
    mine = "{NCCL_PROTO: LL, communicator: {max_ctas: 4, cta_policy: zero}}"
    text = f"{LEAST}variants: {{mine: {mine}, other: {{A: 1}}}}"
    sweep = load_sweep(sweep_file(text))
    assert sweep.communicators == {"mine": {"max_ctas": 4, "cta_policy": "zero"}, "other": {}}
    assert sweep.environments["mine"] == {"NCCL_PROTO": "LL"}
    jsonschema.validate(yaml.safe_load(text), json.loads(json_schema()))


def test_the_json_schema_is_current():
    assert SCHEMA.read_text() == json_schema(), (
        f"run: python -m hpccoll.sweep.sweep_file > {SCHEMA}"
    )


@pytest.mark.parametrize("path", sweep_files(workflow_directory()), ids=lambda path: path.name)
def test_sweep_files_that_we_ship_are_valid_to_both(path):
    load_sweep(path)
    jsonschema.validate(yaml.safe_load(path.read_text()), json.loads(json_schema()))


@pytest.mark.parametrize(
    "text", [*(LEAST + added for added in SCHEMA_FAULTS), "bytes: 8\nranks: 2"]
)
def test_an_editor_with_the_schema_refuses_what_we_refuse(text):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(yaml.safe_load(last_of_each_key(text)), json.loads(json_schema()))
