"""Doctor, on adapters behind PCIe links and interfaces of all kinds."""

from itertools import count

import pytest
from fake_machine_files import EFA, adapter, equip, port, spark

from hpccoll.sweep.doctor import links
from hpccoll.sweep.doctor.machine import MachineFacts

ROCE = {"layer": "Ethernet", "interface": "eth0"}


@pytest.fixture
def machine(tmp_path, programs, monkeypatch):  # noqa: ARG001 - there is no other program
    """Return a function that returns the facts of a machine of such files."""
    monkeypatch.delenv("NCCL_IB_HCA", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    roots = (tmp_path / f"machine-{number}" for number in count())
    return lambda *parts: MachineFacts(equip(next(roots), *parts))


def test_roce_over_an_mtu_of_1500_has_small_packets_and_9000_is_the_remedy(machine):
    found = links.mtu(machine(adapter("mlx5_0", **ROCE, mtu=1500)))
    assert (found.kind, found.severity) == ("mtu_small", "warning")
    assert found.values["bytes"] == {"mlx5_0:1": 1024}
    assert ("eth0" in found.text, "9000 (4200 at least)" in found.remedy) == (True, True)


@pytest.mark.parametrize("mtu", [4200, 9000])
def test_roce_over_a_larger_mtu_is_as_it_should_be(machine, mtu):
    assert links.mtu(machine(adapter("mlx5_0", **ROCE, mtu=mtu))).kind == "mtu"


DEVINFO = "hca_id:\tmlx5_0\n\t\tport:\t1\n\t\t\tactive_mtu:\t\t{} (4)\n"


@pytest.mark.parametrize(("size", "kind"), [(2048, "mtu_small"), (4096, "mtu")])
def test_the_packets_of_infiniband_are_those_of_ibv_devinfo(machine, programs, size, kind):
    programs("ibv_devinfo", DEVINFO.format(size))
    found = links.mtu(machine(adapter("mlx5_0")))
    assert found.kind == kind
    assert ("subnet manager" in found.remedy) == (kind == "mtu_small")


def test_what_is_not_known_of_mtus_is_not_judged(machine, programs):
    facts = machine(adapter("mlx5_0"), EFA, port("mlx5_9", "Ethernet"))
    assert links.mtu(facts) is None
    assert programs.calls() == []


def test_ports_that_are_down_are_not_judged(machine):
    down = {"state": "1: DOWN", **ROCE}
    facts = machine(adapter("mlx5_0", "16.0 GT/s PCIe x4", mtu=1500, **down))
    assert [check(facts) for check in (links.mtu, links.pcie, links.halves)] == [None] * 3


@pytest.mark.parametrize(("speed", "kind"), [(100_000, "mtu_ethernet"), (1_000, None)])
def test_fast_ethernet_without_adapters_says_its_mtu(machine, speed, kind):
    interface = "sys/class/net/eth0"
    device = f"{interface}/device"
    files = {"type": "1", "flags": "0x1003", "mtu": "1500", "speed": str(speed)}
    facts = machine(
        {f"{interface}/{name}": text for name, text in files.items()}, {f"{device}/vendor": ""}
    )
    found = links.mtu(facts)
    assert (found and found.kind) == kind
    assert not found or (found.severity, "9000" in found.remedy) == ("info", True)


def test_a_link_that_carries_less_than_its_port_is_named_with_what_the_adapter_can_have(machine):
    found = links.pcie(machine(adapter("mlx5_0", "16.0 GT/s PCIe x16")))
    assert (found.kind, found.severity) == ("pcie_slow", "warning")
    assert "400 Gbit/s on PCIe gen4 x16 (252 Gbit/s)" in found.text
    assert "PCIe gen5 x16" in found.remedy


def test_an_adapter_that_can_have_no_faster_link_is_not_to_be_reseated(machine):
    same = "8.0 GT/s PCIe x16"
    found = links.pcie(machine(adapter("mlx5_0", same, same, rate="200 Gb/sec (4X HDR)")))
    assert found.kind == "pcie_slow"
    assert "reseat" not in found.remedy


def test_two_active_ports_of_one_link_share_it(machine):
    gen4 = "16.0 GT/s PCIe x16"
    rate = {"rate": "200 Gb/sec (4X HDR)"}
    first = adapter("mlx5_0", gen4, gen4, **rate)
    second = adapter("mlx5_1", gen4, gen4, address="0000:1a:00.1", **rate)
    assert links.pcie(machine(first)).kind == "pcie"
    assert links.pcie(machine(first, second)).kind == "pcie_slow"


def test_links_that_carry_their_ports_are_one_line(machine):
    eight = [
        adapter(f"mlx5_{number}", address=f"0000:{number}a:00.0", board=f"{number}")
        for number in range(1, 9)
    ]
    found = links.pcie(machine(*eight))
    assert (found.kind, found.severity, found.text.count("PCIe gen5 x16")) == ("pcie", "info", 1)


def test_links_that_nothing_says_are_not_judged(machine):
    assert links.pcie(machine(adapter("mlx5_0", "Unknown x0"), EFA)) is None


def test_both_halves_of_a_port_are_needed_and_both_are_enough(machine):
    facts = machine(spark())
    found = links.halves(facts)
    assert (found.kind, found.severity) == ("port_halves", "info")
    assert "halves of one port of 200 Gbit/s" in found.text
    assert "NCCL_IB_HCA=roceP2p1s0f0,rocep1s0f0" in found.remedy
    assert links.pcie(facts).kind == "pcie"


def test_a_half_that_is_down_leaves_the_other_too_slow(machine):
    facts = machine(spark(second="1: DOWN"))
    assert links.halves(facts).kind == "port_half_down"
    assert links.pcie(facts).kind == "pcie_slow"


def test_a_half_with_fewer_lanes_than_it_can_have_is_too_slow(machine):
    """Firmware of before 2026-04 gave the second half of a GB10 two lanes."""
    found = links.pcie(machine(spark(width=2)))
    assert (found.kind, "gen5 x2" in found.text) == ("pcie_slow", True)
    assert "gen5 x4" in found.remedy


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("rocep1s0f0", "port_half_unused"),
        ("=rocep1s0f0:1", "port_half_unused"),
        ("^roceP2", "port_half_unused"),
        ("roce", "port_halves"),
        ("rocep1s0f0,roceP2p1s0f0", "port_halves"),
        ("^mlx5", "port_halves"),
    ],
)
def test_a_half_that_nccl_leaves_out_is_named(machine, monkeypatch, value, kind):
    monkeypatch.setenv("NCCL_IB_HCA", value)
    assert links.halves(machine(spark())).kind == kind


def test_ports_with_a_link_of_their_own_have_no_halves(machine):
    assert links.halves(machine(adapter("mlx5_0"))) is None


def test_slower_ports_and_those_that_nccl_leaves_out_are_not_of_a_job(machine, monkeypatch):
    fast = adapter("mlx5_0", **ROCE)
    about = {"layer": "Ethernet", "interface": "eth9", "mtu": 1500, "address": "0000:3a:00.0"}
    slower = adapter("mlx5_9", "8.0 GT/s PCIe x1", rate="25 Gb/sec (1X EDR)", **about)
    left_out = adapter("mlx5_9", "8.0 GT/s PCIe x1", **about)
    assert links.mtu(machine(fast, slower)).kind == "mtu"
    assert links.pcie(machine(fast, slower)).kind == "pcie"
    assert links.mtu(machine(fast, left_out)).kind == "mtu_small"
    monkeypatch.setenv("NCCL_IB_HCA", "^mlx5_9")
    assert links.mtu(machine(fast, left_out)).kind == "mtu"
    assert links.pcie(machine(fast, left_out)).kind == "pcie"
