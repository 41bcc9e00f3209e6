"""Which NIC is how near to which GPU, from NCCL's dump of the topology or from sysfs; and whether it is balanced.

The words are NCCL's: PIX, at most one PCIe switch between them; PXB, several; PHB, the host bridge of one CPU; SYS, the
link between CPUs.
"""

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from xml.etree import ElementTree as ET

DISTANCES = ("PIX", "PXB", "PHB", "SYS")
"""From near to far."""


@dataclass(frozen=True, slots=True)
class NearestNics:
    """The NICs that are nearest to a GPU.

    Args:
        gpu: its number.
        distance: of these NICs, one of ``DISTANCES``.
        nics: their names.
        nvlinks: that the GPU has, to switches and to others; None where it is not known.
    """

    gpu: int
    distance: str
    nics: tuple[str, ...]
    nvlinks: int | None = None


@dataclass(frozen=True, slots=True)
class NcclGraph:
    """What NCCL's search found for one algorithm, from NCCL_GRAPH_DUMP_FILE.

    Args:
        id: of the algorithm, in NCCL's order.
        channels: in parallel.
        intra_Bps: of each channel inside a node.
        inter_Bps: of each channel between nodes.
    """

    id: int
    channels: int
    intra_Bps: float  # noqa: N815  the unit's case
    inter_Bps: float  # noqa: N815


def parse_topology_dump(text: str) -> tuple[NearestNics, ...]:
    """Return the NICs nearest to each GPU of NCCL_TOPO_DUMP_FILE.

    Raises:
        ValueError: where the text is no such dump.
    """
    gpus: dict[int, tuple[str, ...]] = {}
    nics: dict[str, tuple[str, ...]] = {}
    links: dict[int, int] = {}

    def walk(element: ET.Element, above: tuple[str, ...]) -> None:
        place = above
        if element.tag in ("cpu", "pci"):
            place = (*above, f"{element.tag} {element.get('busid') or element.get('numaid')}")
        if element.tag == "gpu" and (number := element.get("dev", "")).isdigit():
            gpus[int(number)] = place
            links[int(number)] = sum(_count(link) for link in element.iter("nvlink"))
        if element.tag == "net":
            nics[element.get("name", "?")] = place
        for inner in element:
            walk(inner, place)

    walk(_root(text, "system"), ())
    return tuple(replace(near, nvlinks=links[near.gpu]) for near in _nearest(gpus, nics, below=1))


def _count(link: ET.Element) -> int:
    count = link.get("count", "")
    return int(count) if count.isdigit() else 0


def read_sysfs_topology(gpus: Mapping[int, str], sysfs: Path = Path("/sys")) -> tuple[NearestNics, ...]:
    """Return the NICs nearest to each GPU, by the real paths of their devices.

    Args:
        gpus: the bus address of each, such as ``0000:18:00.0``.
        sysfs: where it is mounted.
    """
    devices = sysfs / "bus/pci/devices"
    where = {number: place for number, address in gpus.items() if (place := _place(devices / address.lower()))}
    adapters = sysfs / "class/infiniband"
    found = sorted(adapters.iterdir()) if adapters.is_dir() else []
    return _nearest(where, {nic.name: place for nic in found if (place := _place(nic / "device"))}, below=2)


def _place(device: Path) -> tuple[str, ...]:
    """Return the way to a device: its NUMA node, its host bridge, and the bridges down to it; empty without one."""
    real = Path(os.path.realpath(device))
    node = real / "numa_node"
    numa = node.read_text().strip() if node.is_file() else "?"
    parts = [part for part in real.parts if part.startswith("pci") or part.count(":") == 2]
    return (f"cpu {numa}", *(f"pci {part}" for part in parts)) if len(parts) > 1 else ()


