"""``hpccoll predict``: its rows, its refusals, pictures, and results against a description."""

import json
from pathlib import Path

import pytest
import raw_examples
from cli_runner import invoke
from golden_page import assert_golden
from predicted_machines import NCCL, cluster, in_racks
from svg_texts import overlaps

from hpccoll.extensions.steps.model import step_scenarios
from hpccoll.judge import library_expectations
from hpccoll.model import expected_times
from hpccoll.model.machine_content import cluster_names
from hpccoll.model.machine_file import read_machine, write_machine
from hpccoll.store import hdf5

CONTRACT = {
    "collective",
    "algorithm",
    "nodes",
    "ranks",
    "bytes",
    "median_s",
    "ci_low_s",
    "ci_high_s",
    "kind",
}
QUICK = ("--nodes", "2,4", "-b", "1K", "-e", "64K", "-f", "8")


SCENARIOS = """
common: {cluster: paper.yaml, model: resnet50, nodes: 4, compute: 100ms}
scenarios:
  - {name: ring, algorithm: ring}
  - {name: any, nodes: 2, overlap: false}
  - {name: today, step: 300ms, rate: x2}
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The current directory, with a described cluster and scenarios on it."""
    monkeypatch.chdir(tmp_path)
    write_machine(in_racks(), tmp_path / "paper.yaml")
    (tmp_path / "scenarios.yaml").write_text(SCENARIOS)
    return tmp_path


@pytest.mark.parametrize("name", [name for name in cluster_names() if read_machine(name, "").tiers])
def test_every_described_cluster_is_predicted_by_its_name(name):
    result = invoke("predict", "--cluster", name, "--nodes", "2", "-b", "1K", "--json")
    assert result.code == 0
    rows = json.loads(result.out)
    assert {"ring", "hierarchical"} <= {row["algorithm"] for row in rows}
    modelled = [row for row in rows if row["kind"] == "modelled"]
    assert [row["algorithm"] for row in modelled] == (
        [] if name.startswith("1x") else ["nccl_ring", "nccl_tree"]
    )
    assert {(row["ci_low_s"], row["ci_high_s"]) for row in modelled} <= {(None, None)}


def test_a_cluster_without_costs_of_messages_is_refused_in_one_line():
    result = invoke("predict", "--cluster", "8xmi300x-400g", "--nodes", "2", "-b", "1K")
    assert result.code == 2
    assert result.err.splitlines() == [
        "hpccoll: 8xmi300x-400g: tiers: the costs of its messages are not known: nothing is simulated"
    ]


@pytest.mark.parametrize("suffix", ["svg", "html", "png"])
def test_a_picture_has_the_best_and_times_over_nodes_and_says_what_is_assumed_or_a_formula(
    suffix, tmp_path
):
    write_machine(in_racks(nccl=NCCL, aggregators={"kind": "switches"}), tmp_path / "c.yaml")
    out = tmp_path / f"picture.{suffix}"
    words = ("--cluster", tmp_path / "c.yaml", *QUICK, "-a", "ring,sharp_emulated", "--out", out)
    result = invoke("predict", *words)
    assert (result.code, result.out.splitlines()[-1]) == (0, f"picture: {out}")
    if suffix == "png":
        assert out.read_bytes().startswith(b"\x89PNG")
    else:
        shown = (
            "1 KiB",
            "64 KiB",
            "described, not measured",
            "sharp_emulated (assumed)",
            "nccl_tree (modelled)",
        )
        text = out.read_text()
        assert [word for word in shown if word not in text] == []
        assert "ring (" not in text.replace("nccl_ring (", "")
    if suffix == "svg":
        assert overlaps(text) == []


def test_results_are_compared_with_what_is_expected(tmp_path):
    path = tmp_path / "paper.yaml"
    write_machine(cluster(), path)
    hdf5.write_raw_file(raw_examples.raw(raw_examples.outcome()), tmp_path / "whole.h5")
    words = ("predict", "--cluster", path, "--against", tmp_path)
    result = invoke(*words)
    assert result.code == 0
    assert result.out.startswith("this machine gives ")
    (row,) = json.loads(invoke(*words, "--json").out)
    assert row.keys() >= CONTRACT | {"measured_s", "ratio"}
    assert row["ratio"] == pytest.approx(row["measured_s"] / row["median_s"])
    (tmp_path / "damaged.h5").write_bytes((tmp_path / "whole.h5").read_bytes()[:-99])
    damaged = invoke(*words)
    assert (damaged.code, damaged.out, "damaged.h5" in damaged.err) == (3, result.out, True)


