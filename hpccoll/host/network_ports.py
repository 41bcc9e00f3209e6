"""The network ports of this host and their counters, read from sysfs.

Ethernet devices count bytes in statistics/{tx,rx}_bytes
(Documentation/ABI/testing/sysfs-class-net-statistics of Linux); InfiniBand and RoCE ports count
units of four bytes in counters/port_{xmit,rcv}_data
(Documentation/ABI/stable/sysfs-class-infiniband). RDMA traffic bypasses the Ethernet device of a
RoCE port, so that both are added; the InfiniBand port already counts the bytes of IPoIB. All are
bytes on the link, including headers and the traffic of other processes. Packets are counted in the
same directories.

Congestion counters keep Linux's names: drops, port_xmit_wait (ticks), and the mlx5 driver's in
hw_counters (drivers/infiniband/hw/mlx5/counters.c). Every driver names pause frames differently
among the statistics of ethtool; mlx5's names are in
Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst.
"""

import fcntl
import re
import socket
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from hpccoll.common.files import read_fact

SYS = Path("/sys")

SENT, RECEIVED = "sent_bytes", "received_bytes"
SENT_PACKETS, RECEIVED_PACKETS = "sent_packets", "received_packets"

NETDEV_COUNTERS = {
    SENT: "statistics/tx_bytes",
    RECEIVED: "statistics/rx_bytes",
    SENT_PACKETS: "statistics/tx_packets",
    RECEIVED_PACKETS: "statistics/rx_packets",
    **{
        name: f"statistics/{name}"
        for name in ("tx_dropped", "rx_dropped", "rx_missed_errors", "tx_errors", "rx_errors")
    },
}
"""The files of an Ethernet device's counters."""

HW_COUNTERS = (
    "np_cnp_sent",
    "rp_cnp_handled",
    "np_ecn_marked_roce_packets",
    "out_of_sequence",
    "packet_seq_err",
    "out_of_buffer",
    "rnr_nak_retry_err",
    "local_ack_timeout_err",
    "roce_adp_retrans",
)

LINK_COUNTERS = (
    "port_xmit_wait",
    "port_xmit_discards",
    "port_rcv_errors",
    "symbol_error",
    "link_error_recovery",
    "link_downed",
    "local_link_integrity_errors",
)

INFINIBAND_COUNTERS = {
    SENT: "counters/port_xmit_data",
    RECEIVED: "counters/port_rcv_data",
    SENT_PACKETS: "counters/port_xmit_packets",
    RECEIVED_PACKETS: "counters/port_rcv_packets",
    **{name: f"counters/{name}" for name in LINK_COUNTERS},
    **{name: f"hw_counters/{name}" for name in HW_COUNTERS},
}
"""The files of an InfiniBand or RoCE port's counters."""

COUNTER_FILES: Mapping[str, Mapping[str, str]] = {
    "netdev": NETDEV_COUNTERS,
    "infiniband": INFINIBAND_COUNTERS,
    "cxi": {},
}
"""The counter files by the kind of port. Slingshot's cxi devices have no common directory, and are not read."""

LOSS_COUNTERS: Mapping[str, tuple[str, ...]] = {
    SENT_PACKETS: ("tx_errors", "packet_seq_err", "local_ack_timeout_err", "roce_adp_retrans"),
    RECEIVED_PACKETS: (
        "rx_errors",
        "rx_missed_errors",
        "out_of_sequence",
        "port_rcv_errors",
        "symbol_error",
        "link_error_recovery",
        "link_downed",
        "local_link_integrity_errors",
    ),
}
"""The counters of packets that were lost or damaged, by what counts all packets of that direction."""

DATA_WORD_BYTES = 4
"""The unit of port_xmit_data and port_rcv_data, in bytes."""

SATURATED = 2**32 - 1
"""The value at which a 32-bit counter of an InfiniBand port stops; it does not wrap."""

