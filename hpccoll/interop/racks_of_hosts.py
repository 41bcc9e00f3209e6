"""The racks of the hosts of imported results, from a file: the outputs of other programs rarely name them."""

from collections.abc import Mapping
from dataclasses import replace

from hpccoll.common.errors import BadInputError
from hpccoll.store.host_names import canonical_hosts
from hpccoll.store.raw_results import Attempt, RawResults


def place_in_racks(results: RawResults, racks: Mapping[str, str]) -> int:
    """Say of each rank in which rack its host is, and return how many launches name no hosts.

    Args:
        results: the imported results.
        racks: the rack of each host, such as those of ``read_racks``; a name may lack its domain.

    Raises:
        BadInputError: if a host has no rack.
    """
    hosts = list(racks)
    for attempt, _ in results.attempts:
        hosts += attempt.provenance.get("hosts", ())
    name_of_host = canonical_hosts(hosts)
    rack_of_name = {name_of_host[host]: rack for host, rack in racks.items()}
    without_hosts = 0
    for number, (attempt, outcomes) in enumerate(results.attempts):
        if not all(place.host for place in attempt.places):
            without_hosts += 1
            continue
        racks_of_ranks = []
        for place in attempt.places:
            name = name_of_host[place.host]
            if name not in rack_of_name:
                expected = f"a host with a rack in the file, which has {len(racks)}"
                raise BadInputError("--racks", place.host, expected)
            racks_of_ranks.append(rack_of_name[name])
        results.attempts[number] = _in_racks(attempt, racks_of_ranks), outcomes
    return without_hosts


def _in_racks(attempt: Attempt, racks: list[str]) -> Attempt:
    """Return an attempt whose ranks are in these racks, which are numbered in the order of their first ranks."""
    numbers: dict[str, int] = {}
    places = []
    for place, rack in zip(attempt.places, racks, strict=True):
        number = numbers.setdefault(rack, len(numbers))
        places.append(replace(place, rack=number))
    return replace(attempt, places=tuple(places))
