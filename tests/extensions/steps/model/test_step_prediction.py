"""Predicted training steps: formulas where there are any, what overlaps, shares, and what is left out."""

from dataclasses import replace

import pytest
from predicted_machines import EXACT, LATENCY, RATE, cluster, fitted

from hpccoll.common.errors import BadInputError
from hpccoll.common.units import format_seconds
from hpccoll.extensions.steps.model.step_prediction import ComputeRate, StepRequest, predict_steps
from hpccoll.extensions.steps.model.step_scenarios import step_request
from hpccoll.extensions.steps.render.step_report import step_lines
from hpccoll.extensions.steps.training.buckets import BucketRule
from hpccoll.extensions.steps.training.model_shape import ModelShape, Module, Tensor
from hpccoll.extensions.steps.training.models import model_of
from hpccoll.extensions.steps.training.models.transformers import gpt2
from hpccoll.extensions.steps.training.parallelism import Parallelism
from hpccoll.model.machine_file import read_machine
from hpccoll.model.predict import Request, predict

KIB = 1024
LAYERS = 4
GPT = gpt2("toy-gpt", blocks=2, hidden=64, vocabulary=1, sequence=8)
TOY = ModelShape(
    "toy",
    tuple(Module(f"layer{i}", (Tensor("weight", 64 * KIB),), 1e6) for i in range(LAYERS)),
    "float32",
    "a vector",
    "",
)
LAYER_BYTES = 4 * 64 * KIB


def steps(
    nodes,
    *,
    model=TOY,
    machine=None,
    compute=None,
    parallel="",
    batch=None,
    algorithm="ring",
    aggregators=None,
    **parallelism,
):
    """Return the predictions on numbers of nodes."""
    request = StepRequest(
        model,
        nodes,
        compute or ComputeRate(step_s=0.1),
        parallel,
        Parallelism(**parallelism),
        batch,
        algorithm=algorithm,
        parameters={"channels": 1},
        aggregators=aggregators,
    )
    return predict_steps(machine or cluster(tiers={"rack": EXACT}), request)


def ring_s(nbytes, ranks):
    """Return the seconds of a ring."""
    return 2 * (ranks - 1) * (LATENCY + nbytes / ranks / RATE)


def test_one_bucket_after_the_backward_pass_takes_the_formula_of_the_ring():
    ranks, nbytes = 8, LAYERS * LAYER_BYTES
    row = steps([ranks], buckets=BucketRule("one")).predictions[0].to_json()
    assert row["gradient_bytes"] == nbytes
    assert row["communication_s"] == row["exposed_s"] == pytest.approx(ring_s(nbytes, ranks))
    assert (row["compute_s"], row["step_s"]) == pytest.approx((0.1, 0.1 + ring_s(nbytes, ranks)))
    assert row["share"] == pytest.approx(row["exposed_s"] / row["step_s"])
    busbw = 2 * (ranks - 1) / ranks * nbytes / row["communication_s"]
    assert (row["busbw_Bps"], row["link_Bps"], row["links"]) == pytest.approx((busbw, RATE, 1))


@pytest.mark.parametrize("factor", [0.1, 1, 20])
def test_links_of_the_rate_that_hides_communication_make_it_as_long_as_computation(factor):
    described, in_one = cluster(tiers={"rack": EXACT}), {"buckets": BucketRule("one")}
    # latencies take a third of it, whatever the network
    compute = ComputeRate(step_s=3 * 2 * 7 * LATENCY)
    (one,) = steps(
        [8], machine=described.with_network(factor), compute=compute, **in_one
    ).predictions
    just_enough = described.with_network(factor * one.hide_rate / (8 * one.link))
    (hidden,) = steps([8], machine=just_enough, compute=compute, **in_one).predictions
    assert hidden.step.communication_s == pytest.approx(hidden.step.compute_s, rel=0.02)
    too_short = ComputeRate(step_s=2 * 7 * LATENCY * 0.9)
    assert (
        steps([8], machine=described, compute=too_short, **in_one).predictions[0].hide_rate is None
    )


def test_the_time_of_a_step_is_that_on_the_network_of_the_file():
    request = {"buckets": BucketRule("one"), "compute": ComputeRate(whole_s=1.0)}
    described = cluster(tiers={"rack": EXACT})
    (today,), (slower,) = (
        steps([8], machine=described.with_network(factor), **request).predictions
        for factor in (1, 0.25)
    )
    assert today.step.step_s == pytest.approx(1.0)
    assert slower.step.compute_s == pytest.approx(today.step.compute_s)
    assert slower.step.step_s > 1.0


