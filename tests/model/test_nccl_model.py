"""NCCL's own model gives what its published formulas give by hand."""

import pytest

from hpccoll.model.machine_sections import NcclSection
from hpccoll.model.nccl_model import PROTOCOLS, nccl_estimates

HOPPER = NcclSection(
    architecture="hopper", channels=8, intra_bytes_per_s=48e9, inter_bytes_per_s=48e9
)
AMPERE = NcclSection(
    architecture="ampere", cpu="amd", channels=8, intra_bytes_per_s=24e9, inter_bytes_per_s=24e9
)


def estimate(section, algorithm, protocol, nodes, ranks_per_node, nbytes, collective="all_reduce"):
    estimates = nccl_estimates(section, collective, nodes, ranks_per_node, nbytes)
    (found,) = (
        each for each in estimates if (each.algorithm, each.protocol) == (algorithm, protocol)
    )
    return found


@pytest.mark.parametrize(
    ("of", "latency_us", "gb_per_s"),
    [
        # 8.4 + 56 x 3.4 + 6 x 14 = 282.8, and the plateau; 8 x 48 x 32 / 62
        ((HOPPER, "ring", "Simple", 4, 8, 1 << 30), 1.4 * 282.8, 198.19355),
        # 8.4 + 28 x 6 + 2 x 14: three times the 2 us of this CPU; 8 x 24 x 16 / 30
        ((AMPERE, "ring", "Simple", 2, 8, 1 << 10), 204.4, 102.4),
        # 8.4 + 14 x 3.4 + 14, an all-gather has no plateau; 8 x 48 x 16 / 15
        ((HOPPER, "ring", "Simple", 2, 8, 1 << 30, "all_gather"), 70.0, 409.6),
        # 6.6 + 28 x 1 + 2 x 2.7: a step is not shorter than posting a message; 39 x 16 / 30
        ((HOPPER, "ring", "LL", 2, 8, 1 << 10), 40.0, 20.8),
        # 14 + 56 x 1.9 + 6 x 4; 8 x 36.7 x 32 / 62
        ((HOPPER, "ring", "LL128", 4, 8, 1 << 20), 144.4, 151.535484),
        # one rank a node: 14 + 6 x 8.5, a tree's latency between nodes; 8 x 20 x 4 / 6
        ((AMPERE, "ring", "LL128", 4, 1, 1 << 20), 65.0, 106.666667),
        # 6.8 + 2 (7 x 0.6 + 2 x 5); 20.4 x 0.6 / 2
        ((HOPPER, "tree", "LL", 4, 8, 64 << 10), 35.2, 6.12),
        # 14 + 2 (7 x 1.25 + 8.5); 8 x 36.7 x 0.6 / 2
        ((HOPPER, "tree", "LL128", 2, 8, 1 << 20), 48.5, 88.08),
        # 8.4 + 2 (7 x 4 + 6 x 14), 100 nodes have 6 levels; 8 x 17.8 / 2, without a correction from
        # 512 MiB on
        ((AMPERE, "tree", "Simple", 100, 8, 1 << 30), 232.4, 71.2),
    ],
)
def test_an_operation_takes_the_latency_and_its_bytes_over_the_bandwidth(of, latency_us, gb_per_s):
    found = estimate(*of)
    assert found.latency_s == pytest.approx(latency_us * 1e-6)
    assert found.bandwidth == pytest.approx(gb_per_s * 1e9)
    assert found.seconds == pytest.approx(latency_us * 1e-6 + of[5] / (gb_per_s * 1e9))


def test_the_known_miss_is_reproduced():
    """68.8 GB/s were printed for 8 H800 a node (nccl#1154); 16 channels of 11 GB/s are what 8 NVLinks a GPU hold."""
    h800 = NcclSection(
        architecture="hopper",
        channels=16,
        intra_bytes_per_s=11e9,
        inter_bytes_per_s=22e9,
        balanced_trees=False,
    )
    found = estimate(h800, "tree", "Simple", 2, 8, 4 << 30)
    assert f"{found.bandwidth / 1e9:.1f}" == "68.8"


def test_small_messages_take_low_latency_protocols_and_large_ones_simple():
    def fastest(nbytes):
        return min(
            nccl_estimates(HOPPER, "all_reduce", 16, 8, nbytes), key=lambda each: each.seconds
        )

    assert [fastest(nbytes).protocol for nbytes in (8, 4 << 20, 4 << 30)] == [*PROTOCOLS]
    assert (fastest(8).algorithm, fastest(4 << 30).algorithm) == ("tree", "ring")


@pytest.mark.parametrize(
    ("collective", "nodes"), [("all_to_all", 2), ("broadcast", 2), ("all_reduce", 1)]
)
def test_what_is_not_modelled_has_no_estimates(collective, nodes):
    assert nccl_estimates(HOPPER, collective, nodes, 8, 8) == []
