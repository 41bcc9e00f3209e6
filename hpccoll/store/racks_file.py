"""Files that say in which rack each host is, as users write them or as Slurm prints its topology."""

from collections.abc import Mapping
from pathlib import Path

from hpccoll.common.errors import BadInputError
from hpccoll.common.files import read_text
from hpccoll.common.limits import TABLE_BYTES
from hpccoll.common.slurm_topology import parse_topology_line


def read_racks(path: Path, key: str) -> dict[str, str]:
    """Return the rack of each host in a file of lines ``HOST RACK``, or of Slurm's topology; # begins a comment.

    Raises:
        BadInputError: if the file cannot be read, or a line is not a host with its rack; it names
            ``key``.
    """
    racks: dict[str, str] = {}
    for number, line in enumerate(read_text(path, key, TABLE_BYTES).splitlines(), start=1):
        try:
            racks_of_line = _racks_of_line(line.partition("#")[0])
            _check_same_racks(racks, racks_of_line)
        except ValueError:
            valid = (
                "a host and its one rack, such as: n1 rack1, or a line of 'scontrol show topology'"
            )
            raise BadInputError(f"{key}: {path}, line {number}", line, valid) from None
        racks |= racks_of_line
    return racks


def _racks_of_line(line: str) -> dict[str, str]:
    """Return the racks of the hosts in a line.

    Raises:
        ValueError: if it is not a line of racks.
    """
    unit = parse_topology_line(line)
    if unit is not None:
        return dict.fromkeys(unit.hosts, unit.name)
    words = line.split()
    if not words:
        return {}
    host, rack = words
    return {host: rack}


def _check_same_racks(racks: Mapping[str, str], added: Mapping[str, str]) -> None:
    for host, rack in added.items():
        if racks.get(host, rack) != rack:
            raise ValueError(f"{host} is in {racks[host]} and in {rack}")
