"""PCIe links and MTUs of adapters: what the files of Linux say, and what they leave open."""

import pytest
from fake_machine_files import adapter, equip, port, spark

from hpccoll.host.adapter_links import (
    PcieLink,
    adapter_ports,
    infiniband_mtus,
    largest_roce_mtu,
)


@pytest.mark.parametrize(
    ("gigatransfers", "lanes", "gigabits"),
    [
        (2.5, 8, 16),
        (5.0, 8, 32),
        (8.0, 16, 126.03),
        (16.0, 16, 252.06),
        (32.0, 16, 504.12),
        (32.0, 4, 126.03),
        (64.0, 16, 1024),
    ],
)
def test_a_link_carries_its_lanes_without_the_line_code(gigatransfers, lanes, gigabits):
    assert PcieLink(gigatransfers, lanes).bits_per_s == pytest.approx(gigabits * 1e9, rel=1e-4)


@pytest.mark.parametrize(
    ("interface", "roce"), [(1500, 1024), (4191, 2048), (4192, 4096), (9000, 4096), (300, 0)]
)
def test_the_mtu_of_the_interface_bounds_the_packets_of_roce(interface, roce):
    assert largest_roce_mtu(interface) == roce


def test_a_port_is_read_with_its_link_and_its_interface(tmp_path):
    files = adapter(
        "mlx5_0", "16.0 GT/s PCIe x8", layer="Ethernet", interface="eth2", mtu=1500, connector="p1"
    )
    (read,) = adapter_ports(equip(tmp_path, files))
    assert (read.link, read.fastest_link) == (PcieLink(16.0, 8), PcieLink(32.0, 16))
    assert (read.bits_per_s, read.slot, read.connector) == (400e9, "0000:1a:00", "p1")
    assert (read.interface, read.interface_mtu, read.roce_mtu) == ("eth2", 1500, 1024)


@pytest.mark.parametrize("link", ["Unknown x0", "Unknown speed x255", "32.0 GT/s PCIe x63", " x"])
def test_a_link_that_a_virtual_machine_hides_is_unknown(tmp_path, link):
    (read,) = adapter_ports(equip(tmp_path, adapter("mlx5_0", link)))
    assert read.link is None


def test_an_adapter_without_files_of_a_link_or_an_interface_is_read(tmp_path):
    (read,) = adapter_ports(equip(tmp_path, port("mlx5_0")))
    assert (read.link, read.interface, read.interface_mtu, read.roce_mtu) == (None, "", None, None)


def test_a_virtual_function_has_the_link_of_its_physical_function(tmp_path):
    physical = adapter("mlx5_0")
    virtual = adapter("mlx5_1", "Unknown x0", address="0000:1a:00.2")
    virtual["sys/devices/pci0000:15/0000:1a:00.2/physfn"] = "sys/devices/pci0000:15/0000:1a:00.0/"
    links = [read.link for read in adapter_ports(equip(tmp_path, physical, virtual))]
    assert links == [PcieLink(32.0, 16)] * 2


def test_functions_of_a_port_on_two_links_are_halves_and_two_ports_of_a_link_are_not(tmp_path):
    first, second = adapter_ports(equip(tmp_path / "spark", spark()))
    assert first.is_half_with(second)
    two = adapter("mlx5_0", interface="eth0") | adapter(
        "mlx5_1", address="0000:1a:00.1", interface="eth1", connector="p1"
    )
    first, second = adapter_ports(equip(tmp_path / "two", two))
    assert not first.is_half_with(second)
    boards = adapter("mlx5_0", board="0000:0000:0000:0000") | adapter(
        "mlx5_1", address="0000:3a:00.0", board="0000:0000:0000:0000"
    )
    first, second = adapter_ports(equip(tmp_path / "boards", boards))
    assert not first.is_half_with(second)


def test_ibv_devinfo_says_the_packets_of_each_port():
    text = (
        "hca_id:\tmlx5_0\n\ttransport:\t\t\tInfiniBand (0)\n\t\tport:\t1\n"
        "\t\t\tstate:\t\t\tPORT_ACTIVE (4)\n\t\t\tmax_mtu:\t\t4096 (5)\n\t\t\tactive_mtu:\t\t4096 (5)\n"
        "\t\tport:\t2\n\t\t\tactive_mtu:\t\t2048 (4)\n\nhca_id:\tmlx5_1\n\t\tport:\t1\n"
        "\t\t\tactive_mtu:\t\tinvalid MTU (0)\n"
    )
    assert infiniband_mtus(text) == {"mlx5_0:1": 4096, "mlx5_0:2": 2048}