def test_a_bucket_for_each_layer_hides_all_but_the_last_one_behind_a_long_backward_pass():
    (one,) = steps([4], buckets=BucketRule("each")).predictions
    assert one.step.exposed_s == pytest.approx(ring_s(LAYER_BYTES, 4))
    assert one.step.communication_s == pytest.approx(LAYERS * ring_s(LAYER_BYTES, 4))


def test_one_rank_communicates_nothing():
    row = steps([1]).predictions[0].to_json()
    keys = "communication_s", "exposed_s", "share", "busbw_Bps", "hide_rate_bps", "step_s"
    assert [row[key] for key in keys] == [0, 0, 0, None, None, pytest.approx(0.1)]


def test_where_communication_passes_computation():
    # of which overlap hides most
    compute = ComputeRate(step_s=LAYERS * ring_s(LAYER_BYTES, 4) * 0.99)
    found = steps([2, 4, 8], buckets=BucketRule("each"), compute=compute)
    assert found.wall == (2, 4)
    assert steps([4, 8], buckets=BucketRule("each"), compute=compute).wall == (None, 4)
    assert steps([2], compute=ComputeRate(step_s=1.0)).wall == (2, None)


@pytest.mark.parametrize(
    ("changed", "at_best"),
    [
        ({"buckets": BucketRule("each"), "compute": ComputeRate(step_s=1.0)}, True),  # hides most
        ({"buckets": BucketRule("one")}, False),  # hides nothing
        ({"sharding": "fsdp", "compute": ComputeRate(step_s=1e-6)}, True),  # hides some gathers
        ({"sharding": "zero3", "compute": ComputeRate(step_s=1e-6)}, True),
        ({"sharding": "fsdp", "overlap": False}, False),
    ],
)
def test_the_exposed_share_is_a_best_case_where_computation_hides_communication(changed, at_best):
    (step,) = steps([2], **changed).predictions
    row = step.to_json()
    assert row["exposed_at_best"] == at_best
    assert row["sharding"] == changed.get("sharding", "none")


def test_flops_and_a_rate_give_the_time_of_computation_and_a_batch_the_micro_batches():
    for more in ({"micro_batches": 3}, {"batch": 2 * 2 * 3}):
        (one,) = steps([2], compute=ComputeRate(1e9), samples=2, **more).predictions
        assert one.step.compute_s == pytest.approx(LAYERS * 1e6 * 3 * 2 * 3 / 1e9)
        assert (one.samples, one.parallelism.micro_batches) == (2 * 2 * 3, 3)


def test_a_step_that_is_known_gives_the_computation_with_which_it_takes_as_long_and_the_rate_on_other_nodes():
    ranks, whole = 4, 0.5
    found = steps(
        [ranks, 8], buckets=BucketRule("each"), compute=ComputeRate(whole_s=whole), micro_batches=3
    )
    first, second = found.predictions
    assert first.step.step_s == pytest.approx(whole)
    # all but the last bucket overlaps
    assert first.step.compute_s == pytest.approx(whole - ring_s(LAYER_BYTES, ranks))
    rate = 9 * LAYERS * 1e6 / first.step.compute_s
    assert [each.to_json()["flops_per_s"] for each in found.predictions] == pytest.approx(
        [rate, rate]
    )
    assert second.step.compute_s == pytest.approx(first.step.compute_s)
    assert second.step.step_s > whole
    given = steps([ranks], buckets=BucketRule("each"), compute=ComputeRate(rate), micro_batches=3)
    assert given.predictions[0].step.step_s == pytest.approx(whole)


def test_a_step_without_communication_is_all_computation():
    for milliseconds in range(20, 60):  # of a third of them, the sum of its parts rounds to less
        (found,) = steps([1], compute=ComputeRate(whole_s=milliseconds / 1e3)).predictions
        assert found.step.compute_s == pytest.approx(milliseconds / 1e3)


@pytest.mark.parametrize("nodes", [[4, 2], [3, 4]])
def test_a_step_in_which_nothing_can_be_computed_is_refused_with_the_time_of_communication(nodes):
    alone = LAYERS * ring_s(LAYER_BYTES, nodes[0])
    with pytest.raises(BadInputError, match="communication alone takes") as refused:
        steps(nodes, buckets=BucketRule("each"), compute=ComputeRate(whole_s=alone))
    assert format_seconds(alone) in str(refused.value)
    assert steps(
        nodes, buckets=BucketRule("each"), compute=ComputeRate(whole_s=2 * alone)
    ).predictions


