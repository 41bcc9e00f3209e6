"""Slurm's topology: the lines of topology.conf, and those of ``scontrol show topology [NAME]``.

topology/tree has ``SwitchName=s0 Level=0 LinkSpeed=1 Nodes=dev[0-5]``; topology/block, from Slurm
23.11 on, has ``BlockName=block1 BlockIndex=0 Nodes=node[1-32] BlockSize=32`` (without the size
before 24.11) and ``AggregatedBlock=`` for blocks of blocks; topology/ring (26.05) has
``RingName=ring0 Nodes=node[01-08] RingSize=8``. Without arguments scontrol prints the default
topology, with a name one of those of topology.yaml (25.05). Sources: topology.conf(5),
topology.yaml(5), scontrol(1), and _print_topo_record in src/plugins/topology/*/topology_*.c.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from hpccoll.common.text import join_words

MAX_HOSTS = 1 << 20
"""The maximum number of hosts that ranges may stand for."""

TREE = "topology/tree"
BLOCK = "topology/block"
RING = "topology/ring"
FLAT = "topology/flat"
"""Slurm's plugins; with the last one, nodes are in no racks."""

RACK_NOUNS = {TREE: "leaf switch", BLOCK: "block", RING: "ring"}
"""What a rack is, by plugin."""

_KINDS = {
    "switchname": TREE,
    "blockname": BLOCK,
    "aggregatedblock": BLOCK,
    "blocksizes": BLOCK,
    "ringname": RING,
}
"""The plugin by the first key of a line in lower case, which Slurm ignores."""

_OF_RACKS = "switchname", "blockname", "ringname"
"""The first keys of lines about racks, if they name nodes."""

_BRACKETS = re.compile(r"\[([^][]*)\]")
_RANGE = re.compile(r"(?P<first>\d{1,9})(?:-(?P<last>\d{1,9}))?")


@dataclass(frozen=True, slots=True)
class TopologyUnit:
    """A line of Slurm's topology: its plugin, a name, and the hosts of the rack; none if it is not a rack.

    A rack is a leaf switch, a block or a ring; higher switches and aggregated blocks are none.
    """

    plugin: str
    name: str
    hosts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SlurmTopology:
    """A topology of Slurm: its plugin, and its racks by name, each with its hosts."""

    plugin: str
    racks: dict[str, tuple[str, ...]]


def parse_topology(lines: Iterable[str]) -> SlurmTopology:
    """Return the topology that ``scontrol show topology`` prints; FLAT without lines.

    Raises:
        ValueError: if Slurm does not print such a line, or if lines belong to different plugins.
    """
    plugins: dict[str, None] = {}
    racks: dict[str, tuple[str, ...]] = {}
    for line in filter(str.strip, lines):
        unit = parse_topology_line(line)
        if unit is None:
            raise ValueError(f"not a line of Slurm's topology: {line.strip()[:80]}")
        plugins[unit.plugin] = None
        if unit.hosts:
            racks[unit.name] = unit.hosts
    if len(plugins) > 1:
        raise ValueError(f"lines of {join_words(plugins)}")
    return SlurmTopology(next(iter(plugins), FLAT), racks)


def parse_topology_line(line: str) -> TopologyUnit | None:
    """Return a line of Slurm's topology; None for another line.

    Raises:
        ValueError: if its level is not a number, or the ranges of its nodes are incomplete or stand
            for too many hosts.
    """
    words = line.split()
    pairs: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            return None
        pairs[name.lower()] = value
    first = next(iter(pairs), "")
    if first not in _KINDS:
        return None
    level = pairs.get("level", "0")
    if not level.isdecimal():
        raise ValueError(f"Level={level} is not a number: {line.strip()[:80]}")
    is_lowest = not level.strip("0")
    is_rack = first in _OF_RACKS and is_lowest
    hosts = expand_hosts(pairs.get("nodes", "")) if is_rack else []
    return TopologyUnit(_KINDS[first], pairs[first], tuple(hosts))


def expand_hosts(text: str) -> list[str]:
    """Return the hosts of a list with ranges, such as ``n[01-04,7],gpu-[1-2]-[3-4],login``, as Slurm writes it.

    Raises:
        ValueError: if brackets or ranges are incomplete, or if they stand for more than MAX_HOSTS
            hosts.
    """
    hosts: list[str] = []
    for name in re.findall(r"(?:[^,[]|\[[^]]*\]?)+", text):
        hosts += _expand_name(name, MAX_HOSTS - len(hosts))
    return hosts


def _expand_name(name: str, most: int) -> list[str]:
    first, *rest = _BRACKETS.split(name)
    names = [first]
    for numbers, following in zip(rest[::2], rest[1::2], strict=True):
        labels = _numbers_in_ranges(numbers)
        if len(names) * len(labels) > most:
            raise ValueError(f"{name}: more than {MAX_HOSTS} hosts")
        names = [f"{beginning}{label}{following}" for beginning in names for label in labels]
    if {"[", "]"} & {*names[0]}:
        raise ValueError(f"{name}: not the name of a host")
    return names


def _numbers_in_ranges(text: str) -> list[str]:
    """Return the numbers of ranges with their leading zeros: ``01-03,7`` are 01, 02, 03 and 7."""
    labels: list[str] = []
    for part in text.split(","):
        numbers = _RANGE.fullmatch(part)
        if numbers is None:
            raise ValueError(f"{part}: not a range of numbers")
        first, last = numbers["first"], numbers["last"] or numbers["first"]
        if not int(first) <= int(last) < int(first) + MAX_HOSTS:
            raise ValueError(f"{part}: not an ascending range of at most {MAX_HOSTS} numbers")
        labels += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    return labels
