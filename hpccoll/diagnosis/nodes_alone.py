"""What stands beside a verdict: nodes slow alone, devices that differ, launches that failed, a rate that is doubtful.

All nodes at once repeat work that needs no partner. The value of a node is the lower quartile of the
logarithms of its times. Its distance from the median of the nodes counts in standard deviations over
all nodes, because healthy nodes differ, too.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, cast

import numpy as np

from hpccoll.common.text import Finding, critical, first_few, info, join_words, warning
from hpccoll.common.units import format_count, format_factor
from hpccoll.diagnosis.packet_losses import findings_of_losses
from hpccoll.diagnosis.robust_statistics import (
    QUARTILE,
    SCALE_ERROR,
    median,
    quantile,
    robust_deviation,
)
from hpccoll.diagnosis.significance import (
    LEAST_BEYOND_RATE,
    MUCH_BEYOND_RATE,
    NODES,
    NORMAL,
    USUAL_SPREAD,
    SlownessTest,
    effect_error,
)
from hpccoll.diagnosis.slot_records import Component, Floats
from hpccoll.store.host_names import host_ranges

if TYPE_CHECKING:
    from hpccoll.diagnosis.recorded import RecordedDiagnosis

MEMORY = "memory"
REDUCTION = "reduction"
PRODUCT = "product"
DOES = {MEMORY: "copies memory", REDUCTION: "adds numbers", PRODUCT: "multiplies matrices"}
"""What a node does alone."""

LEAST_SLOWER = math.log(1.07)
"""The least logarithm of a factor that is a finding. Of machines whose nodes differ by 1 to 3 %,
1.1 % have one at most; a node that is slower by 20 % is found in 97 to 100 % of 8 to 256 nodes, one
by 10 % in 50 to 98 % (simulated)."""

FEWEST_NODES = 8
"""The nodes from which on they show how much healthy ones differ."""

CERTAIN = 0.99
"""How surely the standard deviation of healthy nodes is at most the one that counts: few nodes show little of it."""

FAILED_PAIRS = "failed_pairs"
"""The key of the provenance of a diagnosis by another program, with its launches that failed: FailedPair."""

RATE_DOUBTFUL = "rate_doubtful"
"""The kind of the finding that no node transfers at the rate of --rate; critical if all may be slow alike."""

TRANSFER_ERRORS = "transfer_errors"
"""The key of the provenance with the transfers that ended with an error: TransferError."""

GPUS_OF_HOSTS = "gpus_of_hosts"
"""The key of the provenance with the GPUs that ranks find: GpusOfHosts; null if no host has any."""

HOSTS_SHARE_A_MACHINE = "hosts_share_a_machine"
"""The key of the provenance of a diagnosis whose hosts have CPUs in common: a rate is not that of one of them then."""

COMPARED_FACTS = {
    "ports": (
        "name",
        {
            "rate": "link rate",
            "speed": "link speed (Mbit/s)",
            "link_layer": "link layer",
            "mtu": "MTU",
        },
    ),
    "gpus": (
        "bus",
        {
            "name": "model",
            "sm_clock_max_mhz": "highest clock (MHz)",
            "power_limit_w": "power limit (W)",
            "ecc": "ECC",
            "pcie_width": "PCIe lanes",
            "nvlinks": "active NVLinks",
            "driver": "driver",
        },
    ),
}
"""By the key of the provenance: what identifies a device of a host, and which facts of it are
compared. Others change while a device rests, such as clocks."""

USUAL_SHARE = 0.75
"""The part of the hosts whose devices have the same fact, at least, if the others are to differ from it."""

MOST_NAMED = 8
"""The most nodes that a sentence names with a rate."""


class FailedPair(TypedDict):
    """A launch without a time."""

    hosts: list[str]  # both of the pair
    why: str


class TransferError(TypedDict):
    """A transfer, or a measurement of a rank alone, that ended with an error."""

    hosts: list[str]  # that whose rank reports it, and its partner if it had one
    why: str


def error_text(error: TransferError) -> str:
    """Return who fails with whom, and why."""
    hosts = " with ".join(error["hosts"])
    return f"{hosts}: {error['why']}"


class GpusOfHosts(TypedDict):
    """Which GPUs ranks find, some at least."""

    # by host: how many its ranks find together; 0 if their driver does not answer
    visible: Mapping[str, int]
    unused_because: str | None  # why transfers are in host memory; None if they are between GPUs


@dataclass(frozen=True, slots=True)
class OwnRate:
    """What a node does alone, compared with the others."""

    name: str  # a key of DOES
    node: int
    ratio: float  # its rate over that of the others
    low: float  # the 95 % interval of the ratio
    high: float
    # whether it is slower than others for certain; never of fewer than FEWEST_NODES nodes
    slow: bool


def compare_rates(seconds_by_name: Mapping[str, Floats]) -> Iterator[OwnRate]:
    """Yield each rate of each node.

    Args:
        seconds_by_name: by a key of DOES: seconds [repetitions, nodes].
    """
    for name, seconds in seconds_by_name.items():
        repetitions, nodes = seconds.shape
        times = np.log(seconds).T
        own = quantile(times, QUARTILE)
        middle = quantile(times)
        noise = robust_deviation(times - middle[:, None])
        underestimate = 1 + NORMAL.inv_cdf(CERTAIN) * SCALE_ERROR / math.sqrt(nodes)
        spread = robust_deviation(own) * underestimate
        noise_error = effect_error(noise, repetitions, nodes)
        error = max(math.hypot(USUAL_SPREAD, noise_error), spread)
        test = SlownessTest(NODES, len(seconds_by_name) * nodes)
        threshold = max(LEAST_SLOWER, test.threshold(error))
        effects = own - median(own)
        for node, effect in enumerate(effects.tolist()):
            if math.isnan(effect):  # it has not answered
                continue
            component = Component("node", (node,))
            fault = test.fault(component, effect, error)
            is_slow = nodes >= FEWEST_NODES and effect > threshold
            yield OwnRate(name, node, 1 / fault.effect, 1 / fault.high, 1 / fault.low, is_slow)


def findings_of_nodes(recorded: "RecordedDiagnosis") -> list[Finding]:
    """Return what stands beside the verdict.

    Launches that failed, errors, transfers much slower than expected, many lost packets, and GPUs
    that some hosts lack are critical.
    """
    provenance = recorded.provenance
    rack_of = dict(zip(recorded.question.hosts, recorded.question.racks or (), strict=False))
    findings = [
        *_failed_launches(recorded),
        *_unnamed_errors(recorded),
        *_doubtful_rate(recorded),
        *findings_of_losses(provenance, rack_of),
        *_missing_gpus(provenance),
        *_differing_devices(provenance),
    ]
    if provenance.get(HOSTS_SHARE_A_MACHINE):
        text = "The hosts share the CPUs of one machine: what each of them does alone was not measured."
        return [*findings, info("own_rates_unknown", text)]
    return [*findings, *_own_rates(recorded)]


def _own_rates(recorded: "RecordedDiagnosis") -> Iterator[Finding]:
    """Yield what slow nodes do alone; if there are too few nodes to tell which are slow, what all of them do."""
    hosts = recorded.question.hosts
    where = " on its GPU" if recorded.load.memory == "GPU" else ""
    are_judged = len(hosts) >= FEWEST_NODES
    by_name = defaultdict[str, list[OwnRate]](list)
    for rate in compare_rates(recorded.rates):
        if rate.slow or not are_judged:
            by_name[rate.name].append(rate)
    for name, rates in by_name.items():
        rates.sort(key=lambda rate: rate.ratio)
        parts: list[str] = []
        for rate in rates:
            host = hosts[rate.node]
            interval = f"({rate.low:.2f}x to {rate.high:.2f}x)"
            if parts:
                parts.append(f"{host} at {rate.ratio:.2f}x {interval}")
            else:
                parts.append(
                    f"{host} {DOES[name]}{where} at {rate.ratio:.2f}x the rate of the others {interval}"
                )
        text = "; ".join(first_few(parts, MOST_NAMED, "node"))
        values = tuple((hosts[rate.node], rate.ratio, rate.low, rate.high) for rate in rates)
        if are_judged:
            yield warning("slow_alone", f"{text}.", rate=name, nodes=values)
        else:
            yield info("own_rates", f"{text}.", rate=name, nodes=values)


def _failed_launches(recorded: "RecordedDiagnosis") -> Iterator[Finding]:
    """Yield launches that failed, by the hosts that most of them have in common; and that directions are unknown."""
    program = recorded.load.program
    if FAILED_PAIRS not in recorded.provenance:
        return
    text = f"{program} prints one time of a pair: a slow direction is not told from a slow node."
    yield info("directions_unknown", text, program=program)
    left = cast("list[FailedPair]", recorded.provenance[FAILED_PAIRS])
    while left:
        ((host, count),) = Counter(host for launch in left for host in launch["hosts"]).most_common(
            1
        )
        launches_of_host = [launch for launch in left if host in launch["hosts"]]
        left = [launch for launch in left if host not in launch["hosts"]]
        last = launches_of_host[-1]
        where = (
            f"{format_count(count, 'launch')} on {host}, the last of them on"
            if count > 1
            else "a launch on"
        )
        text = f"{program} failed in {where} {join_words(last['hosts'])}: {last['why']}."
        yield critical("launches_failed", text, host=host, launches=count, **last)


def _unnamed_errors(recorded: "RecordedDiagnosis") -> Iterator[Finding]:
    """Yield the errors of hosts that no fault names, such as of a GPU at the start, or of one transfer of many."""
    named = _hosts_without_answer(recorded)
    by_hosts = defaultdict[tuple[str, ...], list[str]](list)
    for error in cast("list[TransferError]", recorded.provenance.get(TRANSFER_ERRORS, [])):
        if named.isdisjoint(error["hosts"]):
            by_hosts[tuple(error["hosts"])].append(error["why"])
    for hosts, reasons in by_hosts.items():
        failure = f"{hosts[0]} failed alone"
        if len(hosts) > 1:
            failure = f"A transfer of {hosts[0]} with {hosts[1]} failed"
        if len(reasons) > 1:
            failure += f" {len(reasons)} times, the last time"
        last = reasons[-1]
        yield critical("error", f"{failure}: {last}.", hosts=hosts, why=last, times=len(reasons))


def _hosts_without_answer(recorded: "RecordedDiagnosis") -> set[str]:
    """Return the hosts of faults whose transfers do not end, and of their candidates."""
    hosts: set[str] = set()
    for fault in recorded.diagnosis.faults if recorded.diagnosis else ():
        if math.isinf(fault.effect):
            for component in chain((fault.component,), *fault.candidates):
                hosts.update(recorded.question.hosts[node] for node in component.where)
    return hosts


def _doubtful_rate(recorded: "RecordedDiagnosis") -> Iterator[Finding]:
    """Yield that nodes which are as fast as most are slower, or faster, than the user expects."""
    screen = [request.seconds for request in recorded.measured if request.slots.purpose == "screen"]
    if recorded.question.expected_s is None or not screen:
        return
    seconds = np.concatenate(screen)
    seconds_of_nodes = quantile(np.log(np.where(np.isfinite(seconds), seconds, np.nan)).T, QUARTILE)
    beyond = float(quantile(seconds_of_nodes, QUARTILE)) - math.log(recorded.question.expected_s)
    factor = math.exp(beyond)
    take = f"Even fast transfers take {format_factor(factor)} as long as --rate says"
    if beyond > LEAST_BEYOND_RATE:  # a wire also carries headers
        severity = critical if beyond > MUCH_BEYOND_RATE else warning
        yield severity(
            RATE_DOUBTFUL, f"{take}: it is too high, or all nodes are slow alike.", factor=factor
        )
    elif beyond < -2 * LEAST_BEYOND_RATE:  # a lower quartile is low by noise, too
        yield warning(RATE_DOUBTFUL, f"{take}: it is too low.", factor=factor)


def _missing_gpus(provenance: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield hosts that find fewer GPUs than others do, and why no GPU is used."""
    gpus = cast("GpusOfHosts | None", provenance.get(GPUS_OF_HOSTS))
    if not gpus:
        return
    most = max(gpus["visible"].values())
    by_number = defaultdict[int, list[str]](list)
    for host, number in gpus["visible"].items():
        by_number[number].append(host)
    for number, hosts in sorted(by_number.items()):
        if number < most:
            noun = "GPUs" if number > 1 else "GPU"
            text = (
                f"CUDA finds {number or 'no'} {noun} on {host_ranges(hosts)}, and {most} on others."
            )
            yield critical("gpus_missing", text, hosts=(*hosts,), visible=number, of_others=most)
    why = gpus["unused_because"]
    if why:
        text = f"No transfer is between GPUs, all are in host memory over MPI: {why}."
        yield warning("gpus_unused", text, why=why)