def test_an_aggregator_that_is_a_rank_takes_what_its_children_send_through_one_port():
    """The port of the aggregator receives the bytes of all ranks, and sends them as many: two latencies, no overlap."""
    machine, ranks = cluster(tiers={"rack": EXACT}, port={"bytes_per_s": RATE}), 4
    (found,) = steps(
        [ranks],
        machine=machine,
        algorithm="sharp_emulated",
        aggregators=1,
        buckets=BucketRule("one"),
    ).predictions
    assert found.step.communication_s == pytest.approx(
        2 * (LATENCY + ranks * LAYERS * LAYER_BYTES / RATE)
    )


def test_a_rate_is_a_fraction_of_the_peak_of_a_gpu_and_samples_of_a_transformer_have_the_tokens_that_are_asked_for():
    request = step_request(
        {"model": "gpt2", "sequence_length": 512, "mfu": 0.4, "gpu": "h100"}, [2], None
    )
    assert request.compute.flops_per_s == pytest.approx(0.4 * 989e12)
    assert request.model.transformer.sequence == 512
    scores = 4 * 12 * 768 * 512**2  # 4 s h a token and block, and half as many tokens
    of_products = (model_of("gpt2").forward_flops - 4 * scores) / 2
    assert request.model.forward_flops == pytest.approx(of_products + scores)
    with pytest.raises(BadInputError, match="a transformer, unlike resnet50"):
        step_request({"model": "resnet50", "sequence_length": 512, "compute": 1.0}, [2], None)


@pytest.mark.parametrize(
    ("keys", "types"),
    [
        ({}, ["bfloat16", "bfloat16", "bfloat16"]),
        ({"gradient_dtype": "float32"}, ["float32", "bfloat16", "bfloat16"]),
        ({"dtype": "float32", "activation_dtype": "float16"}, ["float32", "float32", "float16"]),
    ],
)
def test_what_has_no_type_of_its_own_has_that_of_the_step_or_of_the_model(keys, types):
    request = step_request(
        {"model": "llama3-8b", "compute": 1.0, "sharding": "zero1", **keys}, [2], None
    )
    machine = cluster(tiers={"node": EXACT, "rack": EXACT}, layout={"ranks_per_node": 2})
    row = predict_steps(machine, replace(request, parallel="tp=2")).predictions[0].to_json()
    assert [row[f"{name}_dtype"] for name in ("gradient", "parameter", "activation")] == types
    assert row["gradient_bytes"] == 8_030_261_248 * (4 if types[0] == "float32" else 2)


@pytest.mark.parametrize(
    ("fixed", "moved"),
    [
        ({}, {}),
        ({"sharding": "zero1"}, {"parameter": "float64"}),
        ({"parallel": "tp=2"}, {"activation": "float16"}),
        (
            {"sharding": "zero1", "parallel": "tp=2"},
            {"parameter": "float64", "activation": "float16"},
        ),
    ],
)
def test_the_text_names_the_types_of_what_moves_only(fixed, moved):
    types = {"dtype": "float32", "parameter_dtype": "float64", "activation_dtype": "float16"}
    request = step_request({"model": "gpt2", "compute": 1.0, **types, **fixed}, [2], None)
    machine = cluster(tiers={"node": EXACT, "rack": EXACT}, layout={"ranks_per_node": 2})
    lines = [line for line in step_lines(predict_steps(machine, request)) if "s move in" in line]
    named = [dict(part.split("s move in ") for part in line.strip().split(", ")) for line in lines]
    assert named == [moved] * bool(moved)


def test_intervals_are_those_of_the_machine_and_of_its_held_out_measurements():
    low, high = 0.5, 2.0
    bare, wide = (
        steps(
            [2], machine=fitted(tiers={"rack": EXACT}, validation=of), buckets=BucketRule("one")
        ).predictions[0]
        for of in ({}, {"ratio_p5": low, "ratio_p95": high})
    )
    exposed = bare.step.exposed_s
    assert bare.interval == pytest.approx((bare.step.step_s, bare.step.step_s))
    assert wide.interval == pytest.approx((0.1 + low * exposed, 0.1 + high * exposed))
    assert "within" in bare.distance


