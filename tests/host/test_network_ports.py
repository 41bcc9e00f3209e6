"""Network ports and their counters, on a fake sysfs."""

import pytest

from hpccoll.host import network_ports
from hpccoll.host.network_ports import RECEIVED, RECEIVED_PACKETS, SENT, SENT_PACKETS

IPOIB, LOOPBACK = 32, 772


def test_words_packets_and_hardware_counters_of_both_kinds_of_ports_are_read(host):
    hardware = {"np_cnp_sent": 5, "lifespan": 10}
    host.infiniband("mlx5_0", sent=10, received=20, port_xmit_packets=7, port_xmit_wait=7, hardware=hardware)
    host.netdev("eth0", tx_packets=5, rx_packets=6)
    counted = host.read()
    assert {name: value for (port, name), value in counted.items() if port == "mlx5_0/1"} == {
        SENT: 40, RECEIVED: 80, SENT_PACKETS: 7, "port_xmit_wait": 7, "np_cnp_sent": 5,
    }  # fmt: skip
    assert (counted["eth0", SENT_PACKETS], counted["eth0", RECEIVED_PACKETS]) == (5, 6)


@pytest.mark.parametrize(
    ("devices", "infiniband", "masters", "found"),
    [
        pytest.param([("ib0", {"kind": IPOIB}), ("eth0", {})], {}, {}, ["mlx5_0/1", "eth0"], id="no IPoIB"),
        pytest.param(
            [*((name, {"hardware": False}) for name in ("bond0", "br0", "eth0.7")), ("eth0", {}), ("eth1", {})], None,
            {"eth0": "bond0", "eth1": "bond0"}, ["eth0", "eth1"], id="nothing without hardware",
        ),
        pytest.param([("eth0", {}), ("enP1", {})], None, {"enP1": "eth0"}, ["eth0"], id="no virtual function"),
        pytest.param(
            [("eth0", {"flags": "0x1002"}), ("eth1", {})], {"state": "1: DOWN"}, {}, ["eth1"], id="nothing that is down"
        ),
        pytest.param(
            [("lo", {"kind": LOOPBACK, "flags": "0x9", "hardware": False}), ("veth0", {"hardware": False}),
             ("dummy0", {"hardware": False, "flags": "0x82"})], None, {}, ["veth0"], id="what is up without hardware",
        ),
    ],
)  # fmt: skip
def test_each_byte_is_counted_at_one_port(host, devices, infiniband, masters, found):
    if infiniband is not None:
        host.infiniband("mlx5_0", **infiniband)
    for name, about in devices:
        host.netdev(name, **about)
    for name, master in masters.items():
        (host.sys / "class/net" / name / "master").symlink_to(f"../{master}")
    assert host.found() == found


def test_a_host_without_ports_counts_nothing(host):
    assert host.read() == {}
    assert network_ports.port_facts(host.sys) == []


def test_ports_are_described_for_the_provenance(host):
    host.infiniband("mlx5_0")
    host.netdev("eth0", speed=-1)
    assert network_ports.port_facts(host.sys) == [
        {"name": "mlx5_0/1", "kind": "infiniband", "link_layer": "InfiniBand", "rate": "200 Gb/sec (4X HDR)"},
        {"name": "eth0", "kind": "netdev", "mtu": 9000, "speed": None},
    ]


def test_pause_frames_are_read_with_the_counters_of_their_device(host, monkeypatch):
    host.netdev("eth0")
    monkeypatch.setattr(network_ports, "driver_statistics", lambda device: {"rx_pause": 4} if device == "eth0" else {})
    assert host.read()["eth0", "rx_pause_frames"] == 4
