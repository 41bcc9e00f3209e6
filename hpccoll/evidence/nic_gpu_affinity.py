"""The distances between NICs and GPUs, from NCCL's dump of the topology or from sysfs, and whether they are balanced.

The distances are NCCL's path types: PIX, at most one PCIe switch; PXB, several; PHB, through the
host bridge of one CPU; SYS, through the link between CPUs.
"""

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import TypeVar
from xml.etree import ElementTree as ET

_Key = TypeVar("_Key")

DISTANCES = ("PIX", "PXB", "PHB", "SYS")
"""From near to far."""


@dataclass(frozen=True, slots=True)
class NearestNics:
    """The NICs that are nearest to a GPU, their distance, one of ``DISTANCES``, and how many NVLinks the GPU has."""

    gpu: int
    distance: str
    nics: tuple[str, ...]
    nvlinks: int | None = None


def parse_topology_dump(text: str) -> tuple[NearestNics, ...]:
    """Return the NICs nearest to each GPU of NCCL_TOPO_DUMP_FILE.

    Raises:
        ValueError: if the text is not such a dump.
    """
    gpus: dict[int, tuple[str, ...]] = {}
    nics: dict[str, tuple[str, ...]] = {}
    nvlinks: dict[int, int] = {}

    def walk(element: ET.Element, parent: tuple[str, ...]) -> None:
        path = parent
        if element.tag in ("cpu", "pci"):
            path = (*parent, f"{element.tag} {element.get('busid') or element.get('numaid')}")
        number = element.get("dev", "")
        if element.tag == "gpu" and number.isdigit():
            gpus[int(number)] = path
            counts = (link.get("count", "") for link in element.iter("nvlink"))
            nvlinks[int(number)] = sum(int(count) for count in counts if count.isdigit())
        if element.tag == "net":
            nics[element.get("name", "?")] = path
        for child in element:
            walk(child, path)

    walk(_root(text, "system"), ())
    return tuple(
        replace(near, nvlinks=nvlinks[near.gpu]) for near in _nearest(gpus, nics, pix_steps=1)
    )


def read_sysfs_topology(
    gpus: Mapping[int, str], sysfs: Path = Path("/sys")
) -> tuple[NearestNics, ...]:
    """Return the NICs nearest to each GPU, by the real paths of their devices; ``gpus`` have their bus addresses."""
    devices = sysfs / "bus/pci/devices"
    paths = {number: _device_path(devices / address.lower()) for number, address in gpus.items()}
    adapters = sysfs / "class/infiniband"
    nic_paths: dict[str, tuple[str, ...]] = {}
    if adapters.is_dir():
        nic_paths = {nic.name: _device_path(nic / "device") for nic in sorted(adapters.iterdir())}
    return _nearest(_present(paths), _present(nic_paths), pix_steps=2)


def _present(paths: Mapping[_Key, tuple[str, ...]]) -> dict[_Key, tuple[str, ...]]:
    return {name: path for name, path in paths.items() if path}


def _device_path(device: Path) -> tuple[str, ...]:
    """Return the path to a device: NUMA node, host bridge and further bridges; empty if there is no such device."""
    real = Path(os.path.realpath(device))
    parts = [part for part in real.parts if part.startswith("pci") or part.count(":") == 2]
    if len(parts) < 2:
        return ()
    node = real / "numa_node"
    numa = node.read_text().strip() if node.is_file() else "?"
    bridges = [f"pci {part}" for part in parts]
    return (f"cpu {numa}", *bridges)


def _nearest(
    gpus: Mapping[int, tuple[str, ...]], nics: Mapping[str, tuple[str, ...]], pix_steps: int
) -> tuple[NearestNics, ...]:
    """Return the NICs nearest to each GPU, by the paths to both from the CPU down.

    ``pix_steps`` are the steps from a switch to a device plugged into it: sysfs counts the port of
    the switch too.
    """
    nearest = []
    for gpu, path in sorted(gpus.items()):
        distances = {name: _distance(path, nic, pix_steps) for name, nic in nics.items()}
        if distances:
            least = min(distances.values(), key=DISTANCES.index)
            names = tuple(sorted(name for name, distance in distances.items() if distance == least))
            nearest.append(NearestNics(gpu, least, names))
    return tuple(nearest)


def _distance(gpu: tuple[str, ...], nic: tuple[str, ...], pix_steps: int) -> str:
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(gpu, nic, strict=False)))
    if shared == 0:
        return "SYS"
    switches = [
        part for part in gpu[:shared] if part.startswith("pci ") and not part.startswith("pci pci")
    ]
    if not switches:
        return "PHB"
    return "PIX" if max(len(gpu), len(nic)) - shared <= pix_steps else "PXB"


def describe_graphs(text: str) -> str:
    """Return a sentence about the graphs that NCCL's search found, from NCCL_GRAPH_DUMP_FILE; equal graphs once.

    Raises:
        ValueError: if the text is not such a dump.
    """
    graphs: dict[str, None] = {}
    for graph in _root(text, "graphs").iter("graph"):
        channels = graph.get("nchannels", "0")
        if int(channels):
            inside = float(graph.get("speedintra", "0"))
            between = float(graph.get("speedinter", "0"))
            graphs[
                f"{channels} channels of {inside:.3g} GB/s inside a node and {between:.3g} between"
            ] = None
    described = "; ".join(graphs) or "no channels"
    return f"NCCL's search: {described}"


def _root(text: str, tag: str) -> ET.Element:
    try:
        root = ET.fromstring(text)  # noqa: S314  a file of the user's own run
    except ET.ParseError as error:
        raise ValueError(f"no dump of NCCL: {error}") from None
    if root.tag != tag:
        raise ValueError(f"no dump of NCCL: it is <{root.tag}>, not <{tag}>")
    return root


def describe_balance(nearest: Iterable[NearestNics]) -> str:
    """Return a sentence that compares GPUs: distance of the nearest NIC, GPUs that share it, and number of NVLinks."""
    rows = list(nearest)
    if not rows:
        return "no GPU and NIC to compare"
    distances = Counter(row.distance for row in rows)
    usual = min(distances, key=lambda distance: (-distances[distance], DISTANCES.index(distance)))
    unusual = [
        f"GPU {row.gpu}: {row.distance} ({', '.join(row.nics)})"
        for row in rows
        if row.distance != usual
    ]
    if unusual:
        return f"not balanced: most GPUs have a NIC at {usual}, but {', '.join(unusual)}"
    nvlinks = {row.nvlinks for row in rows}
    if len(nvlinks) > 1:
        counts = ", ".join(f"GPU {row.gpu}: {row.nvlinks}" for row in rows)
        return f"not balanced: each GPU has a NIC at {usual}, but not as many NVLinks ({counts})"
    users: Counter[str] = Counter()
    for row in rows:
        users.update(row.nics)
    shares = {users[row.nics[0]] for row in rows if len(row.nics) == 1}
    if len(shares) > 1:
        shared = ", ".join(
            f"{nic}: {count} GPUs" for nic, count in sorted(users.items()) if count > 1
        )
        return f"not balanced: each GPU has a NIC at {usual}, but some share theirs ({shared})"
    sentence = f"balanced: each GPU has a NIC at {usual}"
    links_of_gpu = nvlinks.pop()
    if links_of_gpu:
        sentence += f" and {links_of_gpu} NVLinks"
    return sentence
