"""The wire: what the counters of a host's network ports say of the operations that ran between two readings.

Ports are found in sysfs. Bytes are those of Ethernet devices (statistics/{tx,rx}_bytes: Documentation/ABI/testing/
sysfs-class-net-statistics of Linux), and of InfiniBand and RoCE ports (counters/port_{xmit,rcv}_data, in units of four
bytes: Documentation/ABI/stable/sysfs-class-infiniband). RDMA passes the Ethernet device of a RoCE port by, so that the
two are added; the bytes of IPoIB are counted at its port already. They are bytes on the link, headers among them, and
those of everybody who uses the port.

Counters of congestion keep the names that Linux gives them: drops, port_xmit_wait (ticks), and those of the mlx5 driver
in hw_counters (drivers/infiniband/hw/mlx5/counters.c). Pause frames have a name in every driver, among the statistics
of ethtool; those of mlx5 are in Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst.

Some drivers bring their counters up to date once a second only (e1000e, bnxt_en): a pass is then over before they move,
and the bytes measured are few or none. They say so beside the bytes predicted.
"""

import fcntl
import re
import socket
import struct
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from hpccoll.measure.loop import Progress, Samples, Subject, Together
from hpccoll.store.summary import durations_max

SYS = Path("/sys")

SENT, RECEIVED = "sent_bytes", "received_bytes"

NETDEV = {
    SENT: "statistics/tx_bytes",
    RECEIVED: "statistics/rx_bytes",
    "tx_dropped": "statistics/tx_dropped",
    "rx_dropped": "statistics/rx_dropped",
    "rx_missed_errors": "statistics/rx_missed_errors",
}
"""Counters of an Ethernet device and their files."""

HARDWARE = (
    "np_cnp_sent", "rp_cnp_handled", "np_ecn_marked_roce_packets", "out_of_sequence", "packet_seq_err",
    "out_of_buffer", "rnr_nak_retry_err", "local_ack_timeout_err", "roce_adp_retrans",
)  # fmt: skip

INFINIBAND = {
    SENT: "counters/port_xmit_data",
    RECEIVED: "counters/port_rcv_data",
    "port_xmit_wait": "counters/port_xmit_wait",
    "port_xmit_discards": "counters/port_xmit_discards",
    **{name: f"hw_counters/{name}" for name in HARDWARE},
}
"""Counters of an InfiniBand or RoCE port and their files."""

FILES: Mapping[str, Mapping[str, str]] = {"netdev": NETDEV, "infiniband": INFINIBAND, "cxi": {}}
"""The counters of a port by its kind; those of Slingshot's cxi devices are not in one place, and are not read."""

WORD = 4
"""Bytes in the unit of port_xmit_data and port_rcv_data."""

SATURATED = 2**32 - 1
"""Where a 32-bit counter of an InfiniBand port stops: it does not wrap."""

ETHERNET = 1
"""ARPHRD_ETHER of linux/if_arp.h, in the file ``type``; IPoIB is 32."""

UP, LOOPBACK = 0x1, 0x8
"""IFF_UP and IFF_LOOPBACK of linux/if.h, in the file ``flags``."""


@dataclass(frozen=True, slots=True)
class Port:
    """A network port of this host.

    Args:
        name: such as ``eth0`` or ``mlx5_0/1``.
        kind: ``netdev``, ``infiniband`` or ``cxi`` (Slingshot).
        path: its directory in sysfs.
    """

    name: str
    kind: str
    path: Path

    @property
    def blind(self) -> bool:
        """Whether bytes may pass that nothing here counts: RDMA devices such as EFA, whose drivers have other files.

        What other ports of the host count is then not all that it sends.
        """
        return self.kind != "netdev" and _number(self.path / FILES[self.kind].get(SENT, "")) is None


