"""A workload: the keys of a training step, their defaults, and the programs that ranks run."""

from dataclasses import replace

import pytest

from hpccoll.common.errors import BadInputError
from hpccoll.common.quantities import BYTES
from hpccoll.extensions.steps.training import TRAINING_STEP
from hpccoll.extensions.steps.training.model_file import model_from_json
from hpccoll.extensions.steps.training.models import model_of
from hpccoll.extensions.steps.training.step_keys import TOKENS, WORKLOAD
from hpccoll.extensions.steps.training.training_step import TrainingStep
from hpccoll.schedule import DTYPE, WORKLOADS


def test_parameters_and_workloads_are_made_of_each_other():
    defaults = {name: key.default for name, key in WORKLOAD.items()}
    assert TrainingStep.of({}) == TrainingStep(**defaults)
    assert dict(WORKLOADS[TRAINING_STEP].arguments) == defaults
    workload = TrainingStep.of({"scale": 16, "sharding": "zero1", "overlap": 0})
    assert workload.params == {"model": "resnet50", "scale": 16, "sharding": "zero1", "overlap": 0}
    assert TrainingStep.of(workload.params) == workload


def test_gradient_bytes_are_those_of_all_parameters_and_a_model_of_the_user_precedes_one_of_the_same_name():
    assert TrainingStep.of({}).gradient_bytes("bfloat16") == 2 * 25_557_032
    own = model_from_json("gpt2", {"modules": [{"name": "fc", "tensors": {"weight": 10}}]})
    assert TrainingStep.of({"model": "gpt2"}).gradient_bytes("float32", {"gpt2": own}) == 40


MEGATRON = {
    "gradient_dtype": "float32",
    "parameter_dtype": "bfloat16",
    "activation_dtype": "bfloat16",
}


@pytest.mark.parametrize(
    ("fixed", "kept"),
    [
        ({}, set()),
        ({"parallel": "dp=4"}, set()),
        ({"sharding": "zero1"}, {"parameter_dtype"}),
        *(
            ({"model": "gpt2", "parallel": axis}, {"activation_dtype"})
            for axis in ("tp=2", "pp=2", "ep=2")
        ),
        (
            {"model": "gpt2", "parallel": "pp=2", "sharding": "zero2"},
            {"parameter_dtype", "activation_dtype"},
        ),
        ({"model": "gpt2", "parallel": "dp=1,tp=4", "sharding": "zero1"}, {"activation_dtype"}),
        ({"model": "gpt2", "sequence_length": 1024}, set()),
        ({"model": "gpt2", "sequence_length": 512}, {"sequence_length"}),
    ],
)
def test_steps_are_equal_however_types_are_given_which_count_only_of_what_moves(fixed, kept):
    given = {
        "bfloat16": {"gradient_dtype": "float32"},
        "float16": MEGATRON,
        "float32": {**MEGATRON},
    }
    (same,) = {TrainingStep.of({**fixed, **keys}).canonical(dtype) for dtype, keys in given.items()}
    dtype, step = same
    assert (dtype, step.params.keys() & {*MEGATRON, "sequence_length"}) == ("float32", kept)
    other = TrainingStep.of(
        {**fixed, "parameter_dtype": "float64", "activation_dtype": "float64"}
    ).canonical("float32")
    assert (other == same) == (not kept & {*MEGATRON})


def test_feedback_without_compression_changes_nothing_and_a_compression_is_an_argument_of_the_step():
    of = {
        feedback: TrainingStep.of({"feedback": feedback}).canonical("float32")
        for feedback in (0, 1)
    }
    assert of[0] == of[1]
    _, step = TrainingStep.of({"compress": "topk=1%", "feedback": 1}).canonical("float32")
    assert step.params == {"model": "resnet50", "compress": "topk=1%", "feedback": 1}
    assert step.moved_dtypes(2, "float32") == ("float32", "int32")
    assert TrainingStep.of({"compress": "bf16"}).moved_dtypes(2, "float32") == (
        "float32",
        "bfloat16",
    )


def test_buffers_of_a_compressed_step_have_its_gradients_once():
    dense, halves = (
        TrainingStep.of({"compress": compress}).programs(4, "float32")[0].buffer_bytes
        for compress in ("none", "fp16")
    )
    assert halves == 1.5 * dense


@pytest.mark.parametrize("parallel", ["", "dp=4", "tp=2,pp=2", "ep=2"])
@pytest.mark.parametrize("sharding", ["none", "fsdp"])
def test_a_step_without_types_and_sequence_length_is_itself(parallel, sharding):
    step = TrainingStep.of(
        {"model": "mixtral-8x7b", "parallel": parallel, "sharding": sharding, "scale": 64}
    )
    assert step.canonical("float16") == ("float16", step)


def test_a_sequence_length_of_a_model_of_the_user_is_left_out_if_the_model_has_it():
    own = {"mine": replace(model_of("gpt2"), name="mine")}
    (same,) = {
        TrainingStep.of({"model": "mine", "sequence_length": n}).canonical("int32", own)
        for n in (0, 1024)
    }
    assert same[1].params == {"model": "mine"}


@pytest.mark.parametrize(
    ("keys", "types"),
    [
        ({}, {"float32"}),
        ({"sharding": "zero1"}, {"float32", "float16"}),
        ({"model": "gpt2", "parallel": "tp=2"}, {"float32", "bfloat16"}),
        ({"model": "gpt2", "parallel": "pp=4"}, {"bfloat16"}),
        ({"model": "gpt2", "parallel": "pp=4", "sharding": "zero1"}, {"bfloat16"}),
    ],
)
def test_only_the_types_count_of_what_ranks_exchange(keys, types):
    given = {
        "gradient_dtype": "float32",
        "parameter_dtype": "float16",
        "activation_dtype": "bfloat16",
    }
    workload = TrainingStep.of({**keys, **given})
    moved = {each.dtype for program in workload.programs(4, "int32") for each in program.operations}
    assert moved == types == {*workload.moved_dtypes(4, "int32")}


@pytest.mark.parametrize(
    ("params", "key"),
    [
        *(
            ({name: value}, name)
            for name, value in {
                "model": "",
                "scale": 0,
                "compute": "gpu",
                "overlap": 2,
                "bucket": "25M",
                "parallel": 4,
                "sequence": True,
            }.items()
        ),
        ({"bucket": -1}, "bucket"),
        ({"parallel": "dp=3"}, "parallel"),
        ({"parallel": "tp=2"}, "parallel tp"),
        ({"model": "gpt2", "sharding": "hsdp"}, "parallel shard"),
        ({"model": "nobody"}, "model"),
    ],
)
def test_what_is_wrong_or_what_the_ranks_cannot_train_is_refused_with_its_key(params, key):
    with pytest.raises(BadInputError) as error:
        TrainingStep.of(params).programs(4, "float32")
    assert error.value.key == key


def test_each_key_reads_its_default_from_text_but_a_size_that_is_not_given():
    for name, key in WORKLOAD.items():
        if key.default not in ("", 0) or key.kind not in (BYTES, DTYPE, TOKENS):
            assert key.read(name, str(key.default)) == key.default
    assert WORKLOAD["bucket"].read("bucket", "25M") == 25 << 20
