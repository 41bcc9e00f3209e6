"""``hpccoll predict step``: its rows, pictures, scenarios, and bad input in one line each."""

import json

import pytest
from cli_runner import invoke
from predicted_machines import cluster, in_racks

from hpccoll.model.machine_file import write_machine

CONTRACT = {
    "gpus", "gradient_bytes", "communication_s", "exposed_s", "compute_s", "step_s", "share", "hide_rate_bps",
}  # fmt: skip
WALL = ("predict", "step", "--params", "7e9", "--gpus", "8", "--rate", "400gbit", "--compute", "3.5ms")
SCENARIOS = """
common: {{cluster: {cluster}, model: resnet50, nodes: 4, compute: 100ms}}
scenarios:
  - {{name: ring, algorithm: ring}}
  - {{name: any, nodes: 2, overlap: false}}
"""


@pytest.fixture
def paper(tmp_path):
    """Return the file of a described cluster."""
    path = tmp_path / "paper.yaml"
    write_machine(in_racks(), path)
    return path


@pytest.fixture
def model(paper):
    """Return the words of a step on it."""
    return ("predict", "step", "--model", "resnet50", "--cluster", paper, "--compute", "100ms")


@pytest.fixture
def scenarios(paper, tmp_path):
    """Return a file of two scenarios."""
    path = tmp_path / "scenarios.yaml"
    path.write_text(SCENARIOS.format(cluster=paper))
    return path


def test_the_wall_needs_no_machine():
    (row,) = json.loads(invoke(*WALL, "--json").out)
    assert row.keys() >= CONTRACT
    assert (row["gpus"], row["gradient_bytes"], row["kind"]) == (8, 14_000_000_000, "modelled")
    assert (row["communication_s"], row["step_s"], row["hide_rate_bps"]) == pytest.approx((0.49, 0.4935, 5.6e13))
    printed = invoke(*WALL).out
    assert [word for word in ("14 GB", "490 ms", "493.5 ms", "56,000 Gbit/s") if word not in printed] == []


def test_the_wall_computes_for_as_long_as_its_tokens_take():
    words = ("predict", "step", "--params", "1e9", "--rate", "400gbit", "--flops-rate", "3e14", "--tokens", "1e6")
    (row,) = json.loads(invoke(*words, "--json").out)
    assert row["compute_s"] == pytest.approx(6 * 1e9 * 1e6 / 3e14)


def test_the_wall_doubles_a_range_of_gpus():
    rows = json.loads(invoke(*WALL, "--gpus", "8-16384", "--json").out)
    assert [row["gpus"] for row in rows] == [8 << power for power in range(12)]


def test_as_json_a_step_is_an_array_of_rows(model):
    rows = json.loads(invoke(*model, "--nodes", "2-4", "--algorithm", "ring", "--json").out)
    assert [(row["nodes"], row["gpus"], row["kind"]) for row in rows] == [(2, 4, "simulated"), (4, 8, "simulated")]
    for row in rows:
        assert row.keys() >= CONTRACT | {"bubble_s", "busbw_Bps", "distance", "assumptions", "ci_low_s", "ci_high_s"}
        assert row["gradient_bytes"] == 102_228_128
        assert row["ci_low_s"] <= row["step_s"] <= row["ci_high_s"]
        assert row["algorithms"] == {"all_reduce dp": "ring"}


def test_a_step_is_a_table_with_what_would_hide_its_communication(model):
    printed = invoke(*model, "--nodes", "2,4").out
    assert [word for word in ("resnet50", "communication", "links of", "not measured") if word not in printed] == []


def test_numbers_of_nodes_that_are_left_out_of_data_are_said_on_stderr(paper):
    words = ("--model", "gpt2", "--cluster", paper, "--compute", "1s", "--parallel", "tp=2,pp=4", "--nodes", "2,4")
    result = invoke("predict", "step", *words, "--json")
    assert [row["nodes"] for row in json.loads(result.out)] == [4]
    assert (result.code, len(result.err.splitlines())) == (0, 1)


