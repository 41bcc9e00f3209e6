"""The sweep file: its content, and the errors of an invalid one."""

import json
from pathlib import Path

import jsonschema
import pytest
import yaml
from cli_runner import invoke
from planning_inputs import last_of_each_key
from shipped_sweeps import sweep_files
from synthetic_timings import measured_table

from hpccoll.analysis.choice_table import TuneTable
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


def test_one_thing_does_for_a_list_of_one(sweep_file):
    one = load_sweep(sweep_file(LEAST))
    assert (one.algorithms, one.sizes(), one.ranks) == (["ring"], [8], [2])


def test_the_bare_word_null_is_the_algorithm(sweep_file):
    sweep = load_sweep(sweep_file(LEAST + "algorithms: [ring, null]\nparams: {null: {channels: 2}}"))
    assert (sweep.algorithms, [*sweep.params]) == (["ring", "null"], ["null"])


def test_a_range_of_sizes_rises_by_its_factor(sweep_file):
    swept = load_sweep(sweep_file(LEAST + "bytes: {from: 8, to: 1K, factor: 4}"))
    assert swept.sizes() == [8, 32, 128, 512]


def test_the_table_of_auto_is_read_with_the_file(sweep_file, tmp_path):
    made = measured_table({"ring": {8: 1e-6}})
    (tmp_path / "t.json").write_text(json.dumps(made.to_json()))
    found = load_sweep(sweep_file(LEAST + f"algorithms: [ring, auto]\ntable: {tmp_path / 't.json'}"))
    assert TuneTable.from_json(found.table) == made


def test_a_table_that_nothing_chooses_by_is_refused_by_its_name(sweep_file, tmp_path):
    (tmp_path / "t.json").write_text(json.dumps(measured_table({"ring": {8: 1e-6}}).to_json()))
    result = invoke("plan", sweep_file(LEAST + f"table: {tmp_path / 't.json'}"))
    assert result.is_bad_input("a.yaml: table", f"'{tmp_path / 't.json'}'", "left out")