def test_ranks_that_the_mesh_does_not_divide_are_left_out_with_the_reason():
    found = steps([2, 3, 4], model=GPT, parallel="pp=2", algorithm=None)
    assert [each.nodes for each in found.predictions] == [2, 4]
    ((reason, nodes),) = found.left_out.items()
    assert nodes == [3]
    assert "parallel" in reason
    assert any(reason in line for line in step_lines(found))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"parallel": "tp=2"}, ["parallel", "toy"]),
        ({"algorithm": "rung"}, ["--algorithm", "ring"]),
        ({"batch": 5}, ["--batch", "a multiple of 2"]),
        ({"sharding": "zero9"}, ["sharding", "zero3"]),
    ],
)
def test_what_cannot_be_predicted_is_bad_input(changed, words):
    with pytest.raises(BadInputError) as refused:
        steps([2], **changed)
    assert [word for word in words if word not in str(refused.value)] == []


def interrupt_at(done):
    """Return a display of progress that interrupts once so many are done."""

    def show(now_done, *_):
        if now_done == done:
            raise KeyboardInterrupt

    return show


def test_an_interrupt_keeps_the_numbers_of_nodes_that_are_complete():
    request = StepRequest(TOY, [2, 4, 8], ComputeRate(step_s=0.1))
    found = predict_steps(cluster(), request, interrupt_at(1))
    assert [each.nodes for each in found.predictions] == [2]
    assert found.left_out == {"interrupted": [4, 8]}
    assert found.interrupted
    with pytest.raises(KeyboardInterrupt):
        predict_steps(cluster(), request, interrupt_at(0))


LLAMA = {"model": "llama3-8b", "sharding": "fsdp", "mfu": 0.4, "gpu": "h100"}


def test_an_fsdp_step_on_gpus_gathers_a_block_in_the_time_of_nccls_ring():
    """A block of llama3-8b has 436,224,000 bytes; a step of our schedules took six times as long."""
    machine, nbytes = read_machine("8xh100-400g", "--cluster"), 436_224_000
    (step,) = predict_steps(machine, step_request(LLAMA, [8], None)).predictions
    spans = {
        span.end_s - span.begin_s
        for span in step.step.spans[0]
        if span.operation
        and (span.operation.collective, span.operation.nbytes) == ("all_gather", nbytes)
    }
    (ring,) = predict(
        machine,
        Request([8], [nbytes], "all_gather", ["nccl_ring"], dtype="bfloat16"),
    ).predictions
    assert [*spans] == pytest.approx([ring.value_s] * len(spans), rel=0.01)
    assert spans
    row = step.to_json()
    assert {*row["algorithms"].values()} == {"nccl_ring"}
    assert (row["kind"], row["ci_low_s"], row["ci_high_s"]) == ("modelled", None, None)


def test_a_step_with_some_formulas_has_no_interval_and_names_what_stands_in_inside_nodes():
    machine = read_machine("8xh100-400g", "--cluster")
    found = predict_steps(
        machine, step_request(LLAMA | {"sharding": None, "parallel": "tp=8"}, [2], None)
    )
    (step,) = found.predictions
    row = step.to_json()
    assert (row["kind"], row["algorithms"]["all_reduce dp"]) == ("modelled", "nccl_ring")
    assert (row["ci_low_s"], row["ci_high_s"], row["kinds"]) == (
        None,
        None,
        ["modelled", "simulated"],
    )
    assert {each["work"]: each["stands_in"] for each in row["unmodelled"]} == {
        "all_reduce tp": True
    }
    inside = predict_steps(
        machine, step_request(LLAMA | {"sharding": None, "parallel": "tp=8"}, [1], None)
    )
    (row,) = (each.to_json() for each in inside.predictions)
    assert row["ci_low_s"] < row["step_s"] < row["ci_high_s"]
    assert {near["algorithm"] for near in row["unmodelled"][0]["published"]} == {"default (NVLS)"}
    assert sum("NCCL may take NVLS" in line for line in step_lines(found)) == 1


@pytest.mark.parametrize(("name", "is_slower"), [("8xh100-400g", False), ("8xh100-400g-tcp", True)])
def test_the_text_names_the_formulas_that_ran_and_that_a_slow_network_is_slower_than_these(
    name, is_slower
):
    found = predict_steps(read_machine(name, "--cluster"), step_request(LLAMA, [2], None))
    lines = list(step_lines(found))
    assert [line.partition(":")[0] for line in lines if "modelled by" in line] == ["nccl_ring"]
    assert any(line.startswith("NCCL's formulas take at most") for line in lines) == is_slower


def test_nccls_own_are_valid_algorithms_where_a_machine_has_them_and_have_no_parameters():
    for machine, named in (
        (cluster(), "--algorithm"),
        (read_machine("8xh100-400g", "--cluster"), "channels"),
    ):
        with pytest.raises(BadInputError, match=named):
            steps([2], machine=machine, algorithm="nccl_ring")
