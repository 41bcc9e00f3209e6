"""The dry run: what a step would do, as JSON that other programs read, and as text."""

from collections import Counter

import pytest
from golden_page import assert_golden

from hpccoll.extensions.steps.render.step_dry_run import MAX_ROWS, dry_run_json, dry_run_lines
from hpccoll.extensions.steps.training.training_step import TrainingStep


def dry(workers=4, dtype="float32", models=None, **keys):
    return dry_run_json(TrainingStep.of(keys), workers, dtype, models)


def text(workers=4, dtype="float32", models=None, **keys):
    return "\n".join(dry_run_lines(TrainingStep.of(keys), workers, dtype, models))


def test_the_flops_of_all_ranks_are_those_of_the_samples():
    found = dry(
        8, model="llama2-7b", parallel="pp=2,tp=2", micro_batches=3, samples=2, dtype="bfloat16"
    )
    # each stage has four ranks
    of_ranks = 4 * sum(each["forward_flops"] for each in found["stages"])
    # of two data-parallel ranks
    assert of_ranks == pytest.approx(found["forward_flops"] * 2 * 3 * 2)


def test_the_types_of_megatron_move_the_bytes_that_it_moves():
    # zero1 of Megatron-LM by default: gradients are summed in float32, parameters and activations
    # move in bfloat16
    found = dry(
        8,
        model="llama2-7b",
        parallel="dp=4,tp=2",
        sharding="zero1",
        buckets="megatron",
        dtype="bfloat16",
        gradient_dtype="float32",
    )
    moved = Counter()
    for each in found["operations"]:
        moved[each["collective"], each["dtype"], each["phase"]] += each["bytes"]
    assert moved == {
        ("reduce_scatter", "float32", "backward"): 13_477_363_712,
        ("all_gather", "bfloat16", "step"): 6_738_681_856,
        ("all_reduce", "bfloat16", "forward"): 2_181_038_080,
        ("all_reduce", "bfloat16", "backward"): 2_181_038_080,
    }
    assert found["gradient_bytes"] == 4 * found["parameters"]


def test_the_text_has_each_table_and_stages_that_are_alike_once():
    found = dry(8, model="gpt2", parallel="pp=4,tp=2", dtype="bfloat16")
    parts = (
        str(each)
        for name in ("stages", "operations")
        for each in found[name]
        if each.get("group") != "tp"
    )
    assert_golden(
        "dry_run", "\n".join((text(), "", text(8, model="gpt3-175b", parallel="pp=8"), "", *parts))
    )


def test_the_text_of_a_long_table_is_shortened():
    whole = text(model="llama2-7b", dtype="bfloat16")
    assert sum(line.startswith("bucket ") for line in whole.splitlines()) == MAX_ROWS
    assert f"... {226 - MAX_ROWS} more" in whole


def test_compressed_gradients_are_named_with_what_is_sent_of_them():
    assert (dry(compress="fp16")["compress"], dry()["compress"]) == ("fp16", "none")
    assert "bytes of gradients in float32, sent in topk=1%" in text(compress="topk=1%")
