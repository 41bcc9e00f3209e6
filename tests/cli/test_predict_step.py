"""``hpccoll predict step``: its rows, pictures, scenarios, and bad input in one line each."""

import json

import pytest
from cli_runner import invoke
from predicted_machines import in_racks

from hpccoll.model.machine_file import write_machine

CONTRACT = {
    "gpus", "gradient_bytes", "communication_s", "exposed_s", "compute_s", "step_s", "share", "hide_rate_bps",
}  # fmt: skip
STEP = ("predict", "step")
WALL = (*STEP, "--params", "7e9", "--gpus", "8", "--rate", "400gbit", "--compute", "3.5ms")
SCENARIOS = """
common: {{cluster: {cluster}, model: resnet50, nodes: 4, compute: 100ms}}
scenarios:
  - {{name: ring, algorithm: ring}}
  - {{name: any, nodes: 2, overlap: false}}
"""


def rows_of(*words):
    return json.loads(invoke(*words, "--json").out)


@pytest.fixture
def paper(tmp_path):
    """Return the file of a described cluster."""
    path = tmp_path / "paper.yaml"
    write_machine(in_racks(), path)
    return path


@pytest.fixture
def model(paper):
    """Return the words of a step on it."""
    return (*STEP, "--model", "resnet50", "--cluster", paper, "--compute", "100ms")


@pytest.fixture
def scenarios(paper, tmp_path):
    """Return the words of two scenarios."""
    path = tmp_path / "scenarios.yaml"
    path.write_text(SCENARIOS.format(cluster=paper))
    return (*STEP, "--scenarios", path)


def test_the_wall_needs_no_machine():
    (row,) = rows_of(*WALL)
    assert row.keys() >= CONTRACT
    assert (row["gpus"], row["gradient_bytes"], row["kind"]) == (8, 14_000_000_000, "modelled")
    assert (row["communication_s"], row["step_s"], row["hide_rate_bps"]) == pytest.approx((0.49, 0.4935, 5.6e13))


def test_the_wall_computes_for_as_long_as_its_tokens_take():
    (row,) = rows_of(*STEP, *["--params", "1e9", "--rate", "400gbit", "--flops-rate", "3e14", "--tokens", "1e6"])
    assert row["compute_s"] == pytest.approx(6 * 1e9 * 1e6 / 3e14)


def test_as_json_a_step_is_an_array_of_rows_and_left_out_nodes_are_on_stderr(model):
    rows = rows_of(*model, "--nodes", "2-4", "--algorithm", "ring")
    assert [(row["nodes"], row["gpus"], row["kind"]) for row in rows] == [(2, 4, "simulated"), (4, 8, "simulated")]
    for row in rows:
        assert row.keys() >= CONTRACT | {"bubble_s", "busbw_Bps", "distance", "assumptions", "ci_low_s", "ci_high_s"}
        assert row["gradient_bytes"] == 102_228_128
        assert row["ci_low_s"] <= row["step_s"] <= row["ci_high_s"]
        assert row["algorithms"] == {"all_reduce dp": "ring"}
    result = invoke(*model, "--model", "gpt2", "--parallel", "tp=2,pp=4", "--nodes", "2,4", "--json")
    assert [row["nodes"] for row in json.loads(result.out)] == [4]
    assert (result.code, len(result.err.splitlines())) == (0, 1)


@pytest.mark.parametrize("suffix", ["svg", "html", "png"])
def test_a_picture_of_each_kind(model, scenarios, suffix, tmp_path):
    words = {"wall": (*WALL, "--gpus", "8-64"), "steps": (*model, "--nodes", "2,4"), "scenarios": scenarios}
    for name, each in words.items() if suffix == "svg" else [("one", WALL)]:
        out = tmp_path / f"{name}.{suffix}"
        result = invoke(*each, "--out", out)
        assert (result.code, result.out.splitlines()[-1]) == (0, f"picture: {out}")
        assert out.stat().st_size > 1000


def test_scenarios_are_compared(scenarios):
    rows = rows_of(*scenarios)
    assert [(row["scenario"], row["nodes"], row["machine"]) for row in rows] == [
        ("ring", 4, "paper"), ("any", 2, "paper")
    ]  # fmt: skip
    assert rows[1]["exposed_s"] == pytest.approx(rows[1]["communication_s"])
    assert [line.split()[0] for line in invoke(*scenarios).out.splitlines()[1:3]] == ["ring", "any"]


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
    assert invoke(*STEP, "--scenarios", path).is_bad_input(*named.split())
