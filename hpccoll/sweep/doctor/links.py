"""Checks of what is behind the ports of adapters: their PCIe links, and the MTUs of their interfaces."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain

from hpccoll.common.text import Finding, info, join_words, warning
from hpccoll.host import gpu_stack
from hpccoll.host.adapter_links import LARGEST_MTU, ROCE_HEADERS, AdapterPort, PcieLink
from hpccoll.sweep.doctor.machine import MachineFacts

JUMBO = 9000
"""The usual MTU of Ethernet for clusters, in bytes."""

SMALLEST_JUMBO = -(-(LARGEST_MTU + ROCE_HEADERS) // 100) * 100
"""The smallest MTU, in whole hundreds, with which RoCE has its largest packets."""

FAST_ETHERNET = 25_000
"""The rate in Mbit/s from which on the MTU of an interface without RDMA is said."""


def mtu(machine: MachineFacts) -> Finding | None:
    """Check that active ports send packets of the largest size; without adapters, say the MTUs of Ethernet."""
    if not machine.rdma_ports:
        return _ethernet_mtu(machine)
    packets = _packet_sizes(machine)
    if not packets:
        return None
    by_size: dict[int, list[AdapterPort]] = defaultdict(list)
    for port, size in packets:
        by_size[size].append(port)
    largest = by_size.pop(LARGEST_MTU, [])
    if not by_size:
        names = join_words(port.port.name for port in largest)
        return info("mtu", f"packets of {LARGEST_MTU} B on {names}")
    parts: list[str] = []
    kinds: set[bool] = set()
    small_bytes: dict[str, int] = {}
    for size, ports in by_size.items():
        parts.append(f"{join_words(map(_port_with_interface, ports))}: packets of {size} B")
        for port in ports:
            kinds.add(port.is_roce)
            small_bytes[port.port.name] = size
    return warning("mtu_small", "; ".join(parts), remedy=_mtu_remedy(kinds), bytes=small_bytes)


def _packet_sizes(machine: MachineFacts) -> list[tuple[AdapterPort, int]]:
    """Return the ports of a job with the sizes of their packets in bytes, where these are known."""
    sizes = []
    for port in _ports_of_job(machine):
        size = port.roce_mtu
        if not port.is_roce:
            size = machine.infiniband_mtus.get(port.port.name)
        if size is not None:
            sizes.append((port, size))
    return sizes


def _ports_of_job(machine: MachineFacts) -> list[AdapterPort]:
    """Return the active ports that a job on GPUs uses: the fastest ones that NCCL_IB_HCA does not leave out.

    Slower ports are usually those of storage or of the management of a host.
    """
    chosen = _chosen_adapters(machine)
    ports = []
    for port in machine.adapter_ports:
        is_chosen = not chosen or _is_chosen(port.adapter, chosen)
        if port.port.active and is_chosen:
            ports.append(port)
    fastest = max((port.bits_per_s for port in ports), default=0.0)
    return [port for port in ports if port.bits_per_s == fastest]


def _mtu_remedy(kinds: Collection[bool]) -> str:
    """Return how to get larger packets on RoCE (True), on InfiniBand (False), or on both."""
    remedies = []
    if True in kinds:
        usual = f"{JUMBO} ({SMALLEST_JUMBO} at least)"
        where = "the interfaces, the switches and all hosts"
        remedies.append(f"raise the MTU of {where} to {usual}, so that RoCE uses {LARGEST_MTU} B")
    if False in kinds:
        setting = f"mtu=5 in partitions.conf is {LARGEST_MTU} B"
        remedies.append(f"the subnet manager sets the MTU of InfiniBand: {setting}")
    return "; ".join(remedies)


def _port_with_interface(port: AdapterPort) -> str:
    if port.interface:
        return f"{port.port.name} ({port.interface}, MTU {port.interface_mtu})"
    return port.port.name


def _ethernet_mtu(machine: MachineFacts) -> Finding | None:
    """Say the MTUs of fast Ethernet interfaces, over which nodes communicate without RDMA."""
    mtus: dict[str, int] = {}
    for interface in machine.ethernet:
        if interface.speed >= FAST_ETHERNET:
            mtus[interface.name] = interface.mtu
    if not mtus:
        return None
    remedy = ""
    if min(mtus.values()) < SMALLEST_JUMBO:
        remedy = f"with {JUMBO} on all hosts and switches, TCP needs less CPU time"
    text = ", ".join(f"{name} has {size}" for name, size in mtus.items())
    return info("mtu_ethernet", text, remedy=remedy, bytes=mtus)


def pcie(machine: MachineFacts) -> Finding | None:
    """Check that the PCIe links of adapters carry what their active ports can."""
    slots = _slots(_ports_of_job(machine))
    texts: list[str] = []
    slow: list[Sequence[AdapterPort]] = []
    for ports in slots.values():
        link = ports[0].link
        if link is None:
            continue
        texts.append(_link_words(ports))
        needed = sum(_share_of_rate(port, machine.adapter_ports) for port in ports)
        if needed > link.bits_per_s:
            slow.append(ports)
    if not texts:
        return None
    if not slow:
        return info("pcie", "; ".join(_joined(texts)))
    text = "; ".join(_joined(map(_link_words, slow)))
    return warning("pcie_slow", text, remedy=_link_remedy(slow), adapters=len(slow))


def _link_remedy(slow: Iterable[Sequence[AdapterPort]]) -> str:
    """Return what to do about links that carry less than their ports can."""
    faster: list[PcieLink] = []
    for ports in slow:
        link, fastest = ports[0].link, ports[0].fastest_link
        if link and fastest and fastest.bits_per_s > link.bits_per_s:
            faster.append(fastest)
    if not faster:
        return "the adapters can have no faster link: it limits their ports"
    fastest = max(faster, key=lambda link: link.bits_per_s)
    remedy = f"the adapter can have {fastest}: reseat it, or use a slot and a BIOS setting for it"
    return f"{remedy}; lspci -vv shows LnkCap and LnkSta"


def _slots(ports: Iterable[AdapterPort]) -> Mapping[str, Sequence[AdapterPort]]:
    """Return the ports of known rate behind each PCIe link; those of EFA have no link of their own."""
    slots: dict[str, list[AdapterPort]] = defaultdict(list)
    for port in ports:
        if port.bits_per_s and port.port.driver != "efa":
            slots[port.slot or port.adapter].append(port)
    return slots


def _share_of_rate(port: AdapterPort, ports: Iterable[AdapterPort]) -> float:
    """Return the part of the rate of a port that passes its link: the other active halves carry the rest."""
    halves = 1
    for other_half in ports:
        if other_half.port.active and port.is_half_with(other_half):
            halves += 1
    return port.bits_per_s / halves


def _link_words(ports: Sequence[AdapterPort]) -> str:
    """Return the ports behind a link, and the link: ``mlx5_0:1 400 Gbit/s on PCIe gen5 x16 (504 Gbit/s)``."""
    link = ports[0].link
    rates = join_words(f"{port.port.name} {_gigabits(port.bits_per_s)}" for port in ports)
    carried = _gigabits(link.bits_per_s) if link else ""
    return f"{rates} on {link} ({carried})"


def _joined(texts: Iterable[str]) -> list[str]:
    """Return texts, those that differ in their first word only as one."""
    names: dict[str, list[str]] = defaultdict(list)
    for text in texts:
        name, _, rest = text.partition(" ")
        names[rest].append(name)
    return [f"{', '.join(several)} {rest}" for rest, several in names.items()]


def _gigabits(bits_per_s: float) -> str:
    return f"{bits_per_s / 1e9:.0f} Gbit/s"


def halves(machine: MachineFacts) -> Finding | None:
    """Check that both halves of a port are used where two PCIe links lead to it.

    The ports of DGX Spark have two links of gen5 x4 each, and a function on each (NVIDIA/dgx-spark-
    playbooks#102): with one of them NCCL has half of the rate.
    """
    split = _split_ports(machine.adapter_ports)
    if not split:
        return None
    text = "; ".join(map(_halves_words, split))
    adapters: list[str] = []
    down: list[str] = []
    for half in chain.from_iterable(split):
        adapters.append(half.adapter)
        if not half.port.active:
            down.append(half.port.name)
    remedy = f"use both: NCCL_IB_HCA={','.join(adapters)}, and an address on each interface"
    if down:
        return warning("port_half_down", f"{text}; {join_words(down)} is not active", remedy=remedy)
    chosen = _chosen_adapters(machine)
    unused = [name for name in adapters if chosen and not _is_chosen(name, chosen)]
    if unused:
        text += f"; NCCL_IB_HCA={chosen} leaves {join_words(unused)} out"
        return warning("port_half_unused", text, remedy=remedy)
    return info("port_halves", text, remedy=remedy)


def _split_ports(ports: Sequence[AdapterPort]) -> list[tuple[AdapterPort, AdapterPort]]:
    """Return the active ports that need both of their links, each with its other half."""
    pairs = []
    counted: set[str] = set()
    for port in ports:
        for other_half in ports:
            is_new = {port.port.name, other_half.port.name}.isdisjoint(counted)
            if is_new and port.port.active and port.is_half_with(other_half) and _needs_both(port):
                pairs.append((port, other_half))
                counted |= {port.port.name, other_half.port.name}
    return pairs


def _halves_words(pair: tuple[AdapterPort, AdapterPort]) -> str:
    """Return two halves, the rate of their port, and what the link of one carries."""
    port, other_half = pair
    carried = _gigabits(port.link.bits_per_s) if port.link else ""
    names = f"{port.adapter} and {other_half.adapter}"
    rate = _gigabits(port.bits_per_s)
    return f"{names} are halves of one port of {rate}, each on {port.link} ({carried})"


def _needs_both(port: AdapterPort) -> bool:
    """Return whether one link carries less than the port."""
    return port.link is not None and port.link.bits_per_s < port.bits_per_s


def _chosen_adapters(machine: MachineFacts) -> str:
    """Return the value of NCCL_IB_HCA; empty if nothing sets it."""
    for _, name, value in gpu_stack.nccl_settings(machine.root):
        if name == "NCCL_IB_HCA":
            return value
    return ""


def _is_chosen(adapter: str, value: str) -> bool:
    """Return whether NCCL_IB_HCA lets NCCL use an adapter.

    The names of a list are prefixes, after ``=`` whole names; ``^`` excludes them (NCCL's user
    guide, Environment Variables).
    """
    excludes = value.startswith("^")
    names = value.removeprefix("^")
    is_exact = names.startswith("=")
    listed = [name.partition(":")[0] for name in names.removeprefix("=").split(",")]
    matches = adapter in listed if is_exact else adapter.startswith(tuple(filter(None, listed)))
    return matches != excludes