def test_an_imported_output_is_compared_with_the_model_of_its_library(tmp_path):
    output = Path(__file__).parents[1] / "inputs" / "nccl-two-nodes-of-8-h100.txt"
    assert invoke("import", output, "--out", tmp_path / "imported.h5").code == 0
    words = ("predict", "--cluster", "8xh100-400g", "--against", tmp_path / "imported.h5")
    result = invoke(*words)
    assert (result.code, result.err) == (0, "")
    rows = json.loads(invoke(*words, "--json").out)
    assert len(rows) == 30
    assert all(
        row.keys() >= CONTRACT | {"measured_s", "ratio", "busbw_Bps", "measured_busbw_Bps"}
        for row in rows
    )


def test_accept_shows_the_same_ratios_of_the_output_itself(tmp_path):
    output = Path(__file__).parents[1] / "inputs" / "nccl-two-nodes-of-8-h100.txt"
    assert invoke("import", output, "--out", tmp_path / "imported.h5").code == 0
    for form in ((), ("--json",)):
        predicted = invoke(
            "predict", "--cluster", "8xh100-400g", "--against", tmp_path / "imported.h5", *form
        )
        assert invoke("accept", output, "--cluster", "8xh100-400g", "--ratios", *form) == predicted


@pytest.mark.parametrize(
    "option",
    ["--out=F.svg", "--log=.", "--require=1", "--junit=j.xml", "--published=.", "--contribute"],
)
def test_accept_refuses_beside_ratios_what_belongs_to_verdicts(option, tmp_path):
    hdf5.write_raw_file(raw_examples.raw(raw_examples.outcome()), tmp_path / "whole.h5")
    ended = invoke(
        "accept", tmp_path / "whole.h5", "--cluster", "1x25g-tcp", "--ratios", *option.split("=")
    )
    assert ended.is_bad_input("--ratios")


def test_an_interrupt_keeps_the_comparisons_that_are_complete(tmp_path, monkeypatch):
    cases = raw_examples.case(), raw_examples.case(algorithm="native")
    hdf5.write_raw_file(raw_examples.raw(*map(raw_examples.outcome, cases)), tmp_path / "whole.h5")
    write_machine(cluster(), tmp_path / "paper.yaml")
    words = ("predict", "--cluster", tmp_path / "paper.yaml", "--against", tmp_path)

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(library_expectations, "predict", interrupted)
    result = invoke(*words)
    assert (result.code, result.err) == (
        130,
        "hpccoll: left out: all but 1 comparison: interrupted\n",
    )
    assert result.out.startswith("this machine gives ")
    monkeypatch.setattr(expected_times, "unpredicted_reason", interrupted)
    assert invoke(*words).code == 130


@pytest.mark.parametrize(
    "option",
    [
        "-c=all_reduce",
        "-a=ring",
        "-b=1K",
        "-e=1K",
        "-f=2",
        "-d=float32",
        "--nodes=2",
        "--ranks-per-node=1",
        "--aggregators=1",
        "--mapping=block",
        "--param=channels=1",
        "--question=best",
        "--out=F.svg",
    ],
)
def test_options_of_predictions_are_refused_beside_results(option, tmp_path):
    short, _, value = option.partition("=")
    result = invoke("predict", "--cluster", "1x25g-tcp", "--against", tmp_path, short, value)
    assert result.is_bad_input("--against, which compares the cases of the results")


@pytest.mark.parametrize("option", ["--max-nodes=4", "--transport=mpi", "--library=MPICH"])
def test_options_of_fits_are_refused_without_results(option):
    name, _, value = option.partition("=")
    assert invoke("predict", "--cluster", "1x25g-tcp", name, value).is_bad_input(name, "--fit")


def test_files_without_a_correct_measurement_are_refused(tmp_path):
    hdf5.write_raw_file(raw_examples.raw(raw_examples.skipped()), tmp_path / "skipped.h5")
    result = invoke("predict", "--cluster", "1x25g-tcp", "--against", tmp_path)
    assert result.is_bad_input("--against", "no file has a correct measurement")


COMMANDS = """
predict --cluster paper.yaml --nodes 2,4 -b 1K -e 8K -f 8 -a ring,rabenseifner
predict --cluster paper.yaml --nodes 2,4 -b 1K -e 8K -f 8 --question best
predict --cluster paper.yaml --nodes 2,3 -b 1K -c reduce_scatter -a ring,swing
predict --cluster paper.yaml --nodes 2 -c barrier
predict step --params 7e9 --gpus 8 --rate 400gbit --compute 3.5ms
predict step --params 1e9 --rate 400gbit --flops-rate 3e14 --tokens 1e6
predict step --cluster paper.yaml --model resnet50 --compute 100ms --nodes 2-4 --algorithm ring
predict step --cluster paper.yaml --model gpt2 --compute 100ms --nodes 2,4 --parallel tp=2,pp=4
predict step --cluster paper.yaml --model resnet50 --step 300ms --nodes 2,4 --gradient-dtype float16 --rate x2
predict step --scenarios scenarios.yaml
predict --cluster paper.yaml --nodes 2 -b 1M -a ring --rate x2
"""


