"""What the ports of a host count, on a made-up sysfs, and the counting pass with ranks that are made up."""

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpccoll.measure import wire
from hpccoll.measure.loop import Progress, Samples
from hpccoll.measure.wire import RECEIVED, SENT, Traffic
from hpccoll.store import hdf5
from hpccoll.store.wire import with_headers

ETHERNET, IPOIB, LOOPBACK = 1, 32, 772


@pytest.fixture
def host(tmp_path, monkeypatch):
    """A sysfs to fill, on a host whose drivers have no statistics of their own."""
    monkeypatch.setattr(wire, "statistics", lambda _device: {})
    return Host(tmp_path)


class Host:
    def __init__(self, sys):
        self.sys = sys

    def put(self, at, **files):
        for name, content in files.items():
            (self.sys / "class" / at).mkdir(parents=True, exist_ok=True)
            (self.sys / "class" / at / name).write_text(f"{content}\n")

    def netdev(self, name, sent=0, received=0, *, kind=ETHERNET, flags="0x1003", hardware=True, **more):
        at = f"net/{name}"
        self.put(at, type=kind, flags=flags, mtu=9000, speed=more.pop("speed", 100000))
        self.put(
            f"{at}/statistics", **{"tx_bytes": sent, "rx_bytes": received, "tx_dropped": 0, "rx_dropped": 0, **more}
        )
        if hardware:
            (self.sys / "class" / at / "device").mkdir(exist_ok=True)

    def infiniband(self, name, sent=0, received=0, state="4: ACTIVE", hardware=None, **more):
        at = f"infiniband/{name}/ports/1"
        self.put(at, state=state, link_layer="InfiniBand", rate="200 Gb/sec (4X HDR)")
        self.put(f"{at}/counters", port_xmit_data=sent, port_rcv_data=received, **more)
        self.put(f"{at}/hw_counters", **(hardware or {}))

    def found(self):
        return [port.name for port in wire.find(self.sys)]

    def read(self):
        return wire.read(wire.find(self.sys))


def test_an_ethernet_device_is_counted_in_bytes(host):
    host.netdev("eth0", sent=100, received=50)
    before = host.read()
    host.netdev("eth0", sent=1100, received=70, rx_dropped=3)
    moved = wire.difference(before, host.read())
    assert moved == {
        ("eth0", SENT): 1000, ("eth0", RECEIVED): 20, ("eth0", "tx_dropped"): 0, ("eth0", "rx_dropped"): 3,
    }  # fmt: skip


def test_an_infiniband_port_is_counted_in_words_of_four_bytes_and_its_ticks_are_ticks(host):
    host.infiniband("mlx5_0", sent=10, received=20, port_xmit_wait=7)
    assert host.read() == {
        ("mlx5_0/1", SENT): 40, ("mlx5_0/1", RECEIVED): 80, ("mlx5_0/1", "port_xmit_wait"): 7,
    }  # fmt: skip


def test_counters_of_the_device_are_read_where_it_has_them(host):
    host.infiniband("mlx5_0", hardware={"np_cnp_sent": 5, "out_of_sequence": 2, "lifespan": 10})
    counted = {name: value for (_, name), value in host.read().items()}
    assert counted == {SENT: 0, RECEIVED: 0, "np_cnp_sent": 5, "out_of_sequence": 2}


def test_the_bytes_of_ipoib_are_counted_at_the_infiniband_port_alone(host):
    host.infiniband("mlx5_0", sent=1)
    host.netdev("ib0", sent=4, kind=IPOIB)
    host.netdev("eth0", sent=2)
    assert host.found() == ["mlx5_0/1", "eth0"]


def test_what_has_no_hardware_of_its_own_counts_nothing_twice(host):
    for name in ("bond0", "br0", "eth0.7", "docker0"):
        host.netdev(name, hardware=False)
    for name in ("eth0", "eth1"):
        host.netdev(name)
        (host.sys / "class/net" / name / "master").symlink_to("../bond0")
    assert host.found() == ["eth0", "eth1"]


def test_a_virtual_function_is_counted_by_a_master_with_hardware(host):
    host.netdev("eth0")
    host.netdev("enP1")
    (host.sys / "class/net/enP1/master").symlink_to("../eth0")
    assert host.found() == ["eth0"]


