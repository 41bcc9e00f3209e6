"""What the ranks of a diagnosis record of lost packets: of their TCP connections, and of the ports of their hosts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hpccoll.diagnosis.packet_losses import HostLosses
from hpccoll.host.network_ports import LOSS_COUNTERS, NetworkPort, read_counters
from hpccoll.host.tcp_connections import Address, SentSegments, read_connections
from hpccoll.measure.port_traffic import counter_changes, sum_over_ports


@dataclass(frozen=True, slots=True)
class RankLosses:
    """What one rank has recorded."""

    connections: Mapping[tuple[Address, Address], SentSegments]
    ports: Mapping[str, int]  # the increases of the counters of its host that are known, by name


class LossRecorder:
    """Records on a rank what is lost from now on; ``ports`` are those that it reads, none on most ranks of a host."""

    def __init__(self, ports: Sequence[NetworkPort]) -> None:
        self._ports = ports
        self._before = read_counters(ports)
        self._sent_before = read_connections()

    def end(self) -> RankLosses:
        """Return what was lost."""
        changes = counter_changes(self._before, read_counters(self._ports))
        names = [name for counter, members in LOSS_COUNTERS.items() for name in (counter, *members)]
        sums = {name: sum_over_ports(changes, name) for name in names}
        sent = {
            ends: _since(self._sent_before.get(ends), counts)
            for ends, counts in read_connections().items()
        }
        return RankLosses(sent, {name: value for name, value in sums.items() if value})


def _since(before: SentSegments | None, now: SentSegments) -> SentSegments:
    """Return what a connection has sent since a reading; None, or more than now: it has been opened since."""
    if before is None or before.sent > now.sent:
        return now
    return SentSegments(now.sent - before.sent, max(0, now.again - before.again))


def losses_of_hosts(
    reports: Mapping[int, RankLosses], host_of_rank: Sequence[str]
) -> list[HostLosses]:
    """Return the losses of each host, of what ranks report, by rank; connections with anything else do not count."""
    owners = {
        ends: host_of_rank[rank] for rank, report in reports.items() for ends in report.connections
    }
    losses_by_host = {host: HostLosses(host, {}) for host in host_of_rank}
    for rank, report in reports.items():
        own = losses_by_host[host_of_rank[rank]]
        for (end, other_end), counts in report.connections.items():
            if peer := owners.get((other_end, end)):
                earlier = own.segments.get(peer, (0, 0))
                own.segments[peer] = [
                    before + count for before, count in zip(earlier, counts, strict=True)
                ]
        if report.ports:
            own.packets = [report.ports.get(counter, 0) for counter in LOSS_COUNTERS]
            own.errors = [
                {name: report.ports[name] for name in names if name in report.ports}
                for names in LOSS_COUNTERS.values()
            ]
    return list(losses_by_host.values())
