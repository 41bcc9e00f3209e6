"""A workload: the keys of a training step, their defaults, and the programs that ranks run."""

import pytest

from hpccoll.common.errors import BadInputError
from hpccoll.schedule import DTYPE, WORKLOADS
from hpccoll.training.model_file import model_from_json
from hpccoll.training.step_keys import BYTES, TOKENS, WORKLOAD
from hpccoll.training.workload import TRAINING_STEP, Workload


def test_parameters_and_workloads_are_made_of_each_other():
    defaults = {name: key.default for name, key in WORKLOAD.items()}
    assert Workload.of({}) == Workload(**defaults)
    assert dict(WORKLOADS[TRAINING_STEP].arguments) == defaults
    workload = Workload.of({"scale": 16, "sharding": "zero1", "overlap": 0})
    assert workload.params == {"model": "resnet50", "scale": 16, "sharding": "zero1", "overlap": 0}
    assert Workload.of(workload.params) == workload


def test_gradient_bytes_are_those_of_all_parameters_and_a_model_of_the_user_precedes_one_of_the_same_name():
    assert Workload.of({}).gradient_bytes("bfloat16") == 2 * 25_557_032
    own = model_from_json("gpt2", {"modules": [{"name": "fc", "tensors": {"weight": 10}}]})
    assert Workload.of({"model": "gpt2"}).gradient_bytes("float32", {"gpt2": own}) == 40


MEGATRON = {"gradient_dtype": "float32", "parameter_dtype": "bfloat16", "activation_dtype": "bfloat16"}


def test_steps_that_move_the_same_types_are_equal_however_the_types_were_given_and_others_are_not():
    given = {"bfloat16": {"gradient_dtype": "float32"}, "float16": MEGATRON, "float32": {**MEGATRON}}
    (same,) = {Workload.of(keys).typed(dtype) for dtype, keys in given.items()}
    assert same == ("float32", Workload.of({**MEGATRON, "gradient_dtype": ""}))
    assert same[1].gradient_bytes(same[0]) == 4 * 25_557_032
    others = [Workload.of(keys).typed("float32") for keys in ({}, {"parameter_dtype": "bfloat16"})]
    assert len({same, *others}) == 3


@pytest.mark.parametrize(
    ("keys", "types"),
    [
        ({}, {"float32"}),
        ({"sharding": "zero1"}, {"float32", "float16"}),
        ({"model": "gpt2", "parallel": "tp=2"}, {"float32", "bfloat16"}),
        ({"model": "gpt2", "parallel": "pp=4"}, {"bfloat16"}),
    ],
)
def test_only_the_types_count_of_what_ranks_exchange(keys, types):
    given = {"gradient_dtype": "float32", "parameter_dtype": "float16", "activation_dtype": "bfloat16"}
    workload = Workload.of({**keys, **given})
    moved = {each.dtype for program in workload.programs(4, "int32") for each in program.operations}
    assert moved == types == {*workload.parallelism(4, "int32").moved_dtypes}


@pytest.mark.parametrize(
    ("params", "key"),
    [
        *(({name: value}, name) for name, value in {
            "model": "", "scale": 0, "compute": "gpu", "overlap": 2, "bucket": "25M", "parallel": 4, "sequence": True,
        }.items()),
        ({"bucket": -1}, "bucket"), ({"parallel": "dp=3"}, "parallel"), ({"parallel": "tp=2"}, "parallel tp"),
        ({"model": "gpt2", "sharding": "hsdp"}, "parallel shard"), ({"model": "nobody"}, "model"),
    ],
)  # fmt: skip
def test_what_is_wrong_or_what_the_ranks_cannot_train_is_refused_with_its_key(params, key):
    with pytest.raises(BadInputError) as error:
        Workload.of(params).programs(4, "float32")
    assert error.value.key == key


def test_each_key_reads_its_default_from_text_but_a_size_that_is_not_given():
    for name, key in WORKLOAD.items():
        if key.default not in ("", 0) or key.kind not in (BYTES, DTYPE, TOKENS):
            assert key.read(name, str(key.default)) == key.default
    assert WORKLOAD["bucket"].read("bucket", "25M") == 25 << 20
