"""The PCIe links of network adapters and the MTUs of their ports, read from sysfs.

Documentation/ABI/testing/sysfs-bus-pci and sysfs-class-net of Linux describe the files. A link
whose files are missing or say ``Unknown``, as in virtual machines, is None.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hpccoll.common.files import read_fact
from hpccoll.host.gpu_stack import ROOT, RdmaPort, rdma_ports

GENERATIONS: Mapping[float, int] = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
"""The generations of PCIe by the rate of a lane in GT/s (PCI Express Base Specification 6.0)."""

LINE_CODES: Mapping[int, float] = {
    1: 8 / 10,
    2: 8 / 10,
    3: 128 / 130,
    4: 128 / 130,
    5: 128 / 130,
    6: 1.0,
}
"""The data bits over the transferred bits by generation: 8b/10b, 128b/130b, and none with flits
(PCI Express Base Specification; PCIE_SPEED2MBS_ENC in drivers/pci/pci.h of Linux). What packets
have as headers is not left out."""

ROCE_MTUS = 4096, 2048, 1024, 512, 256
"""The sizes of packets of InfiniBand and RoCE in bytes (InfiniBand Architecture, PathRecord)."""
LARGEST_MTU = ROCE_MTUS[0]

ROCE_HEADERS = 96
"""What Linux leaves of an Ethernet MTU for the headers of RoCE, in bytes (``iboe_get_mtu`` in
include/rdma/ib_addr.h): GRH 40, UDP 8, BTH 12, XRC 4, atomics 28, ICRC 4."""


@dataclass(frozen=True, slots=True)
class PcieLink:
    """A link of PCIe."""

    gigatransfers: float  # of each lane, in GT/s
    lanes: int

    @property
    def generation(self) -> int:
        return GENERATIONS[self.gigatransfers]

    @property
    def bits_per_s(self) -> float:
        """The data bits that it carries in each direction."""
        return self.lanes * self.gigatransfers * 1e9 * LINE_CODES[self.generation]

    def __str__(self) -> str:
        return f"PCIe gen{self.generation} x{self.lanes}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterPort:
    """A port of an RDMA adapter, with the PCIe link and the network interface behind it."""

    port: RdmaPort
    bits_per_s: float  # the rate of the port; 0 if unknown
    board: str  # the GUID that all functions of an adapter share; empty if unknown
    connector: str  # the port of the board, such as ``p0``
    slot: str  # the PCI address without its function
    link: PcieLink | None
    fastest_link: PcieLink | None  # what the adapter can have
    interface: str  # the network interface of a RoCE port; empty without one
    interface_mtu: int | None  # its MTU in bytes

    @property
    def adapter(self) -> str:
        return self.port.name.partition(":")[0]

    @property
    def is_roce(self) -> bool:
        return self.port.layer == "Ethernet"

    @property
    def roce_mtu(self) -> int | None:
        """The size of packets of RoCE that the MTU of the interface admits; None if unknown."""
        if not self.is_roce or self.interface_mtu is None:
            return None
        return largest_roce_mtu(self.interface_mtu)

    def is_half_with(self, candidate: "AdapterPort") -> bool:
        """Return whether both are the same port of a board, behind different PCIe links."""
        same_port = (self.board, self.connector) == (candidate.board, candidate.connector)
        return bool(self.board) and same_port and self.slot != candidate.slot


def largest_roce_mtu(interface_mtu: int) -> int:
    """Return the size of packets of RoCE, in bytes, for the MTU of an Ethernet interface."""
    payload = interface_mtu - ROCE_HEADERS
    return next((size for size in ROCE_MTUS if size <= payload), 0)


def adapter_ports(root: Path = ROOT) -> list[AdapterPort]:
    """Return the ports of all RDMA adapters; ``root`` contains sys."""
    return [_adapter_port(port, root / "sys/class") for port in rdma_ports(root)]


def _adapter_port(port: RdmaPort, classes: Path) -> AdapterPort:
    adapter, _, number = port.name.partition(":")
    directory = classes / "infiniband" / adapter
    function = directory / "device"
    if (function / "physfn").exists():  # a virtual function has the link of its adapter
        function = function / "physfn"
    interface = _interface(directory, number)
    mtu, connector = _interface_facts(classes / "net", interface)
    return AdapterPort(
        port=port,
        bits_per_s=_rate(port.rate),
        board=_guid(read_fact(directory / "sys_image_guid")),
        connector=connector or number,
        slot=function.resolve().name.rpartition(".")[0],
        link=_link(function, "current"),
        fastest_link=_link(function, "max"),
        interface=interface,
        interface_mtu=mtu,
    )


def _interface(directory: Path, number: str) -> str:
    """Return the network interface of a port; empty if there is none, or several may be."""
    interface = read_fact(directory / f"ports/{number}/gid_attrs/ndevs/0")
    interfaces = [path.name for path in (directory / "device/net").glob("*")]
    if not interface and len(interfaces) == 1:
        return interfaces[0]
    return interface


def _interface_facts(interfaces: Path, name: str) -> tuple[int | None, str]:
    """Return the MTU of an interface in bytes, and the name of its connector; None and empty if unknown."""
    if not name:
        return None, ""
    mtu = read_fact(interfaces / name / "mtu")
    connector = read_fact(interfaces / name / "phys_port_name")
    if not mtu.isdecimal():
        return None, connector
    return int(mtu), connector


def _rate(text: str) -> float:
    """Return the bits a second in the rate of a port, such as ``400 Gb/sec (4X NDR)``; 0 without one."""
    rate = re.match(r"([\d.]+) Gb/sec", text)
    if rate is None:
        return 0.0
    return 1e9 * float(rate[1])


def _guid(text: str) -> str:
    """Return a GUID; empty if all its digits are 0."""
    if not text.strip("0:"):
        return ""
    return text


def _link(device: Path, which: str) -> PcieLink | None:
    """Return the ``current`` or the ``max`` link of a PCI device; None if it is unknown."""
    speed = re.match(r"[\d.]+(?= GT/s)", read_fact(device / f"{which}_link_speed"))
    lanes = read_fact(device / f"{which}_link_width")
    if not speed or float(speed[0]) not in GENERATIONS or not lanes.isdecimal():
        return None
    if not 1 <= int(lanes) <= 32:
        return None
    return PcieLink(float(speed[0]), int(lanes))


def infiniband_mtus(text: str) -> dict[str, int]:
    """Return the sizes of packets in bytes by port, such as ``mlx5_0:1``, in what ibv_devinfo prints."""
    mtus: dict[str, int] = {}
    adapter = port = ""
    for line in text.splitlines():
        name, _, value = line.strip().partition(":")
        if name == "hca_id":
            adapter = value.strip()
        elif name == "port":
            port = value.strip()
        elif name == "active_mtu":
            size = value.split()[0]
            if size.isdecimal():
                mtus[f"{adapter}:{port}"] = int(size)
    return mtus