def _nearest(
    gpus: Mapping[int, tuple[str, ...]], nics: Mapping[str, tuple[str, ...]], below: int
) -> tuple[NearestNics, ...]:
    """Return the nearest NICs.

    Args:
        gpus: the way to each, from the top.
        nics: likewise.
        below: the steps from a switch to what is plugged into it: sysfs knows the switch's port too.
    """
    near = []
    for gpu, place in sorted(gpus.items()):
        distances = {name: _distance(place, other, below) for name, other in nics.items()}
        if distances:
            least = min(distances.values(), key=DISTANCES.index)
            near.append(NearestNics(gpu, least, tuple(sorted(name for name, far in distances.items() if far == least))))
    return tuple(near)


def _distance(gpu: tuple[str, ...], nic: tuple[str, ...], below: int) -> str:
    shared = sum(1 for _ in _while_equal(gpu, nic))
    if shared == 0:
        return "SYS"
    switches = [place for place in gpu[:shared] if place.startswith("pci ") and not place.startswith("pci pci")]
    if not switches:
        return "PHB"
    return "PIX" if max(len(gpu), len(nic)) - shared <= below else "PXB"


def _while_equal(some: Iterable[str], others: Iterable[str]) -> Iterable[str]:
    for one, other in zip(some, others, strict=False):
        if one != other:
            return
        yield one


def parse_graph_dump(text: str) -> tuple[NcclGraph, ...]:
    """Return what NCCL_GRAPH_DUMP_FILE says.

    Raises:
        ValueError: where the text is no such dump.
    """
    return tuple(
        NcclGraph(
            int(one.get("id", "0")), int(one.get("nchannels", "0")),
            float(one.get("speedintra", "0")) * 1e9, float(one.get("speedinter", "0")) * 1e9,
        )
        for one in _root(text, "graphs").iter("graph")
    )  # fmt: skip


def describe_graphs(found: Iterable[NcclGraph]) -> str:
    """Return in words what NCCL's search found, for each algorithm once."""
    words = (
        f"{one.channels} channels of {one.intra_Bps / 1e9:.3g} GB/s inside a node and {one.inter_Bps / 1e9:.3g} between"
        for one in found
        if one.channels
    )
    return "NCCL's search: " + ("; ".join(dict.fromkeys(words)) or "no channels")


def _root(text: str, tag: str) -> ET.Element:
    try:
        root = ET.fromstring(text)  # noqa: S314  a file of the user's own run
    except ET.ParseError as error:
        raise ValueError(f"no dump of NCCL: {error}") from None
    if root.tag != tag:
        raise ValueError(f"no dump of NCCL: it is <{root.tag}>, not <{tag}>")
    return root


def describe_balance(near: Iterable[NearestNics]) -> str:
    """Return in words whether each GPU has a NIC as near as its peers', shared by as few, and as many NVLinks."""
    rows = list(near)
    if not rows:
        return "no GPU and NIC to compare"
    distances = Counter(row.distance for row in rows)
    usual = min(distances, key=lambda distance: (-distances[distance], DISTANCES.index(distance)))
    if strange := [row for row in rows if row.distance != usual]:
        others = ", ".join(f"GPU {row.gpu}: {row.distance} ({', '.join(row.nics)})" for row in strange)
        return f"not balanced: most GPUs have a NIC at {usual}, but {others}"
    if len(links := {row.nvlinks for row in rows}) > 1:
        counts = ", ".join(f"GPU {row.gpu}: {row.nvlinks}" for row in rows)
        return f"not balanced: each GPU has a NIC at {usual}, but not as many NVLinks ({counts})"
    users = Counter(nic for row in rows for nic in row.nics)
    shares = {max(users[nic] for nic in row.nics) for row in rows if len(row.nics) == 1}
    if len(shares) > 1:
        crowded = ", ".join(f"{nic}: {count} GPUs" for nic, count in sorted(users.items()) if count > 1)
        return f"not balanced: each GPU has a NIC at {usual}, but some share theirs ({crowded})"
    beside = f" and {of_each} NVLinks" if (of_each := links.pop()) else ""
    return f"balanced: each GPU has a NIC at {usual}{beside}"
