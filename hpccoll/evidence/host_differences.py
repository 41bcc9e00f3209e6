"""What hosts of one launch log differently: ports, the network, the version of the library, variables."""

from collections import defaultdict
from collections.abc import Iterator

from hpccoll.evidence.log_record import HostDifference

PORTS = "ports"
NETWORK = "network"
VERSION = "version"
"""The facts beside variables."""

_OF_HOST = (
    "NCCL_HOSTID",
    "NCCL_DEBUG_FILE",
    "NCCL_SOCKET_IFNAME",
    "NCCL_TOPO_FILE",
    "NCCL_TOPO_DUMP_FILE",
)
"""Variables that may differ between hosts of a healthy job."""


class HostFacts:
    """The values of facts by host. A host that does not log a fact says nothing about it."""

    def __init__(self) -> None:
        self._values: defaultdict[str, defaultdict[str, set[str]]] = defaultdict(
            lambda: defaultdict(set)
        )

    def add(self, host: str | None, fact: str, value: str) -> None:
        """Add a value, of a variable by its name; nothing if the log does not name the host."""
        if host is not None and fact not in _OF_HOST:
            self._values[fact][host].add(value)

    def hosts(self, fact: str) -> tuple[str, ...]:
        """Return the hosts that log a fact, in order."""
        return tuple(sorted(self._values[fact]))

    def differences(self) -> Iterator[HostDifference]:
        """Yield what differs. Ports have other names on healthy hosts, and differ if some hosts have fewer."""
        for fact, values_by_host in self._values.items():
            hosts = defaultdict[str, list[str]](list)
            for host, values in sorted(values_by_host.items()):
                hosts[", ".join(sorted(values))].append(host)
            kinds: set[object] = {*hosts}
            if fact == PORTS:
                kinds = {len(values) for values in values_by_host.values()}
            if len(kinds) > 1:
                yield HostDifference(
                    fact=fact, hosts={value: tuple(names) for value, names in hosts.items()}
                )