def test_a_model_of_ones_own_is_a_file(paper, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("modules:\n- {name: fc, tensors: {weight: 1000}}\n")
    words = ("--model", path, "--cluster", paper, "--compute", "1s", "--nodes", "2")
    (row,) = json.loads(invoke("predict", "step", *words, "--json").out)
    assert row["gradient_bytes"] == 4000


def test_switches_are_marked_as_assumed(tmp_path):
    path = tmp_path / "switched.yaml"
    write_machine(cluster(aggregators={"kind": "switches", "source": "assumed: ideal"}), path)
    words = (
        "--model",
        "resnet50",
        "--cluster",
        path,
        "--compute",
        "1s",
        "--nodes",
        "4",
        "--algorithm",
        "sharp_emulated",
    )
    (row,) = json.loads(invoke("predict", "step", *words, "--json").out)
    assert row["assumptions"] == ["sharp_emulated: assumed: ideal"]


@pytest.mark.parametrize("suffix", ["svg", "html", "png"])
def test_a_picture_of_each_kind(model, scenarios, suffix, tmp_path):
    words = {"wall": (*WALL, "--gpus", "8-64"), "one": WALL, "steps": (*model, "--nodes", "2,4"),
             "scenarios": ("predict", "step", "--scenarios", scenarios)}  # fmt: skip
    for name, each in words.items() if suffix == "svg" else [("one", WALL)]:
        out = tmp_path / f"{name}.{suffix}"
        result = invoke(*each, "--out", out)
        assert (result.code, result.out.splitlines()[-1]) == (0, f"picture: {out}")
        assert out.stat().st_size > 1000


def test_scenarios_are_compared(scenarios):
    rows = json.loads(invoke("predict", "step", "--scenarios", scenarios, "--json").out)
    assert [(row["scenario"], row["nodes"], row["machine"]) for row in rows] == [
        ("ring", 4, "paper"),
        ("any", 2, "paper"),
    ]
    assert rows[1]["exposed_s"] == pytest.approx(rows[1]["communication_s"])
    assert [line.split()[0] for line in invoke("predict", "step", "--scenarios", scenarios).out.splitlines()[1:3]] == [
        "ring", "any",
    ]  # fmt: skip


def test_options_before_the_word_step_are_bad_input():
    assert invoke("predict", "--nodes", "4", "step", "--model", "gpt2").is_bad_input("nodes", "after the word step")


def test_help_has_an_example_and_an_unknown_option_points_at_it():
    assert "hpccoll predict step --model" in invoke("predict", "step", "--help").out
    assert "'hpccoll predict step --help'" in invoke("predict", "step", "--frob").err


ONE = "cluster: 8xh100-400g, compute: 1s"


@pytest.mark.parametrize(
    ("scenarios", "named"),
    [
        ("", "scenarios"), ("{name: a, frob: 1}", "frob"), ("{name: a, model: gpt2, nodes: 2}", "cluster common"),
        (f"{{name: a, model: gpt9, nodes: 2, {ONE}}}", "gpt9 gpt2"),
        ("{name: a, model: gpt2, nodes: 2, cluster: nowhere, compute: 1s}", "nowhere"),
        ("{name: a, model: gpt2, nodes: 2, cluster: 8xh100-400g}", "--compute"),
        (f"{{name: a, model: gpt2, nodes: 2, bucket: 0, {ONE}}}", "bucket from 1"),
    ],
)  # fmt: skip
def test_a_bad_file_of_scenarios_is_bad_input(tmp_path, scenarios, named):
    path = tmp_path / "bad.yaml"
    path.write_text(f"scenarios: [{scenarios}]")
    assert invoke("predict", "step", "--scenarios", path).is_bad_input(*named.split())


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ("--params many", "--params number"), ("--params=", "--params number"), ("--gpus 1", "--gpus at least 2"),
        ("--rate fast", "--rate 400gbit"), ("--compute 0", "--compute 3.5ms"), ("--compute=-1s", "--compute 3.5ms"),
        ("--latency soon", "--latency 3.5ms"), ("--algorithm swing", "--algorithm in_network"),
        ("--algorithm hierarchical", "--node-rate"), ("--bytes-per-element 0", "--bytes-per-element from 1"),
        ("--flops-rate 1e12", "--compute exactly one"), ("--model gpt2", "exactly one --model"),
        ("--out a.pdf", "--out .svg"), ("--cluster 8xh100-400g", "--cluster --model only"),
    ],
)  # fmt: skip
def test_a_wall_that_cannot_be_is_refused_by_the_option(changed, named):
    assert invoke(*WALL, *changed.split()).is_bad_input(*named.split())


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ("--model gpt9", "model gpt2"), ("--parallel tp=3", "parallel tp=3"), ("--parallel tp=2", "parallel resnet50"),
        ("--buckets none", "buckets horovod"), ("--bucket 0", "--bucket from 1 to"), ("--sharding some", "zero3"),
        ("--micro-batches 0", "--micro-batches from 1 to"), ("--flops-rate 1e12", "exactly one --mfu"),
        ("--dtype float31", "--dtype float32"), ("--nodes 0", "--nodes from 1"),
        ("--machine m.json", "--machine --cluster"), ("--rate 400gbit", "--rate --params only"),
    ],
)  # fmt: skip
def test_a_step_that_cannot_be_is_refused_by_the_option(model, changed, named):
    assert invoke(*model, "--nodes", "2", *changed.split()).is_bad_input(*named.split())


@pytest.mark.parametrize(
    ("rate", "named"),
    [
        ("--mfu 0.4", "--gpu"), ("--mfu 1.4 --gpu h100", "--mfu at most 1"), ("--mfu 0.4 --gpu z80", "--gpu h100"),
        ("--flops-rate quick", "--flops-rate number"),
    ],
)  # fmt: skip
def test_a_rate_of_computation_that_cannot_be_is_refused_by_the_option(paper, rate, named):
    command = ("predict", "step", "--model", "resnet50", "--cluster", paper, "--nodes", "2")
    assert invoke(*command, *rate.split()).is_bad_input(*named.split())
