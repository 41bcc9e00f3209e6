"""What ranks record of lost packets, by their connections and the ports of their hosts."""

import socket

from fake_network_ports import FakeHost

from hpccoll.diagnosis.packet_losses import HostLosses
from hpccoll.host import network_ports
from hpccoll.host.tcp_connections import SentSegments
from hpccoll.measure.diagnose.loss_recorder import LossRecorder, RankLosses, losses_of_hosts


def test_connections_are_counted_by_the_hosts_of_both_ends_and_others_are_left_out():
    one, other, third, elsewhere = (
        ("10.0.0.1", 1),
        ("10.0.0.2", 2),
        ("10.0.0.2", 3),
        ("10.0.0.9", 9),
    )
    reports = {
        0: RankLosses({(one, other): SentSegments(100, 3), (one, third): SentSegments(50, 1)}, {}),
        1: RankLosses({(other, one): SentSegments(80, 0)}, {}),
        3: RankLosses(
            {(third, one): SentSegments(7, 2), (third, elsewhere): SentSegments(9, 9)}, {}
        ),
    }
    assert losses_of_hosts(reports, ["a", "b", "c", "b"]) == [
        HostLosses("a", {"b": [150, 4]}), HostLosses("b", {"a": [87, 2]}), HostLosses("c", {})
    ]  # fmt: skip


def test_what_a_connection_has_sent_before_the_recorder_began_is_not_counted():
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as one,
    ):
        other, _ = listener.accept()
        with other:
            ends, sent = (one.getsockname(), one.getpeername()), []
            for _ in range(3):
                recorder = LossRecorder(())
                one.sendall(b"x")
                other.recv(1)
                sent.append(recorder.end().connections[ends])
    assert sent == [(1, 0)] * 3


def test_what_the_ports_of_a_host_count_in_the_meantime_is_by_direction(tmp_path):
    host = FakeHost(tmp_path)
    host.netdev("eth0", tx_packets=5, rx_packets=6, rx_errors=1)
    host.infiniband("mlx5_0", port_xmit_packets=7, symbol_error=2, hardware={"packet_seq_err": 3})
    recorder = LossRecorder(network_ports.find_ports(host.sys))
    host.netdev("eth0", tx_packets=15, rx_packets=26, rx_errors=1)
    host.infiniband("mlx5_0", port_xmit_packets=9, symbol_error=42, hardware={"packet_seq_err": 4})
    (found,) = losses_of_hosts({0: recorder.end()}, ["a"])
    assert found.packets[0] == 12
    assert found.errors == [{"packet_seq_err": 1}, {"symbol_error": 40}]
