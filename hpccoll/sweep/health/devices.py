"""The devices of a node: its CPUs and memory, its network ports and their errors, and its GPUs."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from hpccoll.common.text import Finding, absent, critical, join_words
from hpccoll.common.units import format_count
from hpccoll.diagnosis.node_health import Fact, NodeState
from hpccoll.host.adapter_links import AdapterPort, adapter_ports
from hpccoll.host.gpu_health import KEPT_FACTS
from hpccoll.host.network_ports import find_ports, port_facts, read_counters
from hpccoll.store.gpu_throttling import CLOCK_EVENTS
from hpccoll.sweep.doctor import links
from hpccoll.sweep.doctor.machine import MachineFacts
from hpccoll.sweep.health.checked_node import CheckedNode

LINK_EVENTS = ("link_downed", "link_error_recovery")
"""Counters that increase when a link breaks or retrains: never during a check of a healthy port."""

BIT_ERRORS = (
    "symbol_error",
    "local_link_integrity_errors",
    "port_rcv_errors",
    "rx_errors",
    "tx_errors",
)
MOST_BIT_ERRORS = 100
"""The most errors of a port during a check: a cable within its specification has few in an hour, a bad
one thousands in a second."""


def host(node: CheckedNode) -> NodeState:  # noqa: ARG001  checks have one form
    """Read how many CPUs and how much memory the host has: a module that failed at the start is missing."""
    gibibytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    facts: dict[str, Fact] = {"CPUs": os.cpu_count(), "memory (GiB)": round(gibibytes, 2)}
    return NodeState(facts={"host": facts})


def ports(node: CheckedNode) -> NodeState:
    """Read the state, rate, MTU and PCIe link of each port, and its errors since the check began."""
    facts: dict[str, Mapping[str, Fact]] = {}
    for adapter in adapter_ports(node.root):
        facts[f"port {adapter.port.name}"] = _adapter_facts(adapter)
    for port in port_facts(node.root / "sys"):
        if port["kind"] == "netdev":
            facts[f"port {port['name']}"] = {
                "MTU": port["mtu"],
                "rate (Mbit/s)": port["speed"],
            }
    findings = list(_port_errors(node))
    slow_link = links.pcie(MachineFacts(node.root))
    if slow_link and slow_link.severity == "warning":  # it may be the slot: a reference decides
        findings.append(replace(slow_link, text=f"slow PCIe: {slow_link.text}"))
    return NodeState(facts=facts, findings=findings)


def _adapter_facts(adapter: AdapterPort) -> Mapping[str, Fact]:
    facts: dict[str, Fact] = {
        "state": adapter.port.state,
        "rate (Gbit/s)": adapter.bits_per_s / 1e9 or None,
        "MTU": adapter.interface_mtu,
    }
    if adapter.link:
        facts["PCIe (Gbit/s)"] = round(adapter.link.bits_per_s / 1e9, 1)
    return facts


def _port_errors(node: CheckedNode) -> Iterator[Finding]:
    """Yield ports whose link broke, or which had many errors, since the check began."""
    errors: Counter[str] = Counter()
    for (port, counter), after in read_counters(find_ports(node.root / "sys")).items():
        increase = after - node.counters_before.get((port, counter), after)
        if counter in LINK_EVENTS and increase > 0:
            text = f"port {port}: {counter} increased by {increase} during the check"
            yield critical("link_unstable", text, port=port, counter=counter, increase=increase)
        elif counter in BIT_ERRORS:
            errors[port] += increase
    for port, count in errors.items():
        if count > MOST_BIT_ERRORS:
            text = f"port {port}: {count} errors during the check"
            yield critical("port_errors", text, port=port, errors=count)


def gpus(node: CheckedNode) -> NodeState:
    """Read the state of each GPU."""
    if not node.gpus:
        return NodeState()
    states = node.gpu_states
    facts: dict[str, Mapping[str, Fact]] = {}
    for bus in node.gpus:
        state = states.get(bus, {})
        facts[f"GPU {bus}"] = {name: state.get(name) for name in KEPT_FACTS}
    findings = list(_gpu_faults(states))
    if not states:
        text = "the state of the GPUs: NVML does not answer; do: pip install nvidia-ml-py"
        findings.append(absent("gpu_state_unknown", text))
    return NodeState(facts=facts, findings=findings)


def _gpu_faults(states: Mapping[str, Mapping[str, Any]]) -> Iterator[Finding]:
    """Yield what is wrong with a GPU, whatever it was before."""
    most_nvlinks = max((state.get("nvlinks") or 0 for state in states.values()), default=0)
    for bus, state in states.items():
        for kind, text in _faults_of_gpu(state, most_nvlinks):
            yield critical(kind, f"GPU {bus}: {text}", bus=bus)


def _faults_of_gpu(state: Mapping[str, Any], most_nvlinks: int) -> Iterator[tuple[str, str]]:
    """Yield the kind and the text of each fault of a GPU."""
    if "error" in state:
        yield "gpu_silent", f"it does not answer ({state['error']})"
        return
    errors = state.get("uncorrected_errors")
    if errors:
        many = format_count(errors, "uncorrected memory error")
        yield "gpu_memory_errors", f"{many} since the driver started"
    if state.get("remapping_failed"):
        yield "gpu_memory_errors", "it could not remap a row of its memory"
    elif state.get("remapping_pending"):
        yield "gpu_memory_errors", "it remaps a row of its memory at the next reset"
    lanes = state.get("pcie_width")
    most_lanes = state.get("pcie_width_max")
    if lanes and most_lanes and lanes < most_lanes:
        yield "gpu_pcie_narrow", f"{lanes} of {most_lanes} PCIe lanes"
    nvlinks = state.get("nvlinks")
    if nvlinks is not None and nvlinks < most_nvlinks:
        yield "gpu_nvlinks", f"{nvlinks} NVLinks are active, and {most_nvlinks} of another GPU"
    if not state.get("processes"):  # a GPU at work may become hot
        events = state.get("clock_events") or 0
        reasons = [name for bit, name in CLOCK_EVENTS.items() if events & bit]
        if reasons:
            yield "gpu_throttled", f"{join_words(reasons)} while it rests"