ETHERNET = 1
"""ARPHRD_ETHER of linux/if_arp.h, in the file ``type``; IPoIB is 32."""

UP, LOOPBACK = 0x1, 0x8
"""IFF_UP and IFF_LOOPBACK of linux/if.h, in the file ``flags``."""


@dataclass(frozen=True, slots=True)
class NetworkPort:
    """A port of this host such as ``eth0`` or ``mlx5_0/1``, of a kind of COUNTER_FILES, and its directory in sysfs."""

    name: str
    kind: str
    path: Path

    @property
    def has_uncounted_bytes(self) -> bool:
        """Whether bytes may pass without being counted, as on RDMA devices such as EFA, whose drivers use other files.

        The counters of the other ports are then less than the traffic of the host.
        """
        if self.kind == "netdev":
            return False
        file = COUNTER_FILES[self.kind].get(SENT, "")
        return _read_number(self.path / file) is None


def _read_number(path: Path) -> int | None:
    try:
        return int(read_fact(path), 0)  # flags are hexadecimal
    except ValueError:
        return None


def find_ports(sys: Path = SYS) -> tuple[NetworkPort, ...]:
    """Return the ports whose counters sum to the traffic of this host, without double counting.

    Bonds, bridges and VLANs are left out: the devices below them count the same bytes. A virtual
    function whose master has hardware (Hyper-V) is left out: its master counts it. If the host has
    neither Ethernet nor InfiniBand hardware (a container, virtual wires), all devices that are up
    count, except loopback.
    """
    ports: list[NetworkPort] = []
    for path in sorted((sys / "class/infiniband").glob("*/ports/*")):
        if "ACTIVE" in (read_fact(path / "state") or "ACTIVE"):
            ports.append(NetworkPort(f"{path.parent.parent.name}/{path.name}", "infiniband", path))
    ports += [NetworkPort(path.name, "cxi", path) for path in sorted((sys / "class/cxi").glob("*"))]
    devices: list[NetworkPort] = []
    for path in sorted((sys / "class/net").glob("*")):
        flags = _read_number(path / "flags") or 0
        if flags & (UP | LOOPBACK) == UP:
            devices.append(NetworkPort(path.name, "netdev", path))
    hardware = [port for port in devices if _is_hardware(port.path)]
    if not ports and not hardware:
        return tuple(devices)
    ethernet = [port for port in hardware if _read_number(port.path / "type") == ETHERNET]
    return (*ports, *ethernet)


def _is_hardware(device: Path) -> bool:
    """Return whether a network device has hardware of its own, and its master has none."""
    return (device / "device").exists() and not (device / "master/device").exists()


def port_facts(sys: Path = SYS) -> list[dict[str, str | int | None]]:
    """Return the facts about this host's ports for the provenance; unreadable facts are None.

    Returns:
        name and kind of each port; for a netdev also mtu in bytes and speed in Mbit/s, for an
        InfiniBand port also link_layer and rate as text.
    """
    return [{"name": port.name, "kind": port.kind, **_port_facts(port)} for port in find_ports(sys)]


def _port_facts(port: NetworkPort) -> dict[str, str | int | None]:
    if port.kind == "cxi":
        return {}
    if port.kind == "infiniband":
        return {name: read_fact(port.path / name) or None for name in ("link_layer", "rate")}
    speed = _read_number(port.path / "speed")
    if speed is not None and speed <= 0:  # -1: unknown
        speed = None
    return {"mtu": _read_number(port.path / "mtu"), "speed": speed}


@dataclass(frozen=True, slots=True)
class EthernetInterface:
    """An interface of Ethernet that is up."""

    name: str
    mtu: int  # in bytes
    speed: int  # in Mbit/s


