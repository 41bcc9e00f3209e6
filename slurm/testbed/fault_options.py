"""The options of `testbed fault`: the kinds of faults, and what may be asked of each."""

import argparse
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

import cpu_limit
from cluster_shape import FASTEST, SLOWEST, UNITS, Shape, check_choice, parse_quantity
from errors import RefusedError
from faults import TABLE, Fault
from host import ENVIRONMENT
from network import WireDirection, directions

PERCENT, TIME = {"%": 0.01}, {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}


@dataclass(frozen=True)
class Effect:
    """A kind of fault.

    Args:
        text: for --help.
        of_wire: whether it is one of wires, or of hosts.
        units: of the value, each in bit/s, in seconds or as a share; empty where there is no value.
        limits: the least value and the most.
        choices: what may be chosen.
        needs: what a machine must have for it.
        probe: the command of a shell that fails where the machine lacks that.
    """

    text: str
    of_wire: bool
    units: Mapping[str, float]
    limits: tuple[float, float] = (0, 0)
    choices: str = ""
    needs: str = ""
    probe: str = "true"


EFFECTS = {
    "rate": Effect(
        "rate of the wire or of the link", True, UNITS, (SLOWEST, FASTEST),
        "choose a rate from 10mbit up to what is less than the wire has",
    ),
    "loss": Effect(
        "share of the packets that are lost", True, PERCENT, (1e-4, 0.99), "choose 0.01% to 99%",
        "nftables in the kernel", f"nft 'table {TABLE} {{ chain lo {{ type filter hook ingress device lo priority 0; "
        "numgen random mod 2 0 drop; }; }'",
    ),
    "delay": Effect(
        "what packets take longer, each way", True, TIME, (1e-5, 1), "choose 10us to 1s",
        "netem in the kernel", "tc qdisc add dev lo root netem delay 1ms",
    ),
    "cpu": Effect(
        "share of one CPU for all processes of the host together", False, PERCENT, (0.1, 0.99), "choose 10% to 99%",
        "cgroups with the controller cpu", cpu_limit.PROBE,
    ),
    "stop": Effect("stop the ranks that run on the host now: they hang", False, {}),
}  # fmt: skip


def add_options(parser: argparse.ArgumentParser) -> None:
    """Give a command the options that say a fault."""
    parser.add_argument(
        "host", nargs="?", metavar="HOST", help="a worker or an aggregator, such as n1"
    )
    for name, effect in EFFECTS.items():
        text = "; ".join(filter(None, (effect.text, effect.choices)))
        value = {"metavar": name.upper()} if effect.units else {"action": "store_true"}
        parser.add_argument(f"--{name}", help=text.replace("%", "%%"), **value)  # type: ignore[arg-type] # what they differ in
    parser.add_argument("--send", action="store_true", help="only what leaves the host or the rack")
    parser.add_argument("--receive", action="store_true", help="only what arrives there")
    parser.add_argument("--to", metavar="OTHER", help="only the link with this host")
    parser.add_argument("--rail", metavar="K", help="only this rail [all]")
    parser.add_argument("--uplink", metavar="RACK", help="the uplink of a rack, in place of a host")
    parser.add_argument(
        "--for", dest="seconds", metavar="TIME", help="the fault ends after this time, such as 30s"
    )


def parse_faults(options: argparse.Namespace, shape: Shape) -> list[Fault]:
    """Read the options, or say in one line which of them cannot be."""
    hosts, place = [*shape.workers, *shape.helpers], options.host or options.uplink
    check_choice("HOST", options.host, hosts)
    check_choice("--uplink", options.uplink, shape.rack)
    check_choice("--to", options.to, [host for host in hosts if host != place])
    check_choice("--rail", options.rail, [str(rail + 1) for rail in range(shape.rails)])
    asked = {
        name: str(value)
        for name in EFFECTS
        if (value := getattr(options, name)) not in (None, False)
    }
    narrowed = [
        f"--{name}"
        for name in ("send", "receive", "to", "rail", "uplink")
        if getattr(options, name)
    ]
    for wrong, text in (
        (
            bool(options.host) == bool(options.uplink),
            "fault: choose one place: HOST, or --uplink RACK",
        ),
        (
            not asked,
            f"fault: what is wrong is missing: choose {', '.join(f'--{name}' for name in EFFECTS)}",
        ),
        (
            options.uplink and options.to,
            "--to: a link is between two hosts: choose HOST, not --uplink",
        ),
        (
            narrowed and not all(EFFECTS[name].of_wire for name in asked),
            f"--cpu and --stop are of a whole host: leave out {', '.join(narrowed)}",
        ),
    ):
        if wrong:
            raise RefusedError(text)
    until, faults = None, []
    if options.seconds is not None:
        limits = (0.1, 3600), "choose 0.1s to 60m, such as 30s"
        until = time.monotonic() + parse_quantity("for", options.seconds, TIME, *limits)
    either = [name for name in ("send", "receive") if getattr(options, name)] or ["send", "receive"]
    wires = [
        wire
        for wire in directions(shape)
        if wire.place == place
        and wire.direction in either
        and options.rail in (None, str(wire.rail))
    ]
    for name, text in asked.items():
        effect, fault = EFFECTS[name], Fault(name, place, "", 0, until=until)
        if effect.units:
            number = parse_quantity(name, text, effect.units, effect.limits, effect.choices)
            fault = replace(fault, text=text, number=number)
        _try(name)
        faults += (
            [_of_wire(fault, wire, options.to) for wire in wires] if effect.of_wire else [fault]
        )
    return faults


def _of_wire(fault: Fault, wire: WireDirection, to: str | None) -> Fault:
    """Return the fault of one direction; what a host receives over a link is what the other one sends."""
    if fault.effect == "rate" and wire.bps is not None and fault.number >= wire.bps:
        raise RefusedError(f"--rate: {fault.text!r} is not valid: {EFFECTS['rate'].choices}")
    if to is None:
        return replace(fault, direction=wire.direction, rail=wire.rail)
    source, target = (wire.place, to) if wire.direction == "send" else (to, wire.place)
    return replace(fault, place=source, to=target, direction="send", rail=wire.rail)


def _try(effect: str) -> None:
    """Refuse what this machine cannot do, seen in a network that ends with the attempt."""
    command = ["unshare", "--net", "sh", "-c", EFFECTS[effect].probe]
    ended = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise RefusedError(
            f"--{effect}: this machine lacks {EFFECTS[effect].needs}: {' '.join(ended.stderr.split())}"
        )
