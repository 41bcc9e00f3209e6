"""Compressions: their names, the operations of each, and what they may compress."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hpccoll.common.errors import BadInputError
from hpccoll.extensions.steps.training.compressed_bucket import compressed
from hpccoll.extensions.steps.training.compression import COMPRESSIONS, Compression
from hpccoll.extensions.steps.training.models import model_of
from hpccoll.extensions.steps.training.parallelism import Mesh, Parallelism, StepDtypes
from hpccoll.extensions.steps.training.step_program import StepOperation
from hpccoll.extensions.steps.training.step_program_builder import step_programs
from hpccoll.schedule import COLLECTIVES, itemsize

ELEMENTS, RANKS = 1_000_003, 6
ALL = [name if name != "topk" else "topk=1%" for name in COMPRESSIONS]


def chain(text, elements=ELEMENTS, ranks=RANKS):
    bucket = StepOperation("bucket 1", "all_reduce", "dp", 4 * elements, "float32", "backward")
    return compressed(bucket, Compression.parse(text), ranks)


def sent(operations, ranks):
    """Return the bytes that a rank sends at least: what the bus bandwidth of nccl-tests counts."""
    moved = {"all_reduce": 2, "all_to_all": 1, "all_gather": 1}
    return sum(
        moved[each.collective] * (ranks - 1) / ranks * each.nbytes
        for each in operations
        if not each.is_codec
    )


@pytest.mark.parametrize(
    ("text", "part"), [("fp16", 1 / 2), ("bf16", 1 / 2), ("fp8_e4m3", 1 / 4), ("fp8_e5m2", 1 / 4)]
)
def test_16_bits_send_half_of_the_bytes_and_fp8_a_quarter(text, part):
    dense = 2 * (RANKS - 1) / RANKS * 4 * ELEMENTS
    assert sent(chain(text), RANKS) == pytest.approx(part * dense, rel=1e-4)


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_top_k_sends_eight_bytes_for_each_gradient_that_another_rank_keeps(ranks):
    assert sent(chain("topk=1%", 1_000_000, ranks), ranks) == 8 * 10_000 * (ranks - 1)


@given(st.sampled_from(ALL), st.integers(1, 10**7), st.integers(2, 64))
def test_every_message_is_whole_in_the_blocks_and_elements_of_its_collective(text, elements, ranks):
    for each in chain(text, elements, ranks):
        if not each.is_codec:
            blocks = 1 if each.collective == "all_reduce" else ranks
            assert each.nbytes % (itemsize(each.dtype) * blocks) == 0
            assert each.nbytes > 0


@given(st.floats(1e-12, 0.5), st.integers(1, 10**8))
@example(1e-12, 100)
def test_top_k_keeps_its_part_and_at_least_one(kept, elements):
    k = Compression("topk", kept).kept_of(elements)
    assert k >= 1
    assert abs(k - kept * elements) <= 1


@pytest.mark.parametrize("text", [*ALL, "topk=0.1%", "topk=12.5%"])
def test_a_compression_is_read_as_it_is_written(text):
    assert Compression.parse(text).text == text


@pytest.mark.parametrize(
    "text", ["fp32", "", "topk", "fp16=1%", "topk=0%", "topk=51%", "topk=x", "topk=nan", "topk=-1%"]
)
def test_other_compressions_are_refused_with_the_key_and_the_value(text):
    with pytest.raises(BadInputError, match=rf"compress.*{re.escape(text)}"):
        Compression.parse(text)


def programs(dtype="float32", **parallelism):
    types = StepDtypes(dtype, dtype, dtype)
    return step_programs(model_of("resnet50"), Parallelism(dtypes=types, **parallelism))


@pytest.mark.parametrize("text", ALL)
def test_each_bucket_of_a_step_becomes_the_chain_of_its_compression(text):
    compression = Compression.parse(text)
    dense = programs(mesh=Mesh(dp=4))[0].operations
    chains = [each for bucket in dense for each in compressed(bucket, compression, 4)]
    assert programs(mesh=Mesh(dp=4), compression=compression)[0].operations == chains
    assert {each.collective for each in chains if not each.is_codec} <= {*COLLECTIVES}


def test_a_single_rank_compresses_nothing():
    assert not programs(compression=Compression("fp16"))[0].operations


@pytest.mark.parametrize(
    "keys", [{"sharding": "zero1"}, {"sharding": "fsdp"}, {"dtype": "bfloat16"}]
)
def test_only_all_reduces_of_float32_are_compressed(keys):
    with pytest.raises(BadInputError, match=r"compress.*fp16"):
        programs(mesh=Mesh(dp=4), compression=Compression("fp16"), **keys)