def ethernet_interfaces(sys: Path = SYS) -> list[EthernetInterface]:
    """Return the interfaces of Ethernet whose MTU and speed are known."""
    interfaces = []
    for port in find_ports(sys):
        if port.kind != "netdev":
            continue
        mtu = _read_number(port.path / "mtu")
        speed = _read_number(port.path / "speed")
        if mtu and speed and speed > 0:  # -1: unknown
            interfaces.append(EthernetInterface(port.name, mtu, speed))
    return interfaces


Counters = Mapping[tuple[str, str], int]
"""The counters of a host at one moment, by port and counter name; unreadable counters are left out."""


def read_counters(ports: Iterable[NetworkPort]) -> Counters:
    counters = {}
    for port in ports:
        for name, value in _read_port(port):
            counters[port.name, name] = value
    return counters


def _read_port(port: NetworkPort) -> Iterator[tuple[str, int]]:
    for name, file in COUNTER_FILES[port.kind].items():
        value = _read_number(port.path / file)
        if value is None:
            continue
        if port.kind == "infiniband" and name in (SENT, RECEIVED):
            value *= DATA_WORD_BYTES
        yield name, value
    if port.kind == "netdev":
        yield from pause_frames(driver_statistics(port.name)).items()


# linux/ethtool.h and linux/sockios.h
SIOCETHTOOL = 0x8946
ETHTOOL_GSTRINGS = 0x1B
ETHTOOL_GSTATS = 0x1D
ETHTOOL_GSSET_INFO = 0x37
ETH_SS_STATS = 1
ETH_GSTRING_LEN = 32

PAUSE_STATISTIC = re.compile(
    r"^(?!.*(global|duration|transition|storm|xon)).*(pause|xoff|pfc_frames)"
)
"""Names of statistics that count pause frames: rx_pause_ctrl_phy, rx_prio3_pause, tx_pause_frames, ...

mlx5 counts the frames of rx_pause_ctrl_phy again in rx_global_pause. Frames that end a pause (xon)
do not count.
"""


def driver_statistics(device: str) -> dict[str, int]:
    """Return the statistics of an Ethernet device by the driver's names, empty if the driver has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:

        def query(header: bytes, nbytes: int) -> bytes:
            # Twice the size: the kernel does not check whether a driver has gained statistics in
            # the meantime.
            answer = np.frombuffer(header.ljust(len(header) + 2 * nbytes, b"\0"), np.uint8).copy()
            fcntl.ioctl(
                channel, SIOCETHTOOL, struct.pack("16sP16x", device.encode(), answer.ctypes.data)
            )
            return answer.tobytes()[len(header) : len(header) + nbytes]

        try:
            (count,) = struct.unpack(
                "I", query(struct.pack("IIQ", ETHTOOL_GSSET_INFO, 0, 1 << ETH_SS_STATS), 4)
            )
            names = query(
                struct.pack("III", ETHTOOL_GSTRINGS, ETH_SS_STATS, count), count * ETH_GSTRING_LEN
            )
            values = query(struct.pack("II", ETHTOOL_GSTATS, count), count * 8)
        except OSError:  # the device has no statistics, or no longer exists
            return {}
    starts = range(0, len(names), ETH_GSTRING_LEN)
    fields = [names[start : start + ETH_GSTRING_LEN] for start in starts]
    counters = [field.split(b"\0")[0].decode() for field in fields]
    return dict(zip(counters, struct.unpack(f"{count}Q", values), strict=True))


@cache
def _pause_counter(name: str) -> str | None:
    """Return the counter that the statistic ``name`` adds to, None if it does not count pause frames."""
    direction = re.search(r"(?<![a-z])[rt]x(?![a-z])", name)
    if not direction or not PAUSE_STATISTIC.match(name):
        return None
    return f"{direction[0]}_pause_frames"


def pause_frames(statistics: Mapping[str, int]) -> dict[str, int]:
    """Return the pause frames sent and received, summed over the priorities that the driver counts."""
    frames: Counter[str] = Counter()
    for name, value in statistics.items():
        counter = _pause_counter(name)
        if counter:
            frames[counter] += value
    return dict(frames)