BAD = {
    "auto without a table": (LEAST + "algorithms: [ring, auto]", ["a.yaml: table is missing: ", "hpccoll tune"]),
    "a table without auto": (LEAST + "table: nowhere.json", ["table", "'nowhere.json'", "hpccoll tune"]),
    "unknown key": (LEAST + "frob: 1", ["frob", "1", "no such key", "collectives", "effort"]),
    "unknown key of a section": (LEAST + "effort: {second: 1}", ["effort.second", "min_iterations", "mean seconds?"]),
    "a missing key": ("bytes: 8\nranks: 2", ["a.yaml: algorithms is missing: ", "hpccoll list"]),
    "unknown collective": (LEAST + "collectives: all_redus", ["collectives.0: 'all_redus'", "mean all_reduce?"]),
    "unknown algorithm": (LEAST + "algorithms: rin", ["a.yaml: algorithms.0: 'rin'", "mean ring?", "native"]),
    "an algorithm of others": (
        LEAST + "collectives: [all_gather, all_to_all]\nalgorithms: [bruck, chain]",
        ["algorithms.1: 'chain' is not valid: choose from ring, ", "pairwise", "(it is an algorithm of broadcast)"],
    ),
    "unknown transport": (LEAST + "transports: ucx", ["a.yaml: transports.0: 'ucx'", "choose from mpi, shm, tiered"]),
    "a transport of another device": (LEAST + "transports: [mpi, nccl]", ["transports.1: 'nccl'", "needs device cuda"]),
    "unknown unit": (LEAST + "bytes: [8, 9Q]", ["bytes.1", "'9Q'", "64K"]),
    "a range that falls": (LEAST + "bytes: {from: 64, to: 8}", ["bytes", "'to' must be at least 'from'"]),
    "less than an element": (LEAST + "bytes: 2", ["bytes", "2", "at least one float32, 4 bytes"]),
    "more than the memory": (LEAST + "bytes: 16T", ["bytes", "16 TiB", "2 ranks need", "at most"]),
    "no sizes": (LEAST + "bytes: []", ["bytes", "[]", "at least 1: sizes: a list"]),
    "ranks in words": (LEAST + "ranks: two", ["ranks.0", "'two'", "a whole number: numbers of ranks"]),
    "parameters of what is not measured": (LEAST + "params: {rin: {channels: 1}}", ["params: 'rin'", "ring"]),
    "unknown parameter": (LEAST + "params: {ring: {chanels: 1}}", ["params.ring: 'chanels'", "mean channels?"]),
    "no channels": (LEAST + "params: {ring: {channels: 0}}", ["parameter channels", "0", "from 1 to 4096"]),
    "a placement in words": (LEAST + "in_place: maybe", ["in_place.0", "'maybe'", "true or false"]),
    "a parameter of lists": (LEAST + "params: {ring: {window: [[1]]}}", ["ring.window.0: [1]", "a whole number"]),
    "a variable that is a list": (LEAST + "variants: {mine: {A: [1]}}", ["variants.mine.A: [1]", "one text or number"]),
    "what no case can be of": (
        LEAST.replace("ring", "native") + "dtypes: bfloat16", ["2 cases", "have no dtype bfloat16 on device cpu"],
    ),
    "unknown timing": (
        LEAST + "devices: cuda\ntransports: nccl\ntiming: [average]",
        ["timing.0: 'average' is not valid: choose from single, aggregated"],
    ),
    "a timing of what is not queued": (
        LEAST + "timing: [single, aggregated]",
        ["timing: 'aggregated' is not valid: single over mpi, where the host takes part; over nccl single, aggreg"],
    ),
    "more at least than at most": (
        LEAST + "effort: {min_iterations: 9, max_iterations: 3}", ["effort", "'max_iterations' must be at least"],
    ),
    "neither ranks nor nodes": ("algorithms: ring\nbytes: 8", ["a.yaml: ranks is missing", "'ranks'", "'nodes'"]),
    "nothing behind a key": (LEAST + "seed:", ["a.yaml: seed is missing: a whole number"]),
    "no sizes behind the key": ("algorithms: ring\nbytes:\nranks: 2", ["a.yaml: bytes is missing: sizes"]),
    "pairs that there are not": (LEAST + "pairs: [[0, 1], [2]]", ["pairs", "ends, all", "[[0, 1], [0, 2]]"]),
    "traffic that there is not": (
        LEAST + "collectives: all_to_all_v\nalgorithms: native\ntraffic: hot", ["traffic", "'hot'", "zipf", "*.csv"],
    ),
    "a collective without its algorithms": (
        LEAST + "collectives: [all_reduce, broadcast]", ["algorithms", "broadcast", "binomial", "chain"],
    ),
    "nothing": ("", ["a.yaml: it is no YAML of keys and values: ", "algorithms"]),
    "a number that is a truth": (LEAST + "ranks: [true]", ["ranks.0", "True", "a number: YAML reads yes"]),
    "a word of no": (LEAST + "ops: no", ["ops.0", "False", "one text or number; in quotes where YAML reads"]),
    "too many ranks": (LEAST + "ranks: [1000000]", ["ranks.0", "1000000", "at most 4096"]),
    "more ranks than nodes can have": (
        "algorithms: ring\nbytes: 8\nnodes: 1000\nranks_per_node: 1000",
        ["ranks_per_node", "at most 262144 ranks"],
    ),
    "too large a size": (LEAST + "bytes: 17T", ["bytes.0", "'17T'", "at most 16 TiB"]),
    "too many sizes": (LEAST + f"bytes: [{', '.join(map(str, range(1, 1002)))}]", ["bytes", "at most 1000: sizes"]),
    "too long": (LEAST + "effort: {seconds: 1e308}", ["effort.seconds", "'1e308'", "at most 604800: wall time"]),
    "a seed of 5000 digits": (LEAST + f"seed: {'9' * 5000}", ["seed", "9999", "not too large"]),
    "more cases than a sweep has": (
        LEAST + "algorithms: all\ncollectives: all\nparams: {ring: {channels: [" + "1, 2, 3, 4, 5, 6, 7, 8, 9, 10"
        + "], window: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10], segment: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]}}\n"
        "bytes: {from: 8, to: 8G}", ["lists: ", "cases", "at most 100000"],
    ),
    "all pairs of many": (
        LEAST + "collectives: send_recv\nalgorithms: all\npairs: all\nranks: 4096", ["lists: ", "at most"],
    ),
    "a NUL in a variable": (LEAST + 'variants: {a: {B: "x\\0y"}}', ["variants.a.B", "'x\\x00y'", "printable"]),
    "an = in the name of a variable": (LEAST + "variants: {a: {B=C: x}}", ["variants", "'B=C'", "digits and _"]),
    "a long name of a variant": (LEAST + f"variants: {{{'v' * 260}: {{B: x}}}}", ["variants", "at most 80 letters"]),
    "a variant that looks like another": (LEAST + "variants: {nccl-r\u0456ng: {B: x}}", ["variants", "(A to Z)"]),
    "an escape sequence": (LEAST + 'ops: "\\e[31m"', ["ops.0", "\\x1b[31m"]),
    "a key that is there twice": ("algorithms: ring\nbytes: 8\nranks: 2\n'ranks': 4", [
        "'ranks' appears twice, on line 3 and on line 4",
    ]),
    "a value of values of values": (
        "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1]\n"
        + "".join(f"{chr(b + 1)}: &{chr(b + 1)} [{', '.join([f'*{chr(b)}'] * 9)}]\n" for b in range(97, 106)),
        ["more than 100000 values"],
    ),
    "a value that is inside itself": (LEAST + "ops: &a [*a]", ["contains itself"]),
    "lists in lists": ("a: " + "[" * 10_000, ["nested too deeply"]),
    "an object of Python": ("a: !!python/object/apply:os.system [ls]", ["could not determine a constructor"]),
    "no YAML": ("a: [1", ["it is no YAML: line 1, column 6: while parsing a flow sequence, expected ',' or ']'"]),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_bad_sweep_file_takes_one_line_with_the_key_the_value_and_the_choices(name, sweep_file):
    text, words = BAD[name]
    assert invoke("plan", sweep_file(text)).is_bad_input("a.yaml", *words)


def test_every_misspelt_word_of_a_sweep_file_has_a_line_of_its_own_whatever_else_is_wrong(sweep_file):
    result = invoke("plan", sweep_file(
        "collectives: [allreduce]\nalgorithms: [rign, ring, naitve]\nops: [summ]\ndtypes: [f32]\ntransports: [smh]\n"
        "traffic: [zip]\nbytes: [8, 9Q]\nranks: two\nparams: {ring: {chanels: 1, windw: 2}, rnig: {channels: 1}}\n"
        "variants: {nccl-rign: , nccl-tre: {}}\n"
    ))  # fmt: skip
    keys = [line.split(": ", 2)[2].partition(" is not valid")[0] for line in result.err.splitlines()]
    assert (result.code, keys) == (2, [
        "collectives.0: 'allreduce'", "algorithms.0: 'rign'", "algorithms.2: 'naitve'", "transports.0: 'smh'",
        "dtypes.0: 'f32'", "ops.0: 'summ'", "bytes.1: '9Q'", "ranks.0: 'two'", "traffic.0: 'zip'",
        "params.ring: 'chanels'", "params.ring: 'windw'", "params: 'rnig'", "variants: 'nccl-rign'",
        "variants: 'nccl-tre'",
    ])  # fmt: skip
    assert "'rign' is not valid: did you mean ring? " in result.err
    assert "mean rign?" not in result.err, "a misspelt name is never recommended"


def test_a_sweep_file_that_is_no_text_takes_one_line(tmp_path):
    (tmp_path / "a.yaml").write_bytes(b"a: \xff\xfe")
    assert invoke("plan", tmp_path / "a.yaml").is_bad_input("a.yaml", "not text in UTF-8")


@pytest.mark.parametrize("path", ["nope.yaml", "/"])
def test_a_sweep_file_that_cannot_be_read_takes_one_line(path):
    assert invoke("plan", path).is_bad_input("CONFIG: ", f"'{path}' cannot be read: ")
    assert invoke("sweep", path, "--out", "/proc/nowhere").is_bad_input("CONFIG", path)


def test_a_known_variant_brings_its_variables_and_those_behind_it_are_added_or_of_the_site(sweep_file):
    text = (
        LEAST + "variants: {nccl-ring: , nccl-gdr: {NCCL_PROTO: LL}, nccl-one-rail: {NCCL_IB_HCA: mlx5_7}, plain: {}}"
    )
    assert load_sweep(sweep_file(text)).environments == {
        "nccl-ring": {"NCCL_ALGO": "Ring"},
        "nccl-gdr": {"NCCL_NET_GDR_LEVEL": "SYS", "NCCL_PROTO": "LL"},
        "nccl-one-rail": {"NCCL_IB_HCA": "mlx5_7"},
        "plain": {},
    }
    jsonschema.validate(yaml.safe_load(text), json.loads(json_schema()))


def test_a_variable_has_the_text_that_is_written(sweep_file):
    text = "1:30, B: 010, C: 1.10, D: 0x1F, E: 1_000, F: 1e3, G: -7, H: '8'"
    sweep = load_sweep(sweep_file(LEAST + f"effort: {{seconds: .5}}\nvariants: {{a: {{A: {text}}}}}"))
    environment = sweep.environments["a"]
    assert ", ".join(f"{name}: {value}" for name, value in environment.items()) == "A: " + text.replace("'", "")


def test_communicator_settings_are_next_to_the_variables_of_a_variant(sweep_file):
    text = (
        LEAST + "variants: {nccl-symmetric: , nccl-traffic-class-comm: {communicator: {traffic_class: 3}}, "
        "mine: {NCCL_PROTO: LL, communicator: {max_ctas: 4, net_name: IB, cta_policy: zero}}, other: {A: 1}}"
    )
    sweep = load_sweep(sweep_file(text))
    assert {name: variant.communicator for name, variant in sweep.variants.items()} == {
        "nccl-symmetric": {"buffers": "symmetric"},
        "nccl-traffic-class-comm": {"traffic_class": 3},
        "mine": {"max_ctas": 4, "net_name": "IB", "cta_policy": "zero"},
        "other": {},
    }
    assert sweep.environments["mine"] == {"NCCL_PROTO": "LL"}
    jsonschema.validate(yaml.safe_load(text), json.loads(json_schema()))


@pytest.mark.parametrize(
    ("communicator", "words"),
    [
        ("{max_cta: 4}", ["variants.mine.communicator", "'max_cta'", "did you mean max_ctas?"]),
        ("{max_ctas: many}", ["variants.mine.communicator.max_ctas", "'many'", "a whole number from 1 up"]),
        ("{max_ctas: 0}", ["variants.mine.communicator.max_ctas", "0", "a whole number from 1 up"]),
        ("{collnet_enable: 2}", ["variants.mine.communicator.collnet_enable", "2", "a whole number from 0 to 1"]),
        ("{max_ctas: true}", ["variants.mine.communicator.max_ctas", "True"]),
        ("{cta_policy: 1}", ["variants.mine.communicator.cta_policy", "1", "default, efficiency, zero"]),
        ("{buffers: window}", ["variants.mine.communicator.buffers", "'window'", "allocated, registered, symmetric"]),
        ("{net_name: ''}", ["variants.mine.communicator.net_name", "a text"]),
        ("[max_ctas]", ["variants.mine.communicator", "['max_ctas']"]),
    ],
)
def test_a_setting_unknown_to_nccl_is_named(sweep_file, communicator, words):
    result = invoke("plan", sweep_file(LEAST + f"variants: {{mine: {{communicator: {communicator}}}}}"))
    assert result.is_bad_input(*words)


def test_a_setting_of_a_known_variant_stays_what_it_is(sweep_file):
    result = invoke("plan", sweep_file(LEAST + "variants: {nccl-symmetric: {communicator: {buffers: allocated}}}"))
    assert result.is_bad_input("variants.nccl-symmetric.communicator.buffers", "symmetric, the value of nccl-symmetric")


def test_a_misspelt_variant_that_sets_nothing_is_refused_and_one_of_its_own_is_not(sweep_file):
    result = invoke("plan", sweep_file(LEAST + "variants: {plain: {}, nccl-rnig: {}}"))
    assert result.is_bad_input("a.yaml: variants: 'nccl-rnig' is not valid: did you mean nccl-ring?")
    own = "nccl: {}, nccl-default: {}, sharp: {}, nccl-rnig: {A: b}, nccl-symetric: {communicator: {max_ctas: 4}}"
    assert len(load_sweep(sweep_file(LEAST + f"variants: {{{own}}}")).variants) == 5


def test_a_variant_that_would_be_another_or_is_misspelt_is_refused_where_it_stands(sweep_file):
    result = invoke("plan", sweep_file(LEAST + "variants: {nccl-ring: {NCCL_ALGO: Tree}}"))
    assert result.is_bad_input("a.yaml: variants.nccl-ring.NCCL_ALGO", "'Tree'", "Ring, the value of nccl-ring")
    result = invoke("plan", sweep_file(LEAST + "variants: {mine: {NCCL_PROTO: LL64}}"))
    assert result.is_bad_input("a.yaml: variants.mine.NCCL_PROTO", "'LL64'", "LL, LL128, Simple")


def test_the_json_schema_is_current():
    assert SCHEMA.read_text() == json_schema(), f"run: python -m hpccoll.sweep.sweep_file > {SCHEMA}"


@pytest.mark.parametrize("path", sweep_files(workflow_directory()), ids=lambda path: path.name)
def test_sweep_files_that_we_ship_are_valid_to_both(path):
    load_sweep(path)
    jsonschema.validate(yaml.safe_load(path.read_text()), json.loads(json_schema()))


@pytest.mark.parametrize("name", ["unknown key", "unknown key of a section", "a missing key", "no sizes"])
def test_an_editor_with_the_schema_refuses_what_we_refuse(name):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(yaml.safe_load(BAD[name][0]), json.loads(json_schema()))
