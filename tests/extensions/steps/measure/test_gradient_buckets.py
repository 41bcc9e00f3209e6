"""Buckets of seeded gradients: what is checked after a step finds a rank whose gradients are lost."""

from types import SimpleNamespace

import numpy as np
import pytest

from hpccoll.extensions.steps.measure.gradient_buckets import GradientBucketBuffer
from hpccoll.extensions.steps.training.compression import Compression
from hpccoll.schedule import Layout, dtype_of


def buckets_of(ranks, compression, elements=500):
    found = []
    for rank in range(ranks):
        buffer = np.zeros(
            elements, dtype_of({"fp16": "float16", "bf16": "bfloat16"}[compression.name])
        )
        case = SimpleNamespace(
            layout=Layout.of(ranks),
            rank=rank,
            contribution=buffer,
            result=buffer,
            fill_by_caller=lambda: None,
        )
        found.append(
            GradientBucketBuffer(
                SimpleNamespace(elements=elements, label="b"), 0, [case], compression
            )
        )
    return found


@pytest.mark.parametrize("feedback", [False, True])
@pytest.mark.parametrize(
    ("text", "ranks"), [("bf16", 2), ("bf16", 16), ("bf16", 51), ("fp16", 41), ("fp16", 300)]
)
def test_a_rank_that_is_lost_or_twice_in_sums_of_half_the_precision_is_found(text, ranks, feedback):
    buckets = buckets_of(ranks, Compression.parse(text, feedback=feedback))
    for each in buckets:
        each.seed()
        each.reset()
        each.codec.encode()
    sent = [each.codec.messages[0].own.copy() for each in buckets]
    for more, finds in ([], False), ([sent[1]], True), ([-sent[1]], True):
        total = np.zeros_like(sent[0])
        for each in [*sent, *more]:
            total += each
        buckets[0].codec.messages[0].arrived[:] = total
        buckets[0].codec.decode()
        assert (buckets[0].wrong() > 0) == finds
