"""The shape of a testbed: which hosts it has, what they are for, where they stand, and how fast their wires are."""

import argparse
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from errors import RefusedError

SLOWEST, FASTEST = 10_000_000, 10_000_000_000
"""The rates, in bit/s, at which the meters were seen to hold."""
RATES = "choose none, or a rate from 10mbit to 10gbit, such as 100mbit or 2.5gbit"
UNITS = {"mbit": 1_000_000, "gbit": 1_000_000_000}


@dataclass(frozen=True)
class Count:
    """An option that is a number.

    Args:
        usual: where it is not given.
        least: below it, the number is refused.
        most: above it, too.
        text: for --help.
    """

    usual: int
    least: int
    most: int
    text: str


COUNTS = {
    "nodes": Count(4, 1, 64, "number of workers, n1, n2..."),
    "cpus": Count(2, 1, 256, "CPUs of each host for Slurm"),
    "gpus": Count(
        0, 0, 16, "GPUs of each worker for Slurm, which counts and allocates them; no devices exist"
    ),
    "aggregators": Count(
        0, 0, 16, "number of hosts a1, a2... on the spine, in the partition all; no meters"
    ),
    "racks": Count(
        0, 0, 64, "number of blocks of workers, each below its own bridge, connected by the spine"
    ),
    "rails": Count(
        1, 1, 4, "number of wires of each worker and aggregator, each to its own network"
    ),
}
"""The options that are numbers; those that are rates are in `add_options`."""


@dataclass(frozen=True)
class Rate:
    """The rate of a wire, as it was asked for and in bit/s; ``none`` is a wire without a meter."""

    text: str
    bps: int | None


@dataclass(frozen=True)
class Shape:
    """What is brought up. A testbed without racks has no uplink."""

    nodes: int
    cpus: int
    gpus: int
    aggregators: int
    racks: int
    rails: int
    rate: Rate
    uplink: Rate | None

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> "Shape":
        """Return the shape of which a marker says `facts`."""
        counts = {name: facts[name] for name in COUNTS} | {"racks": len(facts["racks"])}
        uplink = None if facts["uplink"] is None else Rate(facts["uplink"], facts["uplink_bps"])
        return cls(**counts, rate=Rate(facts["rate"], facts["rate_bps"]), uplink=uplink)

    @property
    def workers(self) -> list[str]:
        """The hosts that jobs run on."""
        return [f"n{i + 1}" for i in range(self.nodes)]

    @property
    def helpers(self) -> list[str]:
        """The aggregators: hosts with wires as fast as this machine can make them, as inside a switch."""
        return [f"a{i + 1}" for i in range(self.aggregators)]

    @cached_property
    def rack(self) -> dict[str, list[str]]:
        """Which workers each rack has, in blocks that differ by one worker at most; empty where there are no racks."""
        blocks = {}
        for i in range(self.racks):
            first, end = (-(-self.nodes * k // self.racks) for k in (i, i + 1))
            blocks[f"rack{i + 1}"] = self.workers[first:end]
        return blocks

    @property
    def facts(self) -> dict[str, Any]:
        """What the marker says of it."""
        return {
            "nodes": self.nodes,
            "cpus": self.cpus,
            "gpus": self.gpus,
            "aggregators": self.aggregators,
            "rails": self.rails,
            "rate": self.rate.text,
            "rate_bps": self.rate.bps,
            "racks": self.rack,
            "uplink": self.uplink.text if self.uplink else None,
            "uplink_bps": self.uplink.bps if self.uplink else None,
        }


def add_options(parser: argparse.ArgumentParser) -> None:
    """Give a command the options that say a shape."""
    for name, count in COUNTS.items():
        text = f"{count.text}: {count.least} to {count.most} [{count.usual}]"
        parser.add_argument(f"--{name}", default=str(count.usual), help=text, metavar="N")
    parser.add_argument(
        "--rate",
        default="1gbit",
        help="rate of every metered wire: 10mbit to 10gbit, or none [%(default)s]",
    )
    parser.add_argument(
        "--uplink",
        metavar="RATE",
        help="rate of a rack's uplink to the spine, each way, on each rail",
    )


def parse_shape(options: argparse.Namespace) -> Shape:
    """Read the options, or say in one line which of them cannot be."""
    counts = {name: _number(name, getattr(options, name)) for name in COUNTS}
    nodes, racks = counts["nodes"], counts["racks"]
    if racks and not 2 <= racks <= nodes:
        raise RefusedError(
            f"--racks: '{racks}' is not valid: choose 0, or 2 up to the number of nodes, which is {nodes}"
        )
    if racks and options.uplink is None:
        raise RefusedError(
            "--racks: the rate of their uplinks is missing; do: add --uplink RATE, such as 100mbit"
        )
    if options.uplink is not None and not racks:
        raise RefusedError(
            f"--uplink: '{options.uplink}' is the rate between racks, and there are none: add --racks"
        )
    uplink = None if options.uplink is None else _rate("uplink", options.uplink)
    return Shape(**counts, rate=_rate("rate", options.rate), uplink=uplink)


def check_choice(option: str, value: str | None, choices: Collection[str]) -> None:
    """Refuse a value that is none of those that may be chosen."""
    if value is not None and value not in choices:
        text = f"choose {', '.join(choices)}" if choices else "this testbed has none"
        raise RefusedError(f"{option}: {value!r} is not valid: {text}")


def _number(name: str, value: str) -> int:
    least, most = COUNTS[name].least, COUNTS[name].most
    if not re.fullmatch(r"[0-9]{1,9}", value) or not least <= int(value) <= most:
        raise RefusedError(f"--{name}: {value!r} is not valid: choose {least} to {most}")
    return int(value)


def _rate(name: str, text: str) -> Rate:
    if text == "none":
        return Rate(text, None)
    return Rate(text, round(parse_quantity(name, text, UNITS, (SLOWEST, FASTEST), RATES)))


def parse_quantity(
    name: str, text: str, units: Mapping[str, float], limits: tuple[float, float], choices: str
) -> float:
    """Return what a number with a unit is, or say in one line what may be chosen."""
    match = re.fullmatch(rf"(\d+(?:\.\d+)?)({'|'.join(units)})", text)
    number = float(match[1]) * units[match[2]] if match else math.nan
    if not limits[0] <= number <= limits[1]:
        raise RefusedError(f"--{name}: {text!r} is not valid: {choices}")
    return number
