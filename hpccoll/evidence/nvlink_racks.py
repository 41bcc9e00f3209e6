"""Whether the racks of Slurm's topology are NVLink domains.

Blocks of topology/block often are, such as those of GB200 NVL72; but Slurm says nothing about
NVLink, and a block may be any group of nodes. The sentence comes only if NVML names the domain of
the GPUs of all nodes, and if there are several racks.
"""

from collections import defaultdict
from collections.abc import Mapping

from hpccoll.common.units import format_count


def nvlink_sentence(domain_by_host: Mapping[str, str], rack_by_host: Mapping[str, int]) -> str:
    """Return whether racks are NVLink domains; empty if that is unknown.

    Args:
        domain_by_host: the NVLink domain of the GPUs of each host, by NVML; empty for a host
            without one.
        rack_by_host: the rack of each host.
    """
    racks = {*rack_by_host.values()}
    if len(racks) < 2 or not all(map(domain_by_host.get, rack_by_host)):
        return ""
    domains_of_rack: defaultdict[int, set[str]] = defaultdict(set)
    for host, rack in rack_by_host.items():
        domains_of_rack[rack].add(domain_by_host[host])
    domain_names = set().union(*domains_of_rack.values())
    if len(racks) == len(domain_names) and all(
        len(domains) == 1 for domains in domains_of_rack.values()
    ):
        return f"each of the {format_count(len(racks), 'rack')} of Slurm's topology is one NVLink domain, by NVML"
    domains = format_count(len(domain_names), "NVLink domain")
    return f"the {format_count(len(racks), 'rack')} of Slurm's topology are not NVLink domains: NVML names {domains}"
