"""Network ports and their counters, on a fake sysfs."""

from hpccoll.host import network_ports
from hpccoll.host.network_ports import RECEIVED, RECEIVED_PACKETS, SENT, SENT_PACKETS
from hpccoll.measure.port_traffic import counter_changes

IPOIB, LOOPBACK = 32, 772


def test_an_ethernet_device_is_counted_in_bytes(host):
    host.netdev("eth0", sent=100, received=50)
    before = host.read()
    host.netdev("eth0", sent=1100, received=70, rx_dropped=3)
    moved = counter_changes(before, host.read())
    assert moved == {
        ("eth0", SENT): 1000, ("eth0", RECEIVED): 20, ("eth0", "tx_dropped"): 0, ("eth0", "rx_dropped"): 3,
    }  # fmt: skip


def test_infiniband_data_counters_are_converted_from_words_of_four_bytes(host):
    host.infiniband("mlx5_0", sent=10, received=20, port_xmit_wait=7)
    assert host.read() == {
        ("mlx5_0/1", SENT): 40, ("mlx5_0/1", RECEIVED): 80, ("mlx5_0/1", "port_xmit_wait"): 7,
    }  # fmt: skip


def test_packets_are_read_from_both_kinds_of_ports(host):
    host.infiniband("mlx5_0", port_xmit_packets=7, port_rcv_packets=8)
    host.netdev("eth0", tx_packets=5, rx_packets=6)
    counted = {key: value for key, value in host.read().items() if "packets" in key[1]}
    assert counted == {
        ("mlx5_0/1", SENT_PACKETS): 7, ("mlx5_0/1", RECEIVED_PACKETS): 8,
        ("eth0", SENT_PACKETS): 5, ("eth0", RECEIVED_PACKETS): 6,
    }  # fmt: skip


def test_hardware_counters_are_read_if_the_device_has_them(host):
    host.infiniband("mlx5_0", hardware={"np_cnp_sent": 5, "out_of_sequence": 2, "lifespan": 10})
    counted = {name: value for (_, name), value in host.read().items()}
    assert counted == {SENT: 0, RECEIVED: 0, "np_cnp_sent": 5, "out_of_sequence": 2}


def test_ipoib_devices_are_left_out(host):
    host.infiniband("mlx5_0", sent=1)
    host.netdev("ib0", sent=4, kind=IPOIB)
    host.netdev("eth0", sent=2)
    assert host.found() == ["mlx5_0/1", "eth0"]


def test_devices_without_hardware_are_left_out(host):
    for name in ("bond0", "br0", "eth0.7", "docker0"):
        host.netdev(name, hardware=False)
    for name in ("eth0", "eth1"):
        host.netdev(name)
        (host.sys / "class/net" / name / "master").symlink_to("../bond0")
    assert host.found() == ["eth0", "eth1"]


def test_a_virtual_function_with_a_hardware_master_is_left_out(host):
    host.netdev("eth0")
    host.netdev("enP1")
    (host.sys / "class/net/enP1/master").symlink_to("../eth0")
    assert host.found() == ["eth0"]


def test_devices_and_ports_that_are_down_are_left_out(host):
    host.netdev("eth0", flags="0x1002")
    host.infiniband("mlx5_0", state="1: DOWN")
    host.netdev("eth1")
    assert host.found() == ["eth1"]


def test_without_hardware_all_devices_that_are_up_count_except_loopback(host):
    host.netdev("lo", kind=LOOPBACK, flags="0x9", hardware=False)
    host.netdev("veth0", hardware=False)
    host.netdev("dummy0", hardware=False, flags="0x82")
    assert host.found() == ["veth0"]


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