def rounded(value):
    if isinstance(value, dict):
        return {name: rounded(part) for name, part in value.items()}
    return float(f"{value:.5g}") if isinstance(value, float) else value


@pytest.mark.usefixtures("here")
def test_the_rows_of_predictions_are_the_golden_page():
    lines = []
    for command in COMMANDS.strip().splitlines():
        result = invoke(*command.split(), "--json")
        rows = json.loads(result.out, parse_constant=pytest.fail)
        # without progress
        messages = [line for line in result.err.splitlines() if line.startswith("hpccoll: ")]
        lines += [
            f"$ hpccoll {command} --json",
            *(json.dumps(rounded(row)) for row in rows),
            *messages,
        ]
    assert_golden("predictions", lines, Path(__file__).with_name("golden"))


STEPS = {
    "wall": "--params 7e9 --gpus 8-64 --rate 400gbit --compute 3.5ms",
    "scenarios": "--scenarios scenarios.yaml",
    "steps": "--cluster paper.yaml --model resnet50 --compute 100ms --nodes 2,4",
    "sharded": "--cluster paper.yaml --model resnet50 --compute 1s --nodes 2,4 --sharding fsdp",
    "six numbers": "--cluster paper.yaml --model resnet50 --compute 100ms --nodes 2,3,4,5,6,7",
    "compressed": "--cluster paper.yaml --model resnet50 --compute 1ms --nodes 2,4 "
    "--compress none,fp16,fp8_e4m3,topk=1%",
}


@pytest.mark.parametrize("suffix", ["svg", "html", "png"])
def test_a_picture_of_each_kind_of_step(suffix, here):
    for name in STEPS if suffix == "svg" else ["wall"]:
        result = invoke("predict", "step", *STEPS[name].split(), "--out", f"{name}.{suffix}")
        assert (result.code, result.out.splitlines()[-1]) == (0, f"picture: {name}.{suffix}")
        assert (here / f"{name}.{suffix}").stat().st_size > 1000
        if suffix == "svg":
            assert overlaps((here / f"{name}.svg").read_text()) == []


def test_a_picture_of_sharded_steps_has_both_shares_the_sharding_and_the_best_case(here):
    keys = "cluster: paper.yaml, model: resnet50, nodes: 4, compute: 1s, sharding: fsdp"
    (here / "sharded.yaml").write_text(f"scenarios: [{{name: parts, {keys}}}]")
    for words in ("--scenarios sharded.yaml", STEPS["sharded"]):
        command = ("predict", "step", *words.split())
        row = json.loads(invoke(*command, "--json").out)[-1]
        assert invoke(*command, "--out", "sharded.svg").code == 0
        picture = (here / "sharded.svg").read_text()
        shares = f"exposed {row['share']:.1%}", f"all {row['communication_share']:.0%}"
        wanted = [*shares, ">best case:<", "fsdp", "Published"]
        assert [text for text in wanted if text not in picture] == []
        assert overlaps(picture) == []


def test_the_picture_of_steps_with_some_formulas_names_both_kinds_and_is_dashed(tmp_path):
    words = "--cluster 8xh100-400g --model gpt2 --compute 27ms --nodes 1,2 --parallel tp=2"
    assert invoke("predict", "step", *words.split(), "--out", tmp_path / "steps.svg").code == 0
    picture = (tmp_path / "steps.svg").read_text()
    assert "modelled and simulated" in picture
    assert ('stroke-dasharray="6,4"' in picture, 'stroke-dasharray="2,3"' in picture) == (
        True,
        False,
    )


TODAY = """
common: {cluster: paper.yaml, model: resnet50, nodes: 4, step: 300ms}
scenarios: [{name: today}, {name: faster, rate: x4}, {name: wider, nodes: 2, gradient_dtype: float16}]
"""


def test_nccls_own_algorithms_have_no_parameters():
    words = ["--cluster", "8xh100-400g", "--nodes", "2", "-b", "1K", "--param", "channels=4", "-a"]
    assert invoke("predict", *words, "nccl_ring").is_bad_input(
        "channels", "nccl_ring", "no parameters"
    )
    assert invoke("predict", *words, "nccl_ring,ring").code == 0


