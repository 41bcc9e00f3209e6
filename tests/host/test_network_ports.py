"""Network ports and their counters, on a fake sysfs."""

import pytest

from hpccoll.host import network_ports
from hpccoll.host.network_ports import RECEIVED, RECEIVED_PACKETS, SENT, SENT_PACKETS

IPOIB, LOOPBACK = 32, 772


def test_words_packets_and_hardware_counters_of_both_kinds_of_ports_are_read(host, monkeypatch):
    hardware = {"np_cnp_sent": 5, "lifespan": 10}
    host.infiniband(
        "mlx5_0", sent=10, received=20, port_xmit_packets=7, port_xmit_wait=7, hardware=hardware
    )
    host.netdev("eth0", tx_packets=5, rx_packets=6)
    monkeypatch.setattr(
        network_ports,
        "driver_statistics",
        lambda device: {"rx_pause": 4} if device == "eth0" else {},
    )
    counted = host.read()
    assert {name: value for (port, name), value in counted.items() if port == "mlx5_0/1"} == {
        SENT: 40,
        RECEIVED: 80,
        SENT_PACKETS: 7,
        "port_xmit_wait": 7,
        "np_cnp_sent": 5,
    }
    assert [
        counted["eth0", name] for name in (SENT_PACKETS, RECEIVED_PACKETS, "rx_pause_frames")
    ] == [5, 6, 4]


@pytest.mark.parametrize(
    ("devices", "infiniband", "masters", "found"),
    [
        pytest.param(
            [("ib0", {"kind": IPOIB}), ("eth0", {})], {}, {}, ["mlx5_0/1", "eth0"], id="no IPoIB"
        ),
        pytest.param(
            [
                *((name, {"hardware": False}) for name in ("bond0", "br0", "eth0.7")),
                ("eth0", {}),
                ("eth1", {}),
            ],
            None,
            {"eth0": "bond0", "eth1": "bond0"},
            ["eth0", "eth1"],
            id="nothing without hardware",
        ),
        pytest.param(
            [("eth0", {}), ("enP1", {})], None, {"enP1": "eth0"}, ["eth0"], id="no virtual function"
        ),
        pytest.param(
            [("eth0", {"flags": "0x1002"}), ("eth1", {})],
            {"state": "1: DOWN"},
            {},
            ["eth1"],
            id="nothing that is down",
        ),
        pytest.param(
            [
                ("lo", {"kind": LOOPBACK, "flags": "0x9", "hardware": False}),
                ("veth0", {"hardware": False}),
                ("dummy0", {"hardware": False, "flags": "0x82"}),
            ],
            None,
            {},
            ["veth0"],
            id="what is up without hardware",
        ),
    ],
)
def test_each_byte_is_counted_at_one_port(host, devices, infiniband, masters, found):
    if infiniband is not None:
        host.infiniband("mlx5_0", **infiniband)
    for name, about in devices:
        host.netdev(name, **about)
    for name, master in masters.items():
        (host.sys / "class/net" / name / "master").symlink_to(f"../{master}")
    assert host.found() == found


def test_ports_are_described_for_the_provenance(host):
    host.infiniband("mlx5_0")
    host.netdev("eth0", speed=-1)
    assert network_ports.port_facts(host.sys) == [
        {
            "name": "mlx5_0/1",
            "kind": "infiniband",
            "link_layer": "InfiniBand",
            "rate": "200 Gb/sec (4X HDR)",
        },
        {"name": "eth0", "kind": "netdev", "mtu": 9000, "speed": None},
    ]


@pytest.mark.parametrize(
    ("driver", "statistics", "frames"),
    [
        (
            "mlx5",
            {
                "rx_pause_ctrl_phy": 1,
                "tx_pause_ctrl_phy": 2,
                "rx_global_pause": 1,
                "rx_prio3_pause": 10,
                "rx_prio3_pause_duration": 999,
                "rx_prio3_pause_transition": 9,
                "tx_prio4_pause": 20,
                "tx_pause_storm_warning_events": 5,
                "rx_packets_phy": 7,
            },
            {"rx_pause_frames": 11, "tx_pause_frames": 22},
        ),
        (
            "bnxt_en",
            {
                "rx_pause_frames": 1,
                "rx_pfc_frames": 2,
                "rx_pfc_ena_frames_pri0": 9,
                "rx_pfc_xon2xoff_frames_pri0": 9,
            },
            {"rx_pause_frames": 3},
        ),
        (
            "ice",
            {
                "link_xoff_rx.nic": 1,
                "link_xon_rx.nic": 9,
                "rx_priority_3_xoff.nic": 4,
                "tx_priority_3_xoff.nic": 2,
            },
            {"rx_pause_frames": 5, "tx_pause_frames": 2},
        ),
    ],
)
def test_pause_frames_are_summed_from_the_names_of_each_driver(driver, statistics, frames):
    assert network_ports.pause_frames(statistics) == frames, driver


def test_missing_devices_and_devices_without_statistics_have_none():
    assert (
        network_ports.driver_statistics("lo")
        == network_ports.driver_statistics("nosuchdevice0")
        == {}
    )