def test_devices_and_ports_that_are_down_are_left_out(host):
    host.netdev("eth0", flags="0x1002")
    host.infiniband("mlx5_0", state="1: DOWN")
    host.netdev("eth1")
    assert host.found() == ["eth1"]


def test_without_hardware_all_that_is_up_counts_but_for_loopback(host):
    host.netdev("lo", kind=LOOPBACK, flags="0x9", hardware=False)
    host.netdev("veth0", hardware=False)
    host.netdev("dummy0", hardware=False, flags="0x82")
    assert host.found() == ["veth0"]


def test_a_host_without_ports_counts_nothing(host):
    assert host.read() == {}
    assert wire.ports(host.sys) == []


def test_ports_are_described_for_the_provenance(host):
    host.infiniband("mlx5_0")
    host.netdev("eth0", speed=-1)
    assert wire.ports(host.sys) == [
        {"name": "mlx5_0/1", "kind": "infiniband", "link_layer": "InfiniBand", "rate": "200 Gb/sec (4X HDR)"},
        {"name": "eth0", "kind": "netdev", "mtu": 9000, "speed": None},
    ]


values = st.integers(0, 2**31)
readings = st.dictionaries(st.tuples(st.sampled_from("ab"), st.sampled_from([SENT, "tx_dropped"])), values)


@given(readings, st.data())
def test_differences_add_up_over_ports_or_are_not_known(before, data):
    after = {key: data.draw(st.integers(0, 2**32 - 2)) for key in before}
    moved = wire.difference(before, after)
    for name in {name for _, name in before}:
        steps = [after[key] - first for key, first in before.items() if key[1] == name]
        assert wire.over_ports(moved, name) == (None if min(steps) < 0 else sum(steps))
    assert wire.over_ports(moved, "rx_pause_frames") is None


@pytest.mark.parametrize(
    "after", [{("a", SENT): 99}, {}, {("a", SENT): 2**32 - 1}, {("a", SENT): 4 * (2**32 - 1)}],
    ids=["back", "gone", "saturated", "saturated words"],
)  # fmt: skip
def test_a_counter_that_went_back_stopped_or_disappeared_is_not_known(after):
    both = {("b", SENT): 5}
    moved = wire.difference({("a", SENT): 100, **both}, {**after, **both})
    assert moved == {("a", SENT): None, ("b", SENT): 0}
    assert wire.over_ports(moved, SENT) is None


def test_a_counter_that_one_port_alone_has_is_that_ports():
    before = {("a", SENT): 1, ("b", SENT): 1, ("b", "port_xmit_wait"): 3}
    after = {("a", SENT): 2, ("b", SENT): 3, ("b", "port_xmit_wait"): 4}
    moved = wire.difference(before, after)
    assert (wire.over_ports(moved, SENT), wire.over_ports(moved, "port_xmit_wait")) == (3, 1)


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
        ("virtio_net", {"rx_drops": 3, "tx0_kicks": 2}, {}),
    ],
)  # fmt: skip
def test_pause_frames_have_a_name_in_every_driver(driver, statistics, frames):
    assert wire.pause_frames(statistics) == frames, driver


def test_pause_frames_are_read_with_the_counters_of_their_device(host, monkeypatch):
    host.netdev("eth0")
    monkeypatch.setattr(wire, "statistics", lambda device: {"rx_pause": 4} if device == "eth0" else {})
    assert host.read()["eth0", "rx_pause_frames"] == 4


def test_a_device_without_statistics_or_that_is_none_has_none():
    assert wire.statistics("lo") == wire.statistics("nosuchdevice0") == {}


class World:
    """A rank, and a host whose one port sends what its operations and barriers send."""

    def __init__(self, host, each=1000, barrier=100):
        self.host, self.each, self.of_barrier = host, each, barrier
        self.sent, self.log = 0, []
        self.move(0)

    def move(self, nbytes):
        self.sent += nbytes
        self.host.netdev("eth0", sent=self.sent, received=2 * self.sent)

    def reset(self):
        self.log.append("reset")

    def run(self):
        self.log.append("run")
        self.move(self.each)

    def barrier(self):
        self.log.append("barrier")
        self.move(self.of_barrier)


def test_operations_between_two_readings_are_counted_without_barriers_in_between(host):
    world, progress = World(host), Progress()
    moved = wire.watch(world, world, 5, progress, wire.find(host.sys))
    assert world.log == ["barrier", "barrier", *["reset", "run"] * 5, "barrier"]
    assert moved == {
        ("eth0", SENT): 5 * 1000 + 2 * 100, ("eth0", RECEIVED): 2 * (5 * 1000 + 2 * 100),
        ("eth0", "tx_dropped"): 0, ("eth0", "rx_dropped"): 0,
    }  # fmt: skip
    assert progress.turns == 6


