"""The number of channels of a case, and the number in flight."""

from schedule_examples import case_of

from hpccoll.cases.planned_schedule import choose_channels, default_channels
from hpccoll.schedule import Layout


def test_the_default_has_more_channels_between_nodes_and_one_for_small_messages():
    node, wire = Layout.of(4), Layout.of(4, 1)
    assert [default_channels(size << 10, node) for size in (8, 512, 4096, 16384, 1 << 20)] == [1, 1, 1, 4, 64]
    assert [default_channels(size << 10, wire) for size in (8, 128, 256, 1024, 16384, 1 << 20)] == [1, 1, 2, 4, 8, 64]


def test_a_pipeline_has_one_channel_per_segment():
    for layout in (Layout.of(4), Layout.of(4, 1)):
        segments = [default_channels(size << 10, layout, pipelined=True) for size in (0, 8, 256, 1024, 8192, 1 << 20)]
        assert segments == [1, 1, 2, 8, 64, 64]


def test_over_nccl_only_a_pipeline_has_channels_by_default():
    layout = Layout.of(8)
    assert default_channels(1 << 30, layout, queued=True) == 1
    assert [default_channels(n, layout, pipelined=True, queued=True) for n in (1, 1 << 23, 1 << 30)] == [1, 2, 64]


def test_requested_channels_and_windows_override_the_defaults():
    ring = case_of("all_reduce-ring", 4)

    def made(asked, *, pipelined=False, queued=False):
        return choose_channels(asked, 64 << 20, ring.layout, ring.slices, pipelined=pipelined, queued=queued)

    assert (made({}), made({}, pipelined=True), made({}, queued=True)) == ((16, 4), (64, 4), (1, 1))
    assert made({}, pipelined=True, queued=True) == (16, 4)
    assert (made({"channels": 2}), made({"channels": 8, "window": 1})) == ((2, 2), (8, 1))
    assert made({"segment": 1 << 20}) == (16, 4), "of a unit, a quarter"
    assert made({"segment": 1 << 20}, pipelined=True) == (64, 4)
    assert made({"segment": 1 << 20, "window": 8}, pipelined=True, queued=True) == (64, 8)
