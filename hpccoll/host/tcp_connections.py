"""The TCP connections of this process, with what they have sent, and had to send again: tcp(7), linux/tcp.h."""

import os
import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeAlias

SND_MSS = 16
TOTAL_RETRANS = 100
DATA_SEGS_OUT = 156  # since Linux 4.6
BYTES_SENT = 200  # this one and those below: since Linux 4.19
BYTES_RETRANS = 208
DSACK_DUPS = 216
"""Offsets of fields of struct tcp_info: those of bytes have 64 bits, the others 32."""

MOST_BYTES = 512
"""More than struct tcp_info has; the kernel returns as much as it knows."""

Address: TypeAlias = tuple[str, int]

Ends: TypeAlias = tuple[Address, Address]
"""A connection, by the address of this process and that of the other end."""


class SentSegments(NamedTuple):
    """What one end of a connection has sent of data, since it was opened or between two readings."""

    sent: int  # segments with data, those of ``again`` among them
    again: int  # without those that had arrived, as the other end has reported


def read_connections() -> Mapping[Ends, SentSegments]:
    """Return the segments that this process has sent on each connection.

    Libraries of MPI keep their connections until MPI_Finalize. Connections that are closed, or
    older kernels, give none.
    """
    connections = {}
    for ends, info in _connections():
        counts = _read_counts(info)
        if counts:
            connections[ends] = counts
    return connections


def read_sent_bytes() -> Mapping[Ends, int]:
    """Return the bytes that this process has sent on each connection, each once; older kernels give none."""
    sent_bytes = {}
    for ends, info in _connections():
        if len(info) >= BYTES_RETRANS + 8:
            sent, again = struct.unpack_from("QQ", info, BYTES_SENT)
            sent_bytes[ends] = sent - again
    return sent_bytes


def _connections() -> Iterator[tuple[Ends, bytes]]:
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # no socket, not connected, or closed in the meantime
            if not entry.readlink().name.startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(entry.name))) as end:
                if (
                    end.family in (socket.AF_INET, socket.AF_INET6)
                    and end.type == socket.SOCK_STREAM
                ):
                    info = end.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, MOST_BYTES)
                    yield (_address(end.getsockname()), _address(end.getpeername())), info


def _read_counts(info: bytes) -> SentSegments | None:
    again = _read_field(info, TOTAL_RETRANS, "I")
    sent = _read_field(info, DATA_SEGS_OUT, "I")
    if again is None or sent is None:
        return None
    size = _read_field(info, SND_MSS, "I")
    again_bytes = _read_field(info, BYTES_RETRANS, "Q")
    # a SYN that is sent again counts as a segment, and has no bytes
    if again_bytes is not None and size:
        again = min(again, -(-again_bytes // size))
    arrived = _read_field(info, DSACK_DUPS, "I") or 0
    return SentSegments(sent, max(0, again - arrived))


def _read_field(info: bytes, offset: int, code: str) -> int | None:
    """Return a field of struct tcp_info; None if the kernel does not know it."""
    if len(info) < offset + struct.calcsize(code):
        return None
    value: int = struct.unpack_from(code, info, offset)[0]
    return value


def _address(name: tuple[str, int]) -> Address:
    return name[0].removeprefix("::ffff:"), name[1]  # IPv4 through a socket of IPv6
