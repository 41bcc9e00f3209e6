"""Buckets are those that frameworks make: the tables were written by PyTorch's own function that assigns buckets."""

import gzip
import json
import os
from itertools import chain, pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpccoll.common.errors import BadInputError
from hpccoll.extensions.steps.training.buckets import FRAMEWORKS, MIB, BucketRule
from hpccoll.extensions.steps.training.model_shape import ModelShape, Module, Tensor, scaled
from hpccoll.extensions.steps.training.models import model_of

TRACES = Path(
    os.environ.get("HPCCOLL_TRACES", Path(__file__).parents[5] / "shared" / "data" / "traces")
)
"""Where public traces of other projects lie, if they were fetched; they are no part of this one."""


def bucket_bytes(bucket, itemsize):
    return itemsize * sum(tensor.elements for tensor in bucket)


def sizes(model, rule=None, itemsize=4, ranks=1):
    shape = model if isinstance(model, ModelShape) else model_of(model)
    return [
        bucket_bytes(bucket, itemsize)
        for bucket in (rule or BucketRule()).buckets(shape, itemsize, ranks)
    ]


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("resnet50", [8_196_000, 31_502_336, 26_255_360, 26_550_272, 9_724_160]),
        ("vgg16", [16_388_000, 67_125_248, 411_058_176, 28_315_648, 28_320_768, 2_222_336]),
        ("gpt2", [9_446_400, *[28_351_488] * 11, 176_446_464]),
        ("bert-large", [4_336_880, *[37_781_504, 33_591_296, 29_396_992] * 12, 131_330_048]),
    ],
)
def test_buckets_of_ddp(model, expected):
    assert sizes(model) == expected


def test_limits_beyond_the_published_list():
    assert sizes("resnet50", BucketRule(limit=25 * MIB, first=MIB)) == sizes("resnet50")
    without_first = [30_257_056, 26_255_360, 28_366_848, 17_348_864]
    assert sizes("resnet50", BucketRule(limit=25 * MIB)) == without_first, (
        "a limit is that of the first bucket, too"
    )
    assert sizes("resnet50", BucketRule("one")) == [102_228_128]
    few, many = (sizes("llama2-7b", BucketRule("megatron"), 2, ranks) for ranks in (8, 400))
    assert (min(few[:-1]) >= 2 * 40_000_000, min(many[:-1]) >= 2 * 400_000_000) == (True, True)
    deepspeed = sizes("llama2-7b", BucketRule("deepspeed"), 2)
    assert (len(deepspeed), max(deepspeed) <= 2 * 500_000_000) == (14, True)
    alike = ModelShape(
        "any", tuple(Module(f"m{n}", (Tensor("w", 4),)) for n in range(6)), "float32", "", "a test"
    )
    assert sizes(alike, BucketRule("ddp", limit=16)) == [16] * 6, (
        "a bucket of exactly the limit is closed"
    )
    assert sizes(alike, BucketRule("horovod", limit=32)) == [32] * 3


def test_with_unused_parameters_ddp_keeps_the_buckets_of_the_parameter_list():
    model = model_of("resnet50")
    buckets = BucketRule("ddp_find_unused").buckets(model, 4)
    assert [tensor.name for tensor in chain(*buckets)] == [
        tensor.name for tensor in model.tensors[::-1]
    ]
    found = [bucket_bytes(bucket, 4) for bucket in buckets]
    # the first limit holds at the input, where gradients are ready last
    assert MIB <= found[-1] < 2 * MIB
    assert all(nbytes >= 25 * MIB for nbytes in found[1:-1])


def test_buckets_of_a_real_training_on_two_gpus_are_equal_to_the_element():
    # facebookresearch/param, et_replay/tests/inputs/1.1.0-chakra.0.0.4: three steps of ResNet-50
    path = TRACES / "resnet_2gpu_et.json.gz"
    if not path.exists():
        pytest.skip(f"there is no {path}; HPCCOLL_TRACES names the folder of public traces")
    with gzip.open(path) as file:
        nodes = json.load(file)["nodes"]
    called = [node["inputs"]["values"] for node in nodes if node["name"] == "record_param_comms"]
    elements = [values[0][0][3] for values in called if "allreduce" in values]
    assert elements == 3 * [nbytes // 4 for nbytes in sizes("resnet50")]


def test_buckets_of_deepspeed_have_the_sizes_that_aicb_lists():
    # aliyun/aicb, workload/physical/model_workload/L7B-D1-C02_Llama7B_zero3_mbs1.csv: buckets of
    # 1e9 elements. It lists parts of a block in another order, which moves the limits of buckets by
    # less than a tensor.
    listed = [
        1_971_396_608,
        1_933_656_064,
        *[1_990_270_976] * 2,
        *[1_990_279_168] * 2,
        1_610_670_080,
    ]
    found = sizes("llama2-7b", BucketRule("deepspeed", limit=2 * 10**9), 2)
    assert len(found) == len(listed)
    assert found == pytest.approx(listed, abs=2 * 4096 * 11008)


models = st.lists(
    st.tuples(st.lists(st.integers(1, 5000), max_size=4), st.booleans()), min_size=1, max_size=12
).map(
    lambda modules: ModelShape(
        "any",
        tuple(
            Module(
                f"m{number}",
                tuple(Tensor(f"t{i}", n) for i, n in enumerate(elements)),
                weight_first=first,
            )
            for number, (elements, first) in enumerate(modules)
        ),
        "float32",
        "a sample",
        "a test",
    )
)
rules = st.builds(
    BucketRule,
    st.sampled_from([*FRAMEWORKS]),
    st.none() | st.integers(1, 40_000),
    st.none() | st.integers(1, 40_000),
)


@given(models, rules, st.sampled_from([1, 2, 8]), st.integers(1, 1000))
def test_every_tensor_is_in_one_bucket_in_the_order_in_which_gradients_become_ready(
    model, rule, itemsize, ranks
):
    buckets = rule.buckets(model, itemsize, ranks)
    assert all(buckets)
    ready = model.tensors[::-1] if rule.framework == "ddp_find_unused" else model.ready
    assert tuple(chain(*buckets)) == ready


@given(models, st.integers(1, 40_000))
def test_ddp_overshoots_by_less_than_its_last_tensor_and_horovod_never(model, limit):
    for bucket in BucketRule("ddp", limit).buckets(model, 4)[:-1]:
        assert bucket_bytes(bucket, 4) >= limit > bucket_bytes(bucket[:-1], 4)
    fused = BucketRule("horovod", limit).buckets(model, 4)
    assert all(len(bucket) == 1 or bucket_bytes(bucket, 4) <= limit for bucket in fused)
    assert all(
        bucket_bytes(bucket, 4) + 4 * after[0].elements > limit for bucket, after in pairwise(fused)
    )


def test_a_scaled_model_has_the_buckets_of_the_model():
    whole, small = model_of("resnet50"), scaled(model_of("resnet50"), 16)
    assert [(t.name, max(1, t.elements // 16)) for t in whole.tensors] == [
        (t.name, t.elements) for t in small.tensors
    ]
    assert (small.scale, small.forward_flops) == (16, pytest.approx(whole.forward_flops / 16))
    names = [[tensor.name for tensor in bucket] for bucket in BucketRule().buckets(whole, 4)]
    assert [
        [tensor.name for tensor in bucket] for bucket in BucketRule(scale=16).buckets(small, 4)
    ] == names


@pytest.mark.parametrize("wrong", [{"framework": "pytorch"}, {"limit": 0}, {"first": 0}])
def test_a_wrong_rule_is_refused(wrong):
    with pytest.raises(BadInputError):
        BucketRule(**wrong)
