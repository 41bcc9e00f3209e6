"""A workload: the keys of a training step, their defaults, and the programs that ranks run."""

import pytest

from hpccoll.common.errors import BadInputError
from hpccoll.schedule import WORKLOADS
from hpccoll.training.buckets import bucket_bytes
from hpccoll.training.model_file import model_from_json
from hpccoll.training.step_keys import BYTES, WORKLOAD
from hpccoll.training.workload import TRAINING_STEP, Workload


def buckets(workload, workers=4):
    return [bucket_bytes(bucket.tensors, 4) for bucket in workload.programs(workers, "float32")[0].buckets]


def test_without_parameters_every_key_has_its_default():
    assert Workload.of({}) == Workload(**{name: key.default for name, key in WORKLOAD.items()})
    assert dict(WORKLOADS[TRAINING_STEP].arguments) == {name: key.default for name, key in WORKLOAD.items()}


def test_the_parameters_of_a_workload_make_the_same_workload():
    workload = Workload.of({"scale": 16, "sharding": "zero1", "overlap": 0})
    assert workload.params == {"model": "resnet50", "scale": 16, "sharding": "zero1", "overlap": 0}
    assert Workload.of(workload.params) == workload


def test_the_limits_of_buckets_shrink_with_the_model():
    whole, small = buckets(Workload.of({})), buckets(Workload.of({"scale": 16}))
    assert len(small) == len(whole)
    assert [16 * nbytes for nbytes in small] == pytest.approx(whole, rel=0.001)


@pytest.mark.parametrize(("dtype", "size"), [("float32", 4), ("bfloat16", 2), ("float64", 8)])
def test_gradient_bytes_are_those_of_all_parameters(dtype, size):
    assert Workload.of({}).gradient_bytes(dtype) == size * 25_557_032


def test_a_model_of_the_user_precedes_one_of_the_same_name():
    own = model_from_json("gpt2", {"modules": [{"name": "fc", "tensors": {"weight": 10}}]})
    assert Workload.of({"model": "gpt2"}).gradient_bytes("float32", {"gpt2": own}) == 40


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model", ""), ("scale", 0), ("compute", "gpu"), ("overlap", 2), ("bucket", -1), ("bucket", "25M"),
        ("parallel", 4), ("sequence", True),
    ],
)  # fmt: skip
def test_a_wrong_value_is_refused_with_its_key(name, value):
    with pytest.raises(BadInputError) as error:
        Workload.of({name: value})
    assert error.value.key == name


@pytest.mark.parametrize(
    ("params", "key"),
    [
        ({"parallel": "dp=3"}, "parallel"),
        ({"parallel": "tp=2"}, "parallel tp"),
        ({"model": "gpt2", "parallel": "pp=16"}, "parallel"),
        ({"model": "gpt2", "sharding": "hsdp"}, "parallel shard"),
        ({"model": "gpt2", "parallel": "ep=2"}, "parallel ep"),
        ({"model": "nobody"}, "model"),
    ],
)
def test_what_the_ranks_cannot_train_is_refused(params, key):
    with pytest.raises(BadInputError) as error:
        Workload.of(params).programs(4, "float32")
    assert error.value.key == key


def test_each_key_reads_its_default_from_text_but_a_size_that_is_not_given():
    for name, key in WORKLOAD.items():
        if key.kind is not BYTES:
            assert key.read(name, str(key.default)) == key.default


@pytest.mark.parametrize(("name", "text", "value"), [("bucket", "25M", 25 << 20), ("scale", "16", 16)])
def test_a_value_is_read_from_text(name, text, value):
    assert WORKLOAD[name].read(name, text) == value
