"""What the connections of this process have sent, over real ones; and what they had to send again, in a namespace."""

import json
import socket
import struct
import sys

from namespaces import unshared

from hpccoll.host import tcp_connections
from hpccoll.host.tcp_connections import read_connections, read_sent_bytes

SIZE = 1 << 20

# Each eighth packet is lost, not one drawn in eight: those of a loopback are up to 64 KiB, so that
# few are sent.
LOSSY = """
ip link set lo up mtu 1500 && nft -f - <<< 'table inet t { chain c {
    type filter hook input priority 0
    tcp dport 7777 numgen inc mod 8 == 7 drop
}
}' || exit 77
exec "$PYTHON" -c '
import json, socket, sys, threading
from hpccoll.host.tcp_connections import read_connections
listener = socket.create_server(("127.0.0.1", 7777))
one = socket.create_connection(("127.0.0.1", 7777))
other, _ = listener.accept()
thread = threading.Thread(target=one.sendall, args=(bytes(1 << 20),))
thread.start()
left = 1 << 20
while left:
    left -= len(other.recv(left))
thread.join()
other.sendall(b"x")
one.recv(1)
found = read_connections()
print(json.dumps([found[end.getsockname(), end.getpeername()] for end in (one, other)]))
'
"""


def test_both_ends_of_a_connection_are_found_with_what_each_has_sent():
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as one,
    ):
        other, _ = listener.accept()
        with other:
            one.sendall(b"x")
            other.recv(1)
            found = read_connections()
            assert found[one.getsockname(), one.getpeername()] == (1, 0)
            assert found[other.getsockname(), other.getpeername()] == (0, 0)
            sent = read_sent_bytes()
            assert [sent[end.getsockname(), end.getpeername()] for end in (one, other)] == [1, 0]
            assert not any(listener.getsockname() == own and not peer[1] for own, peer in found)
        one.settimeout(None)
        assert one.getblocking()  # what was read is as it was


def test_a_connection_that_only_opened_again_has_sent_no_data_again():
    info = bytearray(224)
    struct.pack_into("I", info, tcp_connections.SND_MSS, 1448)
    struct.pack_into("I", info, tcp_connections.TOTAL_RETRANS, 3)  # of its SYN
    struct.pack_into("I", info, tcp_connections.DATA_SEGS_OUT, 50)
    assert tcp_connections._read_counts(bytes(info)) == (50, 0)
    struct.pack_into("Q", info, tcp_connections.BYTES_RETRANS, 1449)
    assert tcp_connections._read_counts(bytes(info)) == (50, 2)
    # an older kernel
    assert tcp_connections._read_counts(bytes(info[: tcp_connections.BYTES_RETRANS])) == (50, 3)


def test_only_the_end_whose_packets_are_lost_sends_them_again(require):
    ended = unshared(require, ["-n"], LOSSY, timeout=60, PYTHON=sys.executable)
    require(ended.code != 77, f"no rule that loses packets: {ended.err.strip()}")
    assert ended.code == 0, ended.err
    (sent, again), (_, none_again) = json.loads(ended.out)
    assert sent > SIZE / 65536
    assert 0 < again < sent / 2
    assert none_again == 0
