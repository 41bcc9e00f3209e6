"""What stands beside a verdict: nodes slow alone, devices that differ, launches that failed, a rate that is doubtful.

Each node repeats what needs no partner, all of them at once. That of a node is the lower quartile of the logarithms of
its times, compared with the median of the nodes, by the standard deviation of all of these: healthy nodes differ, too.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, TypedDict, cast

import numpy as np

from hpccoll.common.text import Finding, critical, first_few, info, join_words, warning
from hpccoll.common.units import format_count, format_factor
from hpccoll.diagnosis.packet_losses import findings_of_losses
from hpccoll.diagnosis.records import Component, Floats
from hpccoll.diagnosis.robust_statistics import QUARTILE, SCALE_ERROR, median, quantile, robust_deviation
from hpccoll.diagnosis.significance import (
    LEAST_BEYOND_RATE,
    MUCH_BEYOND_RATE,
    NODES,
    NORMAL,
    USUAL_SPREAD,
    SlownessTest,
    effect_error,
)
from hpccoll.store.host_names import host_ranges

if TYPE_CHECKING:
    from hpccoll.diagnosis.recorded import RecordedDiagnosis

MEMORY, REDUCTION, PRODUCT = "memory", "reduction", "product"
DOES = {MEMORY: "copies memory", REDUCTION: "adds numbers", PRODUCT: "multiplies matrices"}
"""What a node does alone."""

LEAST_SLOWER = math.log(1.07)
"""The least logarithm of a factor that is a finding. Of machines whose nodes differ by 1 to 3 %, 1.1 % have one at
most; a node that is slower by 20 % is found in 97 to 100 % of 8 to 256 nodes, one by 10 % in 50 to 98 % (simulated)."""

FEWEST_NODES = 8
"""The nodes from which on they show how much healthy ones differ."""

CERTAIN = 0.99
"""How surely the standard deviation of healthy nodes is at most the one that counts: few nodes show little of it."""

FAILED_PAIRS = "failed_pairs"
"""The key of the provenance of a diagnosis by another program, with the launches of it that failed: FailedPair."""

RATE_DOUBTFUL = "rate_doubtful"
"""The kind of the finding that no node transfers at the rate of --rate; critical if all may be slow alike."""

TRANSFER_ERRORS = "transfer_errors"
"""The key of the provenance with the transfers that ended with an error: TransferError."""

GPUS_OF_HOSTS = "gpus_of_hosts"
"""The key of the provenance with the GPUs that ranks find: GpusOfHosts; null if no host has any."""

HOSTS_SHARE_A_MACHINE = "hosts_share_a_machine"
"""The key of the provenance of a diagnosis whose hosts have CPUs in common: a rate is not that of one of them then."""

COMPARED_FACTS = {
    "ports": ("name", {
        "rate": "link rate", "speed": "link speed (Mbit/s)", "link_layer": "link layer", "mtu": "MTU",
    }),
    "gpus": ("bus", {
        "name": "model", "sm_clock_max_mhz": "highest clock (MHz)", "power_limit_w": "power limit (W)", "ecc": "ECC",
        "pcie_width": "PCIe lanes", "nvlinks": "active NVLinks", "driver": "driver",
    }),
}  # fmt: skip
"""By the key of the provenance: what identifies a device of a host, and which facts of it are compared. Others change
while a device rests, such as clocks."""

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
    return f"{' with '.join(error['hosts'])}: {error['why']}"


class GpusOfHosts(TypedDict):
    """Which GPUs ranks find, some at least."""

    visible: Mapping[str, int]  # by host: how many its ranks find together; 0 if their driver does not answer
    unused_because: str | None  # why transfers are in host memory; None if they are between GPUs


@dataclass(frozen=True, slots=True)
class OwnRate:
    """What a node does alone, compared with the others."""

    name: str  # a key of DOES
    node: int
    ratio: float  # its rate over that of the others
    low: float  # the 95 % interval of the ratio
    high: float
    slow: bool  # whether it is slower than others for certain; never of fewer than FEWEST_NODES nodes


def compare_rates(seconds_by_name: Mapping[str, Floats]) -> Iterator[OwnRate]:
    """Yield each rate of each node.

    Args:
        seconds_by_name: by a key of DOES: seconds [repetitions, nodes].
    """
    for name, seconds in seconds_by_name.items():
        repetitions, nodes = seconds.shape
        times = np.log(seconds).T
        own = quantile(times, QUARTILE)
        noise = robust_deviation(times - quantile(times)[:, None])
        spread = robust_deviation(own) * (1 + NORMAL.inv_cdf(CERTAIN) * SCALE_ERROR / math.sqrt(nodes))
        error = max(math.hypot(USUAL_SPREAD, effect_error(noise, repetitions, nodes)), spread)
        test = SlownessTest(NODES, len(seconds_by_name) * nodes)
        threshold = max(LEAST_SLOWER, test.threshold(error))
        for node, effect in enumerate((own - median(own)).tolist()):
            if math.isnan(effect):  # it has not answered
                continue
            fault = test.fault(Component("node", (node,)), effect, error)
            is_slow = nodes >= FEWEST_NODES and effect > threshold
            yield OwnRate(name, node, 1 / fault.effect, 1 / fault.high, 1 / fault.low, is_slow)


def findings_of_nodes(recorded: "RecordedDiagnosis") -> list[Finding]:
    """Return what stands beside the verdict.

    Launches that failed, errors, transfers much slower than expected, many lost packets, and GPUs that some hosts lack
    are critical.
    """
    provenance = recorded.provenance
    rack_of = dict(zip(recorded.question.hosts, recorded.question.racks or (), strict=False))
    found = [*_failed_launches(recorded), *_unnamed_errors(recorded), *_doubtful_rate(recorded)]
    found += findings_of_losses(provenance, rack_of)
    found += [*_missing_gpus(provenance), *_differing_devices(provenance)]
    if provenance.get(HOSTS_SHARE_A_MACHINE):
        text = "The hosts share the CPUs of one machine: what each of them does alone was not measured."
        return [*found, info("own_rates_unknown", text)]
    hosts, where = recorded.question.hosts, " on its GPU" if recorded.load.memory == "GPU" else ""
    by_name = defaultdict[str, list[OwnRate]](list)
    judged = len(hosts) >= FEWEST_NODES
    for rate in compare_rates(recorded.rates):
        if rate.slow or not judged:
            by_name[rate.name].append(rate)
    for name, rates in by_name.items():
        rates.sort(key=lambda each: each.ratio)
        values = tuple((hosts[each.node], each.ratio, each.low, each.high) for each in rates)
        does, of_others = chain((f" {DOES[name]}{where}",), repeat("")), chain((" the rate of the others",), repeat(""))
        named = [
            f"{host}{words} at {ratio:.2f}x{others} ({low:.2f}x to {high:.2f}x)"
            for (host, ratio, low, high), words, others in zip(values, does, of_others, strict=False)
        ]
        kind, severity = ("slow_alone", warning) if judged else ("own_rates", info)
        text = f"{'; '.join(first_few(named, MOST_NAMED, 'node'))}."
        found.append(severity(kind, text, rate=name, nodes=values))
    return found


def _failed_launches(recorded: "RecordedDiagnosis") -> Iterator[Finding]:
    """Yield launches that failed, by the hosts that most of them have in common; and that there are no directions."""
    program = recorded.load.program
    if FAILED_PAIRS not in recorded.provenance:
        return
    text = f"{program} prints one time of a pair: a slow direction is not told from a slow node."
    yield info("directions_unknown", text, program=program)
    left = cast("list[FailedPair]", recorded.provenance[FAILED_PAIRS])
    while left:
        ((host, count),) = Counter(host for each in left for host in each["hosts"]).most_common(1)
        last = [each for each in left if host in each["hosts"]][-1]
        left = [each for each in left if host not in each["hosts"]]
        where = f"{format_count(count, 'launch')} on {host}, the last of them on" if count > 1 else "a launch on"
        text = f"{program} failed in {where} {join_words(last['hosts'])}: {last['why']}."
        yield critical("launches_failed", text, host=host, launches=count, **last)


def _unnamed_errors(recorded: "RecordedDiagnosis") -> Iterator[Finding]:
    """Yield the errors of hosts that no fault names, such as of a GPU at the start, or of one transfer of many."""
    endless = (each for each in (recorded.diagnosis.faults if recorded.diagnosis else ()) if math.isinf(each.effect))
    parts = (part for each in endless for some in (*each.candidates, (each.component,)) for part in some)
    named = {recorded.question.hosts[node] for part in parts for node in part.where}
    by_host = defaultdict[tuple[str, ...], list[str]](list)
    for error in cast("list[TransferError]", recorded.provenance.get(TRANSFER_ERRORS, [])):
        if named.isdisjoint(error["hosts"]):
            by_host[(*error["hosts"],)].append(error["why"])
    for hosts, several in by_host.items():
        host, *partner = hosts
        what = f"A transfer of {host} with {partner[0]} failed" if partner else f"{host} failed alone"
        often = f" {len(several)} times, the last time" if len(several) > 1 else ""
        yield critical("error", f"{what}{often}: {several[-1]}.", hosts=hosts, why=several[-1], times=len(several))


def _doubtful_rate(recorded: "RecordedDiagnosis") -> Iterator[Finding]:
    """Yield that nodes which are as fast as most are slower, or faster, than the user expects."""
    screen = [each.seconds for each in recorded.measured if each.slots.purpose == "screen"]
    if recorded.question.expected_s is None or not screen:
        return
    seconds = np.concatenate(screen)
    of_nodes = quantile(np.log(np.where(np.isfinite(seconds), seconds, np.nan)).T, QUARTILE)
    beyond = float(quantile(of_nodes, QUARTILE)) - math.log(recorded.question.expected_s)
    factor = math.exp(beyond)
    take = f"Even fast transfers take {format_factor(factor)} as long as --rate says"
    if beyond > LEAST_BEYOND_RATE:  # a wire also carries headers
        much, text = beyond > MUCH_BEYOND_RATE, f"{take}: it is too high, or all nodes are slow alike."
        yield (critical if much else warning)(RATE_DOUBTFUL, text, factor=factor)
    elif beyond < -2 * LEAST_BEYOND_RATE:  # a lower quartile is low by noise, too
        yield warning(RATE_DOUBTFUL, f"{take}: it is too low.", factor=factor)


def _missing_gpus(provenance: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield hosts that find fewer GPUs than others do, and why no GPU is used."""
    if not (of_hosts := cast("GpusOfHosts | None", provenance.get(GPUS_OF_HOSTS))):
        return
    most = max(of_hosts["visible"].values())
    by_number = defaultdict[int, list[str]](list)
    for host, number in of_hosts["visible"].items():
        by_number[number].append(host)
    for number, hosts in sorted(by_number.items()):
        if number < most:
            of_these = f"{number or 'no'} GPU{'s' * (number > 1)} on {host_ranges(hosts)}"
            text = f"CUDA finds {of_these}, and {most} on others."
            yield critical("gpus_missing", text, hosts=(*hosts,), visible=number, of_others=most)
    if why := of_hosts["unused_because"]:
        text = f"No transfer is between GPUs, all are in host memory over MPI: {why}."
        yield warning("gpus_unused", text, why=why)