def test_scenarios_compute_as_fast_as_the_step_of_today(here):
    (here / "today.yaml").write_text(TODAY)
    today, faster, wider = json.loads(
        invoke("predict", "step", "--scenarios", "today.yaml", "--json").out
    )
    assert today["step_s"] == pytest.approx(0.3)
    assert (
        today["flops_per_s"]
        == pytest.approx(faster["flops_per_s"])
        == pytest.approx(wider["flops_per_s"])
    )
    assert faster["exposed_s"] < today["exposed_s"]
    assert (faster["machine"], wider["gradient_dtype"]) == ("paper with a network x4", "float16")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ("--model gpt2 --cluster 8xh100-400g --compute 1s --rate 400gbit", "--rate x2"),
        ("--params 7e9 --rate x2 --compute 1s", "--rate 400gbit"),
        ("--model resnet50 --cluster paper.yaml --step 1ms --nodes 2", "--step communication"),
        ("--model gpt2 --cluster 8xh100-400g --step 1s --compute 1s", "--step --compute"),
        ("--scenarios scenarios.yaml --step 1s", "--step scenarios"),
        ("--scenarios scenarios.yaml --cluster 8xh100-400g", "--cluster scenarios"),
        ("--scenarios scenarios.yaml --no-overlap", "--overlap scenarios"),
        ("--scenarios scenarios.yaml --nodes 2", "--nodes scenarios"),
        ("--scenarios slow.yaml", "slow.yaml: today: step: communication"),
        ("--model gpt2 --cluster 8xh100-400g --compute 1s --latency 5us", "--latency --params"),
        *(
            (f"--params 7e9 --rate 400gbit --compute 1s {given}", f"{given.split()[0]} --model")
            for given in (
                "--gradient-dtype float32",
                "--parameter-dtype float32",
                "--activation-dtype float32",
                "--dtype float32",
                "--sharding zero1",
                "--nodes 2",
                "--param channels=2",
                "--sequence",
                "--gpu h100",
            )
        ),
    ],
)
def test_options_that_do_not_fit_a_step_are_bad_input(options, named, here):
    (here / "slow.yaml").write_text(TODAY.replace("step: 300ms", "step: 1us"))
    assert invoke("predict", "step", *options.split()).is_bad_input(*named.split())


ONE = "cluster: 8xh100-400g, compute: 1s"


@pytest.mark.parametrize(
    ("scenarios", "named"),
    [
        ("", "scenarios"),
        ("{name: a, frob: 1}", "frob"),
        ("{name: a, model: gpt2, nodes: 2}", "cluster common"),
        (f"{{name: a, model: gpt9, nodes: 2, {ONE}}}", "gpt9 gpt2"),
        ("{name: a, model: gpt2, nodes: 2, cluster: nowhere, compute: 1s}", "nowhere"),
        ("{name: a, model: gpt2, nodes: 2, cluster: 8xh100-400g}", "a: compute: flops_rate step"),
        (f"{{name: a, model: gpt2, nodes: 2, bucket: 0, {ONE}}}", "bucket from 1"),
    ],
)
def test_a_bad_file_of_scenarios_is_bad_input(tmp_path, scenarios, named):
    path = tmp_path / "bad.yaml"
    path.write_text(f"scenarios: [{scenarios}]")
    assert invoke("predict", "step", "--scenarios", path).is_bad_input(*named.split())


def test_an_interrupt_keeps_the_scenarios_that_are_complete(here, monkeypatch):
    predict, begun = step_scenarios.predict_steps, []

    def interrupted(*arguments):
        begun.append(arguments)
        if len(begun) == 2:
            raise KeyboardInterrupt
        return predict(*arguments)

    monkeypatch.setattr(step_scenarios, "predict_steps", interrupted)
    result = invoke("predict", "step", "--scenarios", here / "scenarios.yaml", "--json")
    assert (result.code, result.err) == (130, "hpccoll: left out: any, today: interrupted\n")
    assert [row["scenario"] for row in json.loads(result.out)] == ["ring"]


def test_a_step_of_a_model_on_gpus_is_that_on_the_nodes_that_have_them():
    step = ("predict", "step", "--model", "gpt2", "--cluster", "8xh100-400g", "--compute", "27ms")
    on_nodes, on_gpus = (
        json.loads(invoke(*step, *counts, "--json").out)
        for counts in (("--nodes", "1,2"), ("--gpus", "8-16"))
    )
    assert [row["gpus"] for row in on_gpus] == [8, 16]
    assert on_gpus == on_nodes