def _text(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except (OSError, ValueError):  # there is none, or the driver will not say
        return None


def _number(path: Path) -> int | None:
    try:
        return int(_text(path) or "", 0)  # flags are hexadecimal
    except ValueError:
        return None


def find(sys: Path = SYS) -> tuple[Port, ...]:
    """Return the ports whose bytes make up what this host sends and receives, each counted once.

    Bonds, bridges and VLANs have no hardware of their own behind them, and what they send a device below counts too. A
    virtual function whose master has hardware (Hyper-V) is counted by its master.
    Where no Ethernet or InfiniBand hardware is there at all (a container, virtual wires), every device counts that is
    up, but for loopback.
    """
    ports = [
        Port(f"{path.parent.parent.name}/{path.name}", "infiniband", path)
        for path in sorted((sys / "class/infiniband").glob("*/ports/*"))
        if "ACTIVE" in (_text(path / "state") or "ACTIVE")
    ]
    ports += [Port(path.name, "cxi", path) for path in sorted((sys / "class/cxi").glob("*"))]
    devices = [
        Port(path.name, "netdev", path)
        for path in sorted((sys / "class/net").glob("*"))
        if (_number(path / "flags") or 0) & (UP | LOOPBACK) == UP
    ]
    hardware = [
        port for port in devices if (port.path / "device").exists() and not (port.path / "master/device").exists()
    ]
    if not ports and not hardware:
        return tuple(devices)
    return (*ports, *(port for port in hardware if _number(port.path / "type") == ETHERNET))


def ports(sys: Path = SYS) -> list[dict[str, str | int | None]]:
    """Return what is to be known of this host's ports, for the provenance; what cannot be read is None.

    Returns:
        name and kind; of a netdev mtu in bytes and speed in Mbit/s, of an InfiniBand port link_layer and rate in words.
    """
    return [{"name": port.name, "kind": port.kind, **_about(port)} for port in find(sys)]


def _about(port: Port) -> dict[str, str | int | None]:
    if port.kind == "cxi":
        return {}
    if port.kind == "infiniband":
        return {name: _text(port.path / name) for name in ("link_layer", "rate")}
    speed = _number(port.path / "speed")
    return {"mtu": _number(port.path / "mtu"), "speed": speed if speed and speed > 0 else None}  # -1: unknown


Counters = Mapping[tuple[str, str], int]
"""The counters of a host at one moment, by port and name; what cannot be read is left out."""


def read(ports: Iterable[Port]) -> Counters:
    """Read all counters of ``ports``."""
    return {(port.name, name): value for port in ports for name, value in _values(port)}


def _values(port: Port) -> Iterator[tuple[str, int]]:
    """Yield the counters of a port that can be read."""
    for name, file in FILES[port.kind].items():
        value = _number(port.path / file)
        if value is not None:
            in_words = port.kind == "infiniband" and name in (SENT, RECEIVED)
            yield name, value * WORD if in_words else value
    if port.kind == "netdev":
        yield from pause_frames(statistics(port.name)).items()


Moved = Mapping[tuple[str, str], int | None]
"""How far the counters of a host have come, by port and name; None where that is not known."""


def difference(before: Counters, after: Counters) -> dict[tuple[str, str], int | None]:
    """Return how far each counter has come; None where one went back, stopped or disappeared."""
    moved: dict[tuple[str, str], int | None] = {}
    for counter, first in before.items():
        last = after.get(counter)
        strange = last is None or last < first or last in (SATURATED, SATURATED * WORD)
        moved[counter] = None if last is None or strange else last - first
    return moved


def over_ports(moved: Moved, name: str) -> int | None:
    """Return how far a counter has come on all ports that have it; None where one does not know, or none has it."""
    values = [value for (_, counter), value in moved.items() if counter == name]
    known = [value for value in values if value is not None]
    return sum(known) if values and len(known) == len(values) else None


# linux/ethtool.h and linux/sockios.h
SIOCETHTOOL = 0x8946
ETHTOOL_GSTRINGS, ETHTOOL_GSTATS, ETHTOOL_GSSET_INFO = 0x1B, 0x1D, 0x37
ETH_SS_STATS, ETH_GSTRING_LEN = 1, 32

PAUSE = re.compile(r"^(?!.*(global|duration|transition|storm|xon)).*(pause|xoff|pfc_frames)")
"""Statistics that count pause frames: rx_pause_ctrl_phy, rx_prio3_pause, tx_pause_frames, port.link_xoff_rx, ...

mlx5 counts the frames of rx_pause_ctrl_phy in rx_global_pause again; a frame that ends a pause (xon) stops nobody.
"""


def statistics(device: str) -> dict[str, int]:
    """Return what the driver of an Ethernet device counts by names of its own (``ethtool -S``); empty where nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:

        def ask(head: bytes, room: int) -> bytes:
            # Twice the room: the kernel does not look whether a driver has got more statistics in the meantime.
            answer = np.frombuffer(head.ljust(len(head) + 2 * room, b"\0"), np.uint8).copy()
            fcntl.ioctl(channel, SIOCETHTOOL, struct.pack("16sP16x", device.encode(), answer.ctypes.data))
            return answer.tobytes()[len(head) : len(head) + room]

        try:
            (count,) = struct.unpack("I", ask(struct.pack("IIQ", ETHTOOL_GSSET_INFO, 0, 1 << ETH_SS_STATS), 4))
            names = ask(struct.pack("III", ETHTOOL_GSTRINGS, ETH_SS_STATS, count), count * ETH_GSTRING_LEN)
            values = ask(struct.pack("II", ETHTOOL_GSTATS, count), count * 8)
        except OSError:  # it counts nothing, or is gone
            return {}
    words = (names[at : at + ETH_GSTRING_LEN].split(b"\0")[0].decode() for at in range(0, len(names), ETH_GSTRING_LEN))
    return dict(zip(words, struct.unpack(f"{count}Q", values), strict=True))


@cache
def _pause_counter(name: str) -> str | None:
    """Return which counter the statistic ``name`` is part of."""
    way = re.search(r"(?<![a-z])[rt]x(?![a-z])", name)
    return f"{way[0]}_pause_frames" if way and PAUSE.match(name) else None


def pause_frames(statistics: Mapping[str, int]) -> dict[str, int]:
    """Return the pause frames sent and received in all priorities, of those two what the driver counts."""
    frames: dict[str, int] = {}
    for name, value in statistics.items():
        if counter := _pause_counter(name):
            frames[counter] = frames.get(counter, 0) + value
    return frames


PASS_S = 0.05
"""Seconds that a counting pass takes where an operation is not longer."""

MOST = 1000
"""The most operations of a pass: the bytes of two barriers are then some thousandth of a small message's."""

SETTLE_S = 0.011
"""Seconds between the last operation and the second reading.

hw_counters are read from the device again when they are older than their ``lifespan``, 10 ms (sysfs-class-infiniband).
"""


def operations(samples: Samples) -> int:
    """Return how many operations a counting pass has, from the timed iterations; known at rank 0."""
    median_s = float(np.median(durations_max(samples.start_ns, samples.end_ns))) / 1e9
    return int(np.clip(PASS_S / max(median_s, 1e-9), 1, MOST))


def watch(subject: Subject, together: Together, operations: int, progress: Progress, ports: tuple[Port, ...]) -> Moved:
    """Do ``operations`` operations on all ranks together, and return how far the counters of ``ports`` have come.

    Nothing is timed, so that no barrier has to stand between the operations.
    """
    progress.enter("waiting for the other ranks to count bytes")
    together.barrier()
    before = read(ports)
    together.barrier()  # nobody sends before everybody has read
    for _ in range(operations):
        progress.enter("in an operation whose bytes are counted")
        subject.reset()
        subject.run()
    together.barrier()
    # All ranks, so that none goes on and sends. Acknowledgements of TCP that are under way longer are a few frames.
    time.sleep(SETTLE_S)
    unseen = dict.fromkeys((port.name, name) for port in ports if port.blind for name in (SENT, RECEIVED))
    return {**difference(before, read(ports)), **unseen}


@dataclass(frozen=True, slots=True)
class Traffic:
    """What the hosts' counters say of a counting pass.

    Args:
        operations: of the pass.
        moved: how far the counters of each node have come, in the order of the nodes' numbers.
    """

    operations: int
    moved: tuple[Moved, ...]

    def each(self, name: str) -> tuple[float | None, ...]:
        """Return a counter of each node, per operation."""
        return tuple(self._per_operation(over_ports(node, name)) for node in self.moved)

    def by_port(self, name: str, ports: Sequence[str]) -> tuple[tuple[float | None, ...], ...]:
        """Return a counter of each of ``ports`` of each node, per operation, [node][port]."""
        return tuple(tuple(self._per_operation(node.get((port, name))) for port in ports) for node in self.moved)

    def _per_operation(self, value: int | None) -> float | None:
        return None if value is None else value / self.operations

    @property
    def sent(self) -> int | None:
        """The bytes per operation that all hosts sent, None where one does not know."""
        known = [value for value in self.each(SENT) if value is not None]
        return round(sum(known)) if len(known) == len(self.moved) else None

    @property
    def counters(self) -> dict[str, int | None]:
        """Every other counter that a host has, over all hosts and the whole pass, with the operations of the pass."""
        names = dict.fromkeys(name for node in self.moved for _, name in node if name not in (SENT, RECEIVED))
        return {"operations": self.operations, **{name: self._total(name) for name in names}}

    def _total(self, name: str) -> int | None:
        values = [over_ports(node, name) for node in self.moved if any(name == counter for _, counter in node)]
        known = [value for value in values if value is not None]
        return sum(known) if len(known) == len(values) else None