def _differing_devices(provenance: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield facts of devices that few hosts have, and devices that few hosts lack."""
    for key, (identity, names) in COMPARED_FACTS.items():
        devices = {
            host: {each[identity]: each for each in group[key]}
            for group in provenance.get(key) or ()
            for host in group["hosts"]
        }
        alike = defaultdict[tuple[str, object, object, tuple[str, ...]], list[str]](list)
        for device in dict.fromkeys(name for of_host in devices.values() for name in of_host):
            present = {host: device in of_host for host, of_host in devices.items()}
            for difference in _minorities("", present):
                alike[difference].append(device)
            for fact, name in names.items():
                known = {host: of_host[device].get(fact) for host, of_host in devices.items() if device in of_host}
                for difference in _minorities(name, known):
                    alike[difference].append(device)
        for (name, value, usual, few), several in alike.items():
            what = f"{', '.join(several)} of {host_ranges(few)}"
            text = f"{what}: {name} {value}; of the other nodes {usual}." if name else f"{what} is missing or down."
            yield warning("devices_differ", text, devices=(*several,), fact=name, value=value, usual=usual, hosts=few)


def _minorities(name: str, by_host: Mapping[str, Any]) -> Iterator[tuple[str, object, object, tuple[str, ...]]]:
    """Yield a fact, another value than the usual one, the usual one, and the hosts that have the other one."""
    known = {host: value for host, value in by_host.items() if value is not None}
    ((usual, count),) = Counter(known.values()).most_common(1) or [(None, 0)]
    if usual is not None and (name or usual) and USUAL_SHARE * len(by_host) <= count < len(known):
        for value in dict.fromkeys(known.values()):
            if value != usual:
                yield name, value, usual, tuple(host for host in known if known[host] == value)
