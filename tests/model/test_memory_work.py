"""What operations move in memory besides their messages, and what that takes."""

import math
from dataclasses import replace

import pytest
from model_observations import MACHINE, observation

from hpccoll.model.machine import OwnMemory
from hpccoll.model.memory_work import memory_work
from hpccoll.model.validation import predicted_seconds
from hpccoll.schedule import COLLECTIVES, Layout

EIGHT = Layout.of(8, 1)


@pytest.mark.parametrize(
    ("collective", "algorithm", "largest_fold", "copied", "buffers"),
    [
        ("all_gather", "ring", 0, 0, 0),
        ("all_gather", "bruck", 0, 1024, 1024),
        ("all_reduce", "ring", 128, 1024, 128),
        ("reduce_scatter", "ring", 128, 1024, 1152),
    ],
)
def test_buffers_hold_what_is_folded_and_what_does_not_fit_into_the_result(
    collective, algorithm, largest_fold, copied, buffers
):
    call = COLLECTIVES[collective].call(8)
    assert memory_work(call, algorithm, 1024, largest_fold) == (copied, buffers)


def test_new_memory_and_late_starts_take_their_time():
    memory = OwnMemory(copy_byte_s=1e-10, new_byte_s=1e-9, kept_bytes=1 << 20)
    small, large = (
        observation("reduce_scatter", "ring", nbytes, 1.0, EIGHT) for nbytes in (1 << 16, 1 << 22)
    )
    costs = replace(MACHINE, own_memory=memory)
    added = predicted_seconds(small, costs) - predicted_seconds(small, MACHINE)
    assert added == pytest.approx((1 << 16) * 1e-10, rel=1e-3)
    added = predicted_seconds(large, costs) - predicted_seconds(large, MACHINE)
    buffers = (1 << 22) + (1 << 19)
    assert added == pytest.approx((1 << 22) * 1e-10 + buffers * 1e-9, rel=1e-3)
    late = replace(MACHINE, start_skew_s=1e-6)
    added = predicted_seconds(small, late) - predicted_seconds(small, MACHINE)
    assert added == pytest.approx(1e-6 * math.log2(8), rel=1e-3)
