"""Driver statistics and pause frames."""

import pytest

from hpccoll.host import ethtool


@pytest.mark.parametrize(
    ("driver", "statistics", "frames"),
    [
        (
            "mlx5",
            {
                "rx_pause_ctrl_phy": 1, "tx_pause_ctrl_phy": 2, "rx_global_pause": 1, "rx_prio3_pause": 10,
                "rx_prio3_pause_duration": 999, "rx_prio3_pause_transition": 9, "tx_prio4_pause": 20,
                "tx_pause_storm_warning_events": 5, "rx_packets_phy": 7,
            },
            {"rx_pause_frames": 11, "tx_pause_frames": 22},
        ),
        (
            "bnxt_en",
            {"rx_pause_frames": 1, "rx_pfc_frames": 2, "rx_pfc_ena_frames_pri0": 9, "rx_pfc_xon2xoff_frames_pri0": 9},
            {"rx_pause_frames": 3},
        ),
        (
            "ice",
            {"link_xoff_rx.nic": 1, "link_xon_rx.nic": 9, "rx_priority_3_xoff.nic": 4, "tx_priority_3_xoff.nic": 2},
            {"rx_pause_frames": 5, "tx_pause_frames": 2},
        ),
        ("ixgbe", {"tx_flow_control_xoff": 3, "tx_flow_control_xon": 4}, {"tx_pause_frames": 3}),
    ],
)  # fmt: skip
def test_pause_frames_are_summed_from_the_names_of_each_driver(driver, statistics, frames):
    assert ethtool.pause_frames(statistics) == frames, driver


def test_missing_devices_and_devices_without_statistics_have_none():
    assert ethtool.driver_statistics("lo") == ethtool.driver_statistics("nosuchdevice0") == {}
