"""The counting pass, with simulated ranks and a simulated sysfs, and the traffic it measures."""

import re
from pathlib import Path

import numpy as np
import pytest

from hpccoll.host import network_ports
from hpccoll.host.network_ports import RECEIVED, SENT
from hpccoll.measure import port_traffic
from hpccoll.measure.port_traffic import PortTraffic
from hpccoll.measure.timing_loop import RankProgress, Samples
from hpccoll.store import hdf5
from hpccoll.store.case_times import CaseTimes


@pytest.mark.parametrize(
    "after",
    [{("a", SENT): 99}, {}, {("a", SENT): 2**32 - 1}, {("a", SENT): 4 * (2**32 - 1)}],
    ids=["back", "gone", "saturated", "saturated words"],
)
def test_a_counter_that_decreased_saturated_or_disappeared_is_unknown(after):
    both = {("b", SENT): 5}
    moved = port_traffic.counter_changes({("a", SENT): 100, **both}, {**after, **both})
    assert moved == {("a", SENT): None, ("b", SENT): 0}
    assert port_traffic.sum_over_ports(moved, SENT) is None


class World:
    """A rank, and a host whose one port sends what its operations and barriers send."""

    def __init__(self, host, each=1000, barrier=100):
        self.host, self.per_node, self.of_barrier = host, each, barrier
        self.sent, self.log = 0, []
        self.move(0)

    def move(self, nbytes):
        self.sent += nbytes
        self.host.netdev("eth0", sent=self.sent, received=2 * self.sent)

    def reset(self):
        self.log.append("reset")

    def run(self):
        self.log.append("run")
        self.move(self.per_node)

    def barrier(self):
        self.log.append("barrier")
        self.move(self.of_barrier)


def test_no_barriers_separate_the_operations_of_a_counting_pass_and_uncounted_bytes_are_unknown(
    host,
):
    world, progress = World(host), RankProgress()
    moved = port_traffic.count_traffic(
        world, world, 5, progress, network_ports.find_ports(host.sys)
    )
    assert world.log == ["barrier", "barrier", *["reset", "run"] * 5, "barrier"]
    assert moved == {
        ("eth0", SENT): 5 * 1000 + 2 * 100,
        ("eth0", RECEIVED): 2 * (5 * 1000 + 2 * 100),
        ("eth0", "tx_dropped"): 0,
        ("eth0", "rx_dropped"): 0,
    }
    assert progress.heartbeats == 6
    host.put("infiniband/efa_0/ports/1", state="4: ACTIVE")  # whose bytes are not counted
    moved = port_traffic.count_traffic(
        world, world, 2, progress, network_ports.find_ports(host.sys)
    )
    assert [
        port_traffic.sum_over_ports(moved, name) for name in (SENT, RECEIVED, "tx_dropped")
    ] == [None, None, 0]
    assert moved["eth0", SENT] > 0


@pytest.mark.parametrize(("seconds", "operations"), [(0, 1000), (1e-3, 50), (0.03, 1)])
def test_a_pass_takes_about_50_ms_or_one_operation(seconds, operations):
    end_ns = np.full((3, 2), int(seconds * 1e9))
    samples = Samples(CaseTimes.from_samples(np.zeros_like(end_ns), end_ns, one_clock=True))
    assert port_traffic.pass_iterations(samples) == operations


def test_traffic_is_per_node_and_operation_events_are_per_pass_and_what_one_host_lacks_is_unknown():
    one = {("a", SENT): 10, ("a", RECEIVED): 20, ("a", "tx_dropped"): 1}
    traffic = PortTraffic(
        4, (one, {("a", SENT): 10, ("b", SENT): 20, ("b", RECEIVED): 40, ("a", "tx_dropped"): 2})
    )
    assert (traffic.per_node(SENT), traffic.sent) == ((2.5, 7.5), 10)
    assert (traffic.mean_per_node(SENT), traffic.mean_per_node(RECEIVED)) == (5, 7.5)
    assert traffic.by_port(SENT, ["a", "b"]) == ((2.5, None), (2.5, 5.0))
    assert traffic.counters == {"operations": 4, "tx_dropped": 3}
    traffic = PortTraffic(4, (one, {}, {("a", SENT): None, ("a", "tx_dropped"): None}))
    assert (traffic.per_node(SENT), traffic.sent) == ((2.5, None, None), None)
    assert traffic.mean_per_node(SENT) is traffic.mean_per_node("sent_packets") is None
    assert traffic.counters == {"operations": 4, "tx_dropped": None}


@pytest.mark.mpi
def test_measured_port_bytes_are_recorded_and_are_evidence(mpiexec, tmp_path):
    program, out = Path(__file__).with_name("counted_ranks.py"), tmp_path / "F.h5"
    options = ["-b", "4K", "-e", "4K", "-n", "3", "--rounds", "2", "--in-place", "--out", out]
    ended = mpiexec(2, program, "-a", "ring,native,null", *options)
    assert ended.returncode == 0, ended.stderr
    ((attempt, outcomes),) = hdf5.read_raw_file(out).attempts
    assert attempt.nodes == 2
    assert {tuple(sorted(o.rounds)) for o in outcomes} == {(1, 2)}
    assert [ended.stderr.count(f"counted {o.case.id}") for o in outcomes] == [2] * 3, (
        "by either rank once"
    )
    for outcome in outcomes:
        counted = (outcome.wire_bytes_measured, *outcome.wire_sent, *outcome.wire_received)
        assert counted == (8274, 4137, 4137, 4137, 4137)
    assert {tuple(o.counters) for o in outcomes} == {("operations",)}
    found = {
        o.case.algorithm: (o.wire_bytes_predicted, o.executed, o.evidence.rpartition("; ")[2])
        for o in outcomes
    }
    native = found.pop("native")
    assert native[:2] == (None, "unknown")
    assert re.fullmatch(
        r"the ports sent 1.010 S a node, as much as ring or \w+ or \w+ or \d+ others", native[2]
    )
    assert found == {
        "ring": (8192, "ring", "the ports sent 1.010 times its wire bytes"),
        "null": (0, "null", "the ports sent 8274 B (its wire bytes: 0)"),
    }