def _differing_devices(provenance: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield facts of devices that few hosts have, and devices that few hosts lack."""
    for key, (identity, names) in COMPARED_FACTS.items():
        by_host: dict[str, dict[str, Mapping[str, Any]]] = {}
        for group in provenance.get(key) or ():
            for host in group["hosts"]:
                by_host[host] = {device[identity]: device for device in group[key]}
        devices = dict.fromkeys(chain.from_iterable(by_host.values()))
        devices_by_difference = defaultdict[_Difference, list[str]](list)
        for device in devices:
            for difference in _differences_of_device(device, by_host, names):
                devices_by_difference[difference].append(device)
        for difference, differing in devices_by_difference.items():
            name, value, usual, hosts = difference
            where = f"{', '.join(differing)} of {host_ranges(hosts)}"
            text = f"{where} is missing or down."
            if name:
                text = f"{where}: {name} {value}; of the other nodes {usual}."
            yield warning(
                "devices_differ",
                text,
                devices=tuple(differing),
                fact=name,
                value=value,
                usual=usual,
                hosts=hosts,
            )


class _Difference(NamedTuple):
    """What few hosts have, unlike the others."""

    name: str  # of the fact; empty if it is whether a device is there
    value: object
    usual: object
    hosts: tuple[str, ...]  # that have the value


def _differences_of_device(
    device: str, by_host: Mapping[str, Mapping[str, Mapping[str, Any]]], names: Mapping[str, str]
) -> Iterator[_Difference]:
    """Yield the differences of a device between hosts.

    Args:
        device: its identity.
        by_host: the facts of each device of each host.
        names: of the facts that are compared.
    """
    yield from _minorities("", {host: device in devices for host, devices in by_host.items()})
    for fact, name in names.items():
        values = {
            host: devices[device].get(fact)
            for host, devices in by_host.items()
            if device in devices
        }
        yield from _minorities(name, values)


def _minorities(name: str, by_host: Mapping[str, Any]) -> Iterator[_Difference]:
    """Yield the values that few hosts have, if most have the same one; None stands for an unknown value."""
    known_values = {host: value for host, value in by_host.items() if value is not None}
    if not known_values:
        return
    ((usual, count),) = Counter(known_values.values()).most_common(1)
    if not name and not usual:
        return  # most hosts lack the device
    if not USUAL_SHARE * len(by_host) <= count < len(known_values):
        return
    for value in dict.fromkeys(known_values.values()):
        if value != usual:
            hosts = tuple(host for host in known_values if known_values[host] == value)
            yield _Difference(name, value, usual, hosts)
