"""Ports: the network ports of this host, and their counters at one moment.

Ports are found in sysfs. Bytes are those of Ethernet devices (statistics/{tx,rx}_bytes: Documentation/ABI/testing/
sysfs-class-net-statistics of Linux), and of InfiniBand and RoCE ports (counters/port_{xmit,rcv}_data, in units of four
bytes: Documentation/ABI/stable/sysfs-class-infiniband). RDMA passes the Ethernet device of a RoCE port by, so that the
two are added; the bytes of IPoIB are counted at its port already. They are bytes on the link, headers among them, and
those of everybody who uses the port.

Counters of congestion keep the names that Linux gives them: drops, port_xmit_wait (ticks), and those of the mlx5 driver
in hw_counters (drivers/infiniband/hw/mlx5/counters.c). Pause frames have a name in every driver, among the statistics
of ethtool; those of mlx5 are in Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from hpccoll.host.ethtool import driver_statistics, pause_frames

SYS = Path("/sys")

SENT, RECEIVED = "sent_bytes", "received_bytes"

NETDEV_COUNTERS = {
    SENT: "statistics/tx_bytes",
    RECEIVED: "statistics/rx_bytes",
    "tx_dropped": "statistics/tx_dropped",
    "rx_dropped": "statistics/rx_dropped",
    "rx_missed_errors": "statistics/rx_missed_errors",
}
"""Counters of an Ethernet device and their files."""

HW_COUNTERS = (
    "np_cnp_sent", "rp_cnp_handled", "np_ecn_marked_roce_packets", "out_of_sequence", "packet_seq_err",
    "out_of_buffer", "rnr_nak_retry_err", "local_ack_timeout_err", "roce_adp_retrans",
)  # fmt: skip

INFINIBAND_COUNTERS = {
    SENT: "counters/port_xmit_data",
    RECEIVED: "counters/port_rcv_data",
    "port_xmit_wait": "counters/port_xmit_wait",
    "port_xmit_discards": "counters/port_xmit_discards",
    **{name: f"hw_counters/{name}" for name in HW_COUNTERS},
}
"""Counters of an InfiniBand or RoCE port and their files."""

COUNTER_FILES: Mapping[str, Mapping[str, str]] = {
    "netdev": NETDEV_COUNTERS,
    "infiniband": INFINIBAND_COUNTERS,
    "cxi": {},
}
"""The counters of a port by its kind; those of Slingshot's cxi devices are not in one place, and are not read."""

DATA_WORD_BYTES = 4
"""Bytes in the unit of port_xmit_data and port_rcv_data."""

SATURATED = 2**32 - 1
"""Where a 32-bit counter of an InfiniBand port stops: it does not wrap."""

ETHERNET = 1
"""ARPHRD_ETHER of linux/if_arp.h, in the file ``type``; IPoIB is 32."""

UP, LOOPBACK = 0x1, 0x8
"""IFF_UP and IFF_LOOPBACK of linux/if.h, in the file ``flags``."""


@dataclass(frozen=True, slots=True)
class NetworkPort:
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
    def has_uncounted_bytes(self) -> bool:
        """Whether bytes may pass that nothing here counts: RDMA devices such as EFA, whose drivers have other files.

        What other ports of the host count is then not all that it sends.
        """
        return self.kind != "netdev" and _read_number(self.path / COUNTER_FILES[self.kind].get(SENT, "")) is None


def _read_text(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except (OSError, ValueError):  # there is none, or the driver will not say
        return None


def _read_number(path: Path) -> int | None:
    try:
        return int(_read_text(path) or "", 0)  # flags are hexadecimal
    except ValueError:
        return None


def find_ports(sys: Path = SYS) -> tuple[NetworkPort, ...]:
    """Return the ports whose bytes make up what this host sends and receives, each counted once.

    Bonds, bridges and VLANs have no hardware of their own behind them, and what they send a device below counts too. A
    virtual function whose master has hardware (Hyper-V) is counted by its master.
    Where no Ethernet or InfiniBand hardware is there at all (a container, virtual wires), every device counts that is
    up, but for loopback.
    """
    ports = [
        NetworkPort(f"{path.parent.parent.name}/{path.name}", "infiniband", path)
        for path in sorted((sys / "class/infiniband").glob("*/ports/*"))
        if "ACTIVE" in (_read_text(path / "state") or "ACTIVE")
    ]
    ports += [NetworkPort(path.name, "cxi", path) for path in sorted((sys / "class/cxi").glob("*"))]
    devices = [
        NetworkPort(path.name, "netdev", path)
        for path in sorted((sys / "class/net").glob("*"))
        if (_read_number(path / "flags") or 0) & (UP | LOOPBACK) == UP
    ]
    hardware = [
        port for port in devices if (port.path / "device").exists() and not (port.path / "master/device").exists()
    ]
    if not ports and not hardware:
        return tuple(devices)
    return (*ports, *(port for port in hardware if _read_number(port.path / "type") == ETHERNET))


def port_facts(sys: Path = SYS) -> list[dict[str, str | int | None]]:
    """Return what is to be known of this host's ports, for the provenance; what cannot be read is None.

    Returns:
        name and kind; of a netdev mtu in bytes and speed in Mbit/s, of an InfiniBand port link_layer and rate in words.
    """
    return [{"name": port.name, "kind": port.kind, **_port_facts(port)} for port in find_ports(sys)]


def _port_facts(port: NetworkPort) -> dict[str, str | int | None]:
    if port.kind == "cxi":
        return {}
    if port.kind == "infiniband":
        return {name: _read_text(port.path / name) for name in ("link_layer", "rate")}
    speed = _read_number(port.path / "speed")
    return {"mtu": _read_number(port.path / "mtu"), "speed": speed if speed and speed > 0 else None}  # -1: unknown


Counters = Mapping[tuple[str, str], int]
"""The counters of a host at one moment, by port and name; what cannot be read is left out."""


def read_counters(ports: Iterable[NetworkPort]) -> Counters:
    """Read all counters of ``port_facts``."""
    return {(port.name, name): value for port in ports for name, value in _read_port(port)}


def _read_port(port: NetworkPort) -> Iterator[tuple[str, int]]:
    """Yield the counters of a port that can be read."""
    for name, file in COUNTER_FILES[port.kind].items():
        value = _read_number(port.path / file)
        if value is not None:
            in_words = port.kind == "infiniband" and name in (SENT, RECEIVED)
            yield name, value * DATA_WORD_BYTES if in_words else value
    if port.kind == "netdev":
        yield from pause_frames(driver_statistics(port.name)).items()
