"""What the sections of a machine file cannot all say at once: each rule is physics, and names the keys and the values.

A rule compares intervals where numbers have some, and sees a contradiction only if no values within
them fit. Between tiers and ports only descriptions are compared: the numbers of a fit have errors
of their own.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Literal

from hpccoll.common.errors import BadInputError, UnusableError
from hpccoll.common.units import format_rate

if TYPE_CHECKING:
    from hpccoll.model.machine_sections import MachineFields, MessageCostsSection, Quantity

BETWEEN_NODES: tuple[Literal["rack"], Literal["fabric"]] = "rack", "fabric"
"""The tiers whose messages pass ports."""

ROUNDED = 1.02
"""The ratio up to which two rates are one: people round them, such as 8.33 GB/s of 25 over 3."""


def contradictions(machine: "MachineFields") -> Iterator[BadInputError]:
    """Yield the contradictions between the sections of a machine file."""
    for rule in RULES:
        yield from rule(machine)


def _uplink_without_ports(machine: "MachineFields") -> Iterator[BadInputError]:
    """An uplink given by its oversubscription needs ports that share it."""
    shares = machine.uplink and machine.uplink.oversubscription
    if shares and not (machine.port and machine.geometry and machine.geometry.nodes_per_rack):
        expected = (
            "with port.bytes_per_s and layout.nodes_per_rack, the ports that share the uplink"
        )
        yield BadInputError("uplink.oversubscription", shares.value, expected)


def _ranks_on_rails(machine: "MachineFields") -> Iterator[BadInputError]:
    """As many ranks of a node use each of its rails; without a rank for each rail, the others are idle."""
    geometry = machine.geometry
    if (
        geometry
        and geometry.ranks_per_node > geometry.rails
        and geometry.ranks_per_node % geometry.rails
    ):
        expected = f"a divisor of layout.ranks_per_node: {geometry.ranks_per_node}"
        yield BadInputError("layout.rails", geometry.rails, expected)


def _channels_on_ports(machine: "MachineFields") -> Iterator[BadInputError]:
    """Each channel of a ring leaves a node once, through one of its ports.

    The rate inside a node is NCCL's for two nodes, whose trees pass a port half as often.
    """
    nccl = machine.nccl
    port = machine.port and machine.port.bytes_per_s
    rails = machine.geometry.rails if machine.geometry else 1
    if not (nccl and port):
        return
    for name, ports in (("inter_bytes_per_s", 1), ("intra_bytes_per_s", 2)):
        rate = getattr(nccl, name)
        if nccl.channels * _low(rate) <= ports * rails * _high(port):
            continue
        together = format_rate(nccl.channels * rate.value)
        channels_text = f"{nccl.channels} x nccl.{name} {format_rate(rate.value)} = {together}"
        ports_text = f"layout.rails {rails} x port.bytes_per_s {format_rate(_high(port))}"
        if ports == 2:
            ports_text = f"twice {ports_text}"
        wire = f"{ports_text} = {format_rate(ports * rails * _high(port))}"
        yield BadInputError(
            "nccl.channels",
            nccl.channels,
            f"fewer or slower ones: {channels_text}, on a wire of {wire}",
        )


def _messages_in_ports(machine: "MachineFields") -> Iterator[BadInputError]:
    """No message between two nodes is faster than the port that it passes."""
    if machine.port is None or machine.kind != "described":
        return
    port = machine.port.bytes_per_s
    for tier in BETWEEN_NODES:
        for costs in machine.tiers.get(tier, ()):
            if _low(costs.bytes_per_s) > _high(port):
                key = f"tiers.{tier}.bytes_per_s"
                value = format_rate(costs.bytes_per_s.value)
                yield BadInputError(
                    key, value, f"at most port.bytes_per_s, {format_rate(_high(port))}"
                )


def _shares_of_ports(machine: "MachineFields") -> Iterator[BadInputError]:
    """The shares of the GPUs of a node in its ports are the ports together."""
    geometry = machine.geometry
    share = machine.machine_class and machine.machine_class.network_bytes_per_s
    if not (share and geometry and machine.port) or machine.kind != "described":
        return
    port = machine.port.bytes_per_s
    gpus_on_port = geometry.ranks_per_node / geometry.rails
    is_less = ROUNDED * gpus_on_port * _high(share) < _low(port)
    is_more = gpus_on_port * _low(share) > ROUNDED * _high(port)
    if is_less or is_more:
        gpus_text = f"layout.ranks_per_node {geometry.ranks_per_node}"
        ports_text = f"layout.rails {geometry.rails} x port.bytes_per_s {format_rate(port.value)}"
        valid_share = format_rate(port.value / gpus_on_port)
        yield BadInputError(
            "class.network_bytes_per_s",
            format_rate(share.value),
            f"the share of each GPU, {valid_share}: {ports_text} / {gpus_text}; or leave it out",
        )


def _no_effect(machine: "MachineFields") -> Iterator[BadInputError]:
    """Without costs of messages nothing is simulated: what only simulations use has no effect."""
    if machine.kind != "described" or machine.tiers:
        return
    for name in ("uplink", "memory", "cpus"):
        if getattr(machine, name):
            yield UnusableError(name, "it has no effect without tiers: nothing is simulated")


def _fabric_beyond_rack(machine: "MachineFields") -> Iterator[BadInputError]:
    """Messages to another rack pass the switch of their own one, too: they are neither faster nor sooner there."""
    rack, fabric = (machine.tiers.get(tier) for tier in BETWEEN_NODES)
    if not rack or not fabric or machine.kind != "described":
        return
    fastest = max((costs.bytes_per_s for costs in rack), key=_high)
    for costs in fabric:
        if _low(costs.bytes_per_s) > _high(fastest):
            expected = f"at most tiers.rack.bytes_per_s, {format_rate(_high(fastest))}"
            yield BadInputError(
                "tiers.fabric.bytes_per_s", format_rate(costs.bytes_per_s.value), expected
            )
        within = _of_size(rack, costs.from_bytes).latency_s
        if _high(costs.latency_s) < _low(within):
            expected = f"at least tiers.rack.latency_s, {_low(within):g} s"
            yield BadInputError("tiers.fabric.latency_s", costs.latency_s.value, expected)


def _links_without_paths(machine: "MachineFields") -> Iterator[BadInputError]:
    """The links of a torus are shared along critical paths, and not in simulations."""
    if machine.torus and not machine.critical_path:
        expected = "with critical_path: the links of a torus are not simulated"
        yield BadInputError("torus.dimensions", machine.torus.dimensions, expected)


RULES: tuple[Callable[["MachineFields"], Iterator[BadInputError]], ...] = (
    _uplink_without_ports,
    _ranks_on_rails,
    _channels_on_ports,
    _messages_in_ports,
    _shares_of_ports,
    _no_effect,
    _fabric_beyond_rack,
    _links_without_paths,
)


def _of_size(costs: "list[MessageCostsSection]", nbytes: int) -> "MessageCostsSection":
    return [section for section in costs if section.from_bytes <= nbytes][-1]


def _low(quantity: "Quantity") -> float:
    return quantity.value if quantity.low is None else quantity.low


def _high(quantity: "Quantity") -> float:
    return quantity.value if quantity.high is None else quantity.high
