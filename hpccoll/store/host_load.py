"""The load of the hosts of an attempt, as its provenance records it, and when it disturbs measurements."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hpccoll.store.schema import HOST_LOAD

MAX_OTHER_CORES = 0.1
"""The CPU seconds per second that other processes of a host may use before it counts as busy."""

MAX_STOLEN = 0.02
"""The share of CPU time that the host of a virtual machine may take before the machine counts as busy."""


@dataclass(frozen=True, slots=True)
class HostLoad:
    """What else used a host during an attempt."""

    host: str  # its name
    stolen: float  # the share of CPU time that was stolen
    other_cores: float  # the CPU seconds per second of processes that are not ours
    busiest: Mapping[str, float]  # the names of the busiest of them, with the cores that they used
    averages: tuple[float, ...] = ()  # of the last minute, before and after the attempt

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "HostLoad":
        busiest = {str(process["name"]): float(process["cores"]) for process in fields["busiest"]}
        stolen, other_cores = float(fields["stolen"]), float(fields["other_cores"])
        averages = tuple(map(float, fields.get("load_average") or ()))
        return cls(str(fields.get("host", "")), stolen, other_cores, busiest, averages)

    @property
    def used_by_others(self) -> bool:
        return self.other_cores > MAX_OTHER_CORES

    @property
    def was_stolen(self) -> bool:
        return self.stolen > MAX_STOLEN


def busy_hosts(provenance: Mapping[str, Any]) -> list[HostLoad]:
    """Return the hosts of an attempt that something else used; empty if its end recorded no load, or is damaged."""
    return [load for load in _recorded_loads(provenance) if load.used_by_others or load.was_stolen]


def _recorded_loads(provenance: Mapping[str, Any]) -> list[HostLoad]:
    try:
        return [
            HostLoad.from_json(fields)
            for fields in provenance.get(HOST_LOAD) or ()
            if "other_cores" in fields
        ]
    except (KeyError, TypeError, ValueError, AttributeError):
        return []


def describe_load(provenance: Mapping[str, Any]) -> str:
    """Return the highest load average of the hosts of an attempt, and what else used them; empty if it is unknown."""
    loads = _recorded_loads(provenance)
    highest = max(loads, key=lambda load: max(load.averages, default=0.0), default=None)
    busy = describe_busy(busy_hosts(provenance))
    if highest is None or not highest.averages:
        return busy
    averages = " to ".join(map("{:.1f}".format, highest.averages))
    average = f"the load average was {averages}"
    return f"{average}; {busy}" if busy else average


def describe_busy(hosts: Iterable[HostLoad]) -> str:
    """Return what else used some hosts, in words: the most of each kind."""
    hosts = list(hosts)
    busiest_host = max(
        (load for load in hosts if load.used_by_others),
        key=lambda load: load.other_cores,
        default=None,
    )
    stolen = max(
        (load for load in hosts if load.was_stolen), key=lambda load: load.stolen, default=None
    )
    parts = []
    if busiest_host:
        names = ", ".join(
            f"{name} {cores:.2f}" for name, cores in list(busiest_host.busiest.items())[:3]
        )
        named = f" ({names})" if names else ""
        parts.append(
            f"other processes used {busiest_host.other_cores:.2f} cores{_on(busiest_host)}{named}"
        )
    if stolen:
        parts.append(
            f"{100 * stolen.stolen:.1f} % of the CPU time{_on(stolen)} went to other virtual machines"
        )
    return "; ".join(parts)


def describe_disturbance(provenances: Iterable[Mapping[str, Any]]) -> str:
    """Return what else used the hosts of some attempts, in words; empty if nothing did."""
    busy: list[HostLoad] = []
    for provenance in provenances:
        busy += busy_hosts(provenance)
    return describe_busy(busy)


def _on(load: HostLoad) -> str:
    return f" of {load.host}" if load.host else ""