@pytest.mark.parametrize("place", ["infiniband/efa_0/ports/1", "cxi/cxi0"])
def test_what_a_host_with_a_port_that_nobody_counts_sends_is_not_known(host, place):
    world = World(host)
    assert wire.over_ports(wire.watch(world, world, 2, Progress(), wire.find(host.sys)), SENT) is not None
    host.put(place, state="4: ACTIVE")
    moved = wire.watch(world, world, 2, Progress(), wire.find(host.sys))
    assert [wire.over_ports(moved, name) for name in (SENT, RECEIVED, "tx_dropped")] == [None, None, 0]
    assert moved["eth0", SENT] > 0  # what this port counted is known all the same


def samples(seconds):
    return Samples(start_ns=np.zeros((3, 2), np.int64), end_ns=np.full((3, 2), int(seconds * 1e9)))


@pytest.mark.parametrize(("seconds", "operations"), [(0, 1000), (1e-6, 1000), (1e-3, 50), (0.03, 1), (0.2, 1), (60, 1)])
def test_a_pass_takes_about_50_ms_or_one_operation(seconds, operations):
    assert wire.operations(samples(seconds)) == operations


def test_traffic_is_of_each_node_per_operation_and_events_are_of_the_pass():
    one = {("a", SENT): 10, ("a", RECEIVED): 20, ("a", "tx_dropped"): 1}
    traffic = Traffic(4, (one, {("a", SENT): 10, ("b", SENT): 20, ("b", RECEIVED): 40, ("a", "tx_dropped"): 2}))
    assert traffic.each(SENT) == (2.5, 7.5)
    assert traffic.sent == 10
    assert traffic.by_port(SENT, ["a", "b"]) == ((2.5, None), (2.5, 5.0))
    assert traffic.counters == {"operations": 4, "tx_dropped": 3}


def test_what_one_host_does_not_know_is_not_known_of_all():
    lost = {("a", SENT): None, ("a", "port_xmit_wait"): None, ("a", "tx_dropped"): 1}
    traffic = Traffic(2, ({("a", SENT): 10, ("a", "port_xmit_wait"): 5}, {}, lost))
    assert traffic.each(SENT) == (5.0, None, None)
    assert traffic.sent is None
    assert traffic.counters == {"operations": 2, "port_xmit_wait": None, "tx_dropped": 1}


def test_headers_are_those_of_full_frames_and_an_acknowledgement_for_every_other():
    assert with_headers(1448 * 2, 1500) == 2 * 1514 + 66
    assert with_headers(10**9, 9000) / 10**9 == pytest.approx(1.0111, abs=1e-4)
    assert with_headers(10**9, 1500) / 10**9 == pytest.approx(1.0684, abs=1e-4)


@pytest.mark.mpi
def test_what_ports_sent_is_kept_beside_what_is_predicted_and_is_evidence(mpiexec, tmp_path):
    program, out = Path(__file__).with_name("counted_ranks.py"), tmp_path / "F.h5"
    options = ["-b", "4K", "-e", "4K", "-n", "3", "--in-place", "--out", out]
    ended = mpiexec(2, program, "-a", "ring,native,null", *options)
    assert ended.returncode == 0, ended.stderr
    ((attempt, outcomes),) = hdf5.read(out).attempts
    assert attempt.nodes == 2
    assert {(o.wire_bytes_measured, o.wire_sent, o.wire_received) for o in outcomes} == {
        (8274, (4137,) * 2, (4137,) * 2)
    }
    assert {tuple(o.counters) for o in outcomes} == {("operations",)}
    found = {o.case.algorithm: (o.wire_bytes_predicted, o.executed, o.evidence.rpartition("; ")[2]) for o in outcomes}
    native = found.pop("native")
    assert native[:2] == (None, "unknown")
    assert re.fullmatch(r"the ports sent 1.010 S a node, as much as ring or \w+ or \w+ or \d+ others", native[2])
    assert found == {
        "ring": (8192, "ring", "the ports sent 1.010 times the bytes it counts"),
        "null": (0, "null", "the ports sent 8274 B, where it counts none"),
    }
