"""Predicted steps with compressed gradients, and the rate of the network below which compression pays."""

import json
from itertools import chain
from types import SimpleNamespace
from typing import NamedTuple

import pytest
from cli_runner import invoke
from predicted_machines import EXACT, LATENCY, NCCL, RATE, SEGMENT, cluster, fitted

from hpccoll.common.errors import BadInputError
from hpccoll.common.units import format_bit_rate
from hpccoll.extensions.steps.analysis.paying_rate import NETWORKS
from hpccoll.extensions.steps.model.compression_pays import paying_rate
from hpccoll.extensions.steps.model.step_prediction import ComputeRate, StepRequest, predict_steps
from hpccoll.extensions.steps.render.step_report import step_lines
from hpccoll.extensions.steps.training.buckets import BucketRule
from hpccoll.extensions.steps.training.compression import Compression, compressions
from hpccoll.extensions.steps.training.model_shape import ModelShape, Module, Tensor
from hpccoll.extensions.steps.training.parallelism import Parallelism
from hpccoll.model.machine_file import write_machine

ELEMENTS = 1 << 22


class Operation(NamedTuple):
    """A message or a codec, with its time on the network of the machine."""

    seconds: float
    is_codec: bool = False


TOY = ModelShape(
    "toy",
    tuple(Module(f"layer{i}", (Tensor("weight", ELEMENTS // 4),), 1e6) for i in range(4)),
    "float32",
    "",
    "",
)
NBYTES = 4 * ELEMENTS
CODEC = 1e9


def steps(compress, machine=None, ranks=2, rule="one", codec_rate=CODEC, compute_s=0.1, **more):
    """Return the predictions of a toy whose gradients are one bucket after the backward pass."""
    request = StepRequest(
        TOY,
        [ranks],
        ComputeRate(step_s=compute_s),
        parallelism=Parallelism(buckets=BucketRule(rule)),
        algorithm="ring",
        parameters={"channels": 1},
        compressions=compressions(compress),
        codec_rate=codec_rate,
        **more,
    )
    return predict_steps(machine or cluster(tiers={"rack": EXACT}), request).predictions


def ring_s(nbytes, ranks=2):
    return 2 * (ranks - 1) * (LATENCY + nbytes / ranks / RATE)


def test_a_step_in_half_precision_takes_two_codecs_and_half_of_the_wire():
    dense, half = steps("none,fp16")
    assert (dense.compress, half.compress) == (None, "fp16")
    assert dense.step.communication_s == pytest.approx(ring_s(NBYTES))
    assert half.step.communication_s == pytest.approx(ring_s(NBYTES / 2))
    assert (dense.step.codec_s, half.step.codec_s) == pytest.approx((0, 2 * NBYTES / CODEC))
    assert half.step.exposed_s == pytest.approx(ring_s(NBYTES / 2) + 2 * NBYTES / CODEC)


def test_fp8_moves_a_quarter_and_top_k_its_positions_and_values():
    ranks = 4
    _, eight, sparse = steps("none,fp8_e4m3,topk=1%", ranks=ranks)
    three = (ranks - 1) / ranks / RATE
    assert eight.step.communication_s == pytest.approx(2 * ELEMENTS * three, rel=0.02)
    kept = 8 * ranks * -(-ELEMENTS // 100)
    assert sparse.step.communication_s == pytest.approx(kept * three, rel=0.1)


def test_without_overlap_the_rate_is_what_the_wire_saves_over_what_codecs_take():
    (half,) = steps("fp16")
    latency_free = 8 * RATE * (NBYTES - NBYTES / 2) / RATE / (2 * NBYTES / CODEC)
    assert half.pays.likely == pytest.approx(latency_free, rel=0.005)
    assert half.to_json()["pays_below_bps"] == half.pays.likely


@pytest.mark.parametrize("rule", ["one", "each"])
@pytest.mark.parametrize("compress", ["fp16", "fp8_e5m2", "topk=1%"])
def test_on_a_network_of_that_rate_both_steps_take_as_long(compress, rule):
    described = cluster(tiers={"rack": EXACT})
    (found,) = steps(compress, described, rule=rule, ranks=4)
    factor = found.pays.likely / (8 * found.link)
    assert NETWORKS[0] < factor < NETWORKS[1]
    for times, is_shorter in ((0.9, True), (1.1, False)):
        dense, compressed = steps(
            f"none,{compress}", described.with_network(times * factor), rule=rule, ranks=4
        )
        assert (compressed.step.step_s < dense.step.step_s) is is_shorter
        assert compressed.step.step_s == pytest.approx(dense.step.step_s, rel=0.1)


def test_the_interval_has_messages_and_codecs_at_opposite_ends_of_theirs():
    measured = {
        "fp16": {
            "encode": {"bytes_per_s": {"value": 1e9, "low": 5e8, "high": 2e9}},
            "decode": {"bytes_per_s": 1e9},
        }
    }
    about = {"tiers": {"rack": SEGMENT}, "codecs": measured}
    (likely,), (wider,) = (
        steps("fp16", fitted(**about, validation=of), codec_rate=None)
        for of in ({}, {"ratio_p5": 0.5, "ratio_p95": 2.0})
    )
    assert likely.pays.low < likely.pays.likely < likely.pays.high
    assert wider.pays.low == pytest.approx(likely.pays.low / 2, rel=0.02)
    assert wider.pays.high == pytest.approx(likely.pays.high * 2, rel=0.02)
    fast, slow = 1.25, 0.5  # the ends of the rate of SEGMENT over its value
    # encode twice, decode once
    assert likely.pays.low == pytest.approx(likely.pays.likely * 2 / 3 / fast, rel=0.02)
    assert likely.pays.high == pytest.approx(likely.pays.likely * 4 / 3 / slow, rel=0.02)


def test_without_intervals_the_rate_is_one_number_where_few_networks_do_not_find_it():
    """The time of messages bends so much over rates that the most networks that are tried do not suffice."""

    def costs_on(x):
        def cost(operation, _bound):
            return operation.seconds if operation.is_codec else operation.seconds / x**2

        return cost

    def timeline(programs, cost):
        operations = chain.from_iterable(program.operations for program in programs)
        return SimpleNamespace(step_s=sum(map(cost, operations)))

    message, half, codec = Operation(1.0), Operation(0.5), Operation(1e3, is_codec=True)
    dense = [SimpleNamespace(operations=[message])]
    compressed = [SimpleNamespace(operations=[half, codec])]
    found = paying_rate(costs_on, compressed, dense, timeline, 1e9, (1.0, 1.0))
    assert found.low == found.likely == found.high


def test_top_k_of_many_ranks_pays_at_no_rate_and_a_codec_without_cost_at_any():
    (never,) = steps("topk=50%", ranks=16)
    assert never.pays.high == 0
    (always,) = steps("fp16", codec_rate=1e18)
    assert always.pays.likely == always.pays.most


@pytest.mark.parametrize("compress", ["none", "fp16"])
def test_nothing_is_said_of_steps_without_compression_or_without_a_network(compress):
    machine = cluster(layout={"ranks_per_node": 2}, tiers={"node": EXACT, "rack": EXACT})
    (found,) = steps(compress, machine, ranks=1)
    assert found.pays is None
    assert found.to_json()["pays_below_bps"] is None


def test_the_time_of_todays_step_is_that_without_compression():
    (dense, half), (alone,) = map(_of_whole, ("none,fp16", "fp16"))
    assert dense.step.step_s == pytest.approx(1.0)
    assert alone.step.compute_s == half.step.compute_s == pytest.approx(dense.step.compute_s)


def _of_whole(compress):
    request = StepRequest(
        TOY,
        [2],
        ComputeRate(whole_s=1.0),
        algorithm="ring",
        compressions=compressions(compress),
        codec_rate=CODEC,
    )
    return predict_steps(cluster(tiers={"rack": EXACT}), request).predictions


def test_the_wall_is_that_of_each_compression():
    request = StepRequest(
        TOY,
        [2, 4],
        ComputeRate(step_s=ring_s(NBYTES, 4) * 0.9),
        parallelism=Parallelism(buckets=BucketRule("one")),
        algorithm="ring",
        parameters={"channels": 1},
        compressions=compressions("topk=1%,none"),
        codec_rate=CODEC,
    )
    found = predict_steps(cluster(tiers={"rack": EXACT}), request)
    of = found.by_compression
    assert (of["topk=1%"].wall, of[None].wall) == ((4, None), (2, 4))
    answers = [line for line in step_lines(found) if line.startswith("answer: ")]
    assert [line.split(": ")[1] for line in answers] == ["topk=1%", "none"]
    links = [line for line in step_lines(found) if "as long as computation with links" in line]
    assert [
        f"links of {format_bit_rate(of[name].predictions[-1].hide_rate)}" in line
        for name, line in zip(("topk=1%", None), links, strict=True)
    ] == [True, True]


def test_the_text_has_a_line_for_each_compression_its_codec_and_the_rate():
    request = StepRequest(
        TOY,
        [2, 4],
        ComputeRate(step_s=0.1),
        compressions=[None, Compression("fp16")],
        codec_rate=CODEC,
    )
    lines = list(step_lines(predict_steps(cluster(), request)))
    assert next(line for line in lines if " pays below " in line).startswith(
        "  fp16 on 2 GPUs pays below "
    )
    assert sum(" fp16 " in line and " ms " in line for line in lines) == 2
    dense = StepRequest(TOY, [2], ComputeRate(step_s=0.1))
    assert not [
        line
        for line in step_lines(predict_steps(cluster(), dense))
        if "codec" in line or "pays" in line
    ]


@pytest.mark.parametrize(
    ("compress", "words"),
    [
        ("fp15", "fp16, bf16"),
        ("topk", "topk=1%"),
        ("topk=0%", "more than 0%"),
        ("topk=51%", "at most 50%"),
    ],
)
def test_an_invalid_compression_is_one_line(tmp_path, compress, words):
    write_machine(cluster(), tmp_path / "c.yaml")
    result = invoke(
        "predict",
        "step",
        "--model",
        "resnet50",
        "--compute",
        "1ms",
        "--cluster",
        tmp_path / "c.yaml",
        "--compress",
        compress,
    )
    assert result.is_bad_input("compress", words)


def test_gradients_of_other_types_and_of_sharded_parameters_are_not_compressed():
    for more in ({"sharding": "zero1"}, {"dtypes": None}):
        shape = TOY if "sharding" in more else ModelShape("toy", TOY.modules, "bfloat16", "", "")
        request = StepRequest(
            shape,
            [2],
            ComputeRate(step_s=0.1),
            parallelism=Parallelism(**more),
            compressions=compressions("fp16"),
        )
        with pytest.raises(BadInputError, match="compress"):
            predict_steps(cluster(), request)


def test_codecs_of_gpus_are_not_hidden_behind_the_computation_that_they_slow_down():
    nccl = NCCL | {"channels": 1, "intra_bytes_per_s": RATE, "inter_bytes_per_s": RATE}
    inside = EXACT | {"bytes_per_s": 1000 * RATE}
    described = cluster(tiers={"node": inside, "rack": EXACT})
    gpus = described.model_copy(update={"nccl": cluster(nccl=nccl).nccl})
    for machine, is_hidden in ((described, True), (gpus, False)):
        (half,) = steps("fp16", machine, rule="each", compute_s=10.0)
        assert half.step.codec_s == pytest.approx(2 * NBYTES / CODEC)
        assert (half.step.exposed_s < half.step.codec_s) is is_hidden
        assert (half.pays.likely == half.pays.most) is False
        assert any(each.startswith("codecs run ") for each in half.assumptions)


def test_nccl_has_no_interval_and_the_codecs_have():
    nccl = NCCL | {"channels": 1, "intra_bytes_per_s": RATE, "inter_bytes_per_s": RATE}
    inside = EXACT | {"bytes_per_s": 1000 * RATE}  # NCCL's channels are no faster than that
    described = cluster(
        tiers={"node": inside, "rack": EXACT},
        nccl=nccl,
        reduction={"float32": {"bytes_per_s": 3e9}},
    )
    request = StepRequest(
        TOY,
        [2],
        ComputeRate(step_s=0.1),
        parallelism=Parallelism(buckets=BucketRule("one")),
        compressions=compressions("fp16"),
    )
    (found,) = predict_steps(described, request).predictions
    assert found.interval is None
    assert found.pays.low < found.pays.likely < found.pays.high
    assert any("interval of the rate" in each for each in found.assumptions)


def test_a_scenario_with_several_compressions_has_a_line_for_each(tmp_path):
    write_machine(cluster(), tmp_path / "c.yaml")
    path = tmp_path / "s.yaml"
    path.write_text(
        f"common: {{cluster: {tmp_path / 'c.yaml'}, model: resnet50, nodes: 2, compute: 100ms, codec_rate: 1e9}}\n"
        'scenarios:\n  - {name: a, compress: "none,fp16", feedback: true}\n  - {name: b, compress: topk=1%}\n'
    )
    rows = json.loads(invoke("predict", "step", "--scenarios", path, "--json").out)
    assert [(row["scenario"], row["compress"]) for row in rows] == [
        ("a, none", None), ("a, fp16", "fp16"), ("b", "topk=1%")
    ]  # fmt: skip
    assert [row["codec_s"] > 0 for row in rows] == [False, True, True]
    text = invoke("predict", "step", "--scenarios", path).out
    assert "a, fp16: fp16 pays " in text
