"""The communication wall by closed formulas, and a public page whose figures have two slips."""

from dataclasses import replace

import pytest

from hpccoll.common.errors import BadInputError
from hpccoll.extensions.steps.model.communication_wall import Wall, bubble_share, wall_points

PUBLIC = Wall(parameters=7e9, bytes_per_element=2, link=400e9, compute_s=3.5e-3)
"""What the public page asks for: 7 billion parameters in 16 bits, 8 GPUs, 400 Gbit/s, 3.5 ms of computation."""
IN_NETWORK = Wall(1e9, 2, 400e9, 1.0, "in_network")


def test_gradients_of_7_billion_parameters_take_490_ms_over_400_gbits():
    row = PUBLIC.point(8, 8).to_json()
    assert row["gradient_bytes"] == 14_000_000_000
    assert (
        row["communication_s"]
        == pytest.approx(2 * 7 / 8 * 14e9 * 8 / 400e9)
        == pytest.approx(0.490)
    )
    assert (row["step_s"], row["share"]) == pytest.approx((0.4935, 490 / 493.5))
    assert (row["hide_rate_bps"], row["busbw_Bps"]) == pytest.approx((56_000e9, 400e9 / 8))


def test_the_figures_of_the_public_page_follow_from_its_two_slips():
    """It takes 13.04 GiB for 13.04e9 bytes, and leaves 2(n - 1)/n out of the rate that would hide the all-reduce."""
    point = replace(PUBLIC, parameters=14e9 / (1 << 30) * 1e9 / 2).point(8, 8)
    assert 1e3 * point.step_s == pytest.approx(459.8, abs=0.06)
    assert point.hide_rate / (2 * 7 / 8) / 1e9 == pytest.approx(29_802, abs=0.5)


def test_a_faster_link_saves_no_latency():
    wall = Wall(parameters=1e6, bytes_per_element=4, link=8e9, compute_s=1e-3, latency_s=1e-5)
    point, many = wall_points(wall, [4, 128])
    assert point.communication_s == pytest.approx(6 * 1e-5 + 1.5 * 4e6 / 1e9)
    assert replace(wall, link=point.hide_rate).point(4, 4).communication_s == pytest.approx(1e-3)
    assert many.hide_rate is None


def test_hierarchical_takes_its_parts_inside_nodes_and_between_them():
    wall = Wall(
        1e9, 2, 400e9, 1.0, "hierarchical", latency_s=1e-6, gpus_per_node=8, node_link=3.2e12
    )
    inside, between = 2 * 7 / 8 * 2e9 / 400e9, 2 * 3 / 4 * 2e9 / 8 / 50e9
    assert wall.point(32, 32).communication_s == pytest.approx(
        inside + between + 2 * (7 + 3) * 1e-6
    )
    with pytest.raises(BadInputError, match="multiple of --ranks-per-node 8"):
        wall.point(12, 12)


def test_overlapped_at_best_the_longer_of_both_remains():
    slow, fast = (Wall(1e9, 2, rate, 1.0).point(2, 2).to_json() for rate in (8e9, 80e9))
    assert (slow["overlapped_step_s"], slow["overlapped_exposed_s"]) == pytest.approx((2.0, 1.0))
    assert (fast["overlapped_step_s"], fast["overlapped_share"]) == pytest.approx((1.0, 0.0))


def test_the_network_moves_every_byte_once_and_with_a_fixed_batch_the_speed_up_stays_below_amdahls_limit():
    rows = [point.to_json() for point in wall_points(IN_NETWORK, [2, 8, 512, 16384])]
    assert [row["communication_s"] for row in rows] == pytest.approx([2e9 / 50e9] * 4)
    assert [row["amdahl_limit"] for row in rows] == pytest.approx([2 / 0.04] * 4)
    assert [row["fixed_batch_speedup"] for row in rows] == pytest.approx(
        [2 / (2 / n + 0.04) for n in (2, 8, 512, 16384)]
    )


@pytest.mark.parametrize(("stages", "micro_batches", "share"), [(1, 4, 0.0), (4, 9, 0.25)])
def test_the_bubble_of_a_pipeline(stages, micro_batches, share):
    assert bubble_share(stages, micro_batches) == share
